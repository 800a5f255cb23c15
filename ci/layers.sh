#!/usr/bin/env bash
# Checks that every crate imports only crates before it:
# core -> device -> {sim, dist, feedline}; feedline -> {report, dlpack} -> {examples, benches}. And that the rooms of
# device and of feedline import each other in one direction only.
set -euo pipefail
cd "$(dirname "$0")/.."

python3 - <<'PYTHON'
import json, pathlib, re, subprocess, sys

CORE, DEVICE, SIM = "feedline-core", "feedline-device", "feedline-sim"
FACADE, KERNELS, DATASETS = "feedline", "feedline-kernels", "feedline-datasets"
IMAGES, EXAMPLES, TOOLS, TESTKIT = "feedline-images", "feedline-examples", "feedline-tools", "feedline-testkit"
DLPACK, DIST, SERVE, MLP = "feedline-dlpack", "feedline-dist", "feedline-serve", "feedline-mlp"
COMPILER, PICTURES, REPORT = "feedline-kernel-compiler", "feedline-pictures", "feedline-report"
RECORD, AUDIO, TEMPLATE = "feedline-record", "feedline-audio", "feedline-template"
DIGITS, WAY = "feedline-digits", "feedline-way"

# The packages that each package may import.
below_facade = {CORE, DEVICE}
programs = below_facade | {FACADE, REPORT, KERNELS, PICTURES, IMAGES, AUDIO, DATASETS, DIST, DIGITS}
may = {
    CORE: set(),
    DEVICE: {CORE},
    SIM: {CORE, DEVICE},
    DIST: {CORE, DEVICE},
    FACADE: below_facade,
    REPORT: below_facade | {FACADE},
    RECORD: {CORE, FACADE, DATASETS},
    DLPACK: {DEVICE, FACADE},
    COMPILER: {CORE, DEVICE},
    KERNELS: {CORE, DEVICE, COMPILER},
    PICTURES: {CORE, DEVICE, IMAGES, COMPILER, KERNELS, FACADE},
    IMAGES: {CORE},
    AUDIO: {CORE},
    TEMPLATE: {CORE},
    DATASETS: {CORE, IMAGES, AUDIO, TEMPLATE},
    DIGITS: {CORE, DATASETS},
    MLP: programs,
    EXAMPLES: programs,
    TOOLS: {CORE, DEVICE, FACADE, DATASETS, IMAGES, AUDIO, KERNELS, RECORD, REPORT},
    SERVE: below_facade | {FACADE, KERNELS, MLP, EXAMPLES},
    "feedline-fuzz": {CORE, IMAGES, AUDIO, DATASETS},
    "benches": programs | {EXAMPLES, MLP, TESTKIT},
    TESTKIT: {CORE, DEVICE, SIM},
    WAY: {DEVICE, FACADE, TESTKIT},
}
# Tests may also import the testkit, the simulator and the packages below.
may_in_tests = {name: {TESTKIT, SIM} for name in may}
may_in_tests[EXAMPLES] |= {MLP, RECORD}
may_in_tests[FACADE] |= {KERNELS, DATASETS, REPORT, RECORD}
may_in_tests[RECORD] |= {IMAGES}
may_in_tests[PICTURES] |= {DATASETS}
may_in_tests[IMAGES] |= {DEVICE, FACADE, DATASETS}
may_in_tests[AUDIO] |= {FACADE, DATASETS}
may_in_tests[TOOLS] |= {IMAGES}
may_in_tests[DLPACK] |= {KERNELS}

asked = ["cargo", "metadata", "--format-version", "1", "--no-deps", "--locked"]
packages = json.loads(subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout)["packages"]
names = {package["name"] for package in packages}
wrong, arrows = [], 0
for package in packages:
    name = package["name"]
    if name not in may:
        wrong.append(f"{name}: not in the table of ci/layers.sh; add it there")
        continue
    for dependency in package["dependencies"]:
        other = dependency["name"]
        # A package may depend on itself in its tests, to turn on a feature.
        if other not in names or other == name and dependency["kind"] == "dev":
            continue
        arrows += 1
        in_tests = dependency["kind"] == "dev"
        if other in may[name] or in_tests and other in may_in_tests[name]:
            continue
        where = " in its tests" if in_tests else ""
        wrong.append(f"{name} imports {other}{where}: ci/layers.sh does not allow it")

# The rooms of `feedline` that each room may not import; tests may.
may_not = {
    "job": {"decode", "transfer", "device_map", "record", "builder", "loader"},
    "decode": {"transfer", "device_map", "builder", "loader"},
    "transfer": {"device_map", "builder", "loader"},
    "record": {"transfer", "device_map", "builder", "loader"},
}
# The rooms of `device` that each room may import; all else there is the safe layer, which may import them.
may_in_device = {"slots": {"slots"}, "backend": {"slots", "backend"}, "cuda/driver": {"slots", "backend", "cuda::driver"}}
USE = re.compile(r"^\s*(?:pub(?:\(crate\))? )?use crate::((?:cuda::driver\b)|\w+)", re.M)


def imports(crate, room):
    """The paths of a room of `crate`, each with what it imports outside of tests."""
    for path in pathlib.Path(crate, "src", room).rglob("*.rs"):
        text = re.split(r"^#\[cfg\(.*test.*\)\]\nmod tests \{", path.read_text(), flags=re.M)[0]
        if "tests" not in {*path.parts, path.stem}:
            for other in USE.findall(text):
                yield path, other


for room, others in may_not.items():
    for path, other in imports("crates/feedline", room):
        arrows += 1
        if other in others or other == "LoaderBuilder" and "builder" in others:
            wrong.append(f"{path} imports {other}: ci/layers.sh does not allow it")
for room, others in may_in_device.items():
    for path, other in imports("crates/device", room):
        arrows += 1
        if other not in others:
            wrong.append(f"{path} imports {other}: ci/layers.sh does not allow it")
# Methods of two sealed traits of pictures. What only feedline's own crates call stands in a block `# For loaders`.
MAX_HIDDEN = 3
listed = subprocess.run(["git", "grep", "-c", "doc(hidden)", "--", "*.rs"], stdout=subprocess.PIPE, text=True).stdout
hidden = sum(int(line.rpartition(":")[2]) for line in listed.splitlines())
if hidden > MAX_HIDDEN:
    wrong.append(f"{hidden} lines of doc(hidden), at most {MAX_HIDDEN}: show it in a block `# For loaders`")
# What another crate calls is public where it is defined: no module of forwards.
sources = subprocess.run(["git", "ls-files", "*.rs"], stdout=subprocess.PIPE, text=True, check=True).stdout
for path in map(pathlib.Path, sources.split()):
    if path.is_file() and (found := re.search(r"^\s*(?:pub(?:\([a-z]+\))? )?mod (internal|util|utils|helper|helpers)\b", path.read_text(), re.M)):
        wrong.append(f"{path} has a module {found[1]}: make the items public where they are defined")
for line in wrong:
    print(f"layers: {line}", file=sys.stderr)
if wrong:
    sys.exit(1)
print(f"layers: {len(packages)} packages, {arrows} imports, all allowed; {hidden} lines of doc(hidden)")
PYTHON
