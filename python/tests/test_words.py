"""Words of errors: those of Python, with the argument that helps."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import numbers

import feedline
from feedline import Sampler
from feedline import transforms as T
from feedline._workers.choice import has_lock

A = {"x": np.arange(10), "y": np.arange(10)}

#: Items of Rust, calls of a builder, and what PyO3 says of a field of a struct.
RUST = re.compile(
    r"::|\bfailed to extract|\bOptions\.|\bSteps\.|\bInMemory\b|\bRecords\b|\bRagged\b|\bTableOptions\b|"
    r"\bOpenOptions\b|_mut\b|\bwith_field\b|\bsnake|\bdepth\b|\bcategory_of\b|\bon_device\b|"
    r"\b(shuffle|seed|shuffle_shards|shuffle_buffer|sampler|unknown)\([^)]|\bVec<|\bOption<|\bPy[A-Z]\w+"
)
WRONG = (-1, 2**70, 1.5, "no", float("nan"), object(), (1, 2, 3), {"x": -1}, b"", [1], True)
OPTIONS = (
    "batch_size shuffle shuffle_buffer split_shards sampler seed last_batch device framework workers prefetch parallel "
    "world epochs pad max_per_batch bad_samples skip transfer_mode pinned_budget worker_stack held_timeout drop_timeout"
).split()


def wrong_calls(tmp_path: Path) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls that are wrong, most of them, with a name each."""
    data, lists = feedline.Data(A), feedline.Data([{"t": np.arange(3)}] * 8, max_length={"t": 4})
    for name, value in itertools.product(OPTIONS, WRONG):
        yield (
            f"{name}={value!r}",
            lambda name=name, value=value: feedline.Loader(data, **{name: value}).close(),
        )
    for name, value in itertools.product(
        ("take", "skip", "repeat", "cached", "subset", "split", "lengths"), WRONG
    ):
        yield f"{name}({value!r})", lambda name=name, value=value: getattr(data, name)(value)
    for value in WRONG:
        yield f"weighted({value!r})", lambda value=value: Sampler.weighted(value)
        yield (
            f"weighted without replacement {value!r}",
            lambda value=value: Sampler.weighted(value, replacement=False),
        )
        yield f"replacement={value!r}", lambda value=value: Sampler.weighted([1.0], replacement=value)
        yield f"balanced {value!r}", lambda value=value: Sampler.balanced([0, 1], value)
        yield f"bucketed {value!r}", lambda value=value: Sampler.bucketed(value, 1, 1)
        yield f"block {value!r}", lambda value=value: Sampler.block(value, 1)
        yield f"draws {value!r}", lambda value=value: Sampler.weighted([1.0]).draws(value)
        yield f"epoch {value!r}", lambda value=value: feedline.Loader(data, 2).epoch(value)
        yield f"packed {value!r}", lambda value=value: lists.packed("t", value)
        yield f"mix {value!r}", lambda value=value: feedline.mix([(data, value)])
        yield f"max_length {value!r}", lambda value=value: feedline.Data([{"t": "x"}], max_length=value)
        yield f"jitter {value!r}", lambda value=value: feedline.images(tmp_path, [T.ColorJitter(value)])
        yield f"crop {value!r}", lambda value=value: feedline.images(tmp_path, [T.CenterCrop((value, 3))])
    yield "two orders", lambda: feedline.Loader(A, 4, sampler=Sampler.weighted(np.ones(10)), shuffle=7)
    yield "two seeds", lambda: feedline.Loader(A, 4, shuffle=7, seed=8)
    yield "buffer", lambda: feedline.Loader(A, 4, shuffle_buffer=5)
    yield "buckets", lambda: feedline.Loader(A, 4, sampler=Sampler.bucketed(np.ones(10, int), 5, 1))
    table = tmp_path / "t.csv"
    table.write_text("a,b,t\n1,x,2024-01-01\n,y,z\n3,,2024-01-02T10:00+99:99\n")
    yield "nulls", lambda: list(feedline.open(table))
    steps: list[dict[str, Any]] = [
        {"select": ["no"]},
        {"stack": {"x": ["a", "no"]}},
        {"stack": ["a"]},
        {"stack": {"x": ["b"]}},
        {"cast": {"no": "float32"}},
        {"cast": {"a": "no"}},
        {"category": {"b": ["x"]}, "fill": {"b": "x"}},
        {"category": {"b": []}},
        {"unknown": "b"},
        {"days": "a"},
        {"seconds": "t"},
        {"standardize": "b"},
        {"fill": {"a": "text"}},
        {"fill": {"a": object()}},
        {"fill": {"b": 1}},
        {"fill_mean": "b"},
        {"mask": "no"},
        {"mask": 3},
        {"select": "a"},
    ]
    for step in steps:
        yield f"table {step}", lambda step=step: list(feedline.table(table, **step))
    for name, content in (("x.bin", b"\1\2\3\4"), ("x.npy", b"no"), ("x.parquet", b"PAR1"), ("x.tar", b"no")):
        (tmp_path / name).write_bytes(content)
        yield name, lambda name=name: feedline.open(tmp_path / name)
    many = tmp_path / "many.csv"
    many.write_text(",".join(f"c{at}" for at in range(20)) + "\n" + ",".join("1" * 20) + "\n")
    yield "20 columns", lambda: feedline.open(many)
    yield "no pictures", lambda: feedline.images(many, [T.CenterCrop(3)])
    yield "split", lambda: feedline.open(tmp_path, split="validation")
    yield "texts", lambda: next(iter(feedline.Loader(feedline.open(table, nulls="fill"), pad={"a": 0})))


def test_no_error_names_an_item_of_rust(tmp_path: Path) -> None:
    told, wrong = 0, []
    for name, call in wrong_calls(tmp_path):
        try:
            call()
        except Exception as error:  # noqa: BLE001
            told += 1
            if RUST.search(str(error)) or not isinstance(
                error, (feedline.Error, IndexError, KeyError, TypeError)
            ):
                wrong.append(f"{name}: {error!r}")
    assert not wrong, "\n".join(wrong)
    assert told > 250


def test_the_sources_name_items_of_rust_only_beside_those_of_python() -> None:
    """An error that reaches Python takes such a name from ``named``, which has both."""
    root = Path(__file__).parents[2]
    if not (root / "datasets" / "src").is_dir():
        pytest.skip("not run: the sources are not beside the tests")
    literal, item = (
        re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL),
        re.compile(r"[a-z] .*\b[A-Z]\w+::\w", re.DOTALL),
    )
    wrong = []
    for folder in ("crates/core/src", "crates/feedline/src", "datasets/src", "crates/images/src", "python/src"):
        for path in sorted((root / folder).rglob("*.rs")):
            text = path.read_text().split("\n#[cfg(test)]\nmod tests {")[0]
            if "tests" in path.parts or path.name == "tests.rs" or str(path).endswith(_OF_RUST_ONLY):
                continue
            # What only rustc says.
            text = re.sub(r"#\[diagnostic::.*?\n\)\]", "", text, flags=re.DOTALL)
            code = re.sub(r"(?m)^\s*//.*$|(?<=\s)//[^\"\n]*$", "", text).replace("'\"'", "''")
            for found in literal.finditer(code):
                if (
                    item.search(found[0])
                    and "named(" not in code[max(0, found.start() - 200) : found.start()]
                ):
                    wrong.append(f"{path.relative_to(root)}: {found[0]}")
    assert not wrong, "\n".join(wrong)


#: Parts that the package does not offer: records of runs, checkpoint files, lengths of a measured set,
#: tokens.
_OF_RUST_ONLY = (
    *("record/mod.rs", "record/read.rs", "progress/file.rs"),
    *("datasets/src/bounded.rs", "datasets/src/text/tokens.rs", "src/tune.rs"),
)


@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("num_workers", "workers="),
        ("drop_last", 'last_batch="drop"'),
        ("pin_memory", "leave it out"),
        ("prefetch_factor", "prefetch="),
        ("persistent_workers", "leave it out"),
        ("batch_sampler", "batch_size="),
        ("generator", "shuffle=True"),
        ("wrokers", "is it workers"),
    ],
)
def test_an_argument_of_a_dataloader_gets_ours(name: str, ours: str) -> None:
    if name in feedline._loader._ARGUMENTS:
        pytest.skip(f"not run: a loader has {name}")
    with pytest.raises(TypeError, match=re.escape(ours)):
        feedline.Loader(A, 4, **{name: 2})


def test_a_sampler_of_torch_gets_ours() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    drawn = torch.utils.data.WeightedRandomSampler(np.ones(10), 10)
    with pytest.raises(feedline.ConfigError, match=r"Sampler\.weighted"):
        feedline.Loader(A, 4, sampler=drawn)
    loader = feedline.Loader(A, 4, sampler=Sampler.weighted(torch.ones(10)), framework="numpy")
    assert sum(len(batch["x"]) for batch in loader) == 10


@pytest.mark.parametrize(
    "name", ["batch_size", "shuffle", "workers", "num_workers", "sampler", "data", "device"]
)
def test_an_attribute_that_would_do_nothing_is_read_only(name: str) -> None:
    loader = feedline.Loader(A, 4, framework="numpy")
    with pytest.raises(AttributeError, match="make a new one"):
        setattr(loader, name, 128)
    assert loader.batch_size == 4
    loader.name = "of a user"  # type: ignore[attr-defined]
    with pytest.raises(AttributeError):
        loader.epoch(0).steps = 3  # type: ignore[misc]


def test_a_hook_that_leaves_a_field_out_is_told() -> None:
    loader = feedline.Loader(A, 4, framework="numpy", map_batch=lambda batch: {"x": batch["x"]})
    with pytest.raises(feedline.Error, match="without 'y'"):
        next(iter(loader))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("step", -1),
        ("step", 2**70),
        ("step", "1.5"),
        ("epoch", 7),
        ("epoch", -1),
        ("epoch", None),
        ("bad_samples", 5),
        ("bad_samples", "[]"),
        ("cursor", 3),
        ("cursor", "zz"),
        ("cursor", ""),
        ("feedline", 2),
    ],
)
def test_a_state_that_was_changed_is_a_state_error(key: str, value: Any) -> None:
    loader = feedline.Loader(A, 4, framework="numpy")
    next(iter(loader))
    with pytest.raises(feedline.StateError):
        loader.load_state_dict({**loader.state_dict(), key: value})
    assert loader.next_epoch == 1


def test_columns_that_are_not_there_are_one_error_that_lists_the_columns(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n1,2,3\n")
    with pytest.raises(feedline.Error, match='no columns "nor", "no"') as raised:
        feedline.table(path, stack={"x": ["a", "no"]}, standardize="nor")
    assert 'the columns are "a", "b", "c"' in str(raised.value)
    with pytest.raises(feedline.Error, match='no column "no" to read; the columns are "a", "b", "c"'):
        feedline.table(path, select=["a", "no"])
    path.write_text(",".join(f"c{at}" for at in range(20)) + "\n" + ",".join("1" * 20) + "\n")
    with pytest.raises(feedline.ConfigError, match=r'stack=\{"x"'):
        feedline.open(path)


def test_samples_of_odd_forms() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")

    class Sized(torch.utils.data.IterableDataset):  # type: ignore[misc, name-defined]
        def __len__(self) -> int:
            return 3

        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    batches = list(feedline.Loader(Sized(), 3, framework="numpy", copy=True))
    assert [batch["0"].tolist() for batch in batches] == [[0, 1, 2]]
    with pytest.raises(feedline.ConfigError, match=r"feedline\.Source"):
        feedline.Data(Sized())
    with pytest.raises(feedline.ConfigError, match="name fields by strings"):
        feedline.Data([{0: 1}])
    for nested in ([((1, 2), 3)] * 4, [({"a": 1}, 3)] * 4):
        try:
            batches = list(feedline.Loader(nested, 2, framework="numpy", copy=True))
        except feedline.Error as error:
            assert "0" in str(error)
        else:
            assert [batch[1].tolist() for batch in batches] == [[3, 3], [3, 3]]


def test_transforms_of_torchvision_get_ours(tmp_path: Path) -> None:
    class Resize:
        pass

    with pytest.raises(feedline.ConfigError, match=r"use feedline\.transforms\.Resize"):
        feedline.images(tmp_path, [Resize()])  # type: ignore[list-item]
    with pytest.raises(feedline.ConfigError, match="give one number"):
        feedline.images(tmp_path, [T.ColorJitter(brightness=(0.5, 1.5))])  # type: ignore[arg-type]


def test_the_report_names_the_interpreters_lock() -> None:
    class Own:
        def __len__(self) -> int:
            return 300

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"x": index, "sum": sum(range(5000))}

    for workers in (1, 4):
        options = {"framework": "numpy", "epochs": 1, "parallel": "threads"}
        loader = feedline.Loader(Own(), 10, workers=workers, **options)
        assert sum(batch.rows for batch in loader) == 300
        report = loader.report()
        assert report.data["setup"]["is_under_one_lock"] == has_lock()
        if not has_lock():
            assert "interpreter's lock" not in report.diagnosis
            continue
        # On a busy machine another stage may be the limit.
        assert ("decode-bound" in report.diagnosis) == ("interpreter's lock" in report.diagnosis)
        assert "more worker" not in report.diagnosis
    loader = feedline.Loader(numbers(), 10, framework="numpy")
    assert not loader.report().data["setup"]["is_under_one_lock"]
