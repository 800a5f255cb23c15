"""A mix that tells the part of each row: the same rows as one that does not, in any order and with any reader."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import feedline


def parts() -> list[tuple[feedline.Data, float]]:
    return [(feedline.Data({"x": np.arange(10) + 100 * part}), weight) for part, weight in enumerate([3, 1, 2])]


def rows(data: feedline.Data, epoch: int = 0, **options: Any) -> list[Any]:
    with feedline.Loader(data, 7, framework="numpy", copy=True, **options) as loader:
        return [{name: batch[name] for name in batch} for batch in loader.epoch(epoch)]


@pytest.mark.parametrize("options", [{}, {"shuffle": 5}, {"world": (1, 2)}, {"workers": 0}])
def test_each_row_has_the_number_of_its_part_and_no_other_value_changes(options: Any) -> None:
    told, silent = feedline.mix(parts(), samples=60, part="source"), feedline.mix(parts(), samples=60)
    for epoch in (0, 3):
        found, plain = rows(told, epoch, **options), rows(silent, epoch, **options)
        for batch, other in zip(found, plain, strict=True):
            assert batch["source"].dtype == np.int32 and batch["source"].shape == batch["x"].shape
            np.testing.assert_array_equal(batch["source"], batch["x"] // 100)
            np.testing.assert_array_equal(batch["x"], other["x"])
            assert "source" not in other
    assert told.fingerprint != silent.fingerprint


class Own:
    """Samples of one's own, with a text, tuples or many fields."""

    def __init__(self, part: int, kind: str) -> None:
        self.part, self.kind = part, kind

    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> Any:
        number = np.int64(index + 100 * self.part)
        if self.kind == "tuple":
            return number, np.float64(np.random.rand())
        if self.kind == "many":
            return {f"x{at}": number for at in range(40)}
        return {"x": number, "text": "word " * (index + 1), "noise": np.float64(np.random.rand())}


@pytest.mark.parametrize("kind", ["text", "tuple", "many"])
@pytest.mark.parametrize("workers", [None, 2])
def test_data_of_ones_own(kind: str, workers: int | None) -> None:
    def mixed(**options: Any) -> feedline.Data:
        return feedline.mix([(feedline.Data(Own(part, kind)), 1 + part) for part in range(3)], samples=27, **options)

    name = "x0" if kind == "many" else "x"
    given = {"parallel": "processes", "workers": workers} if workers else {}
    with (
        feedline.Loader(mixed(part="source"), 4, framework="numpy", **given) as told,
        feedline.Loader(mixed(), 4, framework="numpy", **given) as silent,
    ):
        for batch, other in zip(told, silent, strict=True):
            if kind == "tuple":
                number, noise, source = batch
                np.testing.assert_array_equal(noise, other[1])
            else:
                number, source = batch[name], batch["source"]
                assert [field for field in batch if field != "source"] == list(other)
            if kind == "text":
                np.testing.assert_array_equal(batch["noise"], other["noise"])
                assert [str(text) for text in batch["text"]] == [str(text) for text in other["text"]]
            np.testing.assert_array_equal(source, number // 100)


def test_the_part_is_composed_pickled_and_resumed() -> None:
    mixed = feedline.mix(parts(), samples=60, part="source")
    chosen = mixed.map(lambda sample: sample | {"twice": 2 * sample["source"]}).take(30)
    for batch in rows(chosen):
        np.testing.assert_array_equal(batch["twice"], 2 * (batch["x"] // 100))
    again = pickle.loads(pickle.dumps(mixed))
    assert again.fingerprint == mixed.fingerprint and [field.name for field in again.fields] == ["x", "source"]
    outer = feedline.mix([(mixed, 1), (mixed, 1)], samples=20, part="outer")
    assert {int(row["outer"]) for row in outer} == {0, 1}
    with feedline.Loader(mixed, 7, framework="numpy") as loader:
        next(iter(loader))
        state = loader.state_dict()
    with feedline.Loader(mixed, 5, framework="numpy", copy=True) as loader:
        loader.load_state_dict(state)
        rest = np.concatenate([batch["source"] for batch in loader])
    np.testing.assert_array_equal(rest, [sample["source"] for sample in mixed][7:])


def test_names_that_cannot_be_are_refused() -> None:
    with pytest.raises(feedline.ConfigError, match='give the name of a field, such as part="source"'):
        feedline.mix(parts(), part=True)  # type: ignore[arg-type]
    with pytest.raises(feedline.ConfigError, match="x"):
        feedline.mix(parts(), part="x")
