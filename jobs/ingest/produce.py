"""Rows become records of a source's topic, without a JVM: those of `INSERT INTO … VALUES`, and the ticks of a lake's
clock.

A tick that is lost, or written twice, says nothing wrong: the next one has the time that it is then. Between two ticks
nothing happens, so an idle pipeline commits once a tick at most.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest.debezium import open_writer
from strandline.jobs.ingest.formats.coerce import Misfit, coerce, wire_value
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.logs.open import open_with_topic
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.model.options import TICK
from strandline.jobs.model.types import BaseType
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.ingest.formats.format import Writer
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout


ROWTIME = "rowtime"
TOMBSTONE = "__tombstone"


def insert_rows(source: Source, rows: Sequence[Mapping[str, object]], settings: Settings, lake: LakeLayout) -> int:
    """Append rows to the source's topic, which is created if absent; returns the number of rows.

    A row maps columns to Python values; columns left out are NULL. `rowtime` (milliseconds since the epoch, or a
    time) sets the record's timestamp; `{"__tombstone": True}` beside the key columns deletes the key of a table.

    Raises:
        EncodeFailed: a value does not fit its column or format. Nothing was written.
        SourceUnavailable: the broker or registry does not answer.
    """
    if not rows:
        return 0
    return len(append_records(source, encode_rows(source, rows, settings, lake), settings, lake))


def append_records(
    source: Source, records: Sequence[Record], settings: Settings, lake: LakeLayout
) -> list[tuple[int, int]]:
    """Append records to the source's topic, which is created if absent; the partition and offset of each.

    Raises:
        SourceUnavailable: the broker does not answer.
    """
    return open_with_topic(source, settings, lake).produce(source.topic, records)


def encode_rows(
    source: Source, rows: Sequence[Mapping[str, object]], settings: Settings, lake: LakeLayout
) -> list[Record]:
    """The records of `rows`; see `insert_rows`."""

    def registry() -> Any:
        from strandline.jobs.ingest.formats.registry import open_registry

        return open_registry(settings, lake)

    key, value = open_writer(source, "key", registry), open_writer(source, "value", registry)
    now = time.time_ns() // 1_000_000
    return [_record(source, row, key, value, now) for row in rows]


def _record(source: Source, row: Mapping[str, object], key: Writer | None, value: Writer | None, now: int) -> Record:
    known = {column.name for column in source.columns} | {ROWTIME, TOMBSTONE}
    unknown = sorted(set(row) - known)
    if unknown:
        raise EncodeFailed(sentence("'{}' has no column '{}'", Name(source.name), unknown[0]))
    wire = {column.name: wire_value(row.get(column.name), column) for column in source.columns}
    deletes = bool(row.get(TOMBSTONE))
    if source.kind == "table" and any(wire[name] is None for name in source.key):
        raise EncodeFailed(
            sentence("a row of table '{}' needs a key", Name(source.name)), hint=f"give {', '.join(source.key)}"
        )
    if deletes and source.kind != "table":
        raise EncodeFailed(sentence("'{}' is a stream: its events cannot be deleted", Name(source.name)))
    return Record(
        key=_payload(source, wire, key, keys=True),
        value=None if deletes else _payload(source, wire, value, keys=False),
        timestamp_ms=_time(row.get(ROWTIME), now),
    )


def _payload(source: Source, wire: Mapping[str, object], form: Writer | None, *, keys: bool) -> bytes | None:
    if form is None:
        # No column comes from the value: an empty object tells the event from a tombstone.
        return None if keys else b"{}"
    part = {column.name: wire[column.name] for column in source.columns if column.part == ("key" if keys else "value")}
    if keys and all(value is None for value in part.values()):
        return None
    try:
        return form.encode(part)
    except (ValueError, TypeError) as error:
        raise EncodeFailed(sentence("a row of '{}' cannot be written: {}", Name(source.name), error)) from error


def _time(value: object, now: int) -> int:
    try:
        return now if value is None else int(coerce(value, t.TIMESTAMP)) // 1000
    except Misfit as error:
        raise EncodeFailed(f"rowtime: {error}", hint="milliseconds since 1970, or a time in ISO 8601") from None


_ROW = 0
"""The key of a clock's one row."""


def utc_now() -> dt.datetime:
    """The time of this machine."""
    return dt.datetime.now(dt.UTC)


class Ticks:
    """The clocks among the sources of one run."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def tick(self, sources: Sequence[Source], settings: Settings, lake: LakeLayout) -> bool:
        """Write the time to each clock that is due; the first time all are. True if any was.

        Raises:
            SourceUnavailable: the broker does not answer.
        """
        due = [each for each in sources if TICK in each.options and time.monotonic() >= self._next.get(each.name, 0)]
        for source in due:
            self._next[source.name] = time.monotonic() + int(source.options[TICK]) / 1000
            column = next(each.name for each in source.columns if each.type.base is BaseType.TIMESTAMP)
            # A record's times are whole milliseconds.
            now = utc_now()
            now = now.replace(microsecond=now.microsecond // 1000 * 1000)
            insert_rows(source, [{source.key[0]: _ROW, column: now}], settings, lake)
        return bool(due)
