#!/usr/bin/env bash
# Checks that `unsafe` occurs only in device, sim and dlpack, and in the files listed
# below with a reason. Every other crate root must forbid it, so that the compiler checks too. Also that
# nothing adds a Duration to an Instant, which panics on overflow: feedline_core::deadline saturates.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 - <<'PYTHON'
import pathlib, re, sys

# kernels/src/launch.rs, kernels/pictures/src/augment/gpu.rs: pass raw addresses to kernels.
# kernels/src/gemm/: calls cuBLASLt and the matrixmultiply crate.
# kernels/compiler/src/nvrtc.rs, kernels/pictures/src/nvjpeg/: call NVRTC and nvJPEG.
# kernels/pictures/src/pinned.rs: allocates pinned memory, and copies from it.
# datasets/src/io/bytes.rs: maps files through an unsafe fn, whose caller guarantees that they do not change.
# crates/dist/src/collectives/: work on a second stream, on memory borrowed until it is joined; calls of NCCL.
# kernels/tests/streams/cuda.rs, crates/feedline/tests/batches/cudarc_loop.rs: launch a kernel directly.
# crates/testkit/src/alloc.rs: a global allocator, for tests.
# crates/testkit/src/fork.rs: forks a child, for tests.
# crates/testkit/src/null_device.rs: a backend, for tests and benches.
# examples/check_my_loop.rs: a raw backend call, which the simulator checks.
# examples/own_kernel.rs, crates/bridges/candle/tests/cuda.rs: launch a kernel.
# crates/bridges/candle/src/gpu.rs: allocates candle's memory, which it then writes.
# crates/bridges/burn/src/slot.rs: a slot as burn's bytes.
# python/src/arrow.rs: takes Arrow's C stream out of a capsule.
# python/src/batch.rs, python/src/capsule.rs: capsules of Python around DLPack tensors, and their shapes.
# python/src/placed.rs: copies rows from arrays of Python.
# python/src/thread_state.rs: keeps the interpreter's state of a thread.
# benches/src/baseline/: raw backend calls, the baselines of the benchmarks.
# ci/way/src/main.rs: declares the functions of LLVM's runtime that reset and write its counters.
FILES = {
    "kernels/src/launch.rs", "kernels/src/gemm/host.rs", "kernels/src/gemm/cublaslt/mod.rs",
    "kernels/src/gemm/cublaslt/plan.rs", "kernels/compiler/src/nvrtc.rs", "kernels/pictures/src/augment/gpu.rs",
    "kernels/pictures/src/nvjpeg/mod.rs", "kernels/pictures/src/nvjpeg/library.rs", "kernels/pictures/src/pinned.rs",
    "datasets/src/io/bytes.rs", "crates/dist/src/collectives/mod.rs", "crates/dist/src/collectives/nccl/library.rs",
    "crates/dist/src/collectives/nccl/mod.rs",
    "kernels/tests/streams/cuda.rs", "crates/testkit/src/alloc.rs", "crates/testkit/src/fork.rs", "crates/testkit/src/null_device.rs",
    "crates/feedline/tests/batches/cudarc_loop.rs", "examples/own_kernel.rs", "examples/check_my_loop.rs",
    "crates/bridges/candle/src/gpu.rs", "crates/bridges/candle/tests/cuda.rs",
    "crates/bridges/burn/src/slot.rs",
    "benches/src/baseline/mod.rs", "benches/src/baseline/empty.rs", "ci/way/src/main.rs",
    "python/src/arrow.rs", "python/src/batch.rs", "python/src/capsule.rs", "python/src/placed.rs", "python/src/thread_state.rs",
}
CRATES = tuple(f"crates/{name}/" for name in ("device", "sim", "bridges/dlpack"))
ROOT = re.compile(r"(src/lib|src/main|src/bin/[^/]+|examples/[^/]+/main|examples/[^/]+)\.rs$")
# Comments (nested block comments are not supported), raw strings, strings, characters, in this order.
NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\.[^']*|[^'\\])'", re.S)

# Declarations of an Instant: a field, a parameter or a variable.
INSTANT = re.compile(
    r"(\w+): (?:\w+::)*Instant\b|let (?:mut )?(\w+) = (?:\w+::)*Instant::now\(\)"
    r"|let \((?:mut )?(\w+),[^;]*?\) = \((?:\w+::)*Instant::now\(\)"
)

def sources():
    for top in ("crates", "kernels", "datasets", "examples", "benches", "ci", "fuzz", "python"):
        for path in sorted(pathlib.Path(top).rglob("*.rs")):
            if "target" not in path.parts:
                yield path.as_posix(), path.read_text()

wrong, blocks, notes, files = [], 0, 0, 0
for name, text in sources():
    files += 1
    code = NOISE.sub(lambda noise: "\n" * noise.group().count("\n"), text)
    confined = name in FILES or name.startswith(CRATES)
    blocks += len(re.findall(r"\bunsafe\s*\{", code))
    notes += len(re.findall(r"//\s*SAFETY:", text))
    if not confined:
        for at, line in enumerate(code.split("\n"), 1):
            if re.search(r"\bunsafe\b", line):
                wrong.append(f"{name}:{at}: unsafe outside the files listed in ci/unsafe.sh")
    if "Instant" in code:
        names = {name for found in INSTANT.findall(code) for name in found if name}
        instants = "|".join([r"Instant::now\(\)", r"\bdeadline\([^()]*\)", *(rf"\b{name}\b" for name in names)])
        for sum_of in re.finditer(rf"(?:{instants})\s*\+(?!=? *1\b)", code):
            at = code.count("\n", 0, sum_of.start()) + 1
            wrong.append(f"{name}:{at}: Instant + Duration panics on overflow: use feedline_core::deadline")
    crate_has_exception = confined or any(name.split("src/")[0] == file.split("src/")[0] for file in FILES)
    if ROOT.search(name) and not crate_has_exception and "#![forbid(unsafe_code)]" not in code:
        wrong.append(f"{name}: no #![forbid(unsafe_code)]")
for line in wrong:
    print(f"unsafe: {line}", file=sys.stderr)
if wrong:
    sys.exit(1)
print(f"unsafe: {blocks} blocks, {notes} SAFETY lines, in {files} files; none outside the listed files")
PYTHON
