#!/bin/sh
# Compiles every CUDA kernel for compute_80 and compute_90 and runs the kernels on the host under the
# sanitizers. Needs no GPU.
#
# Uses the NVRTC library of the machine, or NVIDIA's wheel from PyPI, which is kept in $FEEDLINE_CI_CACHE.
set -eu
cd "$(dirname "$0")/.."
cache=${FEEDLINE_CI_CACHE:-target/ci}
wheel='nvidia-cuda-nvrtc-cu12==12.8.*'

# `--workspace` everywhere, and a test: otherwise cargo would choose other features than for the tests, and
# build anew.
cargo build -q --workspace --bin compile-kernels --test gpu
compile() {
    "${CARGO_TARGET_DIR:-target}/debug/compile-kernels" --arch compute_80 --arch compute_90
}

libraries=$(find "$cache/nvrtc" -name 'libnvrtc.so*' -exec dirname {} \; 2>/dev/null | head -n 1)
if [ -n "$libraries" ]; then
    LD_LIBRARY_PATH="$(cd "$libraries" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LD_LIBRARY_PATH
fi
status=0
compile || status=$?
# 3: no NVRTC on this machine.
if [ "$status" -eq 3 ]; then
    echo "kernels: fetching $wheel"
    rm -rf "$cache/nvrtc"
    mkdir -p "$cache/nvrtc"
    python3 -m pip download -q --no-deps --only-binary :all: -d "$cache/nvrtc" "$wheel"
    python3 -m zipfile -e "$cache"/nvrtc/*.whl "$cache/nvrtc"
    rm "$cache"/nvrtc/*.whl
    libraries=$(find "$cache/nvrtc" -name 'libnvrtc.so*' -exec dirname {} \; | head -n 1)
    LD_LIBRARY_PATH="$(cd "$libraries" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
    export LD_LIBRARY_PATH
    status=0
    compile || status=$?
fi
[ "$status" -eq 0 ] || exit "$status"
# Without NVRTC these tests are not run; here it is present.
ci/tested.sh cargo test -q --workspace --test compiled
mkdir -p "$cache"

cases=$cache/augment.cases
rm -f "$cases"
FEEDLINE_AUGMENT_CASES=$(cd "$cache" && pwd)/augment.cases ci/tested.sh cargo test -q --workspace --test augment

cxx=${CXX:-g++}
if ! command -v "$cxx" >/dev/null; then
    echo "kernels: not run: the kernels on the host (needs a C++ compiler: $cxx)"
    exit 0
fi
for sanitizers in address,undefined thread; do
    program="$cache/kernels-${sanitizers%,*}"
    "$cxx" -std=c++17 -O1 -g -Wall -Wextra -Wno-unknown-pragmas -Wno-tsan -pthread \
        -fsanitize="$sanitizers" -fno-sanitize-recover=all kernels/emulate/check.cpp -o "$program"
    # The thread sanitizer of older compilers does not start with high-entropy address randomisation.
    if command -v setarch >/dev/null; then
        setarch "$(uname -m)" -R "$program" "$cases"
    else
        "$program" "$cases"
    fi
done
