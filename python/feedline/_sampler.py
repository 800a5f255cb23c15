"""The order of the samples of an epoch, other than in sequence or shuffled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _feedline, _options
from ._errors import ConfigError


class Sampler:
    """The order of the samples of an epoch, other than in sequence or shuffled.

    >>> import feedline
    >>> sampler = feedline.Sampler.weighted([1.0, 0.0, 3.0])
    >>> loader = feedline.Loader({"x": [5, 6, 7]}, 8, sampler=sampler.draws(8), seed=5, framework="numpy")
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
                counts("labels", labels), _options.whole("classes", classes, 0, 2**32 - 1)
            )
        )

    @staticmethod
    def bucketed(lengths: Any, batch_size: int, batches_per_bucket: int) -> Sampler:
        """Every sample; the samples of a batch have similar lengths."""
        batch_size = _options.whole("batch_size", batch_size)
        batches_per_bucket = _options.whole("batches_per_bucket", batches_per_bucket)
        return Sampler._of(
            _feedline.Sampler.bucketed(counts("lengths", lengths), batch_size, batches_per_bucket)
        )

    @staticmethod
    def alike(costs: Any, run: int) -> Sampler:
        """Every sample, in runs of ``run`` samples of similar cost, so that the ranks of a step have nearly equal
        work: ``Sampler.alike(data.costs("squares"), 24)`` with batches of one packed window, on 1, 2, 3, 4, 6, 8,
        12 or 24 ranks. A state may be loaded by any of them.
        """
        return Sampler._of(_feedline.Sampler.alike(counts("costs", costs), _options.whole("run", run)))

    @staticmethod
    def by_epoch(spans: Mapping[int, Sampler | None]) -> Sampler:
        """Another sampler from an epoch on, such as for a curriculum: ``{0: easy, 3: feedline.Sampler.shuffled()}``.

        All have the same number of samples per epoch: set it by :meth:`draws`.

        >>> import feedline
        >>> easy = feedline.Sampler.weighted([1, 1, 0, 0])
        >>> sampler = feedline.Sampler.by_epoch({0: easy, 2: feedline.Sampler.shuffled()})
        >>> loader = feedline.Loader({"x": [5, 6, 7, 8]}, 4, sampler=sampler, seed=3, framework="numpy")
        >>> epochs = [next(iter(loader))["x"].tolist() for _ in range(3)]
        >>> max(epochs[0] + epochs[1]), sorted(epochs[2])
        (6, [5, 6, 7, 8])
        """
        given = _options.mapping("by_epoch", spans, "{0: easy, 3: Sampler.shuffled()}")
        orders = []
        for epoch, sampler in given.items():
            order = order_of(sampler)
            if order is None:
                raise ConfigError(f"by_epoch has no sampler from epoch {epoch}: give one, such as Sampler.shuffled()")
            orders.append((_options.whole("an epoch of by_epoch", epoch), order))
        return Sampler._of(_feedline.Sampler.by_epoch(sorted(orders, key=lambda span: span[0])))

    @staticmethod
    def shuffled() -> Sampler:
        """Every sample once, shuffled by the seed of the loader, for :meth:`by_epoch`."""
        return Sampler._of(_feedline.Sampler.shuffled())

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


def counts(name: str, values: Any) -> list[int]:
    """One whole number for each sample."""
    array = _array(name, values)
    wrong = (array < 0) | (array >= 2**32) | (array != np.floor(array))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ConfigError(f"{name} have {array[at]} for sample {at}: give whole numbers from 0 to 2^32 - 1")
    return [int(value) for value in array.tolist()]
