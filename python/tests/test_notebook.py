"""What a notebook shows, and progress bars."""

from __future__ import annotations

import base64
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import numbers, script

import feedline


def pictures(count: int = 12) -> dict[str, Any]:
    pixels = np.zeros((count, 3, 16, 24), np.uint8)
    pixels[:, 0] = 10 * np.arange(count)[:, None, None]
    return {"image": pixels, "label": np.arange(count)}


def shown(page: str) -> list[np.ndarray[Any, Any]]:
    """The pictures of a page, decoded from their bytes."""
    found = []
    for source in re.findall(r"data:image/png;base64,([A-Za-z0-9+/=]+)", page):
        file = base64.b64decode(source)
        width, height, _, kind = struct.unpack(">IIBB", file[16:26])
        length = struct.unpack(">I", file[33:37])[0]
        lines = np.frombuffer(zlib.decompress(file[41 : 41 + length]), np.uint8)
        found.append(lines.reshape(height, -1)[:, 1:].reshape(height, width, 3 if kind == 2 else 1))
    return found


def test_a_notebook_shows_the_pictures_of_a_batch(framework: str) -> None:
    with feedline.Loader(pictures(), 10, shuffle=3, framework=framework) as loader:
        batch = next(iter(loader))
        page = batch._repr_html_()
        assert [int(image[0, 0, 0]) for image in shown(page)] == [10 * int(id) for id in batch.ids[:8]]
        assert shown(page)[0].shape == (16, 24, 3)
        assert "uint8" in page and "[10, 3, 16, 24]" in page and "Batch(epoch 0, step 0" in page


def test_a_notebook_shows_the_first_samples_of_data_and_takes_no_batch() -> None:
    data = feedline.Data(pictures())
    assert len(shown(data._repr_html_())) == 8
    with feedline.Loader(data, 10, framework="numpy") as loader:
        page = loader._repr_html_()
        assert len(shown(page)) == 8 and "Loader(12 samples" in page
        assert loader.next_epoch == 0 and sum(batch.rows for batch in loader) == 12


def test_pages_hold_text_numbers_and_errors_without_markup_of_the_data() -> None:
    class Odd:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> dict[str, Any]:
            if index == 1:
                raise ValueError("<b>")
            return {"text": "<script>", "n": np.float32(index / 2), "<i>": np.arange(2 + index)}

    data = feedline.Data(Odd(), max_length={"text": 20, "<i>": 9})
    page = data._repr_html_()
    assert "&lt;script&gt;" in page and "<script>" not in page and "&lt;i&gt;" in page
    assert "<i>SampleError</i>" in page or "<i>ValueError</i>" in page
    with feedline.Loader(data.subset([0, 2]), 2, framework="numpy") as loader:
        page = next(iter(loader))._repr_html_()
        assert "<td>0, 1, 2, 3</td>" in page and "<td>0, 1</td>" in page and "Ragged of" in page


def test_normalized_pictures_are_spread_and_what_is_none_is_numbers() -> None:
    rng = np.random.default_rng(0)
    data = feedline.Data({"image": rng.normal(size=(2, 3, 9, 9)).astype(np.float32), "x": np.ones((2, 3, 4, 4))})
    found = shown(data._repr_html_())
    assert len(found) == 2 and all(image.min() == 0 and image.max() == 255 for image in found)


@pytest.mark.parametrize("library", ["tqdm", "rich"])
def test_a_progress_bar_shows_the_whole_epoch_also_after_a_resume(library: str) -> None:
    pytest.importorskip(library, reason=f"not run: {library} is not installed")
    with feedline.Loader(numbers(), 10, shuffle=7, framework="numpy") as loader:
        batches = iter(loader)
        assert (batches.first_step, len(batches)) == (0, 10)
        for _ in range(4):
            next(batches)
        state = loader.state_dict()
    with feedline.Loader(numbers(), 10, shuffle=7, framework="numpy") as loader:
        loader.load_state_dict(state)
        batches = loader.epoch(loader.next_epoch)
        assert (batches.first_step, len(batches), len(loader)) == (4, 6, 10)
        seen = 0
        if library == "tqdm":
            from tqdm import tqdm

            with tqdm(batches, initial=batches.first_step, total=len(loader), disable=None) as bar:
                for _ in bar:
                    seen += 1
                assert bar.disable or bar.n == bar.total == 10
            assert len(tqdm(loader.epoch(1))) == 10
        else:
            from rich.progress import Progress

            # With auto_refresh its thread forgets what was completed before.
            with Progress(disable=True, auto_refresh=False) as bar:
                for _ in bar.track(batches, total=len(loader), completed=batches.first_step):
                    seen += 1
                assert (bar.tasks[0].completed, bar.tasks[0].total) == (10, 10)
        assert seen == 6
        assert loader.epoch(1).first_step == 0


def test_another_batch_size_goes_on_at_another_step() -> None:
    with feedline.Loader(numbers(), 10, framework="numpy") as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        state = loader.state_dict()
    with feedline.Loader(numbers(), 20, framework="numpy") as loader:
        loader.load_state_dict(state)
        batches = iter(loader)
        assert (batches.first_step, len(batches), len(loader)) == (2, 3, 5)


SLOW = """
import json, sys, time
import numpy as np, feedline

class Slow:
    def __len__(self):
        return 40
    def __getitem__(self, index):
        time.sleep(0.002)
        return {"id": np.int64(index)}

def train(loader):
    for batch in LOOP:  # the line that waits
        pass

with feedline.Loader(Slow(), 10, framework="numpy") as loader:
    train(loader)
    report = loader.report()
print(json.dumps([report.data["lines"], str(report), report.page]))
"""


@pytest.mark.parametrize("loop", ["loader", "enumerate(loader)", "tqdm(loader, disable=True)"])
def test_the_report_names_the_line_that_waits(tmp_path: Path, loop: str) -> None:
    import json

    if "tqdm" in loop:
        pytest.importorskip("tqdm", reason="not run: tqdm is not installed")
    code = SLOW.replace("LOOP", loop)
    if "tqdm" in loop:
        code = "from tqdm import tqdm\n" + code
    path = tmp_path / "train.py"
    path.write_text(code)
    done = script(f"import runpy; runpy.run_path({str(path)!r}, run_name='__main__')")
    assert done.returncode == 0, done.stderr
    lines, text, page = json.loads(done.stdout)
    number = next(at for at, line in enumerate(code.splitlines(), 1) if "the line that waits" in line)
    assert (lines[0]["file"], lines[0]["line"]) == (str(path), number)
    assert lines[0]["code"].startswith(f"for batch in {loop}:")
    assert lines[0]["waited"] > 20e6 and 1 <= lines[0]["batches"] <= 4
    assert f"waits at {path}:{number}" in text
    assert f"{path}:{number}" in page


def test_a_library_of_another_folder_is_not_the_users_code(tmp_path: Path) -> None:
    import json

    # As `pip install --target` leaves it, with a module of the user's beside it.
    info = tmp_path / "loops-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: loops\nVersion: 1.0\n")
    (info / "top_level.txt").write_text("loops\n")
    (tmp_path / "loops").mkdir()
    (tmp_path / "loops" / "__init__.py").write_text("from .over import over\n")
    (tmp_path / "loops" / "over.py").write_text("def over(batches):\n    yield from batches\n")
    code = "from loops import over\n" + SLOW.replace("LOOP", "over(loader)")
    (tmp_path / "training.py").write_text(code)
    done = script(f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import training")
    assert done.returncode == 0, done.stderr
    lines = json.loads(done.stdout)[0]
    number = next(at for at, line in enumerate(code.splitlines(), 1) if "the line that waits" in line)
    assert (lines[0]["file"], lines[0]["line"]) == (str(tmp_path / "training.py"), number)


def test_a_loop_that_never_waits_names_no_line() -> None:
    with feedline.Loader(numbers(), 10, framework="numpy") as loader:
        assert loader.report().data["lines"] == []
        assert "waits at" not in str(loader.report())
