"""What samples draw depends on the seed, the epoch and the draw alone, and what the loop draws does not depend on them."""

from __future__ import annotations

import logging
import random
from typing import Any

import numpy as np
import pytest
from draw_sets import KINDS, Collated, Mapped, OfBatch, Samples, Unseeded

import feedline

torch = pytest.importorskip("torch", reason="not run: torch is not installed")

WAYS: list[dict[str, Any]] = [
    {"workers": 0},
    {"parallel": "threads", "workers": 2},
    {"parallel": "processes", "workers": 2},
]


def chosen(chance: random.Random) -> dict[str, str]:
    """Some generators, each with the samples that draw from it."""
    return {kind: chance.choice(("all", "late", "some")) for kind in chance.sample(KINDS, chance.randrange(4))}


def made(seed: int) -> tuple[Any, dict[str, Any]]:
    """Data, and options of the loader."""
    chance = random.Random(seed)
    data = feedline.Data(Samples(chosen(chance), rest=chance.choice((0.0, 0.0003))))
    options: dict[str, Any] = {}
    if chance.random() < 0.6:
        data = data.map(Mapped(chosen(chance)))
    if chance.random() < 0.6:
        data = feedline.Data(data, collate_fn=Collated(chosen(chance)))
    if chance.random() < 0.6:
        options["map_batch"] = OfBatch(chosen(chance))
    return data, options


def read(batches: Any) -> list[list[bytes]]:
    found = []
    for batch in batches:
        found.append([np.asarray(batch[name]).tobytes() for name in batch])
        del batch
    return found


@pytest.mark.parametrize("seed", range(8))
def test_draws_are_the_same_in_threads_in_processes_and_after_a_resume(seed: int) -> None:
    chance = random.Random(1000 + seed)
    wanted = None
    for way in WAYS:
        at = chance.randrange(1, 12)
        data, options = made(seed)
        options = {"batch_size": 8, "shuffle": 3, "framework": "numpy", "copy": True, **options, **way}
        with feedline.Loader(data, **options) as loader:
            found = [read(loader.epoch(epoch)) for epoch in (0, 1)]
            begun = loader.epoch(0)
            for _ in range(at):
                next(begun)
            state = loader.state_dict()
        wanted = wanted or found
        assert found == wanted, way
        assert found[0] != found[1]
        data, _ = made(seed)
        with feedline.Loader(data, **options) as loader:
            loader.load_state_dict(state)
            assert read(loader) == wanted[0][at:], (way, at)


def test_each_draw_has_numbers_of_its_own() -> None:
    for kind in KINDS:
        for way in WAYS:
            with feedline.Loader(Samples({kind: "all"}), 8, framework="numpy", shuffle=1, **way) as loader:
                place = KINDS.index(kind)
                numbers = [
                    number for epoch in (0, 1) for batch in loader.epoch(epoch) for number in batch["x"][:, place].tolist()
                ]
            assert len(set(numbers)) == 180, (kind, way)


def test_two_generators_draw_different_numbers() -> None:
    kinds = KINDS.replace("n", "")
    with feedline.Loader(Samples(dict.fromkeys(kinds, "all")), 8, framework="numpy", workers=0) as loader:
        for batch in loader.epoch(1):
            assert all(len(set(row)) == len(KINDS) for row in batch["x"].tolist())
            del batch


def numbers_of_a_loop(batches: Any) -> list[Any]:
    """What a loop of 100 steps draws, and the states of its generators after it."""
    random.seed(1)
    np.random.seed(1)
    torch.manual_seed(1)
    drawn: list[Any] = []
    for _ in range(100):
        next(batches)
        drawn += [random.random(), np.random.rand(), torch.rand(()).item()]
    return [*drawn, random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()]  # type: ignore[index]


def forever(loader: feedline.Loader) -> Any:
    while True:
        yield from loader


ALL = {"r": "all", "n": "all", "t": "all"}
DRAWING: dict[str, Any] = {
    "nothing": lambda: (Samples({}), {}),
    "samples": lambda: (Samples(ALL), {}),
    "slow samples": lambda: (Samples(ALL, rest=0.0005), {}),
    "some samples": lambda: (Samples({"n": "some", "t": "all"}), {}),
    "one generator, later another": lambda: (Samples({"r": "all", "n": "late"}), {}),
    "generators of its own": lambda: (Samples({"G": "all", "R": "all", "T": "some"}), {}),
    "map": lambda: (feedline.Data(Samples({})).map(Mapped(ALL)), {}),
    "collate_fn": lambda: (feedline.Data(Samples({"r": "all"}), collate_fn=Collated({"n": "all", "t": "all"})), {}),
    "map_batch": lambda: (Samples({}), {"map_batch": OfBatch(ALL)}),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", DRAWING)
def test_a_loop_draws_what_it_draws_without_a_loader(what: str, way: dict[str, Any]) -> None:
    wanted = numbers_of_a_loop(iter(range(100)))
    data, options = DRAWING[what]()
    with feedline.Loader(data, 8, shuffle=1, framework="numpy", copy=True, **options, **way) as loader:
        found = numbers_of_a_loop(forever(loader))
    assert found == wanted
    # And the other way round.
    kept = []
    for draws in (False, True):
        data, options = DRAWING[what]()
        with feedline.Loader(data, 8, shuffle=1, framework="numpy", copy=True, **options, **way) as loader:
            rows = []
            for batch in loader.epoch(0):
                rows += read([batch])
                if draws:
                    random.random(), np.random.rand(), torch.rand(())
            kept.append(rows)
    assert kept[0] == kept[1]


def test_generators_of_a_data_set_keep_their_states() -> None:
    data = Samples({"G": "all", "R": "all", "S": "all"})

    def states() -> Any:
        numbers = data.inner.numbers
        return [numbers["G"].bit_generator.state, numbers["R"].getstate(), numbers["S"].get_state()[1].tolist()]

    before = states()
    with feedline.Loader(data, 8, framework="numpy", workers=0) as loader:
        read(loader.epoch(0))
        read(loader.epoch(1))
    assert states() == before


def test_a_generator_that_cannot_be_seeded_is_named(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "feedline"):
        feedline.Data(Unseeded())
    assert [one.message for one in caplog.records if "seeded" in one.message] == [
        "transform.py_random (random.SystemRandom) cannot be seeded: samples that draw from it are others in each run"
    ]
    caplog.clear()
    with caplog.at_level(logging.WARNING, "feedline"):
        feedline.Data(Unseeded(), seed_generators=False)
    assert caplog.records == []


def test_augmentations_of_albumentations_are_drawn_for_each_sample() -> None:
    albumentations = pytest.importorskip("albumentations", reason="not run: albumentations is not installed")

    seen = []
    for way in WAYS:
        data = Augmented(albumentations.Compose([albumentations.RandomBrightnessContrast(p=1.0)]))
        with feedline.Loader(data, 8, shuffle=7, framework="numpy", **way) as loader:
            seen.append([number for epoch in (0, 1) for batch in loader.epoch(epoch) for number in batch["mean"].tolist()])
    assert all(one == seen[0] for one in seen) and len(set(seen[0])) > 120


class Augmented:
    """Pictures that a transform of Albumentations changes."""

    def __init__(self, transform: Any) -> None:
        self.transform = transform

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        picture = np.random.RandomState(0).randint(60, 180, (16, 16, 3)).astype(np.uint8)
        return {"id": index, "mean": float(self.transform(image=picture)["image"].mean())}
