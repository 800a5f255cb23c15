"""CUDA's work queues: kernels of two streams in one queue wait for each other.

CUDA has 8, unless CUDA_DEVICE_MAX_CONNECTIONS sets more before it starts. nvJPEG has 14 streams, so with 8
queues it decodes at two thirds of its rate beside a training step.
"""

import os
import sys


def ask_for_many() -> None:
    """Asks CUDA for 32 work queues, unless the variable is set or CUDA has started."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    has_started = cuda is not None and cuda.is_initialized()
    if not has_started:
        os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
