"""The report's waits are those of a stopwatch around the loop, and its diagnosis names what is slow."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from conftest import numbers

import feedline

BATCHES, BATCH, SECONDS = 50, 4, 0.006


class Slow:
    """Samples of which the first of each batch takes its time."""

    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index % BATCH == 0:
            time.sleep(SECONDS)
        return {"x": np.float32(index)}


def slow_map(batch: dict[str, Any]) -> dict[str, Any]:
    time.sleep(SECONDS)
    return batch


def made(what: str) -> feedline.Loader:
    if what == "decode":
        return feedline.Loader(feedline.Data(Slow()), BATCH, workers=1, parallel="threads", framework="numpy")
    if what == "device_map":
        pytest.importorskip("torch", reason="not run: torch is not installed")
        return feedline.Loader(numbers(200), BATCH, framework="torch", device_map=slow_map)
    return feedline.Loader(numbers(200), BATCH, framework="numpy")


@pytest.mark.parametrize(
    ("what", "words"),
    [("decode", "decode-bound"), ("device_map", "device-map-bound"), ("consumer", "already compute-bound")],
)
def test_the_report_names_what_is_slow_and_its_waits_are_those_of_a_stopwatch(what: str, words: str) -> None:
    seen = []
    # A busy machine wakes a thread late: the best of five runs counts.
    for _ in range(5):
        loader = made(what)
        batches, waited, worked = iter(loader), 0.0, 0.0
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            waited += time.perf_counter() - start
            if batch is None:
                break
            start = time.perf_counter()
            del batch
            time.sleep(SECONDS if what == "consumer" else 0)
            worked += time.perf_counter() - start
        report = loader.report()
        causes = {name: ns / 1e9 for name, ns in report.data["epoch"]["causes"].items()}
        consumer = causes.pop("consumer")
        told = sum(causes.values())
        seen.append((report.diagnosis, causes, f"waited {waited:.3f} s, told {told:.3f}"))
        total = waited + worked
        close = abs(told - waited) < 0.1 * total and abs(consumer - worked) < 0.1 * total
        largest = max(causes, key=lambda name: causes[name])
        if close and report.diagnosis.startswith(words) and what in ("consumer", largest):
            return
    pytest.fail(f"{seen}")
