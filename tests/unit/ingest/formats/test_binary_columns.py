"""Records of AVRO and PROTOBUF by columns: rows and reasons are those of reading one by one, whatever the bytes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from decimal import Decimal
from io import BytesIO
from random import Random
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from strandline.jobs.ingest.formats.binary_columns import MANY, AvroRecords, ProtobufRecords, Run, Unreadable
from strandline.jobs.ingest.formats.confluent import AvroFormat
from strandline.jobs.ingest.formats.protobuf_format import (
    ProtobufFormat,
    UnframedProtobufFormat,
    _Reader,
    message_class,
)
from strandline.jobs.ingest.formats.registry import LocalRegistry
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.jobs.model.types import SqlType

RUN = MANY + 60
NAMES = ("id", "ID", "a", "Name", "note", "x0")
EXTREMES = (0, 1, -1, 127, 128, -129, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63 - 1, -(2**63))
TEXTS = ("", "a", "ß", "日本 ", "x" * 200)

AVRO: dict[str, tuple[Any, Callable[[Random], Any], tuple[SqlType, ...]]] = {
    "boolean": ("boolean", lambda r: r.random() < 0.5, (t.BOOLEAN, t.VARCHAR)),
    "int": ("int", lambda r: r.choice([n for n in EXTREMES if abs(n) < 2**31]), (t.INT, t.BIGINT, t.DOUBLE)),
    "long": (
        "long",
        lambda r: r.choice([*EXTREMES, r.randint(0, 2**41), r.randint(-(2**62), 2**62)]),
        (t.BIGINT, t.INT, t.TIMESTAMP, t.TIME, t.VARCHAR),
    ),
    "float": ("float", lambda r: r.choice([0.0, -0.0, 0.1, 1e30, float("nan"), float("inf")]), (t.DOUBLE,)),
    "double": ("double", lambda r: r.choice([0.0, -0.0, 0.1, 1e300, float("nan"), float("-inf")]), (t.DOUBLE, t.INT)),
    "string": ("string", lambda r: r.choice(TEXTS), (t.VARCHAR, t.INT)),
    "bytes": ("bytes", lambda r: bytes(r.randrange(256) for _ in range(r.choice([0, 1, 9]))), (t.BYTES,)),
    "date": ({"type": "int", "logicalType": "date"}, lambda r: r.randint(-700_000, 2_900_000), (t.DATE, t.TIMESTAMP)),
    "time": ({"type": "int", "logicalType": "time-millis"}, lambda r: r.randint(0, 86_399_999), (t.TIME,)),
    "millis": (
        {"type": "long", "logicalType": "timestamp-millis"},
        lambda r: r.choice([0, -1, 1_700_000_000_123, 253_402_300_799_999, -62_135_596_800_000, 2**60]),
        (t.TIMESTAMP,),
    ),
    "micros": (
        {"type": "long", "logicalType": "timestamp-micros"},
        lambda r: r.choice([0, -1, 1_700_000_000_123_456, 253_402_300_799_999_999, 2**62]),
        (t.TIMESTAMP,),
    ),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
        lambda r: Decimal(r.choice([0, 1, -1, 12_345, -(10**9), 10**10 - 1])).scaleb(-2),
        (t.decimal(10, 2), t.decimal(5, 2), t.decimal(12, 3), t.decimal(30, 2)),
    ),
    "ints": ({"type": "array", "items": "int"}, lambda r: [r.randint(0, 9)], (t.array(t.INT),)),
}


def _plain(schema: Any) -> Any:
    """The schema without what its numbers stand for: they are written as they are."""
    return schema["type"] if isinstance(schema, dict) and schema["type"] in ("int", "long") else schema


class _Topic:
    """A topic of AVRO whose schema is drawn."""

    def __init__(self, random: Random, folder: Path) -> None:
        self._random = random
        names = random.sample(NAMES, random.randint(1, 4))
        kinds = [random.choice([*AVRO][:-1] if random.random() < 0.9 else [*AVRO]) for _ in names]
        fields, written = [], []
        for name, kind in zip(names, kinds, strict=True):
            of = AVRO[kind][0]
            unions: list[Callable[[Any], Any]] = [lambda x: x, lambda x: ["null", x], lambda x: [x, "null"]]
            union = random.choice(unions)
            fields.append({"name": name, "type": union(of)})
            written.append({"name": name, "type": union(_plain(of))})
        record = {"type": "record", "name": "r", "namespace": "n"}
        self._written = fastavro.parse_schema({**record, "fields": written})
        self._fields = list(zip(names, kinds, fields, strict=True))
        registry = LocalRegistry(folder)
        self._id = registry.register_schema("t-value", Schema(json.dumps({**record, "fields": fields}), "AVRO"))
        columns = []
        for name, kind, _ in self._fields:
            if random.random() < 0.8:
                shown = name.swapcase() if random.random() < 0.2 else name
                columns.append(Column(shown, random.choice(AVRO[kind][2][: random.randint(1, 5)])))
        columns = columns or [Column("absent", t.INT)]
        if random.random() < 0.2:
            columns.append(Column("missing", t.VARCHAR))
        self.format = AvroFormat(tuple(columns), registry, "t", key=False, bare=False)

    def payload(self) -> bytes:
        row = {}
        for name, kind, field in self._fields:
            nullable = isinstance(field["type"], list)
            row[name] = None if nullable and self._random.random() < 0.3 else AVRO[kind][1](self._random)
        stream = BytesIO()
        fastavro.schemaless_writer(stream, self._written, row)
        return b"\0" + self._id.to_bytes(4, "big") + stream.getvalue()


def _odd(random: Random, payload: bytes) -> bytes | None:
    """The record with something about it that its schema does not say."""
    at = random.randrange(len(payload))
    return random.choice(
        (
            None,
            b"",
            payload[:at],
            payload + b"\0",
            payload[:at] + bytes([random.randrange(256)]) + payload[at + 1 :],
            payload[:5] + bytes(random.randrange(256) for _ in range(12)),
            payload[:5] + b"\xff" * 12,
            b"\0\0\0\0\x63" + payload[5:],
        )
    )


def _run(random: Random, payload: Callable[[], bytes]) -> list[bytes | None]:
    oddness = random.choice((0.0, 0.02, 0.3))
    found: list[bytes | None] = [payload() for _ in range(RUN)]
    return [_odd(random, each or b"?") if random.random() < oddness else each for each in found]


def _assert_same(form: Any, payloads: Sequence[bytes | None]) -> None:
    errors: dict[int, str] = {}
    expected: dict[int, str] = {}
    found = form.decode(payloads, errors)
    arrays = form.decode_each(payloads, expected)
    assert errors == expected
    for column, array, wanted in zip(form._columns, found, arrays, strict=True):
        assert array.type == column.type.arrow()
        array.validate(full=True)
        assert _told(array) == _told(wanted), column


def _told(array: pa.Array) -> list[str]:
    """NaN is not equal to itself, and 0.0 is to -0.0."""
    return [repr(value) for value in array.to_pylist()]


@given(st.integers(0, 1 << 32))
def test_rows_and_reasons_of_avro_are_those_of_reading_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    random = Random(seed)
    topic = _Topic(random, tmp_path_factory.mktemp("registry"))
    _assert_same(topic.format, _run(random, topic.payload))


_SCALARS = {
    "INT32": (t.INT, t.BIGINT),
    "INT64": (t.BIGINT, t.INT, t.TIMESTAMP, t.DOUBLE),
    "UINT32": (t.BIGINT, t.INT),
    "UINT64": (t.BIGINT,),
    "SINT32": (t.INT,),
    "SINT64": (t.BIGINT,),
    "FIXED32": (t.BIGINT, t.INT),
    "FIXED64": (t.BIGINT,),
    "SFIXED32": (t.INT,),
    "SFIXED64": (t.BIGINT,),
    "BOOL": (t.BOOLEAN,),
    "FLOAT": (t.DOUBLE,),
    "DOUBLE": (t.DOUBLE,),
    "STRING": (t.VARCHAR,),
    "BYTES": (t.BYTES,),
}


def _drawn(random: Random, of: str) -> Any:
    match of:
        case "BOOL":
            return random.random() < 0.5
        case "FLOAT" | "DOUBLE":
            return random.choice([0.0, -0.0, 0.5, 1e30, float("nan"), float("inf")])
        case "STRING":
            return random.choice(TEXTS)
        case "BYTES":
            return bytes(random.randrange(256) for _ in range(random.choice([0, 1, 9])))
    bits = 64 if "64" in of else 32
    least, most = (0, 2**bits - 1) if of.startswith(("UINT", "FIXED")) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    return random.choice([n for n in (*EXTREMES, 2**64 - 1, 2**32 - 1) if least <= n <= most])


class _Messages:
    """A class of messages that is drawn, and its reader."""

    def __init__(self, random: Random) -> None:
        self._random = random
        message = DescriptorProto(name="m")
        self._fields = []
        columns = []
        for number, name in zip(
            random.sample(range(1, 40), 4), random.sample(NAMES, random.randint(1, 4)), strict=False
        ):
            of = random.choice([*_SCALARS])
            field = message.field.add(name=name, number=number, type=f"TYPE_{of}", label="LABEL_OPTIONAL")
            if random.random() < 0.4:
                field.proto3_optional = True
                field.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{name}_{number}")
            elif random.random() < 0.05:
                field.label = FieldDescriptorProto.LABEL_REPEATED
            self._fields.append((name, of, field.label == FieldDescriptorProto.LABEL_REPEATED))
            if random.random() < 0.8:
                columns.append(Column(name, random.choice(_SCALARS[of])))
        file = FileDescriptorProto(name="m.proto", syntax="proto3", message_type=[message])
        self.type = message_class([file], [0])
        self.columns = tuple(columns or [Column("absent", t.INT)])

    def payload(self) -> bytes:
        made = self.type()
        for name, of, repeated in self._fields:
            if self._random.random() < 0.7:
                value = _drawn(self._random, of)
                if repeated:
                    getattr(made, name).append(value)
                else:
                    setattr(made, name, value)
        found: bytes = made.SerializeToString()
        if self._random.random() < 0.1:
            found += found  # each field twice
        return found


@given(st.integers(0, 1 << 32))
def test_rows_and_reasons_of_protobuf_are_those_of_reading_one_by_one(seed: int) -> None:
    random = Random(seed)
    messages = _Messages(random)
    form = UnframedProtobufFormat(messages.columns, key=False, nullable=None)
    form._reader = _Reader(messages.type, messages.columns)
    _assert_same(form, _run(random, messages.payload))


def test_framed_messages_are_read_by_columns(tmp_path: Path) -> None:
    columns = (Column("id", t.BIGINT), Column("name", t.VARCHAR), Column("price", t.DOUBLE), Column("paid", t.BOOLEAN))
    form = ProtobufFormat(columns, LocalRegistry(tmp_path), "t", key=False, nullable=None)
    rows = [{"id": n - 9, "name": f"name {n}", "price": n / 8, "paid": n % 3 == 0} for n in range(RUN)]
    payloads: list[bytes | None] = [form.encode(row) for row in rows]
    payloads[3], payloads[5] = None, payloads[5][:-1] if payloads[5] else None
    (part,) = form._by_columns(payloads)
    assert len(part.rows) >= RUN - 2
    _assert_same(form, payloads)


def test_what_a_source_writes_in_avro_is_read_by_columns(tmp_path: Path) -> None:
    types = (t.BOOLEAN, t.INT, t.BIGINT, t.DOUBLE, t.VARCHAR, t.BYTES, t.DATE, t.TIME, t.TIMESTAMP, t.decimal(12, 3))
    columns = tuple(Column(f"c{number}", of) for number, of in enumerate(types))
    form = AvroFormat(columns, LocalRegistry(tmp_path), "t", key=False, bare=False)
    values = (True, -5, 2**40, 0.5, "é", b"\0\xff", 19_000, 3_600_000, 1_700_000_000_123, Decimal("-12.345"))
    row = {column.name: value for column, value in zip(columns, values, strict=True)}
    payloads = [form.encode(row if n % 2 else dict.fromkeys(row)) for n in range(RUN)]
    (part,) = form._by_columns(payloads)
    assert len(part.rows) == RUN
    _assert_same(form, payloads)


def test_what_is_not_read_by_columns_is_said() -> None:
    nested = {"type": "record", "name": "r", "fields": [{"name": "a", "type": {"type": "array", "items": "int"}}]}
    for schema in ("int", nested, {"type": "record", "name": "r", "fields": [{"name": "a", "type": ["int", "long"]}]}):
        with pytest.raises(Unreadable):
            AvroRecords(schema, [Column("a", t.INT)])
    repeated = DescriptorProto(name="m")
    repeated.field.add(name="a", number=1, type="TYPE_INT32", label="LABEL_REPEATED")
    made = message_class([FileDescriptorProto(name="m.proto", syntax="proto3", message_type=[repeated])], [0])
    with pytest.raises(Unreadable):
        ProtobufRecords(made.DESCRIPTOR, [Column("a", t.INT)])


def test_a_run_without_any_bytes_has_no_row() -> None:
    run = Run([None] * 3)
    assert not run.good.any()
    assert Run([b""] * 3).good.all()
