"""Data sets of one's own, read by worker processes: the same batches as by threads."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import own_sets
import pytest
from conftest import PACKAGE, skip_if_emulated, wait_until

import feedline
from feedline._workers.choice import has_lock

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="not run: worker processes need Linux"),
    pytest.mark.skipif(not has_lock(), reason="not run: a free-threaded build reads by threads"),
]

#: How a set is read: no process, and several.
WAYS = [{"workers": 0}, {"parallel": "threads", "workers": 3}, {"workers": 1}, {"workers": 2}, {"workers": 8}]


def rows(batches: Any) -> list[tuple[Any, ...]]:
    """All values of all rows."""
    found: list[tuple[Any, ...]] = []
    for batch in batches:
        fields = [np.asarray(batch[name]) for name in sorted(batch)]
        found += [tuple(value.tobytes() for value in row) for row in zip(*fields, strict=True)]
        del batch, fields
    return found


def workers() -> list[int]:
    """The worker processes and the fork servers that this process has."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if (process / "comm").read_text().strip() == "feedline-worker" and _is_of(int(process.name)):
                found.append(int(process.name))
        except (OSError, ValueError):
            continue
    return found


def _is_of(process: int) -> bool:
    while process > 1:
        stat = Path(f"/proc/{process}/stat").read_text()
        process = int(stat.rsplit(")", 1)[1].split()[1])
        if process == os.getpid():
            return True
    return False


def descriptors() -> list[str]:
    """What this process has open."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(re.sub(r"\d+", "N", os.readlink(f"/proc/self/fd/{name}")))
    return sorted(found)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Any:
    """No process of a test outlives it."""
    yield
    assert workers() == []


def test_batches_are_the_same_whoever_reads() -> None:
    seen = []
    for way in WAYS:
        with feedline.Loader(own_sets.Numbers(), 8, shuffle=5, framework="numpy", **way) as loader:
            seen.append([rows(loader.epoch(epoch)) for epoch in range(3)])
            assert len(set(map(repr, seen[-1]))) == 3, "each epoch has an order of its own"
    assert all(one == seen[0] for one in seen)
    ids = sorted(int.from_bytes(row[0], sys.byteorder) for row in seen[0][0])
    assert ids == list(range(100))


def test_tuples_and_fields_that_vary() -> None:
    for way in WAYS:
        got = []
        with feedline.Loader(own_sets.Pairs(), 8, shuffle=1, framework="numpy", **way) as loader:
            for x, y in loader:
                assert x.dtype == np.int16 and (x == y[:, None]).all()
                got += y.tolist()
                del x, y
        assert sorted(got) == list(range(100))
        data = feedline.Data(own_sets.Texts(), max_length={"text": 8, "items": 4})
        with feedline.Loader(data, 7, shuffle=2, framework="numpy", **way) as loader:
            for batch in loader:
                texts, all_items = batch["text"], batch["items"].rows()
                for index, text, items in zip(batch["id"].tolist(), texts, all_items, strict=True):
                    assert text == "x" * (index % 5)
                    assert items.shape == (index % 3, 2) and (items == index).all()
                del batch, items, all_items


def test_workers_are_processes_and_their_number_is_the_stated_one() -> None:
    for count in (1, 2, 3):
        with feedline.Loader(own_sets.Who(400), 4, framework="numpy", workers=count) as loader:
            seen = {int(one) for batch in loader for one in batch["process"]}
            assert os.getpid() not in seen and len(seen) <= count
            assert len(workers()) == count + 1, "and the fork server"
            assert f"{count} process" in repr(loader)
    for way in ({}, {"workers": 0}, {"workers": 2, "parallel": "threads"}):
        with feedline.Loader(own_sets.Who(), 4, framework="numpy", **way) as loader:
            assert {int(one) for batch in loader for one in batch["process"]} == {os.getpid()}
            assert "threads" in repr(loader) or "1 thread" in repr(loader)
    with pytest.raises(feedline.ConfigError, match="parallel"):
        feedline.Loader(own_sets.Who(), 4, parallel="fork")
    with pytest.raises(feedline.ConfigError, match="workers"):
        feedline.Loader(own_sets.Who(), 4, workers=-1)


def test_composed_data_is_read_by_processes() -> None:
    first, second = feedline.Data(own_sets.Numbers(30)), feedline.Data(own_sets.Numbers(50))
    arrays = feedline.Data({"id": np.arange(40), "x": np.zeros((40, 2, 3), np.float32)})
    made = {
        "subset": first.subset([3, 1, 29, 3]),
        "split": feedline.Data(own_sets.Numbers(50)).split(0.5, 0.5)[1],
        "concat": feedline.concat(first, arrays, second.take(9)),
        "mix": feedline.mix([(first, 1.0), (second, 2.0)], samples=60),
        "repeat": first.repeat(2),
        "cached": second.cached(1 << 20),
    }
    for name, data in made.items():
        read = []
        for way in ({"workers": 0}, {"workers": 2}):
            with feedline.Loader(data, 7, shuffle=3, framework="numpy", **way) as loader:
                read.append([rows(loader.epoch(epoch)) for epoch in range(2)])
        assert read[0] == read[1], name


def test_two_loaders_share_the_processes_of_a_data_set() -> None:
    data = feedline.Data(own_sets.Numbers())
    one = feedline.Loader(data, 8, framework="numpy", workers=1)
    two = feedline.Loader(data, 8, framework="numpy", workers=2)
    assert len(workers()) == 3
    first = rows(two)
    one.close()
    assert len(workers()) == 3 and rows(two.epoch(0)) == first
    three = feedline.Loader(data, 8, framework="numpy", parallel="threads")
    batches = iter(three)
    assert next(batches)["id"][0] == 0
    two.close()
    assert workers() == []
    assert sum(len(batch["id"]) for batch in batches) == 92
    three.close()


@pytest.mark.parametrize("kind", [own_sets.Noise, own_sets.RareNoise, own_sets.TorchNoise])
def test_random_numbers_are_those_of_the_draw(kind: Any) -> None:
    if kind is own_sets.TorchNoise:
        pytest.importorskip("torch", reason="not run: torch is not installed")
    seen = []
    for way in WAYS:
        with feedline.Loader(kind(), 8, shuffle=5, framework="numpy", **way) as loader:
            seen.append([rows(loader.epoch(epoch)) for epoch in range(2)])
    assert all(one == seen[0] for one in seen)
    values = {epoch: dict(read_of(kind, epoch)) for epoch in range(2)}
    if kind is not own_sets.RareNoise:
        assert len(set(values[0].values())) == 100, "each sample has numbers of its own"
        assert all(values[0][one] != values[1][one] for one in range(100)), "in each epoch others"


def read_of(kind: Any, epoch: int) -> Any:
    with feedline.Loader(kind(), 16, shuffle=5, framework="numpy", workers=2) as loader:
        for batch in loader.epoch(epoch):
            names = [name for name in batch if name != "id"]
            for row, index in enumerate(batch["id"].tolist()):
                yield index, b"".join(np.asarray(batch[name])[row].tobytes() for name in names)
            del batch


def test_any_batch_size_and_number_of_ranks_have_the_same_random_numbers() -> None:
    whole = dict(read_of(own_sets.Noise, 0))
    for size in (3, 50):
        parts = {}
        for rank in range(2):
            data, world = own_sets.Noise(), (rank, 2)
            with feedline.Loader(data, size, shuffle=5, framework="numpy", world=world, workers=1) as loader:
                for batch in loader.epoch(0):
                    for row, index in enumerate(batch["id"].tolist()):
                        names = [name for name in batch if name != "id"]
                        parts[index] = b"".join(np.asarray(batch[name])[row].tobytes() for name in names)
                    del batch
        assert parts == whole


def test_the_generators_of_this_process_are_left_alone() -> None:
    import random

    random.seed(3)
    np.random.seed(3)
    wanted = random.Random(3).random(), np.random.RandomState(3).rand()
    for way in ({"workers": 0}, {"workers": 2}):
        random.seed(3)
        np.random.seed(3)
        with feedline.Loader(own_sets.Noise(), 8, shuffle=5, framework="numpy", **way) as loader:
            rows(loader)
        assert (random.random(), np.random.rand()) == wanted


def test_seeding_can_be_switched_off() -> None:
    seen = []
    for _ in range(2):
        data = feedline.Data(own_sets.Noise(), seed_generators=False)
        with feedline.Loader(data, 8, framework="numpy", workers=1) as loader:
            seen.append(rows(loader))
    assert seen[0] != seen[1]


def test_resumes_at_any_step() -> None:
    chance = np.random.default_rng(4)
    data = feedline.Data(own_sets.Noise())
    with feedline.Loader(data, 8, shuffle=5, framework="numpy", workers=0) as loader:
        wanted = {epoch: rows(loader.epoch(epoch)) for epoch in range(2)}
    for round in range(12):
        epoch, step = int(chance.integers(2)), int(chance.integers(14))
        way = WAYS[round % len(WAYS)]
        with feedline.Loader(data, 8, shuffle=5, framework="numpy", **way) as loader:
            batches = loader.epoch(epoch)
            before = rows(next(batches) for _ in range(min(step, len(batches))))
            state = loader.state_dict()
        size = int(chance.integers(1, 20))
        other = WAYS[(round + 3) % len(WAYS)]
        with feedline.Loader(data, size, shuffle=5, framework="numpy", **other) as loader:
            loader.load_state_dict(state)
            after = rows(loader.epoch(epoch)) if len(before) < 100 else []
        assert before + after == wanted[epoch], (epoch, step, way, other)


def test_epochs_that_are_left_early() -> None:
    with feedline.Loader(own_sets.Numbers(), 4, shuffle=5, framework="numpy", workers=0) as loader:
        wanted = [rows(loader.epoch(epoch)) for epoch in range(6)]
    with feedline.Loader(own_sets.Numbers(), 4, shuffle=5, framework="numpy", workers=2) as loader:
        for epoch in range(6):
            batches = loader.epoch(epoch)
            part = rows(next(batches) for _ in range(3 * epoch % 7))
            assert part == wanted[epoch][: len(part)]
        assert rows(loader.epoch(2)) == wanted[2]


def test_arrays_are_held_once_and_files_are_mapped_again(tmp_path: Path) -> None:
    path = tmp_path / "mapped.npy"
    np.save(path, np.arange(60 * 8).reshape(60, 8))
    data = own_sets.Arrays(50, str(path))
    with feedline.Loader(data, 7, framework="numpy", workers=2) as loader:
        # Each worker maps the file, once it has the data set.
        wait_until(lambda: sum(str(path) in Path(f"/proc/{worker}/maps").read_text() for worker in workers()) == 2)
        for batch in loader:
            for row, index in enumerate(batch["id"].tolist()):
                wanted = np.arange(index * 1000, index * 1000 + 1000, dtype=float)
                wanted[5] += 1
                # The first sample was read here too, for its fields.
                assert index == 0 or (batch["large"][row] == wanted).all()
                assert (batch["column"][row] == np.arange(index * 1000, index * 1000 + 7)).all()
                assert (batch["small"][row] == index).all()
                assert (batch["mapped"][row] == data.mapped[index]).all()
                assert (batch["part"][row] == data.part[index]).all()
            del batch
    assert data.large[1, 5] == 1005, "a worker has a copy of its own"


def test_tensors_of_a_data_set() -> None:
    torch = pytest.importorskip("torch", reason="not run: torch is not installed")
    x = torch.arange(40_000).reshape(100, 400)
    tensors = torch.utils.data.TensorDataset(x, x[:, ::2].float(), torch.arange(100))
    with feedline.Loader(tensors, 8, shuffle=1, framework="torch", workers=2) as loader:
        for one, other, index in loader:
            assert torch.equal(one, x[index]) and torch.equal(other, x[index, ::2].float())
            del one, other, index
    # The class is in torch, which the fork server imports once.
    half = torch.utils.data.TensorDataset(torch.arange(500).bfloat16(), torch.arange(500))
    pytest.importorskip("ml_dtypes", reason="not run: ml_dtypes is not installed")
    with feedline.Loader(half, 50, framework="torch", workers=1) as loader:
        for one, index in loader:
            assert one.dtype == torch.bfloat16 and torch.equal(one, index.bfloat16())
            del one, index


def test_map_with_a_function_of_a_module(tmp_path: Path) -> None:
    np.savez(tmp_path / "ids.npz", id=np.arange(30))
    opened = feedline.open(tmp_path / "ids.npz")
    for data in (feedline.Data({"id": np.arange(30)}), feedline.Data(own_sets.Numbers(30)), opened):
        mapped = data.map(own_sets.double).map(own_sets.double)
        with feedline.Loader(mapped, 4, framework="numpy", workers=2, parallel="processes") as loader:
            read = []
            for batch in loader:
                read += zip(batch["id"].tolist(), batch["double"].tolist(), strict=True)
                del batch
        assert read == [(one, 2 * one) for one in range(30)]


def test_bad_samples_get_the_same_substitutes(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    seen = []
    for way in WAYS:
        data = own_sets.Faulty(60, str(tmp_path), "raise", always=True)
        with feedline.Loader(data, 8, shuffle=2, framework="numpy", bad_samples=3, **way) as loader:
            seen.append(rows(loader))
            assert "33" in str(loader.state_dict()["bad_samples"])
    logged = [text for record in caplog.records if "unreadable" in (text := record.getMessage())]
    assert len(logged) == len(WAYS) and len(set(logged)) == 1
    assert f"unreadable sample 33: KeyError: 'lost' (file {own_sets.__file__}, line " in logged[0]
    assert all(one == seen[0] for one in seen) and len(seen[0]) == 60


def test_the_report_counts_the_workers_that_the_user_gave(tmp_path: Path) -> None:
    for parallel in ("processes", "threads"):
        for count in (1, 2, 3):
            data, how = own_sets.Sleeps(120), {"parallel": parallel, "workers": count}
            with feedline.Loader(data, 8, framework="numpy", **how) as loader:
                assert len(rows(loader)) == 120
                report = loader.report()
            assert report.data["setup"]["workers"] == count
            profile = tmp_path / f"{parallel}{count}.json"
            report.save_profile(profile)
            assert json.loads(profile.read_text())["setup"]["workers"] == count
            # The workers of the run change nothing; twice as many are faster.
            assert gain(profile, count) == 1
            assert 1.2 < gain(profile, 2 * count) < 2.2


def gain(profile: Path, workers: int) -> float:
    """What ``whatif`` predicts for another number of workers."""
    command = [sys.executable, "-m", "feedline", "whatif", str(profile), "--workers", str(workers), "--json"]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    done = subprocess.run(command, capture_output=True, check=True, timeout=120, env=environment)
    return float(json.loads(done.stdout)["gain"])


def test_nothing_is_left_of_many_loaders() -> None:
    data = own_sets.Numbers(20)

    def run() -> None:
        with feedline.Loader(data, 4, framework="numpy", workers=2) as loader:
            next(iter(loader))

    run()
    gc.collect()
    before, threads = descriptors(), threading.active_count()
    for _ in range(10):
        run()
    assert descriptors() == before and threading.active_count() == threads and workers() == []
    # Not closed, only forgotten.
    for _ in range(3):
        loader = feedline.Loader(data, 4, framework="numpy", workers=2)
        next(iter(loader))
        del loader
        gc.collect()
    assert descriptors() == before and workers() == []


def test_a_large_batch_and_one_of_a_size_that_grows() -> None:
    with feedline.Loader(own_sets.Numbers(20_000), 9000, framework="numpy", workers=2) as loader:
        assert [one for batch in loader for one in batch["id"].tolist()] == list(range(20_000))


def test_the_report_says_who_reads() -> None:
    with feedline.Loader(own_sets.Numbers(), 8, framework="numpy", workers=2) as loader:
        rows(loader)
        assert "2 processes" in str(loader.report())
        assert loader.report().data["own"]["processes"] == 2
    with feedline.Loader(own_sets.Numbers(), 8, framework="numpy") as loader:
        rows(loader)
        own = loader.report().data["own"]
        assert own["processes"] == 0 and re.search("data set is read by [12] thread", str(loader.report()))


def test_a_start_takes_a_second() -> None:
    start = time.monotonic()
    with feedline.Loader(own_sets.Numbers(), 8, framework="numpy", workers=2) as loader:
        next(iter(loader))
        # 0.2 s on an idle machine; torch would take longer, and this set does not need it.
        assert time.monotonic() - start < 20
        for worker in workers():
            assert "libtorch" not in Path(f"/proc/{worker}/maps").read_text()


@pytest.mark.parametrize("way", [{"workers": 0}, {"parallel": "threads", "workers": 3}, {"workers": 2}])
def test_long_rows_are_copied_from_where_they_lie(way: dict[str, Any]) -> None:
    data = own_sets.Wide()
    with feedline.Loader(data, 7, shuffle=3, framework="numpy", **way) as loader:
        for epoch in range(3):
            for batch in loader.epoch(epoch):
                ids = batch["id"].tolist()
                assert (batch["compact"] == data.x[ids]).all() and (batch["part"] == data.x[ids, ::2]).all()
                assert (batch["swapped"] == data.x[ids]).all() and (batch["new"] == data.x[ids] + 1).all()
                del batch


def test_threads_or_processes_are_chosen_by_measuring() -> None:
    def read(data: Any, **way: Any) -> tuple[feedline.Loader, set[int]]:
        with feedline.Loader(data, 4, framework="numpy", workers=4, **way) as loader:
            seen = {int(one) for batch in loader for one in batch["process"]}
            assert ("processes" if os.getpid() not in seen else "threads") in repr(loader)
            return loader, seen

    loader, seen = read(own_sets.Waits(40))
    assert seen == {os.getpid()}
    assert re.search(r"read by 4 threads \(a sample takes .* ms, and 4 threads read .* times as many as one\)", repr(loader))
    own = loader.report().data["own"]
    assert own["sample_ns"] > 3e6 and own["gain_of_threads"] > 1.6 and "4 threads read" in str(loader.report())
    loader, seen = read(own_sets.Computes(40))
    assert os.getpid() not in seen and loader.report().data["own"]["gain_of_threads"] < 1.6
    loader, seen = read(own_sets.Waits(40), parallel="processes")
    assert os.getpid() not in seen and "times as many" not in repr(loader)
    _, seen = read(own_sets.Computes(40), parallel="threads")
    assert seen == {os.getpid()}
    # A sample of some microseconds is not read by threads to find out.
    loader, _ = read(own_sets.Who(40))
    assert loader.report().data["own"]["gain_of_threads"] is None and "a sample takes" in repr(loader)


def test_measuring_meets_no_fault_of_another_sample(tmp_path: Path) -> None:
    data = own_sets.Faulty(60, str(tmp_path), "exit", at=1, always=True)
    with feedline.Loader(data, 4, framework="numpy", workers=2, bad_samples=1) as loader:
        assert sum(batch.rows for batch in loader) == 60


def test_a_file_that_is_opened_for_the_first_sample_is_opened_by_each_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "bytes"
    path.write_bytes(bytes(range(200)))
    data = own_sets.Opens(200, str(path))
    with feedline.Loader(data, 8, shuffle=3, framework="numpy", workers=2) as loader:
        seen = set()
        for batch in loader:
            assert (batch["byte"] == batch["id"]).all()
            seen |= set(batch["process"].tolist())
            del batch
    assert os.getpid() not in seen and caplog.messages == []
    assert data.file is not None and not data.file.closed, "that of this process is left alone"
    data = own_sets.Opens(200, str(path))
    data.held = lambda: None
    with pytest.raises(feedline.ConfigError, match="data.file is|data.held is a lambda"):
        feedline.Loader(data, 8, workers=2, parallel="processes")


def test_what_is_imported_stays_shared() -> None:
    import heavy_set

    skip_if_emulated("it writes to pages of its own for each that a worker reads")
    with feedline.Loader(heavy_set.Heavy(200), 8, framework="numpy", workers=3) as loader:
        assert sum(batch.rows for batch in loader) == 200
        private = []
        for worker in workers():
            rollup = Path(f"/proc/{worker}/smaps_rollup").read_text()
            (kb,) = re.findall(r"Private_Dirty: +(\d+) kB", rollup)
            private.append(int(kb) >> 10)
    # The objects of the module have 40 MB, and a worker that visits them writes to each.
    assert max(private) < 20, private
