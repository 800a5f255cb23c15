#!/usr/bin/env bash
# Builds the wheels of a release for Linux (manylinux2014, one per processor for every Python from 3.10 on), checks
# them, and runs the test suite on each, installed into an empty environment of every Python that is here. Writes to
# target/ci/wheels: the wheels, SHA256SUMS, and their bills of materials. Takes about an hour on two cores.
#
#   ci/wheels.sh                    all of the below
#   ci/wheels.sh x86_64             this machine
#   ci/wheels.sh aarch64            64-bit Arm, emulated by qemu-user; needs the Rust target, and Debian's packages
#   ci/wheels.sh free               free-threaded interpreters
#
# FEEDLINE_PYTHONS   the interpreters (default: python3.10 to python3.14, as far as they are on the PATH)
# FEEDLINE_PYTHON    one that has torch, JAX and the other libraries of the tests; the wheel is put before them
# FEEDLINE_FREE      a free-threaded interpreter (default: python3.14t)
# FEEDLINE_QUICK=1   trains ten lines with each wheel, and runs no test
# FEEDLINE_BUILT=1   builds nothing: takes the wheels that lie in target/ci/wheels
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD work=$PWD/target/ci/wheels-work wheels=$PWD/target/ci/wheels
mkdir -p "$work" "$wheels"
export CARGO_TARGET_DIR=$work/target CARGO_INCREMENTAL=0
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' python/Cargo.toml | head -1)
# A wheel may not grow unnoticed.
max_bytes=9000000

say() { printf '\n== %s\n' "$*"; }

tools=$work/tools
if [ ! -x "$tools/bin/maturin" ]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet 'maturin>=1.11,<2' ziglang auditwheel abi3audit zopfli
fi

# The linker, which makes a wheel smaller: ci/wheel-zig.sh.
export FEEDLINE_ZIG=$work/zig CARGO_ZIGBUILD_ZIG_PATH=$root/ci/wheel-zig.sh CARGO_ZIGBUILD_PYTHON_PATH=/bin/false
printf '#!/bin/sh\nexec "%s" -m ziglang "$@"\n' "$tools/bin/python" >"$FEEDLINE_ZIG"
chmod +x "$FEEDLINE_ZIG"

# Builds the wheel for a target, and stores its path in `wheel`.
build() { # TARGET OPTIONS...
    local target=$1 start=$SECONDS
    shift
    if [ -n "${FEEDLINE_BUILT:-}" ]; then
        wheel=$(ls -t "$wheels"/*"${target%%-*}".whl | head -1)
        return
    fi
    say "build for $target $*"
    (cd python && PATH=$tools/bin:$PATH "$tools/bin/maturin" build --locked --profile wheel --zig --target "$target" \
        --compatibility manylinux2014 --out "$work/out" "$@")
    wheel=$(ls -t "$work"/out/*.whl | head -1)
    "$tools/bin/python" - "$wheel" "$wheels" <<'PYTHON'
# A wheel again, compressed better: zopfli takes a minute and 7 % of the bytes.
import pathlib, sys, zipfile
import zopfli.zopfli
wheel, folder = map(pathlib.Path, sys.argv[1:])
class Better:
    """What zipfile compresses with: all at the end."""
    def __init__(self): self.parts = []
    def compress(self, part): self.parts.append(bytes(part)); return b""
    def flush(self): return zopfli.zopfli.compress(b"".join(self.parts), numiterations=5)[2:-4]
zipfile._get_compressor = lambda *_: Better()
with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(folder / wheel.name, "w", zipfile.ZIP_DEFLATED) as new:
    for entry in old.infolist():
        new.writestr(entry, old.read(entry))
PYTHON
    wheel=$wheels/$(basename "$wheel")
    echo "built in $((SECONDS - start)) s: $(basename "$wheel"), $(stat -c %s "$wheel") bytes"
}

# Checks the size, the tag, the stable ABI, and writes the bill of materials (CycloneDX) that maturin puts into a wheel.
check() { # WHEEL
    say "check $(basename "$1")"
    if [ "$(stat -c %s "$1")" -gt "$max_bytes" ]; then
        echo "wheels: $1 has more than $max_bytes bytes" >&2
        exit 1
    fi
    "$tools/bin/auditwheel" show "$1" | tee "$work/audit"
    grep -q 'manylinux_2_17\|manylinux2014' "$work/audit"
    if [[ $1 == *-abi3-* ]]; then "$tools/bin/abi3audit" --strict "$1"; fi
    python3 - "$1" "$wheels" <<'PYTHON'
import json, pathlib, sys, zipfile
wheel, folder = map(pathlib.Path, sys.argv[1:])
with zipfile.ZipFile(wheel) as archive:
    bills = [name for name in archive.namelist() if "/sboms/" in name]
    assert len(bills) == 1, f"bills of materials in {wheel}: {bills}"
    bill = json.loads(archive.read(bills[0]))
assert len(bill["components"]) > 100 and all(part.get("version") for part in bill["components"])
path = folder / f"{wheel.stem}.cdx.json"
path.write_text(json.dumps(bill, indent=1))
print(f"{path.name}: {len(bill['components'])} components")
PYTHON
}

# A job in the background starts with Ctrl+C ignored, and so would the tests of it.
with_ctrl_c() { # COMMAND
    python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])' "$@"
}

# From a folder without sources: the package that is installed is tested.
tests() { # PYTHON
    if [ -z "${FEEDLINE_QUICK:-}" ]; then
        (cd "$work" && with_ctrl_c "$1" -m pytest -q -rs -p no:cacheprovider "$root/python/tests")
    fi
}

# Installs a wheel into an empty environment, trains ten lines, and runs the tests: with the oldest NumPy, torch and JAX
# that are supported on Python 3.10, with the newest on 3.13, with neither torch nor JAX on the others.
try_on() { # PYTHON WHEEL
    local environment start=$SECONDS library
    local libraries=(pyarrow pillow ml_dtypes tqdm rich safetensors)
    say "$("$1" --version) and $(basename "$2")"
    environment=$(mktemp -d "$work/env-XXXX")
    "$1" -m venv "$environment"
    "$environment/bin/pip" install --quiet "$2"
    (cd "$work" && "$environment/bin/python" "$root/python/examples/ten_lines.py")
    echo "installed and trained in $((SECONDS - start)) s"
    if [ -z "${FEEDLINE_QUICK:-}" ]; then
        case $("$1" -c 'import sys, sysconfig; print(*sys.version_info[:2], sysconfig.get_config_var("Py_GIL_DISABLED"))') in
        "3 10 "*) libraries+=(numpy==2.1.0 torch==2.4.1 jax==0.4.34 jaxlib==0.4.34) ;;
        "3 13 "[0N]*) libraries+=(torch jax) ;;
        esac
        "$environment/bin/pip" install --quiet pytest
        for library in "${libraries[@]}"; do
            "$environment/bin/pip" install --quiet --no-cache-dir --only-binary :all: "$library" || echo "not run: tests of $library"
        done
        tests "$environment/bin/python"
    fi
    rm -rf "$environment"
}

# The same with the libraries of $FEEDLINE_PYTHON.
try_with_libraries() { # WHEEL
    if [ -z "${FEEDLINE_PYTHON:-}" ]; then
        echo "not run: tests with torch and JAX (FEEDLINE_PYTHON names no interpreter that has them)"
        return
    fi
    say "$("$FEEDLINE_PYTHON" --version), with its libraries, and $(basename "$1")"
    rm -rf "$work/with"
    "$FEEDLINE_PYTHON" -m pip install --quiet --no-deps --target "$work/with" "$1"
    PYTHONPATH=$work/with tests "$FEEDLINE_PYTHON"
}

# Debian's Python for 64-bit Arm, in a folder.
arm_python() {
    local apt=$work/arm-apt packages
    [ ! -e "$work/arm/ready" ] || return 0
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,debs,none} "$work/arm"
    : >"$apt/state/status"
    cat >"$apt/conf" <<CONF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
Dir::State "$apt/state";
Dir::State::status "$apt/state/status";
Dir::Cache "$apt/cache";
Dir::Etc::sourcelist "$apt/sources.list";
Dir::Etc::sourceparts "$apt/none";
CONF
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian bookworm main" \
        >"$apt/sources.list"
    packages=(libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0 libuuid1
        libcrypt1 python3.11-minimal libpython3.11-minimal libpython3.11-stdlib)
    (export APT_CONFIG=$apt/conf && apt-get -qq update && cd "$apt/debs" && apt-get -qq download "${packages[@]}")
    for package in "$apt"/debs/*.deb; do dpkg -x "$package" "$work/arm"; done
    touch "$work/arm/ready"
}

try_on_arm() { # WHEEL
    if ! command -v qemu-aarch64 >/dev/null || ! command -v apt-get >/dev/null; then
        echo "not run: the wheel for Arm (apt install qemu-user, on Debian)"
        return
    fi
    arm_python
    local site=$work/arm-site start=$SECONDS
    rm -rf "$site"
    python3 -m pip install --quiet --target "$site" --platform manylinux2014_aarch64 --platform manylinux_2_28_aarch64 \
        --python-version 3.11 --only-binary :all: "$1" pytest pillow pyarrow
    say "Python of 64-bit Arm, emulated, and $(basename "$1")"
    # Tests start interpreters: the kernel is told how, in a namespace of this script, as in ci/arm.sh.
    with_ctrl_c unshare --user --map-root-user --mount bash -euo pipefail <<INSIDE
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf ':arm:M::%s:%s:%s:F' "\$magic" "\$mask" "\$(command -v qemu-aarch64)" >/proc/sys/fs/binfmt_misc/register
export QEMU_LD_PREFIX=$work/arm FEEDLINE_EMULATED=1 PYTHONPATH=$site PYTHONHOME=$work/arm/usr
cd $work
python=$work/arm/usr/bin/python3.11
\$python $root/python/examples/ten_lines.py
if [ -z "${FEEDLINE_QUICK:-}" ]; then \$python -m pytest -q -rs -p no:cacheprovider $root/python/tests; fi
INSIDE
    echo "tested in $((SECONDS - start)) s"
}

for part in ${@:-x86_64 aarch64 free}; do
    case $part in
    x86_64)
        build x86_64-unknown-linux-gnu
        check "$wheel"
        for name in ${FEEDLINE_PYTHONS:-python3.10 python3.11 python3.12 python3.13 python3.14}; do
            if "$name" -c 'import venv' 2>/dev/null; then
                try_on "$name" "$wheel"
            else
                echo "not run: the wheel on $name (not installed)"
            fi
        done
        try_with_libraries "$wheel"
        ;;
    aarch64)
        if [ ! -d "$(rustc --print sysroot)/lib/rustlib/aarch64-unknown-linux-gnu" ]; then
            echo "not run: the wheel for Arm (rustup target add aarch64-unknown-linux-gnu)"
            continue
        fi
        build aarch64-unknown-linux-gnu
        check "$wheel"
        try_on_arm "$wheel"
        ;;
    free)
        free=${FEEDLINE_FREE:-python3.14t}
        if ! "$free" -c 'import sys; sys.exit(sys._is_gil_enabled())' 2>/dev/null; then
            echo "not run: the wheel for free-threaded interpreters ($free is not one)"
            continue
        fi
        build x86_64-unknown-linux-gnu --no-default-features -i "$free"
        check "$wheel"
        try_on "$free" "$wheel"
        ;;
    *)
        echo "wheels: no part $part: see the head of ci/wheels.sh" >&2
        exit 2
        ;;
    esac
done

cd "$wheels"
sha256sum -- *.whl *.cdx.json >SHA256SUMS
say "feedline $version, $SECONDS s"
ls -l
