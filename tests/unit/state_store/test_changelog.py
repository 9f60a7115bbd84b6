"""The changelog: consolidation hides what is not visible; folding gives the table back."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.state_store.changelog import consolidate, fold
from strandline.state_store.errors import NegativeWeight

MAP = pa.map_(pa.string(), pa.int64())
SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("v", pa.float64()),
        ("m", MAP),
        ("_commit_version", pa.int64()),
        ("_commit_timestamp", pa.timestamp("us", "UTC")),
        ("__weight", pa.int64()),
    ]
)
_AT = datetime(2026, 1, 1, tzinfo=UTC)
Change = tuple[int, int, str, float | None]


def _changes(*changes: Change, maps: list[Any] | None = None) -> pa.Table:
    """A changelog of (version, weight, k, v)."""
    rows = [
        {"k": k, "v": v, "m": maps[i] if maps else None, "_commit_version": n, "_commit_timestamp": _AT, "__weight": w}
        for i, (n, w, k, v) in enumerate(changes)
    ]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _listed(changes: pa.Table) -> list[Change]:
    return [(r["_commit_version"], r["__weight"], r["k"], r["v"]) for r in changes.to_pylist()]


ROW = st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from([0.0, 1.5, float("nan")]))


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Change], Counter[tuple[str, str]]]:
    """A changelog that never takes away what is not there, and the rows it leaves."""
    present: list[tuple[str, float | None]] = []
    changes: list[Change] = []
    for version in range(draw(st.integers(0, 6))):
        taken = draw(st.lists(st.integers(0, 10), max_size=3))
        for place in taken:
            if present:
                changes.append((version, -1, *present.pop(place % len(present))))
        given_rows = draw(st.lists(ROW, max_size=3))
        changes += [(version, 1, *row) for row in given_rows]
        present += given_rows
    return changes, Counter((k, repr(v)) for k, v in present)


def _counted(rows: pa.Table) -> Counter[tuple[str, str]]:
    return Counter((r["k"], repr(r["v"])) for r in rows.to_pylist())


@given(histories())
def test_folding_gives_the_rows_that_are_left(history: tuple[list[Change], Counter[tuple[str, str]]]) -> None:
    changes, left = history
    assert _counted(fold(_changes(*changes))) == left


@given(histories())
def test_consolidation_does_not_change_what_folds(history: tuple[list[Change], Counter[tuple[str, str]]]) -> None:
    changes, left = history
    once = consolidate(_changes(*changes))
    assert _counted(fold(once)) == left
    assert repr(_listed(consolidate(once))) == repr(_listed(once))


@given(histories())
def test_a_consolidated_version_never_gives_and_takes_the_same_row(history: tuple[list[Change], Any]) -> None:
    changes = _listed(consolidate(_changes(*history[0])))
    signs: dict[tuple[int, str, str], set[int]] = {}
    for version, weight, k, v in changes:
        signs.setdefault((version, k, repr(v)), set()).add(weight)
    assert all(len(weights) == 1 for weights in signs.values())
    assert [(n, w) for n, w, *_ in changes] == sorted((n, w) for n, w, *_ in changes)


def test_a_row_that_is_not_there_cannot_be_taken_away() -> None:
    with pytest.raises(NegativeWeight, match="version 3"):
        fold(_changes((1, 1, "a", 1.0), (3, -1, "a", 2.0)))


def test_a_later_version_may_take_away_what_an_earlier_one_gave_but_not_the_other_way_round() -> None:
    assert fold(_changes((2, -1, "a", 1.0), (1, 1, "a", 1.0))).num_rows == 0
    with pytest.raises(NegativeWeight):
        fold(_changes((1, -1, "a", 1.0), (2, 1, "a", 1.0)))


def test_maps_with_the_same_entries_are_the_same_row_whatever_their_order() -> None:
    one, other = [("a", 1), ("b", 2)], [("b", 2), ("a", 1)]
    changes = _changes((1, -1, "k", 1.0), (1, 1, "k", 1.0), maps=[one, other])
    assert consolidate(changes).num_rows == 0
    changed = _changes((1, -1, "k", 1.0), (1, 1, "k", 1.0), maps=[one, [("a", 1), ("b", 3)]])
    assert _listed(consolidate(changed)) == [(1, -1, "k", 1.0), (1, 1, "k", 1.0)]


def test_duplicates_cancel_one_for_one() -> None:
    changes = _changes((1, 1, "a", 1.0), (1, 1, "a", 1.0), (1, -1, "a", 1.0))
    assert _listed(consolidate(changes)) == [(1, 1, "a", 1.0)]


def test_folding_keeps_only_the_columns_asked_for() -> None:
    rows = fold(_changes((1, 1, "a", 1.0), (2, -1, "a", 2.0)), ["k"])
    assert rows.column_names == ["k"]
    assert rows.num_rows == 0
