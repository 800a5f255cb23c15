"""Checks the arguments of a loader, and translates those of a DataLoader."""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ._errors import ConfigError, shown

#: The loader's equivalent of each argument of torch's DataLoader.
OF_A_DATALOADER = {
    "dataset": "give it as the first argument, data",
    "num_workers": "give workers=, the number of processes for Python code of yours, else of threads",
    "drop_last": 'give last_batch="drop"',
    "pin_memory": 'leave it out: batches are always read into pinned memory; device="cuda" copies them',
    "pin_memory_device": 'give device="cuda:0"',
    "prefetch_factor": "give prefetch=, the number of batches on the device",
    "persistent_workers": "leave it out: the workers live as long as the loader",
    "batch_sampler": "give sampler=feedline.Sampler.batches(batch_sampler), or batch_size= and shuffle=",
    "generator": "give shuffle=True for the order, and seed=",
    "timeout": "leave it out: Ctrl-C ends a wait",
    "worker_init_fn": "leave it out: random numbers belong to a sample, and a data set makes what it needs",
    "multiprocessing_context": "leave it out: workers are forked from a new process; see parallel=",
    "in_order": "leave it out: batches come in order",
}

#: The loader's equivalent of each sampler of torch.
OF_A_SAMPLER = {
    "WeightedRandomSampler": "give feedline.Sampler.weighted(weights, replacement=...)",
    "RandomSampler": "leave it out and give shuffle=True",
    "SequentialSampler": "leave it out",
    "SubsetRandomSampler": "give the loader data.subset(indices), and shuffle=True",
    "DistributedSampler": "leave it out: the loader shares an epoch over the ranks; see world=",
    "BatchSampler": "give feedline.Sampler.batches(batch_sampler), or batch_size=",
}


def unknown(names: Iterable[str], known: Iterable[str]) -> TypeError:
    """The error for arguments that a loader does not have."""
    name = next(iter(names))
    if name in OF_A_DATALOADER:
        return TypeError(f"a feedline.Loader has no {name}, as a DataLoader has: {OF_A_DATALOADER[name]}")
    near = difflib.get_close_matches(name, known, 1)
    return TypeError(f"a feedline.Loader has no {name}" + (f": is it {near[0]}?" if near else ""))


def check_known(function: str, given: Iterable[str], known: list[str]) -> None:
    """Refuses arguments that ``function`` does not have."""
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            is_it = f": is it {near[0]}?" if near else f": its steps are {', '.join(known)}"
            raise TypeError(f"{function} has no {name}{is_it}")


def whole(name: str, value: Any, low: int = 0, high: int = 2**63 - 1) -> int:
    """``value`` as a whole number from ``low`` to ``high``."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or isinstance(value, bool) or not low <= number <= high:
        to = "" if high >= 2**63 - 1 else f" to {high}"
        raise ConfigError(f"{name} is {shown(value)}: give a whole number from {low}{to}")
    return number


def maybe(name: str, value: Any, low: int = 0, high: int = 2**63 - 1) -> int | None:
    """As :func:`whole`, or ``None``."""
    return None if value is None else whole(name, value, low, high)


def number(name: str, value: Any) -> float:
    """``value`` as a number."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ConfigError(f"{name} is {shown(value)}: give a number") from None


def unused(of: str, **given: bool) -> None:
    """Refuses options that were given without ``of``, for which they are."""
    for name, is_given in given.items():
        if is_given:
            raise ConfigError(f"{name} is for {of}: leave it out")


def path(name: str, value: Any) -> str:
    """``value``, a path or a URL, as text."""
    given = os.fspath(value) if isinstance(value, os.PathLike) else value
    if not isinstance(given, str):
        raise ConfigError(f"{name} is {shown(value)}: give a str or a pathlib.Path")
    return given


def flag(name: str, value: Any) -> bool:
    """``value`` as ``True`` or ``False``."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise ConfigError(f"{name} is {shown(value)}: give True or False")
    return bool(value)


def order(shuffle: Any, given: Any, sampler: Any) -> tuple[bool, int]:
    """Whether to shuffle, and the seed: ``shuffle=7`` is short for ``shuffle=True, seed=7``."""
    own = None if given is None else seed("seed", given)
    if isinstance(shuffle, (bool, np.bool_)) or shuffle is None:
        is_shuffled, short = bool(shuffle), None
    else:
        is_shuffled, short = True, seed("shuffle", shuffle)
    if is_shuffled and sampler is not None:
        raise ConfigError("shuffle and sampler are two orders: leave out one of them; seed= is for both")
    if short is not None and own is not None and short != own:
        raise ConfigError(f"shuffle={short} and seed={own} are two seeds: give shuffle=True, seed={own}")
    return is_shuffled, own if own is not None else short or 0


def of_the_kind(
    is_source: bool, shuffle_buffer: int | None, split_shards: bool, skip: Any, transfer_mode: str
) -> None:
    """Refuses what is for the other kind of data: with random access, or read in sequence."""
    if not is_source:
        if shuffle_buffer is not None:
            raise ConfigError(
                "shuffle_buffer is for a source, and this data has random access: give shuffle=True"
            )
        if split_shards:
            raise ConfigError("split_shards is for a source, and this data has no shards: leave it out")
        return
    if skip:
        raise ConfigError(
            "skip is for data with a length, and where the steps of a source begin is known only after they "
            "are read: leave it out"
        )
    if transfer_mode in ("zero_copy", "resident"):
        raise ConfigError(
            f"transfer_mode={shown(transfer_mode)} is for data with random access, and a source is read in "
            "sequence: leave it out"
        )


def of_one_pass(epochs: Any, split_shards: bool, orders: Mapping[str, bool]) -> int:
    """The number of epochs of a source that is read once: 1. Refuses what it does not have: orders of its shards, and
    ranks that read all of them."""
    of = "and a source with once=True has one epoch"
    if maybe("epochs", epochs) not in (None, 1):
        raise ConfigError(f"epochs is {epochs}, {of}: leave it out")
    for name, is_given in orders.items():
        if is_given:
            raise ConfigError(f"{name} orders the shards anew in each epoch, {of}: give shuffle_buffer= for the samples")
    if split_shards:
        raise ConfigError(
            "split_shards lets each rank read all shards, and with once=True they would take samples from each other: "
            "give a shard for each rank"
        )
    return 1


def seed(name: str, value: Any) -> int:
    """A seed."""
    try:
        return whole(name, value, 0, 2**64 - 1)
    except ConfigError:
        why = f"{name} is {shown(value)}: give a seed, a whole number from 0 to 2^64 - 1, such as {name}=7"
        raise ConfigError(why) from None


def bad_samples(value: Any) -> tuple[int | None, float | None]:
    """How many samples may be unreadable, or which share of them."""
    if isinstance(value, float):
        if not 0.0 <= value <= 1.0:
            raise ConfigError(
                f"bad_samples is {shown(value)}: give a share from 0.0 to 1.0, or a number of samples"
            )
        return None, value
    try:
        return whole("bad_samples", value, 0, 2**64 - 1), None
    except ConfigError:
        why = f"bad_samples is {shown(value)}: give a number of samples from 0, or a share from 0.0 to 1.0"
        raise ConfigError(why) from None


def mapping(name: str, value: Any, example: str) -> Mapping[Any, Any]:
    """``value`` as a dict; ``None`` is an empty one."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(f"{name} is {shown(value)}: give a dict, such as {name}={example}")
    return value


def by_column(name: str, value: Any, example: str) -> Mapping[str, Any]:
    """As :func:`mapping`, whose keys are names of columns or fields."""
    given = mapping(name, value, example)
    for key in given:
        if not isinstance(key, str):
            raise ConfigError(f"{name} is for {shown(key)}, which is no name: give a dict, such as {name}={example}")
    return given


def limits(max_length: Any) -> dict[str, int]:
    """Max items by field."""
    given = by_column("max_length", max_length, '{"tokens": 512}')
    return {name: whole(f"max_length[{name!r}]", items, 1) for name, items in given.items()}


def bounds(max_length: Any) -> dict[str, int | None]:
    """Max items by field of samples of Python; ``None`` for a field without a limit."""
    given = by_column("max_length", max_length, '{"tokens": 512}')
    return {name: maybe(f"max_length[{name!r}]", items, 1) for name, items in given.items()}


def word(name: str, value: Any, *known: str) -> str:
    """``value``, one of some words."""
    if not isinstance(value, str) or value not in known:
        raise ConfigError(f'{name} {shown(value)}: use {", ".join(map(quoted, known[:-1]))} or {quoted(known[-1])}')
    return value


def quoted(word: str) -> str:
    return f'"{word}"'


def skip(value: Any) -> list[tuple[int, int, int]]:
    """The steps to leave out: epoch, first step, end."""
    steps = []
    for epoch, given in mapping("skip", value, "{3: range(100, 120)}").items():
        if not isinstance(given, range) or given.step != 1:
            raise ConfigError(f"skip[{shown(epoch)}] is {shown(given)}: give a range of steps, such as range(100, 120)")
        first = whole("a step of skip", given.start)
        steps.append((whole("an epoch of skip", epoch), first, whole("a step of skip", given.stop)))
    return steps
