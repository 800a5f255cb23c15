"""The examples in `python/examples`: stopped within an epoch and continued, they see what a run without a stop sees."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PACKAGE

EXAMPLES = Path(__file__).parent.parent / "examples"

STOPS = [3, 10, 14]

# In a process of its own: Keras has one backend in a process, and Flax and torch need not know each other.
RUN = """
import json, pathlib, sys
sys.path.insert(0, {examples!r})
import {name} as example
folder = pathlib.Path(sys.argv[1])
(folder / "whole").mkdir()
runs = [example.train(folder / "whole")]
for stop in {stops}:
    parts = folder / str(stop)
    parts.mkdir()
    runs.append([example.train(parts, stop=stop), example.train(parts)])
print(json.dumps(runs))
"""


@pytest.mark.parametrize(
    ("name", "libraries", "backend"),
    [
        ("with_lightning", ["torch", "lightning"], ""),
        ("with_accelerate", ["torch", "accelerate"], ""),
        ("with_transformers", ["torch", "accelerate", "transformers"], ""),
        ("with_keras", ["keras", "jax"], "jax"),
        ("with_keras", ["keras", "torch"], "torch"),
        ("with_flax", ["jax", "flax", "optax"], ""),
    ],
)
def test_an_example_goes_on_at_the_next_batch(
    tmp_path: Path, name: str, libraries: list[str], backend: str
) -> None:
    for library in libraries:
        need(library)
    done = subprocess.run(
        [sys.executable, "-c", RUN.format(examples=str(EXAMPLES), name=name, stops=STOPS), str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "JAX_PLATFORMS": "cpu", "KERAS_BACKEND": backend},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    whole, *runs = json.loads(done.stdout.splitlines()[-1])
    for epoch in (whole[:160], whole[160:]):
        assert sorted(epoch) == list(range(160))
    for stop, (first, rest) in zip(STOPS, runs, strict=True):
        assert len(first) == 16 * stop
        assert first + rest == whole


def need(library: str) -> None:
    import importlib.util

    if importlib.util.find_spec(library) is None:
        pytest.skip(f"not run: {library} is not installed")


def test_ten_lines_train() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "ten_lines.py")],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )
    assert done.returncode == 0, done.stderr
