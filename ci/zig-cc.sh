#!/usr/bin/env bash
# zig as a C compiler for macOS, without Apple's tools: drops the options that name a system in clang's way.
# For ci/systems.sh.
arguments=()
while [ $# -gt 0 ]; do
    case $1 in
    --target=* | -mmacosx-version-min=*) ;;
    -arch) shift ;;
    *) arguments+=("$1") ;;
    esac
    shift
done
exec python3 -m ziglang cc -target aarch64-macos "${arguments[@]}"
