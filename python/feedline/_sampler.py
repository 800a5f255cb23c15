"""The order of the samples of an epoch, other than in sequence or shuffled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _feedline, _options
from ._batches import steps_of
from ._errors import ConfigError, shown


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
            "make a sampler by Sampler.weighted(weights), .balanced, .block or .bucketed"
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
    def weighted(weights: Any, replacement: bool = True) -> Sampler:
        """Draws samples in proportion to ``weights``, one weight per sample.

        With ``replacement`` a sample may be drawn several times in an epoch, each time with other random
        transforms, and an epoch has as many draws as weights. Without it each sample is drawn at most once, and
        an epoch has as many draws as weights above zero. :meth:`draws` sets another number.
        """
        of = _feedline.Sampler
        make = of.weighted if _options.flag("replacement", replacement) else of.weighted_without_replacement
        return Sampler._of(make(_floats("weights", weights)))

    @staticmethod
    def balanced(labels: Any, classes: int) -> Sampler:
        """Draws each class equally often; ``labels`` has the class of each sample.

        An epoch has ``classes`` times as many draws as the largest class has samples, unless :meth:`draws` sets
        another number. So a sample of a small class is drawn several times, each time with other random
        transforms.
        """
        return Sampler._of(
            _feedline.Sampler.balanced(
                counts("labels", labels), _options.whole("classes", classes, 0, 2**32 - 1)
            )
        )

    @staticmethod
    def bucketed(lengths: Any, batch_size: int, batches_per_bucket: int) -> Sampler:
        """Every sample once, in batches of similar lengths, so that there is little padding.

        ``lengths`` has the length of each sample, and ``batch_size`` is that of the loader, times the number of
        ranks. A batch is drawn from ``batches_per_bucket`` batches of neighbouring lengths: more of them mix the
        samples better, and pad more.
        """
        batch_size = _options.whole("batch_size", batch_size)
        batches_per_bucket = _options.whole("batches_per_bucket", batches_per_bucket)
        return Sampler._of(
            _feedline.Sampler.bucketed(counts("lengths", lengths), batch_size, batches_per_bucket)
        )

    @staticmethod
    def alike(costs: Any, run: int) -> Sampler:
        """Every sample once, in runs of ``run`` samples of similar cost, so that the ranks of a step have nearly
        equal work.

        The number of ranks times the batch size must divide ``run``. For example,
        ``Sampler.alike(data.costs("squares"), 24)`` fits batches of one packed window on 1, 2, 3, 4, 6, 8, 12 or
        24 ranks, and a state that was saved with one of these numbers can be loaded with another.
        """
        return Sampler._of(_feedline.Sampler.alike(counts("costs", costs), _options.whole("run", run)))

    @staticmethod
    def batches(batches: Any, steps: int | None = None, *, repeats: bool = False) -> Sampler:
        """Batches of your own: ``batches(epoch, step)`` returns the ids of the samples of a step.

        An epoch has ``steps`` steps over all ranks: rank r of n takes the steps r, r + n, and so on. A run resumes at
        a step, also on another number of ranks. A batch has 1 to ``batch_size`` ids. If the ranks do not divide the
        steps, some have no batch in the last step: they get one from the beginning of the epoch, with
        ``batch.valid_rows`` 0, or ``last_batch="drop"`` leaves that step out.

        A sample that comes twice in an epoch is an error, unless ``repeats`` allows it; each time it has other random
        numbers. Samples may be left out.

        The function must depend on its arguments alone. Here it is called for all steps of epoch 0, twice; those of
        the next epoch are listed at once, by a thread that reads ahead, and held: 8 bytes for each sample and step of
        two epochs. A state fits only a loader with the same batches in epoch 0, and the same ``batch_size``.

        Instead of a function, give a ``batch_sampler`` of torch, or any object with ``__iter__`` and ``__len__`` that
        lists the batches of all ranks. If it or its ``sampler`` has a ``set_epoch``, that is called before. One that
        draws from a generator of its own gives another order each time, and is refused.

        >>> import feedline
        >>> sampler = feedline.Sampler.batches(lambda epoch, step: [[epoch], [2, 3]][step], 2)
        >>> loader = feedline.Loader({"x": [5, 6, 7, 8]}, 2, sampler=sampler, framework="numpy")
        >>> [batch["x"].tolist() for _ in range(2) for batch in loader]
        [[5], [7, 8], [6], [7, 8]]
        """
        count, ids = steps_of(batches, steps)
        try:
            return Sampler._of(_feedline.Sampler.batches(count, _options.flag("repeats", repeats), ids))
        except ConfigError as error:
            if callable(batches) or "second pass" not in str(error):
                raise
            raise ConfigError(
                f"{type(batches).__name__} lists other batches each time: give it or its sampler a set_epoch(epoch) that "
                "determines them, as DistributedSampler has; or shuffle=True and batch_size to the loader"
            ) from None

    @staticmethod
    def by_epoch(spans: Mapping[int, Sampler | None]) -> Sampler:
        """Changes the sampler by epoch, such as for a curriculum: ``{0: easy, 3: feedline.Sampler.shuffled()}`` uses
        ``easy`` in epochs 0 to 2, and shuffles from epoch 3 on.

        All samplers must have the same number of samples per epoch: set it by :meth:`draws`.

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
        """Every sample once, all shuffled at once, for :meth:`by_epoch` and large tables.

        Elsewhere give the loader ``shuffle=True``, which shuffles a large table by blocks.
        """
        return Sampler._of(_feedline.Sampler.shuffled())

    def draws(self, draws: int) -> Sampler:
        """This sampler with ``draws`` samples per epoch; for ``weighted`` and ``balanced``."""
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


def _array(name: str, values: Any, kinds: str = "biuf", each: str = "one number") -> np.ndarray[Any, Any]:
    if isinstance(values, (str, bytes)) or (
        not hasattr(values, "__iter__") and not hasattr(values, "__array__")
    ):
        raise ConfigError(f"{name} are {shown(values)}: give {each} for each sample")
    try:
        array = np.asarray(values if hasattr(values, "__array__") else list(values))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} are no array of numbers: {error}") from None
    if array.ndim != 1 or array.dtype.kind not in kinds:
        raise ConfigError(f"{name} are {array.dtype} {array.shape}: give {each} for each sample")
    return array


def _floats(name: str, values: Any) -> list[float]:
    return [float(value) for value in _array(name, values).tolist()]


def groups_of(values: Any) -> list[int]:
    """The number of the group of each sample, from whole numbers or texts."""
    array = _array("groups", values, "iuUO", "a whole number or a text")
    if array.dtype.kind == "O" and not all(isinstance(value, str) for value in array):
        raise ConfigError("groups have values that are no texts: give a whole number or a text for each sample")
    return [int(number) for number in np.unique(array, return_inverse=True)[1]]


def counts(name: str, values: Any) -> list[int]:
    """One whole number for each sample."""
    array = _array(name, values)
    wrong = (array < 0) | (array >= 2**32) | (array != np.floor(array))
    if wrong.any():
        at = int(np.argmax(wrong))
        raise ConfigError(f"{name} have {array[at]} for sample {at}: give whole numbers from 0 to 2^32 - 1")
    return [int(value) for value in array.tolist()]
