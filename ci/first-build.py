#!/usr/bin/env python3
"""Counts the packages that the README's first command builds, and fails above the limit. Builds nothing."""

import json
import os
import subprocess
import sys

# Raise it only for what every user of the trainer needs.
LIMIT = 70

# The graph of the units is an unstable output of cargo; the variable lets a stable one print it.
asked = "cargo build --release --example mlp --unit-graph -Zunstable-options --locked".split()
answer = subprocess.run(asked, stdout=subprocess.PIPE, check=True, env={**os.environ, "RUSTC_BOOTSTRAP": "1"})
packages = {unit["pkg_id"] for unit in json.loads(answer.stdout)["units"]}
print(f"first-build: {len(packages)} packages, at most {LIMIT}")
if len(packages) > LIMIT:
    print("\n".join(sorted(packages)), file=sys.stderr)
    sys.exit(1)
