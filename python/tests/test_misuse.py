"""Mistakes of a first hour: each error says what is wrong, where, and what to do, in Python's words."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import feedline
from feedline import transforms as T

D = feedline.Data
ONE = D({"x": np.arange(4)})
TEXTS = np.array(["a", "bb"], object)


def first(data: Any, **options: Any) -> Any:
    with feedline.Loader(data, 2, framework="numpy", workers=0, copy=True, **options) as loader:
        return next(iter(loader))


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "None": (lambda: D({"x": [1, None]}), 'field "x" has None: give a number for a missing value'),
    "None of a sample": (lambda: D([{"x": None}]), 'field "x" is None: give a number'),
    "large": (lambda: D({"x": [1, 2**70]}), 'field "x" has a whole number beyond int64'),
    "objects": (lambda: D({"x": np.array([1, 2], object)}), 'an array of objects, which are numbers: convert it'),
    "texts of a sample": (lambda: D([{"t": np.array(["a", "bb"])}]), "is an array of texts .*give str, a list of str, or numbers"),
    "rows": (lambda: D({"t": ["a"], "y": [1, 2]}, max_length={"t": 1}), "different numbers of samples"),
    "unknown": (lambda: D({"x": [1]}, max_length={"t": 1}), "max_length names 't', and the fields are"),
    "surrogate": (lambda: D([{"t": "a\ud800"}], max_length={"t": 5}), 'field "t" is a text with .* at character 1'),
    "key": (lambda: D({1: np.arange(3)}), "a field of a sample is called 1"),
    "concat": (lambda: feedline.concat([ONE, ONE]), r"give concat\(a, b\), not a list"),
    "concat dict": (lambda: feedline.concat(ONE, {"x": [1]}), "part 1 of concat is dict: give feedline.Data"),
    "zip": (lambda: feedline.zip({"x": [1]}, ONE), "part 0 of zip is dict: give feedline.Data"),
    "mix": (lambda: feedline.mix([ONE, ONE]), r"give mix\(\[\(a, 0.5\), \(b, 0.5\)\]\)"),
    "mix dict": (lambda: feedline.mix([({"x": [1]}, 1)]), "part 0 of mix is dict"),
    "fraction": (lambda: ONE[1.5], r"1.5 is no index of one sample: give a whole number, as data\[0\]"),
    "slice": (lambda: ONE[:3], r"give data.subset\(range\(len\(data\)\)\[first:end\]\)"),
    "subset": (lambda: ONE.subset(3), "subset takes indices, and this is 3: give a list"),
    "bytes": (lambda: feedline.open(b"/nope"), "path is b'/nope': give a str or a pathlib.Path"),
    "images": (lambda: feedline.images(b"/nope"), "path is b'/nope'"),
    "table": (lambda: feedline.table(5), "path is 5: give a str"),
    "record": (lambda: feedline.Loader(ONE, record=5), "record is 5: give a str"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_mistake_is_told_in_words(wrong: str) -> None:
    call, words = WRONG[wrong]
    with pytest.raises(feedline.ConfigError, match=words):
        call()


@pytest.mark.parametrize("texts", [["a", "bb"], ("a", "bb"), TEXTS, np.array(["a", "bb"])], ids=str)
def test_texts_in_a_dict_of_arrays_are_those_of_a_list_of_dicts(texts: Any) -> None:
    columns = {"t": texts, "y": np.arange(2, dtype=np.int8)}
    of_columns = D(columns, max_length={"t": 5})
    of_samples = D([{"t": "a", "y": np.int8(0)}, {"t": "bb", "y": np.int8(1)}], max_length={"t": 5})
    assert of_columns.fields == of_samples.fields and len(of_columns) == 2
    one, other = first(of_columns), first(of_samples)
    assert one["t"] == other["t"] == ["a", "bb"] and (one["y"] == other["y"]).all()
    assert first(columns, max_length={"t": 5})["t"] == ["a", "bb"]
    joined = first(columns, collate_fn=lambda samples: {"n": np.array([len(one["t"]) for one in samples])})
    assert joined["n"].tolist() == [1, 2]


def test_a_later_sample_that_does_not_fit_is_told_with_its_field() -> None:
    for value, words in ((1, '"t" is one number, and varies in length in sample 0'), ("\ud800", '"t" is a text with')):
        with pytest.raises(feedline.SampleError, match=words):
            first([{"t": "a"}, {"t": value}], max_length={"t": 5})


def test_a_field_is_asked_for_by_its_name() -> None:
    for copy in (False, True):
        with feedline.Loader(np.arange(4), 2, framework="numpy", workers=0, copy=copy) as loader:
            batch = next(iter(loader))
            assert batch["0"].tolist() == [0, 1]
            with pytest.raises(KeyError, match=r'0 is no name of a field: give one as batch\["0"\]'):
                batch[0]


TRANSFORMS: list[tuple[Callable[[], Any], str]] = [
    (lambda: T.RandomResizedCrop("a"), r"RandomResizedCrop\('a'\): give the size in pixels"),  # type: ignore[arg-type]
    (lambda: T.RandomResizedCrop(2.5), r"RandomResizedCrop\(2.5\): give the size"),  # type: ignore[arg-type]
    (lambda: T.RandomCrop((1, 2, 3)), r"give the size in pixels, a whole number or \(height, width\)"),
    (lambda: T.CenterCrop(0), "the size of CenterCrop is 0: give a whole number from 1"),
    (lambda: T.Resize((1.5, 2)), "the size of Resize is 1.5"),  # type: ignore[arg-type]
    (lambda: T.RandomResizedCrop(4, scale=(2, 1)), "the scale of RandomResizedCrop is"),
    (lambda: T.RandomResizedCrop(4, ratio=1), "the ratio of RandomResizedCrop is 1: give"),  # type: ignore[arg-type]
    (lambda: T.Pad((1, 2, 3)), "give one width, or"),
    (lambda: T.Pad(1, fill=300), "the fill of Pad is 300: give a whole number from 0 to 255"),
    (lambda: T.RandomHorizontalFlip(2), "the probability of RandomHorizontalFlip is 2: give a number from 0 to 1"),
    (lambda: T.RandomVerticalFlip(-1), "the probability of RandomVerticalFlip"),
    (lambda: T.RandomGrayscale(float("nan")), "the probability of RandomGrayscale"),
    (lambda: T.RandomErasing(1.5), "the probability of RandomErasing"),
    (lambda: T.ColorJitter(-1), "the brightness of ColorJitter is -1: give a number from 0 on"),
    (lambda: T.ColorJitter(hue=2), "the hue of ColorJitter is 2: give a number from 0 to 0.5"),
    (lambda: T.GaussianBlur(4), "the kernel_size of GaussianBlur is 4: give an odd number, such as 5"),
    (lambda: T.RandAugment(2, 99), "the magnitude of RandAugment is 99: give a whole number from 0 to 30"),
    (lambda: T.Normalize(mean=[1]), "give both, with one number per channel"),  # type: ignore[arg-type]
    (lambda: T.Normalize(mean=(1, 2)), "give one number per channel"),  # type: ignore[arg-type]
    (lambda: T.Normalize(mean=0.5), "the mean of Normalize is 0.5: give one number"),  # type: ignore[arg-type]
    (lambda: T.Normalize(std=(0, 0, 0)), "the std of Normalize has 0: give a number above 0"),
    (lambda: T.Normalize(std=(1, 1, float("nan"))), "the std of Normalize has nan"),
    (lambda: T.Normalize(mean=(1, 1, float("inf"))), "the mean of Normalize has inf"),
    (lambda: feedline.images("p", T.Resize(4)), r"give a list, \[Resize\(4\)\]"),  # type: ignore[arg-type]
    (lambda: feedline.images("p", views=[2, 3]), "give a number, or pairs such as"),  # type: ignore[list-item]
]


@pytest.mark.parametrize("at", range(len(TRANSFORMS)))
def test_a_wrong_transform_is_refused_where_it_is_made(at: int) -> None:
    call, words = TRANSFORMS[at]
    with pytest.raises(feedline.ConfigError, match=words):
        call()


def test_sizes_and_levels_of_numpy_are_taken() -> None:
    assert T.Resize(np.int64(4)).options()["shorter_side"] == 4  # type: ignore[arg-type]
    assert T.CenterCrop(np.array([4, 5])).options()["size"] == (4, 5)  # type: ignore[arg-type]
    options = T.Normalize(np.zeros(1), np.ones(1)).options()  # type: ignore[arg-type]
    assert options == {"mean": (0.0,) * 3, "std": (1.0,) * 3}


def test_the_help_of_an_error_has_its_attributes() -> None:
    told = inspect.getdoc(feedline.Error) or ""
    for name in [name for name in vars(feedline.Error) if not name.startswith("_")]:
        assert f"    {name}: " in told, name


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (feedline.Loader.__init__, "last_batch framework parallel transfer_mode"),
        (feedline.images, "decode mode box_format"),
        (feedline.open, "nulls"),
        (feedline.Data.packed, "order"),
        (feedline.Source.packed, "order"),
        (feedline.chats, "of"),
        (T.Resize, "interpolation"),
        (T.RandomResizedCrop, "interpolation"),
        (feedline.Data.costs, "by"),
    ],
)
def test_options_of_a_few_words_are_typed_as_these(function: Callable[..., Any], options: str) -> None:
    for option in options.split():
        assert "Literal[" in str(inspect.signature(function).parameters[option].annotation), option


def test_a_path_may_be_a_path(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(3))
    assert len(feedline.open(tmp_path / "x.npy")) == 3


def test_sets_nested_beyond_the_limit_are_refused_and_those_at_the_limit_are_read() -> None:
    flat = feedline.Data({"x": np.arange(4)})
    for step in (
        lambda data: data.take(4),
        lambda data: data.subset([0, 1, 2, 3]),
        lambda data: feedline.concat(data, flat).take(4),
        lambda data: feedline.mix([(data, 1.0)], samples=4),
    ):
        data = flat
        with pytest.raises(feedline.ConfigError, match="nested 257 deep") as error:
            for _ in range(300):
                data = step(data)
        assert "feedline.concat" in str(error.value)
        rows = [row for batch in feedline.Loader(data, 2, framework="numpy") for row in batch["x"].tolist()]
        assert sorted(rows) == [0, 1, 2, 3]


def test_threads_have_the_stack_that_is_asked_for() -> None:
    for size, why in ((1, "worker_stack is 1 bytes: give at least 2097152"), (2**60, "a smaller stack, or raise the limit of memory")):
        with pytest.raises(feedline.ConfigError, match=why):
            feedline.Loader({"x": np.arange(4)}, 2, worker_stack=size)
    loader = feedline.Loader({"x": np.arange(4)}, 2, worker_stack=64 << 20, framework="numpy")
    assert [batch["x"].tolist() for batch in loader] == [[0, 1], [2, 3]]


class Table:
    """An object whose `repr` is a whole table, as that of a DataFrame; or fails."""

    def __init__(self, fails: bool) -> None:
        self.fails = fails

    def __repr__(self) -> str:
        if self.fails:
            raise ValueError("no repr")
        return "\n".join(f"{row}  {row}" for row in range(10_000))

    __str__ = __repr__


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "Loader": (feedline.Loader, (ONE,)),
    "open": (feedline.open, ("/nope.csv",)),
    "table": (feedline.table, ("/nope.csv",)),
    "windows": (feedline.windows, ("/nope.csv", 2, 2)),
    "images": (feedline.images, ("/nope",)),
    "sounds": (feedline.sounds, ("/nope",)),
    "chats": (feedline.chats, ("/nope.jsonl", "/nope.json")),
    "tokens": (feedline.tokens, ("/nope.bin", 4)),
    "Data": (D, ({"x": [1]},)),
    **{f"Sampler.{name}": (getattr(feedline.Sampler, name), ()) for name in vars(feedline.Sampler)
       if not name.startswith("_") and callable(getattr(feedline.Sampler, name))},
    **{name: (getattr(T, name), ()) for name in dir(T) if isinstance(getattr(T, name), type) and name[0] != "_"
       and getattr(T, name).__module__ == T.__name__},
    **{f"Data.{name}": (getattr(D({"x": [[1, 2], [3, 4]]}), name), ()) for name in dir(D)
       if not name.startswith("_") and inspect.isfunction(getattr(D, name))},
}  # fmt: skip


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_never_prints_a_whole_table(name: str, fails: bool) -> None:
    function, arguments = FUNCTIONS[name]
    parameters = list(inspect.signature(function).parameters.values())[len(arguments) :]
    named = [one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD]
    value = Table(fails)
    for given in [(value,), ([value],), ({"x": value},), ({value: 1},), ((value, value),)]:
        for option in named:
            positional = [one for one in parameters if one.name == option and one.kind is one.VAR_POSITIONAL]
            try:
                function(*arguments, *given) if positional else function(*arguments, **{option: given[0]})
            except Exception as error:  # noqa: BLE001
                assert len(str(error)) < 700 and "\n" not in str(error), (option, given, str(error)[:200])
