"""The two ways to hold a run against the expected records; each gives the first difference as text, or None.

A, final state: of a table's records with one key and window the last counts, and a null value is no row; a stream's
records all count. What the view holds after all inputs must be that, as a multiset.

B, changelog order: record by record, per key. Every state that the view goes through must be one that ksqlDB goes
through, in the same order, and the last ones must be equal. ksqlDB sends a row again that did not change; a change feed
does not, so equal neighbours count once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from strandline.jobs.model import types as t
from tests.conformance.compare import ComparedRelation, Expected, Row, canonical, difference, same

_SHOWN = 3


def final_state(
    compared: ComparedRelation, wanted: Sequence[Expected], stored: Sequence[Row], *, one_by_one: bool
) -> str | None:
    """Mode A; `stored`: the rows after all inputs.

    Args:
        one_by_one: every input had an epoch of its own. Otherwise a group may have come and gone within one epoch:
            that it stays with its zeros is not expected then, since it never was there.

    ksqlDB sends the padded row of an outer join of streams at once and cannot take it back when a partner comes; such
    rows are not expected to stay. With GRACE PERIOD it sends it only when no partner can come any more: until then it
    may be there.
    """
    expected = list(_last(wanted).values()) if compared.table else [each for each in wanted if each.row is not None]
    rows = [each.row for each in expected if each.row is not None]
    if compared.taken_back:
        rows = [row for at, row in enumerate(rows) if not _completed(row, rows[at + 1 :])]
    missing, extra = difference(rows, compared.rows(stored))
    if compared.keeps_empty and not one_by_one:
        missing = [row for row in missing if not compared.is_empty_group(row)]
    if compared.held_back:
        extra = [row for row in extra if not _padded(row)]
    if missing or extra:
        return _told(compared.name, missing, extra)
    timed = not compared.table and not compared.taken_back and stored and "_timestamp" in stored[0]
    return _times(compared, expected, stored) if timed else None


def changelog_order(
    compared: ComparedRelation, wanted: Sequence[Expected], snapshots: Sequence[Sequence[Row]]
) -> str | None:
    """Mode B; `snapshots`: the rows after each input record."""
    states = [compared.rows(stored) for stored in snapshots]
    if not compared.table:
        return _stream_order(compared, [each.row for each in wanted if each.row is not None], states)
    keys = [column.name for column in compared.keys]
    steps = _expected_states(wanted)
    for key in {repr([row[k] for k in keys]) for state in (*steps, *states) for row in state}:
        told = [_of_key(state, keys, key) for state in steps]
        seen = _without_repeats([_of_key(state, keys, key) for state in states])
        problem = _followed(told, seen)
        if problem is not None:
            return f"{compared.name}, key {key}: {problem}"
    return None


def _last(wanted: Sequence[Expected]) -> dict[str, Expected]:
    return {each.key: each for each in wanted}


def _completed(row: Row, later: Sequence[Row]) -> bool:
    """Whether a later row is this one with its missing side filled in."""
    return any(
        any(row[n] is None and other[n] is not None for n in row)
        and all(row[n] is None or same(row[n], other[n]) for n in row)
        for other in later
    )


def _times(compared: ComparedRelation, wanted: Sequence[Expected], stored: Sequence[Row]) -> str | None:
    """Rows are equal: are they so with their times, where the case says them?"""
    if any(each.timestamp is None for each in wanted):
        return None
    timed = [{**(each.row or {}), "_timestamp": (each.timestamp or 0) * 1000} for each in wanted]
    found = [{**row, "_timestamp": _microseconds(own["_timestamp"])} for own in stored for row in compared.rows([own])]
    missing, extra = difference(timed, found)
    return _told(f"{compared.name} (times)", missing, extra) if missing or extra else None


def _microseconds(value: Any) -> int | None:
    found = canonical(value, t.TIMESTAMP)
    # Records carry milliseconds.
    return None if found is None else found // 1000 * 1000


def _stream_order(compared: ComparedRelation, wanted: Sequence[Row], states: Sequence[Sequence[Row]]) -> str | None:
    """Rows that one input record adds come in any order; what it takes away (a padded row) was sent before.

    Of an outer join of streams, rows may be passed over that later ones complete: a padded row which ksqlDB cannot take
    back joins the next stream as well. With GRACE PERIOD a padded row may be there before ksqlDB sends it.
    """
    before: Sequence[Row] = []
    rest = list(wanted)
    for state in states:
        _, added = difference(before, state)
        left = list(added)
        while left:
            at = next((place for place, row in enumerate(left) if rest and same(row, rest[0])), None)
            early = next((place for place, row in enumerate(left) if compared.held_back and _padded(row)), None)
            if at is not None:
                del left[at], rest[0]
            elif rest and compared.taken_back and _completed(rest[0], rest[1:]):
                del rest[0]
            elif early is not None:
                rest, _ = difference(rest, [left.pop(early)])
            else:
                place = len(wanted) - len(rest)
                return _told(f"{compared.name}, from record {place}", rest[: len(added)], left)
        before = state
    if compared.taken_back:
        rest = [row for at, row in enumerate(rest) if not _completed(row, wanted[len(wanted) - len(rest) + at + 1 :])]
    return _told(compared.name, rest, []) if rest else None


def _padded(row: Row) -> bool:
    return any(value is None for value in row.values())


def _expected_states(wanted: Sequence[Expected]) -> list[list[Row]]:
    """The table after each expected record, from the empty one on."""
    rows: dict[str, Row] = {}
    states: list[list[Row]] = [[]]
    for each in wanted:
        rows = {key: row for key, row in rows.items() if key != each.key}
        if each.row is not None:
            rows[each.key] = each.row
        states.append(list(rows.values()))
    return states


def _of_key(state: Sequence[Row], keys: Sequence[str], key: str) -> list[Row]:
    return [row for row in state if repr([row[k] for k in keys]) == key]


def _without_repeats(states: Sequence[list[Row]]) -> list[list[Row]]:
    kept: list[list[Row]] = [[]]
    for state in states:
        if not _equal(kept[-1], state):
            kept.append(state)
    return kept


def _followed(told: Sequence[list[Row]], seen: Sequence[list[Row]]) -> str | None:
    """Whether `seen` is a way through `told` that ends where it ends."""
    at = 0
    for number, state in enumerate(seen):
        step = next((place for place in range(at, len(told)) if _equal(told[place], state)), None)
        if step is None:
            return f"state {number} is none of the expected that remain: {_show(state)}"
        at = step
    return None if _equal(told[-1], seen[-1]) else f"ends with {_show(seen[-1])}, expected {_show(told[-1])}"


def _equal(left: Sequence[Row], right: Sequence[Row]) -> bool:
    return len(left) == len(right) and difference(left, right) == ([], [])


def _told(name: str, missing: Sequence[Row], extra: Sequence[Row]) -> str:
    parts = [f"missing {_show(missing)}"] if missing else []
    parts += [f"too much {_show(extra)}"] if extra else []
    return f"{name}: {'; '.join(parts)}"


def _show(rows: Sequence[Row]) -> str:
    shown = ", ".join("(" + ", ".join(f"{n}={v!r}" for n, v in row.items()) + ")" for row in rows[:_SHOWN])
    return f"[{shown}{', …' if len(rows) > _SHOWN else ''}]"
