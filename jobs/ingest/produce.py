"""Rows become records of a source's topic, without a JVM: those of `INSERT INTO … VALUES`, and the ticks of a lake's
clock. UPDATE and DELETE begin from the newest row of a key: that of the table, or of a record that it does not reflect.

A tick that is lost, or written twice, says nothing wrong: the next one has the time that it is then. Between two ticks
nothing happens, so an idle pipeline commits once a tick at most.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest.debezium import open_writer
from strandline.jobs.ingest.formats.coerce import Misfit, coerce, wire_value
from strandline.jobs.ingest.formats.format import open_format
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.topics import open_log, open_to_write
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import TICK
from strandline.jobs.model.errors import EncodeFailed, SourceBehind
from strandline.jobs.model.types import BaseType
from strandline.state_store.delta import reader
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.ingest.formats.format import Format, Writer
    from strandline.jobs.ingest.logs.log import Log, Records
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.layout import LakeLayout


ROWTIME = "rowtime"
TOMBSTONE = "__tombstone"


def insert_rows(source: Source, rows: Sequence[Mapping[str, object]], settings: Settings, lake: LakeLayout) -> int:
    """Append rows to the source's topic, which is created if absent; returns the number of rows.

    A row maps columns to Python values; columns left out are NULL. `rowtime` (milliseconds since the epoch, or a
    time) sets the record's timestamp; `{"__tombstone": True}` beside the key columns deletes the key of a table.

    Raises:
        EncodeFailed: a value does not fit its column or format. Nothing was written.
        TopicMissing, TopicReplaced: events were read from it, and it is gone. Nothing was written.
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
        TopicMissing, TopicReplaced: events were read from it, and it is gone. Nothing was written.
        SourceUnavailable: the broker does not answer.
    """
    return open_to_write(source, settings, lake).produce(source.topic, records)


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


Row = dict[str, Any]
"""{column: value}, as Arrow's `to_pylist` gives them."""

# They are decoded one by one, in this process: a second or two. A longer backlog is for the pipeline.
_MOST_WAITING = 100_000


def newest_row(source: Source, key: Mapping[str, object], settings: Settings, lake: LakeLayout) -> Row | None:
    """The row that the table of `source` will have for a key once its topic is taken in; None when there is none.

    Who writes to the topic meanwhile is not seen, as with any reader of a log.

    Args:
        key: {key column: value}, all of them.

    Raises:
        SourceBehind: the table lacks so many records that a pipeline should take them in first.
        SourceUnavailable: the broker or registry does not answer.
    """
    log = open_log(settings, lake)
    row = _stored(source, key, lake)
    if not log.exists(source.topic):
        return row
    reached = _reflected(source, lake)
    begins, ends = log.begin_offsets(source.topic), log.end_offsets(source.topic)
    starts = {number: max(reached.get(str(number), 0), begins.get(number, 0)) for number in ends}
    waiting = sum(end - starts[number] for number, end in ends.items())
    if waiting > _MOST_WAITING:
        raise SourceBehind(
            sentence(
                "{} events of '{}' wait to be taken in: its rows are not known yet", f"{waiting:,}", Name(source.name)
            ),
            hint=f"strandline run {source.pipeline}, then again; or give every column with INSERT",
        )
    formats = _formats(source, settings, lake)
    for number, end in ends.items():
        row = _followed(row, key, source, log, (number, starts[number], end), formats)
    return row


def _formats(source: Source, settings: Settings, lake: LakeLayout) -> tuple[Format | None, Format | None]:
    def registry() -> Any:
        from strandline.jobs.ingest.formats.registry import open_registry

        return open_registry(settings, lake)

    return open_format(source, "key", registry), open_format(source, "value", registry)


def _stored(source: Source, key: Mapping[str, object], lake: LakeLayout) -> Row | None:
    path = lake.table(source.name)
    head = reader.head(path)
    if head is None:
        return None
    names = [column.name for column in source.columns]
    # Whole numbers and text are what the reader compares as the table does; the rest is compared here.
    numbers = {name: (value,) for name, value in key.items() if type(value) is int}
    texts = {name: (value,) for name, value in key.items() if isinstance(value, str)}
    pushed: Predicate = {**numbers, **texts}
    found = reader.read_rows(path, head.version, names, pushed or None)
    return next((row for row in _rows(found) if _has(row, key)), None)


def _reflected(source: Source, lake: LakeLayout) -> dict[str, int]:
    """{partition: next offset} that the table's rows reflect: those of the event log's version in its last commit."""
    head = reader.head(lake.table(source.name))
    event_log = tables.event_log(source)
    version = head.record.versions.get(event_log) if head else None
    if version is None:
        return {}
    return dict(reader.record_at(lake.table(event_log), version).offsets.get(source.topic, {}))


def _followed(
    row: Row | None,
    key: Mapping[str, object],
    source: Source,
    log: Log,
    piece: tuple[int, int, int],
    formats: tuple[Format | None, Format | None],
) -> Row | None:
    """The row after the records of a piece: partition, first offset, end."""
    for records in log.read(source.topic, *piece):
        for place in _places(records, key, source, formats[0]):
            row = None if records.values[place] is None else _decoded(records, place, source, formats)
    return row


def _places(records: Records, key: Mapping[str, object], source: Source, form: Format | None) -> list[int]:
    """The places of the records with that key, in order."""
    errors: dict[int, str] = {}
    columns = form.decode(records.keys, errors) if form else []
    found = _rows(_table(columns, [column.name for column in source.columns if column.key]))
    return [place for place, row in enumerate(found) if place not in errors and _has(row, key)]


def _decoded(records: Records, place: int, source: Source, formats: tuple[Format | None, Format | None]) -> Row | None:
    """The row of one record; None when its value does not decode: it is a dead letter, and changes nothing."""
    key, value = formats
    errors: dict[int, str] = {}
    keys = iter(key.decode([records.keys[place]], errors) if key else ())
    values = iter(value.decode([records.values[place]], errors) if value else ())
    columns = [next(keys if column.key else values) for column in source.columns]
    (row,) = _rows(_table(columns, [column.name for column in source.columns]))
    return None if errors else row


def _table(columns: list[pa.Array], names: list[str]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_arrays(columns, names=names)


def _rows(table: pa.Table) -> list[Row]:
    return list(table.to_pylist(maps_as_pydicts="lossy"))


def _has(row: Row, key: Mapping[str, object]) -> bool:
    return all(row[name] == value for name, value in key.items())
