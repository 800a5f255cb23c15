#!/usr/bin/env bash
# Checks that docs.rs documents every feature, and that every crate builds without features, and with each of
# its features alone.
#
#   ci/features.sh               all crates
#   ci/features.sh feedline ...  some of them
set -euo pipefail
cd "$(dirname "$0")/.."

python3 - "$@" <<'PYTHON'
import json, subprocess, sys, time

# Left out: what cannot be built alone, and why.
LEFT_OUT = {
    ("feedline-device", "cuda"): "cudarc needs one CUDA version; cuda-12 and cuda-13 turn it on",
    ("feedline-dist", "nccl"): "cudarc needs one CUDA version; cuda-12 and cuda-13 turn it on",
    ("feedline-kernels", "cuda"): "cudarc needs one CUDA version; cuda-12 and cuda-13 turn it on",
    ("feedline-kernel-compiler", None): "cudarc needs one CUDA version",
    ("feedline-pictures", "cuda"): "cudarc needs one CUDA version; cuda-12 and cuda-13 turn it on",
    ("feedline-pictures", "nvjpeg"): "cudarc needs one CUDA version; cuda-12 and cuda-13 give it",
    ("feedline-examples", "nvjpeg"): "cudarc needs one CUDA version; cuda-12 and cuda-13 give it",
    ("benches", "cuda"): "cuda-12 and cuda-13 turn it on",
    ("feedline", "nvtx"): "bindgen needs libclang",
    ("feedline-images", "turbojpeg"): "its build needs cmake and nasm; ci/turbojpeg.sh",
    ("benches", "turbojpeg"): "its build needs cmake and nasm; ci/turbojpeg.sh",
}

# Features that docs.rs leaves out, and why.
UNDOCUMENTED = {
    "cuda-12": "one CUDA version in a build: cuda-13",
    "nvtx": "changes no item",
    "turbojpeg": "changes no item",
}

asked = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
packages = json.loads(subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout)["packages"]
names = sys.argv[1:] or [package["name"] for package in packages]
start, built, failed = time.monotonic(), 0, []
for package in packages:
    if package["publish"] == [] or package["name"] not in names:
        continue
    docs = ((package["metadata"] or {}).get("docs") or {}).get("rs") or {}
    documented, left = set(), ["default"] + docs.get("features", [])
    while left:
        feature = left.pop()
        documented.add(feature)
        left += [other for other in package["features"].get(feature, []) if other not in documented]
    missing = set(package["features"]) - documented - set(UNDOCUMENTED)
    if missing:
        failed.append(f"docs.rs omits {', '.join(sorted(missing))} of {package['name']}: package.metadata.docs.rs")
for package in packages:
    if package["name"] not in names:
        continue
    for feature in [None] + sorted(package["features"]):
        # The default features are what every other check builds.
        if feature == "default" or (package["name"], feature) in LEFT_OUT:
            continue
        check = ["cargo", "check", "--quiet", "--locked", "--package", package["name"], "--no-default-features"]
        check += ["--features", feature] if feature else []
        built += 1
        if subprocess.run(check).returncode != 0:
            failed.append(" ".join(check))
for line in failed:
    print(f"features: failed: {line}", file=sys.stderr)
if failed:
    sys.exit(1)
print(f"features: {built} builds, {time.monotonic() - start:.0f} s; left out: {len(LEFT_OUT)}, see ci/features.sh")
PYTHON
