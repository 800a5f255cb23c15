"""`collate_fn` returns anything: the batch is the same tree of objects, with arrays of the framework."""

from __future__ import annotations

import copy
import itertools
import random
from typing import Any

import numpy as np
import pytest
import tree_sets

import feedline

WAYS: list[dict[str, Any]] = [{"workers": 0}, {"parallel": "threads", "workers": 3}, {"parallel": "processes", "workers": 2}]


def same(one: Any, other: Any) -> bool:
    """Whether two trees are equal, with equal types."""
    if isinstance(one, dict):
        one = dict(one)
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype.newbyteorder("=") and one.shape == other.shape and bool((one == other).all())
    if isinstance(one, (dict, tree_sets.Encoding)):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in other)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return same(vars(one), vars(other)) if hasattr(one, "__dict__") and not np.isscalar(one) else bool(one == other)


def wanted(function: Any, data: Any, order: list[int], size: int) -> list[Any]:
    """The batches of DataLoader's loop."""
    return [copy.deepcopy(function([data[i] for i in order[at : at + size]])) for at in range(0, len(order), size)]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("copies", [False, True])
def test_a_batch_is_the_tree_that_the_function_returned(way: dict[str, Any], copies: bool) -> None:
    for function in (
        tree_sets.patches, tree_sets.encoding, tree_sets.changing, tree_sets.awkward, tree_sets.only_text, tree_sets.kept
    ):
        data = tree_sets.Samples(50)
        with feedline.Loader(data, 8, shuffle=3, collate_fn=function, framework="numpy", copy=copies, **way) as loader:
            plain = feedline.Loader({"x": np.arange(50)}, 8, shuffle=3, framework="numpy", copy=True).epoch(0)
            order = [int(i) for batch in plain for i in batch.ids]
            for _ in range(2):
                found = 0
                for batch, right in zip(loader.epoch(0), wanted(function, data, order, 8), strict=True):
                    assert same(batch, right), (function, batch, right)
                    found += 1
                    del batch
                assert found == 7


def test_one_object_stays_one_and_a_dict_is_a_batch() -> None:
    with feedline.Loader(tree_sets.Samples(9), 4, collate_fn=tree_sets.awkward, framework="numpy", workers=0) as loader:
        for step, batch in enumerate(loader):
            assert batch["strided"] is batch["again"] and batch["empty"] is not batch["none"]
            assert isinstance(batch, dict) and batch.step == step and batch.rows == min(4, 9 - 4 * step)
            assert batch.ids.tolist() == list(range(4 * step, min(4 * step + 4, 9)))
            batch["more"] = batch.pop("int")
            assert batch["more"] == 7 and "int" not in batch and copy.deepcopy(batch)["flag"].tolist() == [True, False]
            del batch
        sample = loader.data[3]
    assert sample["scalar"] == 3 and sample["int"] == 7 and sample["turned"].shape == (6, 4)


def test_slots_grow_with_the_arrays_and_the_texts_and_the_order_stays() -> None:
    data = tree_sets.Samples(400, most=3000)
    for way in WAYS:
        with feedline.Loader(data, 4, collate_fn=tree_sets.patches, shuffle=1, framework="numpy", **way) as loader:
            seen = []
            for batch in loader:
                assert batch.grid[:, 1].sum() == len(batch.pixel_values)
                seen += [int(text.split()[1]) for text in batch.texts]
                del batch
            report = str(loader.report())
        assert sorted(seen) == list(range(400)), way
        assert "made larger" in report, report


def test_two_hundred_resumes_with_other_workers_and_ranks() -> None:
    draw = random.Random(5)
    data = tree_sets.Samples(37)
    for _ in range(200):
        ranks, size, shuffle = draw.choice([1, 2, 3, 8]), draw.choice([1, 2, 4]), draw.randrange(100)
        options: dict[str, Any] = {"collate_fn": tree_sets.patches, "framework": "numpy", "shuffle": shuffle}
        whole: list[list[str]] = []
        seen: list[list[str]] = [[] for _ in range(ranks)]
        stop = draw.randrange(-(-37 // (ranks * size)) + 1)
        for rank in range(ranks):
            with feedline.Loader(data, size, workers=0, world=(rank, ranks), **options) as loader:
                whole.append([text for batch in loader.epoch(2) for text in batch.texts])
                begun = loader.epoch(2)
                for _ in range(min(stop, len(begun))):
                    seen[rank] += next(begun).texts
                state = loader.state_dict()
            way = draw.choice(WAYS[:2])
            with feedline.Loader(data, size, world=(rank, ranks), **way, **options) as loader:
                loader.load_state_dict(state)
                seen[rank] += [text for batch in loader.epoch(2) for text in batch.texts] if stop else whole[-1]
        assert seen == whole
        assert sorted({text for texts in whole for text in texts}) == sorted(data[i]["text"] for i in range(37))


def test_tensors_of_torch_and_their_subclasses() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    import tree_tensors

    def collate(samples: list[Any]) -> Any:
        ids = torch.tensor([sample["id"] for sample in samples])
        boxes = ids.float().outer(torch.ones(4)).as_subclass(tree_tensors.Boxes)
        boxes.format = "xyxy"
        leaf = torch.ones(2, requires_grad=True)
        return {"boxes": [boxes], "half": ids.to(torch.bfloat16), "turned": ids.reshape(1, -1).t(), "leaf": leaf,
                "sparse": torch.eye(2).to_sparse(), "numpy": np.arange(3), "complex": torch.tensor([1j]), "none": ids[:0],
                "jagged": torch.nested.nested_tensor([torch.ones(1), torch.ones(2)], layout=torch.jagged),
                "negative": torch.imag(torch.tensor([1 + 1j]).conj())}

    with feedline.Loader(tree_sets.Samples(20), 6, collate_fn=collate, framework="torch", workers=0) as loader:
        for step, batch in enumerate(loader):
            ids = list(range(6 * step, min(6 * step + 6, 20)))
            boxes = batch["boxes"][0]
            assert type(boxes).__name__ == "Boxes" and boxes.format == "xyxy" and boxes[:, 3].tolist() == ids
            assert batch["half"].dtype == torch.bfloat16 and batch["half"].tolist() == ids
            assert batch["turned"].shape == (len(ids), 1) and batch["turned"][:, 0].tolist() == ids
            assert batch["leaf"].tolist() == [1, 1] and batch["sparse"].to_dense().tolist() == [[1, 0], [0, 1]]
            assert torch.is_tensor(batch["numpy"]) and batch["complex"].tolist() == [1j] and batch["none"].shape == (0,)
            assert batch["jagged"].offsets().tolist() == [0, 1, 3] and batch["negative"].tolist() == [-1.0]
            del batch, boxes


def test_what_cannot_be_pickled_is_an_error_of_the_function() -> None:
    with pytest.raises(feedline.ConfigError, match="collate_fn returned dict, which cannot be pickled: .*lock"):
        feedline.Loader(tree_sets.Samples(9), 4, collate_fn=tree_sets.locked, framework="numpy")


def test_a_large_value_of_each_batch_takes_its_room_once() -> None:
    mask = np.arange(4 << 20, dtype=np.uint8)

    def collate(samples: list[Any]) -> Any:
        return {"id": np.array([sample["id"] for sample in samples]), "mask": mask}

    budget = 512 << 20
    with feedline.Loader(
        tree_sets.Samples(600), 200, collate_fn=collate, framework="numpy", workers=0, pinned_budget=budget
    ) as loader:
        for batch in loader:
            assert np.array_equal(batch["mask"], mask) and len(batch["id"]) == 200
            del batch
        assert loader.memory["pinned"] < 64 << 20


def test_a_function_that_needs_two_samples_or_changes_them() -> None:
    def pairs(samples: list[Any]) -> Any:
        assert len(samples) > 1
        return np.array([[one["id"], other["id"]] for one, other in itertools.pairwise(samples)])

    with feedline.Loader(tree_sets.Samples(9), 3, collate_fn=pairs, framework="numpy", workers=0) as loader:
        assert [batch.tolist() for batch in loader] == [[[0, 1], [1, 2]], [[3, 4], [4, 5]], [[6, 7], [7, 8]]]
    samples = [{"id": index, "y": index * 2} for index in range(6)]
    with feedline.Loader(samples, 3, collate_fn=lambda some: [one.pop("y") for one in some], workers=0) as loader:
        assert list(loader) == [[0, 2, 4], [6, 8, 10]]


def test_a_dict_without_arrays_holds_no_slot() -> None:
    collate = lambda samples: {"text": [sample["text"] for sample in samples]}
    with feedline.Loader(tree_sets.Samples(60), 3, collate_fn=collate, framework="numpy", workers=0) as loader:
        assert sum(len(batch["text"]) for batch in list(loader)) == 60
