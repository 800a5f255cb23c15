#!/usr/bin/env bash
# Checks where `unsafe` stands: in slots, backend, cuda, sim and device, and in a few files that each say why; nowhere
# else.
# Every other crate root forbids it, so that the compiler holds the line too.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 - <<'PYTHON'
import pathlib, re, sys

# kernels/src/launch.rs: a launch hands raw addresses to a kernel.
# kernels/src/nvrtc.rs, kernels/src/blas.rs: calls of NVRTC and of cuBLASLt.
# datasets/src/bytes.rs: to map a file is a promise of the caller, made to an unsafe fn.
# kernels/tests/cuda.rs: a launch by hand.
# crates/testkit/src/alloc.rs: a global allocator, for tests.
# crates/testkit/src/fork.rs: a forked child, for tests.
# crates/testkit/src/null_device.rs: a backend, for tests and benches.
# benches/src/baseline/: raw calls of a backend, which benchmarks are held against.
FILES = {
    "kernels/src/launch.rs", "kernels/src/nvrtc.rs", "kernels/src/blas.rs", "datasets/src/bytes.rs",
    "kernels/tests/cuda.rs", "crates/testkit/src/alloc.rs", "crates/testkit/src/fork.rs", "crates/testkit/src/null_device.rs",
    "benches/src/baseline/mod.rs", "benches/src/baseline/empty.rs",
}
CRATES = tuple(f"crates/{name}/" for name in ("slots", "backend", "cuda", "sim", "device"))
ROOT = re.compile(r"(src/lib|src/main|src/bin/[^/]+|examples/[^/]+/main|examples/[^/]+)\.rs$")
# In this order: comments (block comments nest too rarely to matter), raw strings, strings, characters.
NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|r(#*)\".*?\"\1|b?\"(?:\\.|[^\"\\])*\"|b?'(?:\\.[^']*|[^'\\])'", re.S)

def sources():
    for top in ("crates", "kernels", "datasets", "examples", "benches", "fuzz"):
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
                wrong.append(f"{name}:{at}: unsafe outside the places listed in ci/unsafe.sh")
    crate_has_exception = confined or any(name.split("src/")[0] == file.split("src/")[0] for file in FILES)
    if ROOT.search(name) and not crate_has_exception and "#![forbid(unsafe_code)]" not in code:
        wrong.append(f"{name}: no #![forbid(unsafe_code)]")
for line in wrong:
    print(f"unsafe: {line}", file=sys.stderr)
if wrong:
    sys.exit(1)
print(f"unsafe: {blocks} blocks, {notes} SAFETY lines, in {files} files; none outside its places")
PYTHON
