"""A data set with a fault, for `test_fault_runs.py` and the processes that it starts."""

from __future__ import annotations

import itertools
import os
import resource
import time
from typing import Any

import numpy as np
import own_sets


class Fault(own_sets.Numbers):
    """Something happens at sample ``at``, once in whichever process."""

    def __init__(self, samples: int, folder: str, fault: str, at: int, seconds: float = 0.0) -> None:
        super().__init__(samples, folder)
        self.fault, self.at, self.seconds = fault, at, seconds

    def __getitem__(self, index: int) -> Any:
        if index == self.at and self.first_time("fault"):
            if self.fault == "raise":
                raise KeyError("lost")
            if self.fault == "shape":
                return {"id": index, "x": np.zeros((5, 2), np.float32)}
            if self.fault == "exit":
                os._exit(5)
            if self.fault == "memory":
                return self.beyond_the_limit(index)
            if self.fault == "slow":
                time.sleep(self.seconds)
            if self.fault == "lock":
                # Runs in C, so other threads cannot run meanwhile.
                sum(itertools.repeat(0))
        return {**super().__getitem__(index), "noise": np.random.rand()}

    def beyond_the_limit(self, index: int) -> Any:
        before = resource.getrlimit(resource.RLIMIT_AS)
        used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115
        resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), before[1]))
        try:
            return {"id": index, "x": np.ones((1 << 30, 3), np.float32)}
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
