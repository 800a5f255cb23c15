"""``python -m feedline``: the commands of the Rust side, from the package."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PACKAGE

import feedline


def command(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE)}
    return subprocess.run(
        [sys.executable, "-m", "feedline", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=folder,
        env=environment,
    )


def prints(*arguments: str, code: int = 0, folder: Path | None = None) -> str:
    done = command(*arguments, folder=folder)
    assert (done.returncode, done.stderr) == (code, ""), (done.stdout, done.stderr)
    return done.stdout


def refuses(*arguments: str, folder: Path | None = None) -> str:
    """The one line of an error."""
    done = command(*arguments, folder=folder)
    assert (done.returncode, done.stdout) == (2, ""), (done.stdout, done.stderr)
    assert done.stderr.startswith("feedline: ") and done.stderr.count("\n") == 1
    assert "::" not in done.stderr and "cargo" not in done.stderr.lower(), "a name of Rust"
    return done.stderr


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.npy"
    np.save(path, np.arange(200, dtype=np.int32).reshape(100, 2))
    return path


def recorded(file: Path, run: Path, seed: int = 7) -> None:
    """Two epochs of ten steps, with the step of a high loss."""
    with feedline.Loader(feedline.open(file), 10, shuffle=seed, framework="numpy", record=run) as loader:
        for epoch in range(2):
            for batch in loader.epoch(epoch):
                loader.note("loss", 50.0 if (epoch, batch.step) == (1, 3) else 1.0 + batch.step % 3 / 100)


def test_help_lists_the_commands_and_their_options() -> None:
    text = prints("--help")
    assert prints() == text
    for name in ("doctor", "inspect", "whatif", "replay", "diff", "spikes", "verify", "sightings", "pack"):
        assert f"\n  {name}" in text
        told = prints(name, "--help")
        assert "usage: " in told and "exit code" in told and "::" not in told and "cargo" not in told
    assert prints("--version") == f"feedline {feedline.__version__}\n"


def test_inspect_says_what_a_file_holds_and_its_lines_of_python_run(file: Path) -> None:
    found = json.loads(prints("inspect", str(file), "--json"))
    assert (found["format"], found["samples"]) == ("npy", 100)
    assert found["fields"] == [{"dtype": "i32", "name": "array", "shape": [2]}]
    made: dict[str, Any] = {}
    exec("\n".join(line[2:] for line in found["load"].splitlines()), made)
    with made["loader"] as loader:
        assert sum(batch.rows for batch in loader) == 100


CITIES = "\n".join(f"{city},{age},{score},{note}" for city, age, score, note in [
    ("Rome", "30", "1.5", "a"), ("Oslo", "", "2.5", "bb"), ("Rome", "50", "", "c"), ("", "20", "3.5", "dd"),
    ("Oslo", "10", "4.5", "e"),
])  # fmt: skip


@pytest.mark.parametrize("options", [[], ["--fill"]])
@pytest.mark.parametrize("has_text", [False, True])
def test_the_lines_for_a_table_run(tmp_path: Path, options: list[str], has_text: bool) -> None:
    path = tmp_path / "train.csv"
    lines = ["city,age,score,note", *CITIES.splitlines()]
    path.write_text("".join((line if has_text else line.rpartition(",")[0]) + "\n" for line in lines))
    found = json.loads(prints("inspect", str(path), "--json", *options))
    assert found["missing"]["columns"] == {"city": 1, "age": 1, "score": 1}
    made: dict[str, Any] = {}
    exec("\n".join(line[2:] for line in found["load"].splitlines()), made)
    with made["loader"] as loader:
        assert sum(batch.rows for batch in loader) == 5
    if not options:
        assert "fill_mean=" in found["load"] and "category=" in found["load"] and "mask=" in found["load"]


def test_the_lines_for_more_columns_than_a_batch_has_fields_run(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    names = ",".join(f"c{number}" for number in range(30))
    path.write_text(names + "\n" + "".join(",".join(["1"] * 29 + ["2.5"]) + "\n" for _ in range(8)))
    made: dict[str, Any] = {}
    load = json.loads(prints("inspect", str(path), "--json"))["load"]
    exec("\n".join(line[2:] for line in load.splitlines()), made)
    with made["loader"] as loader:
        assert next(iter(loader))["x"].shape == (8, 30)


def test_a_run_is_recorded_and_replayed(file: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    recorded(file, run)
    text = prints("replay", str(run), "--step", "13")
    assert "its bytes are those of the run" in text
    pages = tmp_path / "pages"
    prints("replay", str(run), "--from", "3", "--to", "4", "--save", str(pages))
    assert sorted(path.name for path in pages.iterdir()) == [
        "step-3-rank-0.safetensors",
        "step-4-rank-0.safetensors",
    ]
    spikes = json.loads(prints("spikes", str(run), "--json", code=1))["spikes"]
    assert [spike["step"] for spike in spikes] == [13]
    array = np.load(file)
    array[:, 0] += 1
    np.save(file, array)
    assert "its bytes are those" not in prints("replay", str(run), "--step", "13", code=1)


def test_two_runs_are_compared(file: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 7), ("b", 7), ("c", 8)):
        recorded(file, tmp_path / name, seed)
    assert prints("diff", "a", "b", folder=tmp_path).startswith("equal: 20 steps")
    assert "seed" in prints("diff", "a", "c", code=1, folder=tmp_path)


def test_a_run_whose_samples_python_makes_is_recorded_but_not_replayed(tmp_path: Path) -> None:
    data = feedline.Data({"id": np.arange(40)}).map(lambda sample: {"id": sample["id"] * 2})
    for name in ("a", "b"):
        with feedline.Loader(data, 10, shuffle=1, framework="numpy", record=tmp_path / name) as loader:
            assert sum(batch.rows for batch in loader) == 40
    assert prints("diff", "a", "b", folder=tmp_path).startswith("equal: 4 steps")
    assert "--data" in refuses("replay", "a", "--step", "1", folder=tmp_path)


def test_whatif_predicts_from_the_service_times_of_a_report(file: Path, tmp_path: Path) -> None:
    with feedline.Loader(feedline.open(file), 10, shuffle=7, framework="numpy") as loader:
        assert sum(batch.rows for batch in loader) == 100
        loader.report().save_profile(tmp_path / "times.json")
    told = json.loads(prints("whatif", "times.json", "--workers", "4", "--json", folder=tmp_path))
    assert told["asked"]["batches_per_s"] > 0
    assert "save_profile" in prints("whatif", "--help")


def test_doctor_looks_at_the_machine() -> None:
    told = json.loads(prints("doctor", "--json"))
    assert told["host"]["cores"] >= 1
    assert (told["gpu"] is None) == (told["no_gpu"] is not None)


def test_wrong_input_is_one_line_and_exit_code_2(file: Path, tmp_path: Path) -> None:
    assert "no command" in refuses("train")
    assert "--colour" in refuses("inspect", str(file), "--colour")
    assert "nothing.npy" in refuses("inspect", str(tmp_path / "nothing.npy"))
    assert "Loader(record=)" in refuses("replay", str(tmp_path), "--step", "1")
    assert "--step" in refuses("replay", str(tmp_path), "--step")
    assert "numbers.npy" in refuses("whatif", str(file))
    (tmp_path / "empty.json").write_text(json.dumps({"setup": {}, "samples": []}))
    refuses("whatif", str(tmp_path / "empty.json"))
    assert "xyz" in refuses("doctor", "--xyz")


def test_a_loader_says_what_it_cannot_record(tmp_path: Path, file: Path) -> None:
    with feedline.Loader(feedline.open(file), 10, framework="numpy") as loader:
        next(iter(loader))
        with pytest.raises(feedline.ConfigError, match="record="):
            loader.note("loss", 1.0)
    with feedline.Loader(feedline.open(file), 10, framework="numpy", record=tmp_path / "run") as loader:
        next(iter(loader))
        with pytest.raises(feedline.ConfigError, match="number"):
            loader.note("loss", "high")  # type: ignore[arg-type]
        # One file, one writer.
        with pytest.raises(feedline.Error, match="record"):
            feedline.Loader(feedline.open(file), 10, framework="numpy", record=tmp_path / "run")
    with feedline.Loader(feedline.open(file), 10, framework="numpy", record=tmp_path / "run") as loader:
        next(iter(loader))
