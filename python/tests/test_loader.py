"""Conventions of Python: signals, forks, pickles, ranks, logging, reports, stubs and docs."""

from __future__ import annotations

import copy
import doctest
import importlib
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import wave
from pathlib import Path
from typing import Any

import numpy as np
import own_sets
import page_files
import pytest
from conftest import PACKAGE, ids, numbers, script, skip_if_emulated

import feedline
from feedline import transforms as T


def loader(**options: Any) -> feedline.Loader:
    return feedline.Loader(numbers(), 10, **{"framework": "numpy", **options})


def test_ctrl_c_ends_a_wait_within_100_ms(slow: Any) -> None:
    batches = iter(feedline.Loader(slow, 10, framework="numpy", drop_timeout=0.1))
    assert len(next(batches)["id"]) == len(next(batches)["id"]) == 10
    took = []
    for _ in range(5):
        sent = []

        def send() -> None:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(0.1, send)
        with pytest.raises(KeyboardInterrupt):
            timer.start()  # within, for a machine so busy that this takes 0.1 s
            next(batches)
        took.append(time.monotonic() - sent[0])
        timer.join()
    # The best of five: another program may have the processor in between.
    assert min(took) < 0.1, took
    slow.gate.set()
    assert next(batches)["id"][0] == 20, "the epoch goes on"


FORK = """
import os, sys
import feedline, numpy as np
loader = feedline.Loader({"x": np.arange(100)}, 10, framework="numpy")
batches = iter(loader)
next(batches)
child = os.fork()
if child == 0:
    load = lambda: loader.load_state_dict(loader.state_dict())
    for call in (lambda: next(batches), lambda: loader.epoch(3), load):
        try:
            call()
        except feedline.ForkedError as error:
            print(error, flush=True)
    loader.close()
    fresh = feedline.Loader({"x": np.arange(100)}, 10, framework="numpy")
    print(sum(len(batch["x"]) for batch in fresh), flush=True)
    del loader, batches
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), next(batches)["x"][0])
"""


def test_a_forked_child_gets_one_sentence_and_can_make_its_own() -> None:
    skip_if_emulated("qemu fails an assertion of its own when a process with threads forks")
    done = script(FORK)
    *refused, fresh, parent = done.stdout.splitlines()
    assert len(refused) == 3 and all("make the loader after the fork" in line for line in refused), (
        done.stderr
    )
    assert (fresh, parent) == ("100", "7 10"), done.stderr


def test_pickles_and_copies_are_refused_in_one_sentence() -> None:
    one = loader()
    batches = iter(one)
    batch = next(batches)
    for value in (one, batches, batch, one._inner, batch._inner):
        for pickled in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickled(value)


def files(at: str) -> dict[str, feedline.Data]:
    """Data of the files of `page_files`, whose paths begin with ``at``."""
    ids = feedline.open(at + "math.bin", max_length=9)
    crop, flip = T.RandomCrop(6), T.RandomHorizontalFlip()
    speech = feedline.MelSpectrogram(n_fft=200, n_mels=8)
    window: dict[str, Any] = {"group": "shop", "order_by": "day", "x": ["sold", "price"], "y": "sold"}
    sales = feedline.windows(at + "sales.csv", 2, 1, **window, max_gap=2)
    return {
        "npz": feedline.open(at + "xy.npz"),
        "pattern": feedline.open(at + "pictures-{000..001}.tar"),
        "types": feedline.open(at + "shards/0.csv", types={"code": "text"}, nulls="fill", max_length={"code": 3}),
        "manifest": feedline.open(at + "clips.csv", files="clip"),
        "split": feedline.open(at + "mnist", split="test"),
        "images": feedline.images(at + "pictures/train", [crop, flip]),
        "views": feedline.images(at + "pictures/train", views=[(2, [crop]), (1, [crop, flip])]),
        "coco": feedline.images(at + "photographs", [T.Resize((8, 8)), flip], annotations=at + "instances.json",
                                max_boxes=3),
        "sounds": feedline.sounds(at + "words", rate=8000, crop=0.1, mel=speech),
        "table": feedline.table(at + "train.csv", stack={"x": ["age", "income"]}, category=["city"], fill_mean=["x"],
                                fill={"city": "Rome"}),
        "saved": feedline.table(at + "train.csv", select=["age"], fill_mean="age", saved=at + "age.json"),
        "windows": sales,
        "targets": sales.targets_in(stop=6),
        "tokens": feedline.tokens([at + "books.bin", (at + "code.bin", 2)], 4, dtype=np.uint16, separator=0,
                                  skip_short=True),
        "chats": feedline.chats(at + "chats.jsonl", at + "tokenizer/tokenizer.json").packed("ids", 16, labels="labels"),
        "packed": ids.packed(["ids"], 4, shuffle=3),
        "unpadded": ids.unpadded("ids"),
        "negatives": feedline.open(at + "sales.csv", max_length=1).negatives("day", 2, 90, seed=5),
        "cached": feedline.open(at + "xy.npz").cached(1 << 20, at + "cache.bin"),
    }


def composed() -> dict[str, feedline.Data]:
    """Data of arrays and objects, and compositions."""
    x, y = feedline.Data(numbers()), feedline.Data({"y": np.arange(100)})
    pairs = feedline.Data(own_sets.Pairs())
    return {
        "arrays": x,
        "again": feedline.Data(x),
        "lists": feedline.Data({"t": [[1, 2], [3]]}, max_length={"t": 2}),
        "own": feedline.Data(own_sets.Numbers(), seed_generators=False),
        "texts": feedline.Data(own_sets.Texts(), max_length={"text": 20, "items": 9}),
        "tuples": pairs.take(3).skip(1),
        "many fields": feedline.Data(own_sets.Many(), max_length={"text": 4}).subset(iter([5, 2, 2])),
        "collated": feedline.Data(own_sets.Numbers(), collate_fn=own_sets.in_dict),
        "subset": x.subset(np.array([3, 1])),
        "map": x.map(own_sets.double).filter(lambda sample: sample["id"] > 40),
        "split": x.split(0.2, 0.8, seed=4)[1],
        "fold": x.folds(4, labels=np.arange(100) % 2, seed=3)[2][1],
        "repeat": x.repeat(2).cached(1 << 10),
        "concat": feedline.concat(x.take(3), x.skip(90)),
        "zip": feedline.zip(x, y, independent=True),
        "mix": feedline.mix([(x, 0.3), (x.take(5), 0.7)], seed=3, samples=20, weights_from_epoch={1: [0, 1]}),
    }


def content(data: feedline.Data) -> list[Any]:
    samples = [sample if isinstance(sample, tuple) else tuple(sample.items()) for sample in data]
    kinds = type(data).__name__, data.fields, data.fingerprint, data.classes, data.categories, data.fate
    bytes_of = lambda value: value if isinstance(value, (str, list)) else np.asarray(value).tobytes()
    return [*kinds, *(repr([bytes_of(part) if not isinstance(part, tuple) else (part[0], bytes_of(part[1]))
                            for part in sample]) for sample in samples)]


@pytest.mark.parametrize(("is_absolute", "protocol"), [(False, 2), (True, pickle.HIGHEST_PROTOCOL)])
def test_data_is_pickled_by_what_it_was_made_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_absolute: bool, protocol: int
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    page_files.write(folder)
    monkeypatch.chdir(folder)
    for name, data in {**files(f"{folder}/" if is_absolute else ""), **composed()}.items():
        wanted = content(data)
        monkeypatch.chdir(tmp_path if is_absolute else folder)
        again = pickle.loads(pickle.dumps(data, protocol))
        assert type(again) is type(data) and content(again) == wanted, name
        assert content(pickle.loads(pickle.dumps(again, protocol))) == wanted, name
        assert copy.copy(data) is data and copy.deepcopy([data])[0] is data


def test_a_relative_path_is_that_of_the_folder_where_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page_files.write(tmp_path)
    monkeypatch.chdir(tmp_path)
    data = [feedline.open("xy.npz"), feedline.tokens(["books.bin", ("code.bin", 2)], 4, dtype="uint16")]
    data.append(feedline.chats("chats.jsonl", tokenizer="tokenizer/tokenizer.json"))
    data += [feedline.open("clips.csv", files="clip"), feedline.images("pictures/train", [T.CenterCrop(6)])]
    wanted, pickled = list(map(content, data)), pickle.dumps(data)
    monkeypatch.chdir("/")
    assert list(map(content, pickle.loads(pickled))) == wanted


def test_batches_of_pickled_data_are_the_same() -> None:
    for data in (feedline.Data(own_sets.Numbers(), collate_fn=own_sets.in_nest), feedline.Data(own_sets.Noise())):
        again = pickle.loads(pickle.dumps(data))
        loaders = [feedline.Loader(one, 10, shuffle=3, framework="numpy") for one in (data, again)]
        found = [[repr(dict(batch) if isinstance(batch, feedline.Batch) else batch) for batch in one]
                 for one in loaders]
        assert found[0] == found[1] and len(found[0]) == 10


SPAWN = """
import multiprocessing, os, sys
from concurrent.futures import ProcessPoolExecutor
import numpy as np, feedline

def sum_of(data):
    os.chdir("/")
    return int(sum(int(sample["id"]) for sample in data)), data.fingerprint

if __name__ == "__main__":
    np.savez("ids.npz", id=np.arange(50))
    parts = feedline.open("ids.npz").split(0.5, 0.5)
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        sums = list(pool.map(sum_of, parts))
    assert sum(one for one, _ in sums) == 1225 and [one for _, one in sums] == [part.fingerprint for part in parts]
    print("done")
"""


def test_a_pool_of_spawned_processes_takes_data(tmp_path: Path) -> None:
    path = tmp_path / "pool.py"
    path.write_text(SPAWN)
    done = subprocess.run(
        [sys.executable, str(path)],
        capture_output=True, text=True, timeout=120, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(PACKAGE)},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


class Opens(own_sets.Numbers):
    """Opens a file for its first sample."""

    file: Any = None

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.file = self.file or open(os.devnull)  # noqa: SIM115
        return {"id": index}


def test_a_piece_that_cannot_be_pickled_is_named() -> None:
    data = feedline.Data(numbers())
    held = own_sets.Numbers()
    held.lock = threading.Lock()  # type: ignore[attr-defined]
    for value, why in (
        (data.map(lambda sample: sample), "function of Data.map is a lambda"),
        (data.map(lambda sample: sample).subset([1]).repeat(2), "function of Data.map is a lambda"),
        (feedline.Data(held), r"samples of Data\.lock is _thread.lock"),
        (feedline.Data([{"id": 1}], collate_fn=lambda some: {"id": np.ones(len(some))}), "collate_fn of Data is a"),
        (feedline.concat(data, data.map(lambda sample: sample)), "function of Data.map is a lambda"),
    ):
        with pytest.raises(feedline.ConfigError, match=f"cannot be pickled: {why}.*: give .* of a module"):
            pickle.dumps(value)
    # A file that the first sample has opened is opened by each process.
    opened = feedline.Data(Opens())
    assert opened[3]["id"] == 3 and pickle.loads(pickle.dumps(opened))[4]["id"] == 4
    # What changes later is kept, as in worker processes.
    own = own_sets.Numbers()
    changed = feedline.Data(own)
    own.samples, own.folder = 100, "of later"
    assert pickle.loads(pickle.dumps(changed))._made.arguments[0].folder == "of later"


def test_a_pickler_that_takes_lambdas_takes_data_with_them() -> None:
    cloudpickle = pytest.importorskip("cloudpickle", reason="not run: cloudpickle is not installed")
    data = feedline.Data(numbers()).map(lambda sample: {"id": sample["id"] + 1}).take(5)
    assert content(pickle.loads(cloudpickle.dumps(data))) == content(data)


def test_data_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5))
    arrays = numbers()
    for data, change in (
        (feedline.open(tmp_path / "x.npy").take(3), lambda: np.save(tmp_path / "x.npy", np.arange(1, 6))),
        (feedline.Data(arrays), lambda: arrays["id"].fill(0)),
    ):
        pickled = pickle.dumps(data)
        pickle.loads(pickled)
        change()
        with pytest.raises(feedline.DataError, match="have changed since it was opened: open it again"):
            pickle.loads(pickle.dumps(data))


def test_ranks_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    one = loader()
    assert (one.rank, one.world_size, len(one)) == (1, 2, 5)
    assert sorted(ids(one) + ids(loader(world=(0, 2)))) == list(range(100))
    assert len(loader(world=None)) == 10
    monkeypatch.delenv("RANK")
    with pytest.raises(feedline.ConfigError, match="WORLD_SIZE is set but RANK is not"):
        loader()
    with pytest.raises(feedline.ConfigError, match='use "env"'):
        loader(world="mpi")


def test_the_ranks_of_torch_distributed(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    store = torch.distributed.FileStore(str(tmp_path / "store"), 1)
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert loader(world="torch").world_size == 1
    finally:
        torch.distributed.destroy_process_group()


def test_one_epoch_at_a_time() -> None:
    one = loader()
    first = iter(one)
    next(first)
    second = iter(one)
    next(second)
    with pytest.raises(RuntimeError, match="one at a time"):
        next(first)
    assert len(ids(second)) == 90
    with pytest.raises(StopIteration):
        next(second)


def test_epochs_by_number_and_the_next_one() -> None:
    one = loader(shuffle=7)
    assert one.next_epoch == 0
    iter(one)
    assert one.next_epoch == 0, "an epoch of which nothing was taken is not counted"
    orders = [ids(one) for _ in range(3)]
    assert one.next_epoch == 3 and orders[0] != orders[1]
    assert ids(one.epoch(1)) == orders[1] and one.next_epoch == 2
    limited = loader(epochs=1)
    assert len(ids(limited)) == 100
    with pytest.raises(feedline.ConfigError, match="built for 1 epochs"):
        iter(limited)
    assert len(ids(loader(skip={0: range(2, 5)}))) == 70


def test_with_closes_and_a_closed_loader_says_so() -> None:
    before = len(os.listdir("/proc/self/task"))
    with loader() as one:
        batches = iter(one)
        array = next(batches)["x"]
    with pytest.raises(feedline.StoppedError, match="closed"):
        next(batches)
    with pytest.raises(feedline.StoppedError):
        one.epoch(0)
    one.close()
    assert array[0, 1] == 1 and one.state_dict()["samples"] == 10
    del array
    limit = time.monotonic() + 20
    while len(os.listdir("/proc/self/task")) > before:
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_close_on_another_thread_ends_a_wait(slow: Any) -> None:
    one = feedline.Loader(slow, 10, framework="numpy", drop_timeout=0.1)
    batches = iter(one)
    next(batches), next(batches)

    def close() -> None:
        # The worker is still in the data set.
        with pytest.raises(feedline.Error, match="did not stop"):
            one.close()

    timer = threading.Timer(0.1, close)
    timer.start()
    with pytest.raises(feedline.StoppedError):
        next(batches)
    timer.join()


def test_options_are_checked() -> None:
    for options, message in [
        ({"device": "tpu"}, "device 'tpu'"),
        ({"framework": "tensorflow"}, "framework 'tensorflow'"),
        ({"last_batch": "none"}, "last_batch"),
        ({"transfer_mode": "fast"}, "transfer_mode"),
        ({"device": "cuda", "framework": "numpy"}, "NumPy has no arrays on a GPU"),
        ({"held_timeout": -1}, "held_timeout"),
        ({"pad": {"x": 0}}, "nothing to pad"),
        ({"prefetch": 0}, "prefetch is 0"),
        ({"shuffle": 3, "seed": 4}, "two seeds"),
        ({"bad_samples": 1.5}, "from 0.0 to 1.0"),
    ]:
        with pytest.raises(feedline.ConfigError, match=message) as raised:
            loader(**options)
        assert isinstance(raised.value, ValueError) and "\n" not in str(raised.value)
    with pytest.raises(TypeError, match="has no num_workers"):
        loader(num_workers=3)


def test_reports_and_logs(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="feedline"):
        one = loader()
        ids(one)
    assert "Loader(100 samples, batches of 10, 10 steps, numpy on cpu" in caplog.text
    assert "epoch 0: 100 rows in 10 batches" in caplog.text
    report = one.report()
    assert report.data["epoch"]["rows"] == 100 and "decode" in str(report) and report.diagnosis in str(report)
    assert "<iframe" in report._repr_html_() and "<html" in report.page
    assert one.memory["pinned"] > 0


def test_a_bad_sample_is_logged_and_replaced(caplog: pytest.LogCaptureFixture) -> None:
    class Bad:
        def __len__(self) -> int:
            return 40

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 7:
                raise OSError("torn")
            return {"id": index}

    one = feedline.Loader(Bad(), 10, framework="numpy", bad_samples=1)
    with caplog.at_level(logging.WARNING, logger="feedline"):
        seen = ids(one)
    assert len(seen) == 40 and 7 not in seen
    (told,) = [record.getMessage() for record in caplog.records]
    row, why = told.split("unreadable sample 7: OSError: torn (file ")
    assert row == "batch 0, row 7: " and why.startswith(f"{__file__}, line ")
    assert int(why.rpartition("; sample ")[2].removesuffix(" instead")) == seen[7]
    again = feedline.Loader(Bad(), 10, framework="numpy", bad_samples=1)
    again.load_state_dict(one.state_dict())
    ids(again)
    assert again.state_dict()["bad_samples"] is not None
    with pytest.raises(feedline.SampleError, match="torn"):
        ids(feedline.Loader(Bad(), 10, framework="numpy"))


def test_every_unreadable_sample_of_a_row_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Bad:
        def __len__(self) -> int:
            return 20

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index % 2:
                raise ValueError(f"torn\nat {index}")
            return {"id": index}

    options: dict[str, Any] = {"framework": "numpy", "bad_samples": 10}
    for is_copied in (False, True):
        caplog.clear()
        with feedline.Loader(Bad(), 20, copy=is_copied, **options) as one:
            (batch,) = one
            replaced, seen = batch.substituted, batch["id"].tolist()
            del batch
        texts = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert [row for row, _ in replaced] == list(range(1, 20, 2)) and len(texts) == 10
        for (row, substitute), text in zip(replaced, texts, strict=True):
            assert text.startswith(f"batch 0, row {row}: unreadable sample {row}: ValueError: torn at {row} (file ")
            assert text.endswith(f"; sample {substitute} instead") and seen[row] == substitute
        # Some substitutes cannot be read either.
        tried = [part for text in texts for part in text.split("; ")[1:-1]]
        assert tried and all(part.startswith("sample ") and ": ValueError: torn at " in part for part in tried)


def test_tqdm_knows_the_length() -> None:
    tqdm = pytest.importorskip("tqdm", reason="not run: tqdm is not installed")
    with open(os.devnull, "w") as nowhere:
        bar = tqdm.tqdm(loader().epoch(0), file=nowhere)
        assert bar.total == 10 and len(ids(bar)) == 100


MODULES = [
    "feedline",
    *(
        f"feedline.{name}"
        for name in (
            *("_compare", "_compose", "_data", "_errors", "_loader", "_open", "_source", "_table", "_windows"),
            "transforms",
        )
    ),
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0 and result.failed == 0


def test_every_public_name_has_docs() -> None:
    for name in feedline.__all__:
        value = getattr(feedline, name)
        if name in ("__version__", "transforms"):
            continue
        assert value.__doc__, name
        for method in (
            [one for one in vars(value) if not one.startswith("_")] if isinstance(value, type) else []
        ):
            described = getattr(value, method)
            assert not callable(described) or described.__doc__, f"{name}.{method}"


def test_the_programs_of_the_readme_run(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="not run: torch is not installed")
    readme = (Path(__file__).parent.parent / "README.md").read_text()
    programs = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert programs
    np.savez(tmp_path / "train.npz", image=np.zeros((500, 784), np.uint8), label=np.arange(500) % 10)
    for word in ("no", "yes"):
        (tmp_path / "words" / word).mkdir(parents=True)
        with wave.open(str(tmp_path / "words" / word / "1.wav"), "wb") as sound:
            sound.setparams((1, 2, 8000, 4000, "NONE", ""))
            sound.writeframes(bytes(8000))
    for program in programs:
        program = program.replace("cuda:0", "cpu").replace("range(10)", "range(2)")
        done = script(program, cwd=tmp_path)
        assert done.returncode == 0, f"{program}\n{done.stderr}"


def checked(checker: str, folder: Path, program: str) -> str:
    """What a checker of types says of a program without an error, where torch is not imported."""
    found = shutil.which(
        checker, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if found is None:
        pytest.skip(f"not run: {checker} is not installed")
    use = folder / "use.py"
    use.write_text(program)
    strict = ["--strict"] if checker == "mypy" else []
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "MYPYPATH": str(PACKAGE)}
    python = (
        ["--python-executable", sys.executable] if checker == "mypy" else ["--pythonpath", sys.executable]
    )
    command = [found, *strict, *python, str(use)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    if checker == "pyright" and done.returncode not in (0, 1):
        pytest.skip(f"not run: pyright (its program cannot be fetched): {done.stderr[-200:]}")
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_types(checker: str, tmp_path: Path) -> None:
    checked(
        checker,
        tmp_path,
            "import feedline\n"
            "from feedline import transforms as T\n"
            "data = feedline.open('x.parquet', max_length={'text': 3})\n"
            "photos = feedline.images('photos', [T.Resize(8), T.Normalize()])\n"
            "loader = feedline.Loader(data, 8, shuffle=7, device='cuda:0')\n"
            "state: dict[str, object] = loader.state_dict()\n"
            "for batch in loader.epoch(0):\n"
            "    print(batch['x'].sum(), batch.ids.shape)\n"
            "steps: int = len(loader.epoch(1))\n"
            "first, second = data.split(0.5, 0.5)\n"
            "table = feedline.table('x.csv', stack={'x': ['a', 'b']}, category='c', cast={'x': 'float64'})\n"
            "names: list[str] = table.categories['c']\n"
            "source = feedline.Source(lambda: iter([1, 2]), max_length={'text': 3})\n"
            "streamed = feedline.Loader(source, 8, shuffle=7, shuffle_buffer=1 << 20, split_shards=True)\n"
            "photos = feedline.images('photos', [T.Resize(8)], decode='auto')\n"
            "mel = feedline.MelSpectrogram(n_mels=80, log='10')\n"
            "speech = feedline.sounds('speech', rate=16_000, crop=1.5, mel=mel, beside=['text'])\n"
    )


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_a_field_of_a_batch_has_a_type_and_is_taken_for_a_tensor_or_an_array(checker: str, tmp_path: Path) -> None:
    program = """
import feedline
import numpy as np

class Tensor: ...

def step(batch: feedline.Batch, model: "Model") -> None:
    x = batch["x"]
    reveal_type(x)
    reveal_type(x.shape)
    reveal_type(x[0] * 2)
    for name, value in batch.items():
        reveal_type(value)
    model.takes(x, x, batch.get("y"))
    print(x.float().div_(255), x.astype(np.float32), (x == x[0]).all(), x > 1, -x, x @ x, 1 - x, float(x.mean()))
    tokens = batch["tokens"]
    print(tokens.values[0], tokens.offsets, tokens.rows(), np.asarray(x), len(x), [row for row in x], x.T)
    values, offsets = batch["tokens"]
    wrong: bool = isinstance(x, Tensor)
    whole: dict[str, Tensor] = dict(batch)
    print(wrong, whole, values, offsets)

class Model:
    def takes(self, x: Tensor, y: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]", z: Tensor | None) -> None: ...
"""
    told = checked(checker, tmp_path, program)
    assert told.count('Array"') == 3 and ("tuple[int, ...]" in told or "tuple[builtins.int, ...]" in told), told
