"""What the tests share: data sets, frameworks, and what is not run."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline

PACKAGE = Path(feedline.__file__).parent.parent


def pytest_report_header() -> list[str]:
    lines = [f"feedline {feedline.__version__}, NumPy {np.__version__}"]
    for name in ("torch", "jax"):
        try:
            lines.append(f"{name} {importlib.import_module(name).__version__}")
        except ImportError:
            lines.append(f"not run: tests of {name} ({name} is not installed)")
    return lines


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No ranks of a launcher that runs the tests."""
    for name in ("RANK", "WORLD_SIZE", "SLURM_PROCID", "SLURM_NTASKS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["numpy", "torch", "jax"])
def framework(request: pytest.FixtureRequest) -> str:
    """Each framework that is installed."""
    name: str = request.param
    if name != "numpy":
        pytest.importorskip(name, reason=f"not run: {name} is not installed")
    return name


def numbers(samples: int = 100, width: int = 5) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays whose rows say which sample they are."""
    ids = np.arange(samples)
    return {"x": (ids[:, None] * 1000 + np.arange(width)).astype(np.float32), "id": ids}


def ids(batches: Any) -> list[int]:
    """The ids of all rows, by the values of the batches and not by what the loader says."""
    return [int(one) for batch in batches for one in np.asarray(batch["id"])]


def script(
    code: str, *arguments: str, timeout: float = 60, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Runs a program in a new interpreter."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "JAX_PLATFORMS": "cpu"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=environment,
        **options,
    )


def skip_if_emulated(why: str) -> None:
    """Leaves a test to real machines: under qemu-user (ci/wheels.sh aarch64) it would be about the emulator."""
    if os.environ.get("FEEDLINE_EMULATED"):
        pytest.skip(f"not run under an emulator: {why}")


def resident() -> int:
    skip_if_emulated("its own memory is counted too")
    with open("/proc/self/statm") as pages:
        return int(pages.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def hub_datasets() -> Any:
    """The library datasets of Hugging Face, which the folder datasets of this repository is not."""
    pytest.importorskip("datasets.features", reason="not run: datasets is not installed")
    return importlib.import_module("datasets")


def wait_until(condition: Any) -> None:
    """Waits for threads that are about to end."""
    limit = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.fixture
def slow() -> Iterator[Any]:
    """A data set of one's own that can be made to wait."""
    import threading

    class Slow:
        gate = threading.Event()

        def __len__(self) -> int:
            return 100

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index >= 20:
                self.gate.wait(30)
            return {"id": np.int64(index)}

    Slow.gate.clear()
    one = Slow()
    yield one
    one.gate.set()
