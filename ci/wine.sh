#!/usr/bin/env bash
# Runs tests of the Windows binaries under Wine: the crates below, or those that are named.
#
# Needs gcc-mingw-w64-x86-64 and wine64 (Debian's names), and the Rust target x86_64-pc-windows-gnu. Wine is
# not Windows: timing, file systems and locks are those of Linux.
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-pc-windows-gnu compiler=x86_64-w64-mingw32-gcc
wine=$(command -v wine64 || command -v wine || ls /usr/lib/wine/wine64 2>/dev/null || true)
if [ -z "$wine" ] || ! command -v "$compiler" >/dev/null; then
    echo "not run: wine (apt install wine64 gcc-mingw-w64-x86-64)"
    exit 0
fi
if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; then
    echo "not run: wine (rustup target add $target)"
    exit 0
fi
packages=("$@")
[ $# -gt 0 ] || packages=(feedline-core feedline-device feedline-sim)
arguments=()
for package in "${packages[@]}"; do arguments+=(--package "$package"); done

export CARGO_TARGET_DIR=$PWD/target/ci/windows CARGO_INCREMENTAL=0
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=$compiler CC_x86_64_pc_windows_gnu=$compiler
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=$wine
# A thread takes Wine 10 ms to start: the small form of the stress tests.
export FEEDLINE_SMALL=1
export WINEPREFIX=$CARGO_TARGET_DIR/prefix WINEDEBUG=-all
mkdir -p "$WINEPREFIX"

# Wine before 9 lacks the library that Rust's hash maps take their seeds from.
cat >"$CARGO_TARGET_DIR/random.c" <<'C'
#include <windows.h>
BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T bytes) { return SystemFunction036(to, bytes); }
C
"$compiler" -shared -o "$CARGO_TARGET_DIR/bcryptprimitives.dll" "$CARGO_TARGET_DIR/random.c" -ladvapi32
WINEPATH=$("$wine" winepath -w "$CARGO_TARGET_DIR")
export WINEPATH
ci/tested.sh cargo test --target "$target" --no-fail-fast --lib --tests "${arguments[@]}"
