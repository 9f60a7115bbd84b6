"""Rows compared: any order, doubles nearly, everything else exactly; changes net of what comes and goes."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.jobs.testing.suite import net, rows_differ, value_text

rows = st.lists(st.fixed_dictionaries({"a": st.sampled_from([None, 1, 2]), "b": st.sampled_from(["x", "y"])}))


def counted(many: Any) -> Counter[Any]:
    return Counter(tuple(sorted(row.items(), key=str)) for row in many)


@given(rows, rows)
def test_what_differs_is_the_difference_of_the_bags(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    found = rows_differ(one, other)
    assert counted(found.missing) == counted(one) - counted(other)
    assert counted(found.unexpected) == counted(other) - counted(one)
    assert bool(found) == (counted(one) != counted(other))


@given(rows, rows)
def test_net_changes_are_the_difference_of_the_bags(come: list[dict[str, Any]], gone: list[dict[str, Any]]) -> None:
    inserted, retracted = net([*((row, 1) for row in come), *((row, -1) for row in gone)])
    assert counted(inserted) == counted(come) - counted(gone)
    assert counted(retracted) == counted(gone) - counted(come)


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (0.1 + 0.2, 0.3, True),
        (float("nan"), float("nan"), True),
        (1.0, 1.0001, False),
        (float("inf"), float("-inf"), False),
        (1, 1.0, False),
        (1, True, False),
        (Decimal("1.10"), Decimal("1.1"), True),
        (None, 0, False),
        ([1, None], [1, None], True),
        ([1, 2], [2, 1], False),
        ({"k": 0.1 + 0.2}, {"k": 0.3}, True),
        ("1", 1, False),
    ],
)
def test_values(one: object, other: object, same: bool) -> None:
    assert (not rows_differ([{"v": one}], [{"v": other}])) is same


def test_values_are_shown_as_yaml_writes_them() -> None:
    assert [value_text(each) for each in (None, True, "a b", "ab", "12", [1, {"k": 2}])] == [
        *("null", "true", "'a b'", "ab", "'12'", "[1, {k: 2}]")
    ]
