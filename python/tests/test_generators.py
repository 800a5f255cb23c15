"""The global random generators: cheap looks at their states, and samples that use them in several threads."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import own_sets
import pytest

import feedline
from feedline._workers import generators, seeds
from feedline._workers.choice import has_lock


@pytest.fixture(autouse=True)
def left_alone() -> Iterator[None]:
    before = random.getstate(), np.random.get_state(legacy=False)
    yield
    random.setstate(before[0])
    np.random.set_state(before[1])


def drawn() -> dict[str, Any]:
    """Numbers of each generator, more than its state has words."""
    found: dict[str, Any] = {
        "Python": [random.gauss(0, 1), *(random.random() for _ in range(700)), random.gauss(0, 1)],
        "NumPy": [*np.random.randn(701).tolist(), np.random.rand()],
    }
    torch = sys.modules.get("torch")
    if torch is not None:
        found["Torch"] = [*torch.randn(701).tolist(), *torch.rand(3).tolist()]
    return found


def test_a_state_is_all_of_a_generator() -> None:
    for normals in (0, 1):
        # One of two normal numbers is kept for the next call.
        np.random.randn(normals)
        random.gauss(0, 1)
        before = seeds.States()
        first = drawn()
        assert {type(one).__name__ for one in before.changed()} == set(first)
        before.restore()
        assert before.changed() == [] and drawn() == first


def test_a_single_draw_shows() -> None:
    draws: dict[str, Any] = {
        "Python": [random.random, lambda: random.gauss(0, 1), lambda: random.gauss(0, 1), lambda: random.seed(5)],
        "NumPy": [np.random.rand, np.random.randn, np.random.randn, lambda: np.random.seed(5)],
    }
    for name, ways in draws.items():
        for way in ways:
            before = seeds.States()
            way()
            assert [type(one).__name__ for one in before.changed()] == [name]


@pytest.mark.skipif(not has_lock(), reason="not run: without the interpreter's lock, other threads may draw meanwhile")
def test_states_are_copied_as_they_lie_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The official functions take 45 us: a look before and after each read would cost more than small samples."""
    data = own_sets.Numbers(500)
    with feedline.Loader(data, 5, framework="numpy", workers=0) as loader:
        calls = []
        for module, name in ((random, "getstate"), (np.random, "get_state")):
            monkeypatch.setattr(module, name, lambda *_, name=name, **__: calls.append(name))
        assert sum(batch.rows for batch in loader.epoch(0)) == 500
    assert calls == []


def test_another_generator_of_numpy_is_known_by_its_official_state() -> None:
    own = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(3))
    try:
        before = seeds.States()
        first = np.random.randn(3).tolist()
        assert [type(one).__name__ for one in before.changed()] == ["NumPy"]
        before.restore()
        assert np.random.randn(3).tolist() == first
    finally:
        np.random.set_bit_generator(own)
    assert seeds.States().changed() == []


def test_only_generators_that_are_used_are_seeded(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = []
    for kind in (generators.Python, generators.NumPy):
        own = kind.seed
        monkeypatch.setattr(
            kind, "seed", lambda self, key, own=own, kind=kind: seeded.append(kind) or own(self, key)
        )
    with feedline.Loader(own_sets.RareNoise(2000), 8, framework="numpy", workers=0) as loader:
        for _ in loader.epoch(0):
            pass
        del seeded[:]
        for _ in loader.epoch(1):
            pass
    assert set(seeded) == {generators.NumPy}


@pytest.mark.parametrize("kind", [own_sets.Noise, own_sets.RareNoise])
def test_threads_do_not_draw_from_a_generator_that_another_one_has_seeded(kind: Any) -> None:
    def read(threads: int) -> dict[int, Any]:
        values = {}
        ways: dict[str, Any] = {"parallel": "threads", "workers": threads, "epochs": 1}
        with feedline.Loader(kind(60), 3, shuffle=5, framework="numpy", **ways) as loader:
            for batch in loader.epoch(0):
                names = [name for name in batch if name != "id"]
                for row, index in enumerate(batch["id"].tolist()):
                    values[index] = [batch[name][row].tobytes() for name in names]
                del batch
        return values

    wanted, interval = read(1), sys.getswitchinterval()
    random.seed(3)
    np.random.seed(3)
    before = seeds.States()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(40):
            assert read(4) == wanted
    finally:
        sys.setswitchinterval(interval)
    assert kind is own_sets.RareNoise or before.changed() == []


def test_threads_read_at_once_what_draws_nothing() -> None:
    class Waits:
        """Each sample waits, as for a download."""

        def __init__(self) -> None:
            self.lock, self.inside, self.most, self.reads = threading.Lock(), 0, 0, 0

        def __len__(self) -> int:
            return 200

        def __getitem__(self, index: int) -> dict[str, Any]:
            with self.lock:
                self.inside += 1
                self.most = max(self.most, self.inside)
                self.reads += 1
            time.sleep(0.003)
            with self.lock:
                self.inside -= 1
            return {"id": index}

    data = Waits()
    with feedline.Loader(data, 10, workers=4, parallel="threads", epochs=1, framework="numpy") as loader:
        data.reads = 0
        assert sum(batch.rows for batch in loader) == 200
    # A few batches are read again, if the threads suspect that their samples draw.
    assert data.most == 4 and data.reads <= 200 + 4 * 10, (data.most, data.reads)
