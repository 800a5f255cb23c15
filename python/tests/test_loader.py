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
import pytest
from conftest import PACKAGE, ids, numbers, script, skip_if_emulated

import feedline


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
    for value in (one, batches, batch, one.data, one._inner, batch._inner):
        for pickled in (pickle.dumps, copy.copy):
            with pytest.raises(TypeError, match="cannot be pickled"):
                pickled(value)


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


@pytest.mark.parametrize("checker", ["mypy", "pyright"])
def test_types(checker: str, tmp_path: Path) -> None:
    found = shutil.which(
        checker, path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    )
    if found is None:
        pytest.skip(f"not run: {checker} is not installed")
    use = tmp_path / "use.py"
    use.write_text(
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
    strict = ["--strict"] if checker == "mypy" else []
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE), "MYPYPATH": str(PACKAGE)}
    python = (
        ["--python-executable", sys.executable] if checker == "mypy" else ["--pythonpath", sys.executable]
    )
    command = [found, *strict, *python, str(use)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    if checker == "pyright" and done.returncode not in (0, 1):
        pytest.skip(f"not run: pyright (its program cannot be fetched): {done.stderr[-200:]}")
    assert done.returncode == 0, done.stdout
