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

# In a process of its own: Keras has one backend in a process, and Flax and torch need not know each other.
RUN = """
import json, pathlib, sys
sys.path.insert(0, {examples!r})
import {name} as example
folder = pathlib.Path(sys.argv[1])
(folder / "whole").mkdir()
(folder / "parts").mkdir()
whole = example.train(folder / "whole")
first = example.train(folder / "parts", stop=int(sys.argv[2]))
print(json.dumps([whole, first, example.train(folder / "parts")]))
"""


def run(name: str, folder: Path, stop: int, **environment: str) -> list[list[int]]:
    code = RUN.format(examples=str(EXAMPLES), name=name)
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder), str(stop)],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(PACKAGE), "JAX_PLATFORMS": "cpu", **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    seen: list[list[int]] = json.loads(done.stdout.splitlines()[-1])
    return seen


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
@pytest.mark.parametrize("stop", [3, 10, 14])
def test_an_example_goes_on_at_the_next_batch(
    tmp_path: Path, name: str, libraries: list[str], backend: str, stop: int
) -> None:
    for library in libraries:
        need(library)
    whole, first, rest = run(name, tmp_path, stop, KERAS_BACKEND=backend)
    assert len(first) == 16 * stop
    assert first + rest == whole
    for epoch in (whole[:160], whole[160:]):
        assert sorted(epoch) == list(range(160))


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
