"""The input records of a case as rows of event logs, decoded by the product's own decoder.

A record becomes the bytes that a topic would hold (AVRO and JSON_SR as JSON), and every source of its topic
decodes it: the value by the source's formats, the time by its TIMESTAMP column, the running stream time. Records that
do not decode are dead letters, and give no row; so is a stream's record without a value.
"""

from __future__ import annotations

import base64
import csv
import io
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

import pyarrow as pa
from confluent_kafka.schema_registry import SchemaRegistryClient

from strandline.jobs.ingest.decode import Decoder
from strandline.jobs.ingest.formats.coerce import Misfit, coerce, find, json_text, wire_value
from strandline.jobs.ingest.formats.format import Role, open_format
from strandline.jobs.ingest.formats.plain import PrimitiveFormat
from strandline.jobs.ingest.logs.log import Records
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.model.tables import META_COLUMNS
from tests.conformance.program import Program
from tests.conformance.proto import with_defaults
from tests.conformance.wire import Wire

Row = dict[str, Any]

_META = ("_partition", "_offset", "_timestamp", "_headers")


class InputDecoder:
    """Turns records into rows, in the order in which they are given: offsets and stream time run on.

    Where an event joins a table as of its time, records of one millisecond must keep the order in which they came, also
    across topics: each is a microsecond later than the one before it.
    """

    def __init__(self, program: Program) -> None:
        self._sources = [
            _Intake(source, program.wires[source.name], program.topics[source.name]) for source in program.sources
        ]
        self._offsets: dict[str, int] = {}
        self._tick = timedelta(microseconds=1 if program.as_of else 0)
        self._later = timedelta()

    def rows(self, records: Iterable[Mapping[str, Any]]) -> dict[str, list[Row]]:
        """{event log: its new rows}. The records of a topic that no source reads are left out."""
        fed: dict[str, list[Row]] = {}
        for record in records:
            topic = str(record["topic"])
            offset = self._offsets.get(topic, 0)
            self._offsets[topic] = offset + 1
            for intake in self._sources:
                if intake.topic == topic:
                    fed.setdefault(intake.log, []).extend(intake.take(record, offset, self._later))
            self._later += self._tick
        return fed


class _Intake:
    """One source's way from records to rows."""

    def __init__(self, source: Source, wire: Wire, topic: str) -> None:
        self.source = source
        self.topic = topic
        self.log = tables.event_log(source)
        self._wire = wire
        self._keys = tuple(column for column in source.columns if column.key)
        self._values = tuple(column for column in source.columns if column.part == "value")
        self._latest: datetime | None = None
        self._decoder = Decoder(source, 0, _decoded_as(source), _registry)

    def take(self, record: Mapping[str, Any], offset: int, later: timedelta) -> list[Row]:
        """The record's row, `later` than the record says; none when it does not decode."""
        try:
            key = self._key(record.get("key"))
            value = self._value(record.get("value"))
        except (Misfit, EncodeFailed, ValueError):
            return []
        headers = [(str(h["KEY"]), _decoded(h["VALUE"])) for h in record.get("headers") or ()]
        records = Records(0, [offset], [int(record.get("timestamp") or 0)], [key], [value], [headers])
        [row] = self._decoder.decode(records).to_pylist()
        if row["_error"] is not None:
            return []
        taken: Row = {**row["s0"], **{name: row[name] for name in _META}}
        taken["_timestamp"] += later
        self._latest = taken["_stream_time"] = max(self._latest or taken["_timestamp"], taken["_timestamp"])
        if self.source.kind == "table":
            taken["_tombstone"] = row["_tombstone"]
        return [taken]

    def _key(self, key: Any) -> bytes | None:
        if not self._keys:
            return None
        if self._wire.key_defaults:
            key = with_defaults(key, self._keys)
            return self._message(key, "key", self._keys)
        if self.source.key_format == "DELIMITED" and isinstance(key, str):
            key = _with_commas(key, self._wire.key_delimiter)
        return _bytes(key, self.source.key_format, self._keys)

    def _value(self, value: Any) -> bytes | None:
        if len(self._values) == 1 and not self._wire.wrapped and self.source.value_format == "JSON":
            value = None if value is None else {self._values[0].name: value}
        if self.source.value_format.startswith("PROTOBUF"):
            return self._message(value, "value", self._values)
        return _bytes(value, self.source.value_format, self._values)

    def _message(self, payload: Any, role: Role, columns: tuple[Column, ...]) -> bytes | None:
        """A key or value as a message of its columns."""
        form = open_format(self.source, role, _registry)
        if payload is None or form is None:
            return None
        given = payload if isinstance(payload, Mapping) else {columns[0].name: payload}
        row = {column.name: find(column.name, given) for column in columns}
        return form.encode(
            {c.name: None if row[c.name] is None else wire_value(given[row[c.name]], c) for c in columns}
        )


def _bytes(value: Any, form: str, columns: tuple[Column, ...]) -> bytes | None:
    """A key or value as its topic holds it."""
    if value is None or form == "NONE":
        return None
    if form == "KAFKA" and columns:
        only = columns[0]
        return PrimitiveFormat((only,)).encode({only.name: coerce(value, only.type)})
    if form == "DELIMITED":
        return str(value).encode()
    return json_text(value).encode()


def _decoded_as(source: Source) -> pa.Schema:
    """The Arrow form of what `jobs.ingest.decode` lists, for one source."""
    instant, headers = t.TIMESTAMP.arrow(), dict(META_COLUMNS)["_headers"].arrow()
    lead = {"_source": pa.string(), "_partition": pa.int32(), "_offset": pa.int64(), "_timestamp": instant}
    letter = {"_key": pa.binary(), "_value": pa.binary(), "_error": pa.string(), "_tombstone": pa.bool_()}
    visible = pa.struct([(column.name, column.type.arrow()) for column in source.columns])
    fields = {**lead, "_running_time": instant, "_headers": headers, **letter, "s0": visible}
    return pa.schema(list(fields.items()))


def _with_commas(text: str, delimiter: str) -> str:
    """Separated values, separated by commas: KEY_DELIMITER is about bytes."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(next(csv.reader([text], delimiter=delimiter), []))
    return line.getvalue()


def _decoded(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)


@cache
def _registry() -> SchemaRegistryClient:
    """A registry in memory."""
    return SchemaRegistryClient.new_client({"url": "mock://conformance"})
