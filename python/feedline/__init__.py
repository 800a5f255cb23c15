"""Keeps a GPU fed: batches for PyTorch, JAX and NumPy without a copy, resumed exactly.

>>> import feedline, numpy as np
>>> data = feedline.Data({"x": np.arange(10)})
>>> loader = feedline.Loader(data, batch_size=4, shuffle=True, seed=7, framework="numpy")
>>> [batch.rows for batch in loader]
[4, 4, 2]
"""

from . import _queues, transforms
from ._batch import Batch, Padded, Ragged
from ._chats import chat_text, chats
from ._compare import Comparison, compare
from ._compose import concat, mix, zip
from ._data import Data, Field
from ._errors import (
    BudgetError,
    ConfigError,
    DataError,
    DeviceError,
    Error,
    ForkedError,
    SampleError,
    SlotsHeldError,
    StateError,
    StoppedError,
)
from ._feedline import __version__
from ._loader import Epoch, Loader
from ._open import open
from ._pictures import images
from ._report import Report
from ._sampler import Sampler
from ._sides import Compared
from ._sounds import MelSpectrogram, sounds
from ._source import Source
from ._table import table
from ._tokens import PackedTokens, pack_tokens, tokens
from ._windows import Windows, windows

_queues.ask_for_many()

__all__ = [
    "Batch",
    "BudgetError",
    "Compared",
    "Comparison",
    "ConfigError",
    "Data",
    "DataError",
    "DeviceError",
    "Epoch",
    "Error",
    "Field",
    "ForkedError",
    "Loader",
    "MelSpectrogram",
    "PackedTokens",
    "Padded",
    "Ragged",
    "Report",
    "SampleError",
    "Sampler",
    "SlotsHeldError",
    "Source",
    "StateError",
    "StoppedError",
    "Windows",
    "__version__",
    "chat_text",
    "chats",
    "compare",
    "concat",
    "images",
    "mix",
    "open",
    "pack_tokens",
    "sounds",
    "table",
    "tokens",
    "transforms",
    "windows",
    "zip",
]
