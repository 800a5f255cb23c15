"""Folds of a cross-validation by groups: all samples of a group in one validation set."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import feedline

PATIENTS = np.random.default_rng(3).integers(0, 23, 200)


def validations(groups: Any, count: int = 4, seed: int = 7) -> list[set[int]]:
    data = feedline.Data({"x": np.arange(len(PATIENTS))})
    folds = data.folds(count, groups=groups, seed=seed)
    for train, validation in folds:
        together = [int(sample["x"]) for part in (train, validation) for sample in part]
        assert sorted(together) == list(range(len(PATIENTS)))
    return [{int(sample["x"]) for sample in validation} for _, validation in folds]


@pytest.mark.parametrize(
    "groups",
    [
        PATIENTS,
        PATIENTS.tolist(),
        PATIENTS * 10**12 - 5,
        [f"patient {patient:02}" for patient in PATIENTS],
        np.array([f"{patient:02}" for patient in PATIENTS], object),
    ],
    ids=["array", "list", "large", "texts", "objects"],
)
def test_all_samples_of_a_group_are_in_one_validation_set(groups: Any) -> None:
    sets = validations(groups)
    for patient in range(23):
        own = set(np.flatnonzero(PATIENTS == patient).tolist())
        assert sum(own <= one for one in sets) == 1 and sum(bool(own & one) for one in sets) == 1
    assert sum(map(len, sets)) == len(PATIENTS)
    assert max(map(len, sets)) - min(map(len, sets)) < 10
    assert sets == validations(PATIENTS) != validations(PATIENTS, seed=8)


def test_columns_of_frames_are_groups() -> None:
    pandas = pytest.importorskip("pandas", reason="not run: pandas is not installed")
    names = [f"patient {patient:02}" for patient in PATIENTS]
    assert validations(pandas.Series(names)) == validations(pandas.Series(names, dtype="category")) == validations(names)
    with pytest.raises(feedline.ConfigError, match="groups have values that are no texts"):
        validations(pandas.Series([None, *names[1:]]))


def test_a_fold_is_pickled_with_its_groups() -> None:
    data = feedline.Data({"x": np.arange(len(PATIENTS))})
    fold = data.folds(4, groups=[f"{patient:02}" for patient in PATIENTS])[2][1]
    again = pickle.loads(pickle.dumps(fold))
    assert again.fingerprint == fold.fingerprint and [row["x"] for row in again] == [row["x"] for row in fold]


def test_groups_of_another_kind_or_number_are_refused() -> None:
    for groups, why in [
        (PATIENTS[:-1], "199 groups for 200 samples: give one for each sample"),
        (PATIENTS / 2, "groups are float64 .*: give a whole number or a text for each sample"),
        (PATIENTS > 3, "groups are bool"),
        ("patients", "groups are .*patients.*: give a whole number or a text"),
        (5, "groups are 5: give a whole number or a text"),
        (PATIENTS % 3, "4 folds of 3 groups: use 2 or more, and not more than groups"),
    ]:
        with pytest.raises(feedline.ConfigError, match=why):
            validations(groups)
    data = feedline.Data({"x": np.arange(4)})
    with pytest.raises(feedline.ConfigError, match="folds have labels or groups"):
        data.folds(2, labels=[0, 1, 0, 1], groups=[0, 0, 1, 1])
