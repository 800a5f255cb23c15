"""The order of the samples of an epoch, other than in sequence or shuffled."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import _feedline, _options
from ._errors import ConfigError


class Sampler:
    """The order of the samples of an epoch, other than in sequence or shuffled.

    >>> import feedline
    >>> sampler = feedline.Sampler.weighted([1.0, 0.0, 3.0])
    >>> loader = feedline.Loader({"x": [5, 6, 7]}, 8, sampler=sampler.draws(8), seed=3, framework="numpy")
    >>> sorted(set(next(iter(loader))["x"].tolist()))
    [5, 7]
    """

    def __init__(self) -> None:
        raise TypeError(
            "make a sampler by Sampler.weighted(weights), .distinct, .balanced, .block or .bucketed"
        )

    @classmethod
    def _of(cls, order: _feedline.Sampler) -> Sampler:
        sampler = cls.__new__(cls)
        sampler._order = order
        return sampler

    _order: _feedline.Sampler

    @staticmethod
    def block(block: int, window: int) -> Sampler:
        """Every sample; blocks of neighbours are shuffled, and samples within ``window`` blocks."""
        block, window = _options.whole("block", block), _options.whole("window", window)
        return Sampler._of(_feedline.Sampler.block(block, window))

    @staticmethod
    def weighted(weights: Any) -> Sampler:
        """Draws with replacement, by a weight for each sample.

        An epoch has as many draws as weights, if :meth:`draws` does not set another number; each draw has
        random transforms of its own.
        """
        return Sampler._of(_feedline.Sampler.weighted(_floats("weights", weights)))

    @staticmethod
    def distinct(weights: Any) -> Sampler:
        """Draws without replacement, by a weight for each sample.

        An epoch has as many draws as weights above zero.
        """
        return Sampler._of(_feedline.Sampler.distinct(_floats("weights", weights)))

    @staticmethod
    def balanced(labels: Any, classes: int) -> Sampler:
        """Draws each class equally often.

        An epoch has ``classes`` times as many draws as the largest class has samples, if :meth:`draws` does
        not set another number: a sample of a small class comes several times, each time with random transforms of
        its own.
        """
        return Sampler._of(
            _feedline.Sampler.balanced(
                _counts("labels", labels), _options.whole("classes", classes, 0, 2**32 - 1)
            )
        )

    @staticmethod
    def bucketed(lengths: Any, batch_size: int, batches_per_bucket: int) -> Sampler:
        """Every sample; the samples of a batch have similar lengths."""
        batch_size = _options.whole("batch_size", batch_size)
        batches_per_bucket = _options.whole("batches_per_bucket", batches_per_bucket)
        return Sampler._of(
            _feedline.Sampler.bucketed(_counts("lengths", lengths), batch_size, batches_per_bucket)
        )

    @staticmethod
    def alike(costs: Any, run: int) -> Sampler:
        """Every sample, in runs of ``run`` samples of similar cost, so that the ranks of a step have nearly equal
        work: ``Sampler.alike(data.costs("squares"), 24)`` with batches of one packed window, on 1, 2, 3, 4, 6, 8,
        12 or 24 ranks. A state may be loaded by any of them.
        """
        return Sampler._of(_feedline.Sampler.alike(_counts("costs", costs), _options.whole("run", run)))

    def draws(self, draws: int) -> Sampler:
        """This sampler with another number of draws per epoch: ``weighted``, ``distinct``, ``balanced``."""
        return Sampler._of(self._order.draws(_options.whole("draws", draws)))

    def __repr__(self) -> str:
        return repr(self._order)


def order_of(sampler: Any) -> _feedline.Sampler | None:
    """The order of a sampler, if there is one; those of torch are refused with the name of ours."""
    if sampler is None:
        return None
    if isinstance(sampler, Sampler):
        return sampler._order
    name = type(sampler).__name__
    how = _options.OF_A_SAMPLER.get(name, "give a feedline.Sampler, or the loader data.subset(indices)")
    raise ConfigError(
        f"sampler is {name}, and a loader makes its order itself, so that it can be resumed: {how}"
    )


def _array(name: str, values: Any) -> np.ndarray[Any, Any]:
    if isinstance(values, (str, bytes)) or (
        not hasattr(values, "__iter__") and not hasattr(values, "__array__")
    ):
        raise ConfigError(f"{name} are {values!r}: give one number for each sample")
    try:
        array = np.asarray(values if hasattr(values, "__array__") else list(values))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} are no array of numbers: {error}") from None
    if array.ndim != 1 or array.dtype.kind not in "biuf":
        raise ConfigError(f"{name} are {array.dtype} {array.shape}: give one number for each sample")
    return array


def _floats(name: str, values: Any) -> list[float]:
    return [float(value) for value in _array(name, values).tolist()]


def _counts(name: str, values: Any) -> list[int]:
    array = _array(name, values)
    wrong = (array < 0) | (array >= 2**32) | (array != np.floor(array))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ConfigError(f"{name} have {array[at]} for sample {at}: give whole numbers from 0 to 2^32 - 1")
    return [int(value) for value in array.tolist()]
