"""Random histories: events of each source in their order, cut into batches.

Streams and event logs have two partitions whose events interleave; times run backwards now and then (late events), and
`_stream_time` is what ingest makes of them: the running maximum of a partition. All events of one key of a table are in
one partition, as a producer with a key does it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from tests.properties.picker import Picker
from tests.properties.sources import EPOCH, VALUES, Schema

Row = dict[str, Any]
Batch = dict[str, list[Row]]
"""What comes in one epoch, by event log."""

# Seconds from one event to the next: the windows of the views are about as long; a late event is windows late.
_STEPS = (0, 1, 1, 2, 5, 20, -3, -30)


def history(
    pick: Picker, schemas: Sequence[Schema], *, most: int = 24, cuts: int = 4, in_order: bool = False
) -> list[Batch]:
    """Batches with up to `most` events, cut up to `cuts` times; some are empty, the first perhaps as well.

    Args:
        in_order: every event is later than the one before, and all share one partition: what an event saw of a table
            can then be computed again from the whole history.
    """
    count = pick.count(0, most)
    clock = _Clock(in_order)
    events = [_event(pick, pick.one(schemas), clock) for _ in range(count)]
    places = sorted(pick.count(0, count) for _ in range(pick.count(0, cuts)))
    return [_batch(events[a:b]) for a, b in zip([0, *places], [*places, count], strict=True)]


class _Clock:
    """Times, stream times and offsets of the partitions of all logs."""

    def __init__(self, in_order: bool) -> None:
        self.in_order = in_order
        self.now = EPOCH
        self.places: dict[tuple[str, int], tuple[int, dt.datetime]] = {}

    def meta(self, log: str, partition: int, step: int) -> Row:
        self.now += dt.timedelta(seconds=max(abs(step), 1) if self.in_order else max(step, 0))
        partition = 0 if self.in_order else partition
        time = self.now if step >= 0 or self.in_order else self.now + dt.timedelta(seconds=step)
        offset, latest = self.places.get((log, partition), (-1, time))
        self.places[log, partition] = (offset + 1, max(latest, time))
        return {
            "_partition": partition,
            "_offset": offset + 1,
            "_timestamp": time,
            "_stream_time": max(latest, time),
        }


def _event(pick: Picker, schema: Schema, clock: _Clock) -> tuple[str, Row]:
    step = pick.one(_STEPS)
    if schema.kind == "stream":
        row = {name: pick.one(VALUES[kind]) for name, kind in schema.columns}
        return schema.log, row | clock.meta(schema.log, pick.count(0, 1), step)
    (key, kind), *rest = schema.columns
    keys = list(dict.fromkeys(value for value in VALUES[kind] if value is not None))
    place = pick.count(0, len(keys) - 1)
    gone = pick.chance(25)
    row = {key: keys[place], "_tombstone": gone}
    row |= {name: None if gone else pick.one(VALUES[each]) for name, each in rest}
    return schema.log, row | clock.meta(schema.log, place % 2, step)


def _batch(events: Sequence[tuple[str, Row]]) -> Batch:
    batch: Batch = {}
    for log, row in events:
        batch.setdefault(log, []).append(row)
    return batch
