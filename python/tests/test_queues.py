"""What importing feedline asks of CUDA."""

import os
import subprocess
import sys

import pytest

NAME = "CUDA_DEVICE_MAX_CONNECTIONS"
STARTED = "import sys, types; cuda = types.SimpleNamespace(is_initialized=lambda: True); "
STARTED += "sys.modules['torch'] = types.SimpleNamespace(cuda=cuda)"


@pytest.mark.parametrize(
    ("before", "given", "wanted"),
    [("", None, "32"), ("", "1", "1"), (STARTED, None, "None")],
    ids=["not set", "set by the user", "CUDA has started"],
)
def test_cuda_gets_32_work_queues_unless_they_are_set_or_it_is_too_late(before, given, wanted):
    environment = {name: value for name, value in os.environ.items() if name != NAME}
    if given is not None:
        environment[NAME] = given
    lines = [before, "import os", "import feedline._queues as queues", "queues.ask_for_many()"]
    if not before:
        lines = ["import os, feedline"]
    lines.append(f"print(os.environ.get({NAME!r}))")
    ran = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], env=environment, capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == wanted
