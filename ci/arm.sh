#!/usr/bin/env bash
# Runs test suites on a 64-bit Arm Linux that qemu-user emulates: by default all that need no GPU.
#
#   ci/arm.sh                      all packages of the table below
#   ci/arm.sh feedline-core ...    some packages
#
# Needs qemu-user, gcc-aarch64-linux-gnu, g++-aarch64-linux-gnu (Debian's names), and the Rust target
# aarch64-unknown-linux-gnu. qemu runs Arm code in x86-64's stronger memory order: a missing barrier does not
# show here. The loom models (ci/loom.sh) are the proof of the order.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
root=/usr/aarch64-linux-gnu
for need in qemu-aarch64 aarch64-linux-gnu-gcc aarch64-linux-gnu-g++; do
    if ! command -v "$need" >/dev/null; then
        echo "not run: arm (no $need: apt install qemu-user g++-aarch64-linux-gnu)"
        exit 0
    fi
done
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    echo "not run: arm (rustup target add $target)"
    exit 0
fi

# Tests start other programs, so the kernel has to know how to start those of Arm. It is told in a namespace
# of this script, which ends with it.
if [ "${1:-}" != --inside ]; then
    exec unshare --user --map-root-user --mount "$0" --inside "$@"
fi
shift
mount -t binfmt_misc none /proc/sys/fs/binfmt_misc
magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'
printf ':arm:M::%s:%s:%s:F' "$magic" "$mask" "$(command -v qemu-aarch64)" >/proc/sys/fs/binfmt_misc/register
export QEMU_LD_PREFIX=$root FEEDLINE_EMULATED=1
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc CXX_aarch64_unknown_linux_gnu=aarch64-linux-gnu-g++
export CARGO_TARGET_DIR=target/ci/arm CARGO_INCREMENTAL=0

packages=("$@")
if [ ${#packages[@]} -eq 0 ]; then
    packages=(
        feedline-core feedline-device feedline-sim feedline-images
        feedline-datasets feedline feedline-record feedline-dist feedline-tools feedline-examples
    )
fi
arguments=()
for package in "${packages[@]}"; do arguments+=(--package "$package"); done
# Tests that are slow under emulation keep their limits: the watchdog waits while a test computes.
ci/tested.sh cargo test --target "$target" --no-fail-fast "${arguments[@]}"
