"""The decoder: the raw records of a partition become the rows of one source, as Arrow record batches.

All sources of a pipeline share one set of columns, since one Spark source reads all their topics:

    _source STRING · _partition INT · _offset BIGINT · _timestamp TIMESTAMP
    _running_time TIMESTAMP    largest `_timestamp` of the good records so far in this range, this one included
    _headers ARRAY<STRUCT<key, value>>
    _key BINARY · _value BINARY · _error STRING     filled for broken records only: dead letters
    _tombstone BOOLEAN         a null value in a table's topic; of a foreign table or a change stream, a row that goes
    __row STRING               hash of the visible columns, of bags only
    s0 STRUCT<…>, s1 STRUCT<…>, …                   the visible columns of the first, second, … source
    _range STRUCT<next, first, good, broken, first_time, running_time, leader_epoch>
                               only in a range's last row, its range row (see `close`)
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.jobs.ingest.debezium import ChangeRecords, open_changes
from strandline.jobs.ingest.foreign.data_files import as_type, partition_values
from strandline.jobs.ingest.formats.coerce import FIRST_MICROSECOND, LAST_MICROSECOND, Misfit
from strandline.jobs.ingest.formats.format import open_format, reader
from strandline.jobs.ingest.logs.foreign_log import RowRecords
from strandline.jobs.ingest.offsets import NEVER, RANGE_TYPE, RangeTotals
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import ALL_HEADERS
from strandline.jobs.model.errors import DeltaRowsRemoved, DeltaSchemaChanged, ForeignRowsRemoved, ForeignSchemaChanged
from strandline.jobs.model.tables import HEADERS, ROW_HASH, TOMBSTONE
from strandline.jobs.model.types import BaseType
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.ingest.formats.format import Format
    from strandline.jobs.ingest.logs.log import Records
    from strandline.jobs.model.definitions import Column, Source


# The headers of records as columns: all of them, or the value of one.
#
# A record may carry one name several times; the last value is the one that `HEADER('name')` means, as in ksqlDB.


def all_headers(records: Records, base: pa.DataType) -> pa.Array:
    """The headers of each record as an array of (key, value); empty where there are none.

    Args:
        base: the Arrow type of the column, which an engine may spell differently.
    """
    if not any(records.headers):
        starts = pa.array(np.zeros(len(records) + 1, dtype=np.int32))
        return pa.ListArray.from_arrays(starts, pa.array([], type=base.value_type), type=base)
    rows = [[{"key": name, "value": value} for name, value in found or ()] for found in records.headers]
    return pa.array(rows, type=base)


def one_header(records: Records, name: str) -> pa.Array:
    """The value of the last header of that name in each record; NULL where there is none."""
    values = [dict(found).get(name) if found else None for found in records.headers]
    return pa.array(values, type=pa.binary())


_LEAD = (
    ("_source", "STRING"),
    ("_partition", "INT"),
    ("_offset", "BIGINT"),
    ("_timestamp", "TIMESTAMP"),
    ("_running_time", "TIMESTAMP"),
    ("_headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>"),
    ("_key", "BINARY"),
    ("_value", "BINARY"),
    ("_error", "STRING"),
    (TOMBSTONE, "BOOLEAN"),
    (ROW_HASH, "STRING"),
)


def decoded_columns(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """The columns above: name and Spark DDL type."""
    structs = [t.struct(*((column.name, column.type) for column in source.columns)) for source in sources]
    visible = [(f"s{place}", struct.spark()) for place, struct in enumerate(structs)]
    return [*_LEAD, *visible, ("_range", RANGE_TYPE)]


class Decoder:
    """Decodes one range of one partition for one source. Records must be given in offset order.

    Args:
        seconds_ahead: how far the event time of a TIMESTAMP column may be ahead of the record's own time; 0: as far as
            it likes. The record's time, not the clock: so a range gives the same rows whenever it is read.
    """

    def __init__(
        self, source: Source, place: int, schema: pa.Schema, registry: Callable[[], Any], seconds_ahead: float = 0
    ) -> None:
        self._source = source
        self._schema = schema
        self._column = f"s{place}"
        self._changes = open_changes(source, registry)
        self._formats: tuple[Format | None, Format | None] = (None, None)
        if self._changes is None:
            self._formats = open_format(source, "key", registry), open_format(source, "value", registry)
        self._event_time = reader(source.timestamp_format) if source.timestamp is not None else None
        self._seconds_ahead = seconds_ahead
        self.tally = RangeTotals()

    def decode(self, records: Records) -> pa.RecordBatch:
        """One row per record, good or broken; of a change stream, as many as come and go.

        Raises:
            DeltaRowsRemoved, DeltaSchemaChanged, ForeignRowsRemoved, ForeignSchemaChanged: a foreign table is not
                what the source declares.
            SourceTruncated: the table behind a change stream was emptied.
        """
        errors: Errors = {}
        if self._changes is not None:
            records = self._changes.open(records, errors)
        self._check_presence(records, errors)
        visible = self._visible(records, errors)
        times = self._times(records, visible, errors)
        broken = np.zeros(len(records), dtype=bool)
        broken[list(errors)] = True
        offsets = np.array(records.offsets, dtype=np.int64)
        running = self._running_time(offsets, times, broken)
        if len(records) or records.leader_epoch is not None:
            self.tally.leader_epoch = records.leader_epoch
        filled = self._schema.field(self._column).type
        arrays = {
            "_source": pa.repeat(pa.scalar(self._source.name), len(records)),
            "_partition": pa.array(np.full(len(records), records.partition, dtype=np.int32)),
            "_offset": pa.array(offsets),
            "_timestamp": _instants(times, times == NEVER),
            "_running_time": _instants(running, broken | (running == NEVER)),
            "_headers": all_headers(records, self._schema.field("_headers").type),
            **_dead_letters(records, errors),
            TOMBSTONE: self._tombstones(records),
            **({ROW_HASH: _row_hashes(visible, self._source)} if self._source.bag else {}),
            self._column: pa.StructArray.from_arrays(visible, fields=list(filled), mask=pa.array(broken)),
        }
        return self._record_batch(arrays, len(records))

    def close(self, partition: int, following: int) -> pa.RecordBatch:
        """The range row: the tally, and the next range's first offset."""
        arrays = {
            "_source": pa.array([self._source.name]),
            "_partition": pa.array([partition], type=pa.int32()),
            "_range": pa.array([self.tally.range_row(following)], type=self._schema.field("_range").type),
        }
        return self._record_batch(arrays, 1)

    def _record_batch(self, arrays: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [arrays[field.name] if field.name in arrays else pa.nulls(rows, field.type) for field in self._schema],
            schema=self._schema,
        )

    def _check_presence(self, records: Records, errors: Errors) -> None:
        """Check that a stream's event has a value, a table's a key.

        Raises:
            DeltaRowsRemoved, ForeignRowsRemoved: rows go from a foreign table that a stream reads.
        """
        if isinstance(records, RowRecords) and records.gone and self._source.kind == "stream":
            removed = DeltaRowsRemoved if records.kind == "delta" else ForeignRowsRemoved
            raise removed(
                sentence("{} takes rows away, and '{}' is a stream", records.where, Name(self._source.name)),
                hint=sentence(
                    "DROP STREAM {} CASCADE, and declare it as a table: CREATE TABLE … WITH ({} = …)",
                    Name(self._source.name),
                    records.kind.upper(),
                ),
            )
        if isinstance(records, ChangeRecords):
            return  # the key is a column of the row
        wanted, what = (records.values, "no value") if self._source.kind == "stream" else (records.keys, "no key")
        if None in wanted:
            errors.update((row, what) for row, payload in enumerate(wanted) if payload is None)

    def _visible(self, records: Records, errors: Errors) -> list[pa.Array]:
        """The visible columns in declared order."""
        if isinstance(records, RowRecords):
            arrays = [_of_rows(records, column, self._source) for column in self._source.columns]
            self._check_required(records, arrays, errors)
            return arrays
        if isinstance(records, ChangeRecords) and self._changes is not None:
            found = self._changes.arrays(records, errors)
            arrays = [
                found[column.name] if column.header is None else _header_column(records, column.header)
                for column in self._source.columns
            ]
            self._check_required(records, arrays, errors)
            return arrays
        key, value = self._formats
        keys = iter(key.decode(records.keys, errors) if key else ())
        values = iter(value.decode(records.values, errors) if value else ())
        parts = {"key": keys, "value": values}
        arrays = [
            _header_column(records, column.header) if column.header is not None else next(parts[column.part])
            for column in self._source.columns
        ]
        self._check_required(records, arrays, errors)
        return arrays

    def _check_required(self, records: Records, arrays: Sequence[pa.Array], errors: Errors) -> None:
        """Check that each row of a table has a key, and each row the columns that are NOT NULL."""
        for column, array in zip(self._source.columns, arrays, strict=True):
            of_key = column.key and self._source.kind == "table"
            if not array.null_count or not (of_key or column.required):
                continue
            for row in np.flatnonzero(pc.is_null(array)).tolist():
                if of_key:
                    errors.setdefault(row, f"key column '{column.name}' is null")
                elif records.values[row] is not None:  # a tombstone has no value
                    errors.setdefault(row, f"column '{column.name}' is null, and it is NOT NULL")

    def _times(self, records: Records, visible: list[pa.Array], errors: Errors) -> np.ndarray[Any, Any]:
        """Event times in microseconds, `NEVER` for none: the record's own, or those of the TIMESTAMP column."""
        stamps = np.array(records.timestamps, dtype=np.int64)
        # A producer may write any number for a time; beyond the year 9999 it is none.
        absent = (stamps < 0) | (stamps > LAST_MICROSECOND // 1000)
        times = np.where(absent, NEVER, np.where(absent, 0, stamps) * 1000)
        if self._event_time is None:
            for row in np.flatnonzero(absent).tolist():
                errors.setdefault(row, "no timestamp")
            return times
        own = times.copy()
        place = next(i for i, column in enumerate(self._source.columns) if column.name == self._source.timestamp)
        base = self._source.columns[place].type.base
        for row, value in enumerate(_plain_times(visible[place], base)):
            if row in errors or (records.values[row] is None and value is None):
                continue
            try:
                times[row] = self._event_time(value) if isinstance(value, str) else _in_range(value)
            except Misfit as error:
                errors[row] = f"timestamp column '{self._source.timestamp}': {error}"
        # A row that goes must be taken in if it was when it came, however long ago that is.
        if self._seconds_ahead and not (isinstance(records, RowRecords) and self._source.kind == "table"):
            self._refuse_ahead(own, times, errors)
        return times

    def _refuse_ahead(self, own: np.ndarray[Any, Any], times: np.ndarray[Any, Any], errors: Errors) -> None:
        """Refuse event times far ahead of the records' own: one of them would make every event after it late."""
        ahead = (own != NEVER) & (times > own + int(self._seconds_ahead * 1_000_000))
        for row in np.flatnonzero(ahead).tolist():
            errors.setdefault(
                row,
                f"timestamp column '{self._source.timestamp}': {_shown(times[row])} is more than "
                f"{self._seconds_ahead:g} s after the record's own time, {_shown(own[row])}",
            )
            times[row] = own[row]

    def _running_time(
        self, offsets: np.ndarray[Any, Any], times: np.ndarray[Any, Any], broken: np.ndarray[Any, Any]
    ) -> np.ndarray[Any, Any]:
        """The largest event time up to each record. Updates the tally; broken records do not count in event time."""
        running: np.ndarray[Any, Any] = np.maximum.accumulate(np.where(broken, NEVER, times))
        running = np.maximum(running, self.tally.running_time)
        self.tally.add(offsets, running, broken)
        return running

    def _tombstones(self, records: Records) -> pa.Array:
        if None not in records.values:
            return pa.array(np.zeros(len(records), dtype=bool))
        return pa.array([value is None for value in records.values])


def _of_rows(records: RowRecords, column: Column, source: Source) -> pa.Array:
    """A column of the rows of a foreign table; NULL in a version that did not have it yet.

    Raises:
        DeltaSchemaChanged, ForeignSchemaChanged: it is not the column that the source declares.
    """
    assert records.rows is not None, "of a run of rows"
    about = sentence("column '{}' of '{}'", Name(column.name), Name(source.name))
    changed = DeltaSchemaChanged if records.kind == "delta" else ForeignSchemaChanged
    if column.name in records.lost:
        raise changed(
            f"{about} is not in {records.where}, as it was before: it was dropped or renamed",
            hint="DROP the source with its views and CREATE it again over the table as it is now",
        )
    if not records.rows.num_columns:
        return pa.nulls(0, column.type.arrow())  # a version without rows says nothing of columns
    if column.name not in records.rows.column_names and column.name not in records.texts:
        if records.known is None:
            may_lack = not {each.name for each in source.columns}.isdisjoint(records.rows.column_names)
        else:
            may_lack = column.name in records.known
        if may_lack:
            return pa.nulls(len(records), column.type.arrow())
        raise changed(
            f"{about} is not in {records.where}: it was dropped or renamed",
            hint="DROP the source with its views and CREATE it again over the table as it is now",
        )
    try:
        if column.name in records.texts:
            return partition_values(records.texts[column.name], column.type, len(records))
        return as_type(records.rows[column.name].combine_chunks(), column.type)
    except Misfit as error:
        raise changed(
            f"{about} has another type in {records.where}: {error}",
            hint="DROP the source with its views and CREATE it again over the table as it is now",
        ) from error


def _row_hashes(visible: Sequence[pa.Array], source: Source) -> pa.Array:
    """The hash of each row, 32 hex digits, by which a bag tells rows apart."""
    from strandline.state_store.row_lanes import row_lanes

    names = [column.name for column in source.columns]
    first, second = row_lanes(pa.RecordBatch.from_arrays(list(visible), names=names))
    return pa.array([f"{one:016x}{two:016x}" for one, two in zip(first.tolist(), second.tolist(), strict=True)])


def _header_column(records: Records, name: str) -> pa.Array:
    """A column that is declared as HEADERS or HEADER('name')."""
    return all_headers(records, HEADERS.arrow()) if name == ALL_HEADERS else one_header(records, name)


def _plain_times(array: pa.Array, base: BaseType) -> list[Any]:
    """The values of a TIMESTAMP column: text, or microseconds as numbers."""
    if base is BaseType.VARCHAR:
        return list(array.to_pylist())
    values = array.cast(pa.int64()).to_pylist()
    return list(values) if base is BaseType.TIMESTAMP else [None if value is None else value * 1000 for value in values]


def _in_range(value: int | None) -> int:
    if value is None:
        raise Misfit("is null")
    if not FIRST_MICROSECOND <= value <= LAST_MICROSECOND:
        raise Misfit("number out of the range of TIMESTAMP")
    return value


def _shown(microseconds: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(microseconds))).isoformat()


def _instants(microseconds: np.ndarray[Any, Any], absent: np.ndarray[Any, Any]) -> pa.Array:
    mask = absent if absent.any() else None
    return pa.array(microseconds, mask=mask).cast(pa.timestamp("us", tz="UTC"))


def _dead_letters(records: Records, errors: Errors) -> dict[str, pa.Array]:
    """The columns that only dead letters fill. Left out when all records are good."""
    if not errors:
        return {}
    rows = range(len(records))
    values = records.payloads if isinstance(records, ChangeRecords) else records.values
    return {
        "_key": pa.array([records.keys[row] if row in errors else None for row in rows], type=pa.binary()),
        "_value": pa.array([values[row] if row in errors else None for row in rows], type=pa.binary()),
        "_error": pa.array([errors.get(row) for row in rows], type=pa.string()),
    }
