"""Random histories: events of each source in their order, cut into epochs; and the rows that stand after them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tests.properties.paths.values import VALUES
from tests.properties.paths.views import CLOCK, Relation
from tests.properties.picker import Picker

BEGIN: Final = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
"""The moment that the times of events are counted from."""
TIME: Final = "__time"
NOW: Final = "__now"
_NEAR_1970: Final = -int(BEGIN.timestamp()) - 12
"""Where some histories begin: a window of theirs may begin before 1970."""
_LATE: Final = (0, 0, 0, 1, 3, 8, -1, -4, -12)
"""How far the times of events are from their order."""

_TICKS: Final = (0, 0, 0, 0, 0, 1, -60, 3600, 86_400, 60 * 86_400)
"""How far ticks are from the clock, in seconds."""

_NEVER: Final = 10 * _NEAR_1970

Row = dict[str, Any]


class Event(NamedTuple):
    """What comes.

    Attributes:
        name: the relation's.
        row: None: the key is gone.
        key: of a table.
        at: its time, in seconds from a common moment; the order of events is another one.
    """

    name: str
    row: Row | None
    key: Any
    at: int = 0


Epoch = tuple[Event, ...]


def history(pick: Picker, relations: Sequence[Relation], *, most: int = 32, cuts: int = 2) -> tuple[Epoch, ...]:
    """Up to `most` events, cut up to `cuts` times; some epochs are empty, the first perhaps as well."""
    count = pick.count(most // 2, most)
    first = _NEAR_1970 if count % 8 == 0 else 0
    events = []
    for number in range(count):
        relation = pick.one(relations)
        events.append(
            _tick(pick, number) if relation == CLOCK else _event(pick, relation, first + number + pick.one(_LATE))
        )
    places = sorted(pick.count(0, count) for _ in range(pick.count(0, cuts)))
    return tuple(tuple(events[a:b]) for a, b in zip([0, *places], [*places, count], strict=True))


def _tick(pick: Picker, number: int) -> Event:
    """The clock goes ten seconds with each event, and now and then it is set."""
    now = BEGIN + dt.timedelta(seconds=10 * number + pick.one(_TICKS))
    return Event(CLOCK.name, {"id": 1, "now": now}, 1, number)


def _event(pick: Picker, relation: Relation, at: int) -> Event:
    values = {name: pick.one(VALUES[kind]) for name, kind in relation.columns}
    if relation.kind == "stream":
        return Event(relation.name, values, None, at)
    name, kind = relation.columns[0]
    key = pick.one(VALUES[kind][1:6])
    return Event(relation.name, None if pick.chance(20) else values | {name: key}, key, at)


def standing(relation: Relation, events: Sequence[Event]) -> list[Row]:
    """The rows of a relation after these events: all of a stream, of a table the newest of each key.

    Those of a stream have their time, and the latest of the stream's when they came, in milliseconds.
    """
    rows: dict[Any, Row] = {}
    latest = _NEVER
    for place, event in enumerate(events):
        if event.name != relation.name:
            continue
        latest = max(latest, event.at)
        at = place if relation.kind == "stream" else (str(type(event.key)), event.key)
        rows.pop(at, None)
        if event.row is not None:
            times = {TIME: _milliseconds(event.at), NOW: _milliseconds(latest)} if relation.kind == "stream" else {}
            rows[at] = event.row | times
    return list(rows.values())


def _milliseconds(seconds: int) -> int:
    return int(BEGIN.timestamp() + seconds) * 1000
