"""Random histories: events of each source in their order, cut into epochs; and the rows that stand after them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.properties.paths.values import VALUES
from tests.properties.paths.views import Relation
from tests.properties.picker import Picker

Row = dict[str, Any]
Event = tuple[str, Row | None, Any]
"""The relation, the row (None: the key is gone), and the key of a table."""
Epoch = tuple[Event, ...]


def history(pick: Picker, relations: Sequence[Relation], *, most: int = 32, cuts: int = 2) -> tuple[Epoch, ...]:
    """Up to `most` events, cut up to `cuts` times; some epochs are empty, the first perhaps as well."""
    count = pick.count(most // 2, most)
    events = [_event(pick, pick.one(relations)) for _ in range(count)]
    places = sorted(pick.count(0, count) for _ in range(pick.count(0, cuts)))
    return tuple(tuple(events[a:b]) for a, b in zip([0, *places], [*places, count], strict=True))


def _event(pick: Picker, relation: Relation) -> Event:
    values = {name: pick.one(VALUES[kind]) for name, kind in relation.columns}
    if relation.kind == "stream":
        return relation.name, values, None
    name, kind = relation.columns[0]
    key = pick.one(VALUES[kind][1:6])
    return relation.name, None if pick.chance(20) else values | {name: key}, key


def standing(relation: Relation, events: Sequence[Event]) -> list[Row]:
    """The rows of a relation after these events: all of a stream, of a table the newest of each key."""
    rows: dict[Any, Row] = {}
    for place, (name, row, key) in enumerate(events):
        if name != relation.name:
            continue
        at = place if relation.kind == "stream" else (str(type(key)), key)
        rows.pop(at, None)
        if row is not None:
            rows[at] = row
    return list(rows.values())
