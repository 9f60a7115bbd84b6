"""Two tables as multisets: equal, equal but for the order in which doubles were added up, or not equal."""

from __future__ import annotations

import pyarrow as pa
import pytest

from strandline.jobs.operate.verify.difference import difference

NAN = float("nan")


def table(*rows: tuple[str | None, float | None, list[float] | None]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [(), (), ()]
    types = {"k": pa.string(), "x": pa.float64(), "l": pa.list_(pa.float64())}
    return pa.table({name: pa.array(c, t) for (name, t), c in zip(types.items(), columns, strict=True)})


@pytest.mark.parametrize(
    ("stored", "computed"),
    [
        ([], []),
        ([("a", 1.0, None), ("b", None, [NAN])], [("b", None, [NAN]), ("a", 1.0, None)]),
        ([("a", 0.1 + 0.2, [1.0, NAN])], [("a", 0.3, [1.0 + 1e-12, NAN])]),
        ([("a", 1e-17, None)], [("a", 0.0, None)]),
        ([("a", 3.0, None), ("a", 1.0, None)], [("a", 1.0 + 1e-12, None), ("a", 3.0, None)]),
    ],
)
def test_rows_that_differ_in_rounding_only_are_equal(
    stored: list[tuple[str, float, list[float]]], computed: list[tuple[str, float, list[float]]]
) -> None:
    assert difference(table(*stored), table(*computed)) == ""


@pytest.mark.parametrize(
    ("stored", "computed", "said"),
    [
        ([("a", 1.0, None)], [("a", 1.00001, None)], "1 too many, as (k='a', x=1.0, l=None); 1 missing, as (k='a'"),
        ([("a", 1.0, None)] * 2, [("a", 1.0, None)], "1 too many"),
        ([], [("a", None, None)], "1 missing, as (k='a', x=None, l=None)"),
        ([("a", NAN, None)], [("a", 0.0, None)], "1 too many"),
        ([("a", None, None)], [("a", 0.0, None)], "1 too many"),
        ([("a", 1.0, [1.0])], [("a", 1.0, [1.0, 2.0])], "1 too many"),
    ],
)
def test_what_is_too_many_and_what_is_missing_is_said(
    stored: list[tuple[str, float, list[float]]], computed: list[tuple[str, float, list[float]]], said: str
) -> None:
    assert said in difference(table(*stored), table(*computed))


def test_a_key_that_is_no_longer_computed_may_stay() -> None:
    stored = table(("a", 1.0, None), ("gone", 0.0, None))
    assert difference(stored, table(("a", 1.0, None)), lasting=[0]) == ""
    assert "too many" in difference(stored, table(("gone", 1.0, None), ("a", 1.0, None)), lasting=[0])


def test_a_key_that_is_not_visible_may_last_too() -> None:
    """The row of a group that fell to zero cannot be told from another's."""
    stored = pa.table({"n": [1, 0]})
    computed = pa.table({"n": [1]})
    assert "1 too many" in difference(stored, computed)
    assert difference(stored, computed, []) == ""
    assert "1 missing" in difference(computed, stored, [])
