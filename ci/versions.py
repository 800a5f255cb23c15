#!/usr/bin/env python3
"""Checks that a version is the same wherever it is written: the release in every manifest, and the oldest
versions of Rust, CUDA and Python in docs/systems.md and the README. Builds nothing.

ci/msrv.sh, ci/features.sh and ci/python.sh prove that the project builds with them."""

import pathlib
import re
import sys
import tomllib

ROOT = pathlib.Path(__file__).parent.parent
wrong = []


def manifest(path):
    return tomllib.loads((ROOT / path).read_text())


workspace, bridges = manifest("Cargo.toml")["workspace"], manifest("crates/bridges/Cargo.toml")["workspace"]
python, servers = manifest("python/Cargo.toml"), manifest("crates/servers/Cargo.toml")
release, rust = workspace["package"]["version"], workspace["package"]["rust-version"]

written = {
    "crates/bridges/Cargo.toml": bridges["package"]["version"],
    "crates/servers/Cargo.toml": servers["package"]["version"],
    "python/Cargo.toml": python["package"]["version"],
}
for where, dependencies in [
    ("Cargo.toml", workspace["dependencies"]),
    ("crates/bridges/Cargo.toml", bridges["dependencies"]),
    ("crates/servers/Cargo.toml", servers["dependencies"]),
    ("python/Cargo.toml", python["dependencies"]),
]:
    for name, of in dependencies.items():
        if name.startswith("feedline") and isinstance(of, dict) and "version" in of:
            written[f"{where}: {name}"] = of["version"]
for where, version in written.items():
    if version != release:
        wrong.append(f"{where} has {version}, Cargo.toml {release}")
if python["package"]["rust-version"] != rust:
    wrong.append(f"python/Cargo.toml has Rust {python['package']['rust-version']}, Cargo.toml {rust}")

minimum_python = manifest("python/pyproject.toml")["project"]["requires-python"].removeprefix(">=")
rows = {"Rust": rust, "Python": minimum_python}
features = manifest("crates/device/Cargo.toml")["features"]
for feature in ["cuda-12", "cuda-13"]:
    # As in cudarc/cuda-12060: 12.6.
    [of] = [of.removeprefix("cudarc/cuda-") for of in features[feature] if of.startswith("cudarc/cuda-")]
    rows[f"CUDA, feature `{feature}`"] = f"{of[:2]}.{int(of[2:4])}"

page, readme = (ROOT / "docs/systems.md").read_text(), (ROOT / "README.md").read_text()
for name, version in rows.items():
    if f"| {name} | {version} |" not in page:
        wrong.append(f"docs/systems.md lacks the row | {name} | {version} |")
for text in [f"Rust {rust}", f"CUDA {rows['CUDA, feature `cuda-12`']}"]:
    if text not in readme:
        wrong.append(f"README.md does not say {text}")
for line in wrong:
    print(f"versions: {line}", file=sys.stderr)
if wrong:
    sys.exit(1)
oldest = ", ".join(f"{name} {version}" for name, version in rows.items())
print(f"versions: {release} in {len(written) + 1} places; {oldest}")
