"""Values as Kafka Connect writes them: by the type in the message, by an option in its place, never by a guess."""

from __future__ import annotations

import base64
import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.jobs.ingest.formats.coerce import Misfit, coerce
from strandline.jobs.ingest.formats.connect_values import Reading, schema_of_avro
from strandline.jobs.model import types as t
from strandline.jobs.model.types import SqlType

_MOMENT = dt.datetime(2023, 11, 14, 22, 13, 20, tzinfo=dt.UTC)
_SECONDS = int(_MOMENT.timestamp())
_AFTER_1970 = (_MOMENT - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
_DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


def named(name: str, of: str = "int64") -> dict[str, str]:
    return {"type": of, "name": name}


def java_bytes(unscaled: int) -> bytes:
    """As BigInteger.toByteArray: the shortest two's complement, big end first."""
    return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)


@pytest.mark.parametrize(
    ("value", "wanted", "schema", "read"),
    [
        (19675, t.DATE, named("io.debezium.time.Date", "int32"), dt.date(2023, 11, 14)),
        (19675, t.DATE, named("org.apache.kafka.connect.data.Date", "int32"), dt.date(2023, 11, 14)),
        ("2023-11-14Z", t.DATE, named("io.debezium.time.IsoDate", "string"), dt.date(2023, 11, 14)),
        (_SECONDS * 1_000, t.TIMESTAMP, named("io.debezium.time.Timestamp"), _AFTER_1970),
        (_SECONDS * 1_000, t.TIMESTAMP, named("org.apache.kafka.connect.data.Timestamp"), _AFTER_1970),
        (_SECONDS * 1_000_000 + 7, t.TIMESTAMP, named("io.debezium.time.MicroTimestamp"), _AFTER_1970 + 7),
        (_SECONDS * 1_000_000_000 + 7_999, t.TIMESTAMP, named("io.debezium.time.NanoTimestamp"), _AFTER_1970 + 7),
        (-1, t.TIMESTAMP, named("io.debezium.time.MicroTimestamp"), -1),
        ("2023-11-14T23:13:20+01:00", t.TIMESTAMP, named("io.debezium.time.ZonedTimestamp", "string"), _AFTER_1970),
        (36_000_000, t.TIME, named("io.debezium.time.Time", "int32"), 36_000_000),
        (36_000_000_000, t.TIME, named("io.debezium.time.MicroTime"), 36_000_000),
        (36_000_000_000_000, t.TIME, named("io.debezium.time.NanoTime"), 36_000_000),
        ("10:00:00Z", t.TIME, named("io.debezium.time.ZonedTime", "string"), 36_000_000),
        ("AfQ=", t.decimal(10, 2), _DECIMAL, Decimal("5.00")),
        (b"\x01\xf4", t.decimal(10, 2), _DECIMAL, Decimal("5.00")),
        ("/gw=", t.decimal(10, 2), _DECIMAL, Decimal("-5.00")),
        ("AfQ=", t.VARCHAR, _DECIMAL, "5.00"),
        ("AfQ=", t.DOUBLE, _DECIMAL, 5.0),
        ("1234", t.decimal(10, 2), {"type": "string"}, Decimal("1234.00")),
        (12.5, t.decimal(10, 2), {"type": "double"}, Decimal("12.50")),
        (
            {"scale": 1, "value": "AfQ="},
            t.decimal(10, 2),
            named("io.debezium.data.VariableScaleDecimal", "struct"),
            Decimal("50.00"),
        ),
        ({"scale": 0, "value": "AfQ="}, t.BIGINT, None, 500),
        ("9f8e2b1c-0000-4000-8000-000000000000", t.VARCHAR, named("io.debezium.data.Uuid", "string"), None),
        ('{"a": 1.10}', t.VARCHAR, named("io.debezium.data.Json", "string"), None),
        ("AQI=", t.BYTES, named("io.debezium.data.Bits", "bytes"), b"\x01\x02"),
        (2023, t.INT, named("io.debezium.time.Year", "int32"), 2023),
    ],
)
def test_a_logical_type_is_read_as_it_says(value: Any, wanted: SqlType, schema: Any, read: Any) -> None:
    assert coerce(Reading().value(value, wanted, schema), wanted) == (value if read is None else read)


@pytest.mark.parametrize(
    ("value", "wanted", "schema", "why"),
    [
        (_SECONDS * 1_000, t.TIMESTAMP, None, "the unit of a number is not known: say TIME_PRECISION"),
        (_SECONDS * 1_000, t.TIMESTAMP, {"type": "int64"}, "the unit of a number is not known"),
        (36_000_000, t.TIME, None, "the unit of a number is not known"),
        ("1234", t.decimal(10, 2), None, "text may be digits or bytes of a number: say DECIMAL_HANDLING"),
        (_SECONDS * 1_000, t.DATE, named("io.debezium.time.Timestamp"), "io.debezium.time.Timestamp is not a DATE"),
        (19675, t.TIMESTAMP, named("io.debezium.time.Date"), "io.debezium.time.Date is not a TIMESTAMP"),
        (2**63 - 1, t.TIMESTAMP, named("io.debezium.time.MicroTimestamp"), "out of the range of TIMESTAMP"),
        ("?", t.decimal(10, 2), _DECIMAL, "not base64"),
        ("", t.decimal(10, 2), _DECIMAL, "not the bytes of a number"),
        ("AfQ=", t.decimal(10, 2), {**_DECIMAL, "parameters": {"scale": "x"}}, "not base64 of a number"),
        ("AfQ=", t.decimal(10, 2), {**_DECIMAL, "parameters": None}, "not the bytes of a number"),
        ("{", t.array(t.INT), None, "text is not JSON of a ARRAY"),
    ],
)
def test_what_cannot_be_told_is_refused(value: Any, wanted: SqlType, schema: Any, why: str) -> None:
    with pytest.raises(Misfit, match=why.replace("(", r"\(")):
        Reading().value(value, wanted, schema)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=4, min_value=-(10**30), max_value=10**30))
def test_a_decimal_comes_back_from_its_bytes_with_every_digit(number: Decimal) -> None:
    data = java_bytes(int(number.as_integer_ratio()[0] * 10_000 // number.as_integer_ratio()[1]))
    text = base64.b64encode(data).decode()
    wanted = t.decimal(38, 4)
    by_option = Reading.of({"DECIMAL_HANDLING": "precise"}).value(text, wanted, None)
    by_schema = Reading().value(text, wanted, {**_DECIMAL, "parameters": {"scale": "4"}})
    assert coerce(by_option, wanted) == coerce(by_schema, wanted) == number


def test_options_say_what_the_message_does_not() -> None:
    micros = Reading.of({"TIME_PRECISION": "microseconds", "DECIMAL_HANDLING": "string"})
    assert micros.value(_SECONDS * 1_000_000, t.TIMESTAMP, None) == _MOMENT
    assert micros.value(1_500_000, t.TIME, None) == 1_500
    assert micros.value("1234", t.decimal(10, 2), None) == "1234"
    # A message that says it is right.
    assert micros.value(_SECONDS * 1_000, t.TIMESTAMP, named("io.debezium.time.Timestamp")) == _MOMENT


def test_nested_values_are_read_by_their_inner_types() -> None:
    wanted = t.struct(("at", t.array(t.TIMESTAMP)), ("n", t.INT), ("m", t.map_of(t.VARCHAR, t.DATE)))
    stamps = {"type": "array", "items": named("io.debezium.time.MicroTimestamp"), "field": "AT"}
    read = Reading().value({"AT": [_SECONDS * 1_000_000], "n": 1}, wanted, {"type": "struct", "fields": [stamps]})
    assert read == {"AT": [_MOMENT], "n": 1}
    assert Reading().value('{"n": 2, "m": {"a": 3}}', wanted, {"type": "string"}) == {"n": 2, "m": {"a": 3}}


def test_an_avro_schema_is_read_as_connect_s() -> None:
    row = {
        "type": "record",
        "name": "Value",
        "namespace": "db",
        "fields": [
            {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
            {"name": "tags", "type": {"type": "array", "items": ["null", "string"]}},
        ],
    }
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "db",
        "fields": [{"name": "before", "type": ["null", row]}, {"name": "after", "type": ["null", "db.Value"]}],
    }
    before, after = schema_of_avro(envelope, {})["fields"]
    assert before["fields"] == after["fields"]
    assert [(field["field"], field.get("name")) for field in after["fields"]] == [
        ("at", "io.debezium.time.MicroTimestamp"),
        ("tags", None),
    ]
