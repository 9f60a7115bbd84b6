"""Change streams: which rows come and go with a record of Debezium, and which records are broken, and why."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given
from hypothesis import strategies as st

from strandline.jobs.ingest.debezium import ChangeStream, open_changes, open_writer
from strandline.jobs.ingest.logs.log import Records
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.errors import EncodeFailed, SourceTruncated
from tests.unit.ingest.formats.decoding import no_registry

_COLUMNS = (Column("id", t.INT, key=True), Column("v", t.VARCHAR), Column("price", t.decimal(10, 2)))
_NO_KEY = "a row goes, and neither 'before' nor the record's key has its key column 'id'"
_MOVED = (
    "an update changes the key column 'id': declare the key that the connector writes, or have it write this one "
    "(message.key.columns)"
)
_ENVELOPE = "no Debezium envelope with op, before and after"


def source(
    columns: tuple[Column, ...] = _COLUMNS, form: str = "DEBEZIUM_JSON", key_format: str = "JSON", **options: str
) -> Source:
    return Source("orders", "table", columns, "topic", key_format, form, "p", "", options=options)


def change_stream(of: Source) -> ChangeStream:
    made = open_changes(of, no_registry)
    assert made is not None
    return made


def records(*pairs: tuple[Any, Any]) -> Records:
    """Records of these keys and values; what is no bytes is written as JSON, None stays."""

    def payload(value: Any) -> bytes | None:
        return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()

    count = len(pairs)
    keys, values = [payload(key) for key, _ in pairs], [payload(value) for _, value in pairs]
    return Records(0, list(range(count)), [1000] * count, keys, values, [None] * count)


def rows(of: Source, *pairs: tuple[Any, Any], stream: ChangeStream | None = None) -> list[Any]:
    """For each row that comes its values, for each that goes '-' and its key, for each broken record its reason."""
    stream = stream or change_stream(of)
    errors: dict[int, str] = {}
    opened = stream.open(records(*pairs), errors)
    arrays = stream.arrays(opened, errors)
    found: list[Any] = []
    for row, value in enumerate(opened.values):
        values = [array[row].as_py() for array in arrays.values()]
        if row in errors:
            found.append(errors[row])
        else:
            found.append(("-", *values[: len(of.key)]) if value is None else tuple(values))
    return found


def row(number: int, text: str | None = "a", price: Any = 1.5) -> dict[str, Any]:
    return {"ID": number, "v": text, "price": price}


@pytest.mark.parametrize("wrapped", [False, True], ids=["bare", "with schema"])
@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ({"id": 1}, {"op": "c", "before": None, "after": row(1)}, [(1, "a", Decimal("1.50"))]),
        ({"id": 1}, {"op": "r", "after": row(1), "source": {"snapshot": "last"}}, [(1, "a", Decimal("1.50"))]),
        ({"id": 1}, {"op": "u", "before": row(1), "after": row(1, "b")}, [(1, "b", Decimal("1.50"))]),
        ({"id": 1}, {"op": "u", "before": None, "after": row(1, None)}, [(1, None, Decimal("1.50"))]),
        (None, {"op": "c", "after": row(1), "transaction": {"id": "7", "total_order": 1}}, [(1, "a", Decimal("1.50"))]),
        ({"id": 1}, {"op": "d", "before": row(1), "after": None}, [("-", 1)]),
        ({"id": 1}, {"op": "d", "before": {"id": 1, "v": None, "price": None}, "after": None}, [("-", 1)]),
        ({"id": 1}, {"op": "d", "before": None, "after": None}, [("-", 1)]),
        ({"id": 9}, {"op": "u", "before": row(1), "after": row(2)}, [_MOVED]),
        ({"id": 1}, {"op": "m", "message": {"prefix": "p", "content": "AA=="}}, []),
        ({"id": 1}, None, [("-", 1)]),
        (None, None, []),
        (7, {"op": "d", "before": None}, [("-", 7)]),
        (7, {"op": "c", "after": {"v": "x"}}, [(7, "x", None)]),
        (None, {"op": "d", "before": None}, [_NO_KEY]),
        ({"no": 1}, None, ["the record's key has no 'id'"]),
        ({"id": 1}, {"op": "u", "before": row(1), "after": None}, ["there is no row in 'after'"]),
        ({"id": 1}, {"op": "x", "after": row(1)}, ["op is \"x\", which is none of c, r, u, d, t and m"]),
        ({"id": 1}, row(1), [_ENVELOPE + ": of rows that are unwrapped VALUE_FORMAT is 'JSON'"]),
        ({"id": 1}, [1], [_ENVELOPE + ": of rows that are unwrapped VALUE_FORMAT is 'JSON'"]),
        ({"id": 1}, {"op": "c", "after": {"id": 1.5}}, ["column 'id': 1.5 is not a INT"]),
    ],
)  # fmt: skip
def test_each_operation_is_rows_that_come_and_go(key: Any, value: Any, expected: list[Any], wrapped: bool) -> None:
    if wrapped:
        key, value = ({"schema": {}, "payload": each} if each is not None else None for each in (key, value))
    assert rows(source(), (key, value)) == expected


def test_a_record_that_is_broken_keeps_its_bytes_and_its_place() -> None:
    errors: dict[int, str] = {}
    given = records((None, {"op": "m"}), ({"id": 1}, b"{"), ({"id": 2}, {"op": "c", "after": row(2)}), (b"{", None))
    opened = change_stream(source()).open(given, errors)
    assert opened.offsets == [1, 2, 3]
    assert {place: text.split(":")[0] for place, text in errors.items()} == {0: "not JSON", 2: "not JSON"}
    assert (opened.payloads[0], opened.keys[2], opened.values[2]) == (b"{", b"{", None)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.sampled_from(["c", "d", "AfQ="]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["schema", "payload", "op", "before", "after", "id", "v", "price", "type", "name", "fields",
                         "field", "parameters", "scale", "value"]), inner, max_size=5),
    max_leaves=25,
)  # fmt: skip


@given(st.tuples(_JSON, _JSON), st.sampled_from(["id", "v", "price", "at"]))
def test_whatever_a_record_holds_it_is_a_row_or_broken(pair: tuple[Any, Any], name: str) -> None:
    columns = (*_COLUMNS, Column("at", t.TIMESTAMP), Column("s", t.struct(("v", t.array(t.decimal(4, 1))))))
    schema, value = pair
    fields = [{"field": "after", "fields": [{"field": name, **schema} if isinstance(schema, dict) else schema]}]
    after = {"id": 1, "s": value, name: value}
    wrapped = {"schema": {"fields": fields}, "payload": {"op": "c", "after": after}}
    found = rows(source(columns), (value, value), (schema, {"op": "c", "after": value}), (None, wrapped))
    assert len(found) <= 3
    assert all(isinstance(each, str | tuple) for each in found)


def test_a_truncation_stops_and_says_where() -> None:
    with pytest.raises(SourceTruncated, match="'orders' was emptied by TRUNCATE: topic 'topic', partition 0, offset 1"):
        change_stream(source()).open(records((None, None), (None, {"op": "t", "before": None})), {})


def test_decimals_and_long_numbers_in_text_keep_their_digits() -> None:
    after = b'{"op": "c", "after": {"id": 1, "v": {"x": 1.10}, "price": 12345678.10}}'
    assert rows(source(), (None, after)) == [(1, '{"x":1.10}', Decimal("12345678.10"))]


def test_decimals_as_debezium_writes_them_are_read_as_the_source_says() -> None:
    def change(price: str) -> Any:
        return {"id": 1}, {"op": "c", "after": row(1, price=price)}

    assert rows(source(DECIMAL_HANDLING="precise"), change("AfQ=")) == [(1, "a", Decimal("5.00"))]
    assert rows(source(DECIMAL_HANDLING="string"), change("1234")) == [(1, "a", Decimal("1234.00"))]
    (broken,) = rows(source(), change("1234"))
    assert broken.startswith("column 'price': text may be digits or bytes of a number: say DECIMAL_HANDLING")


@pytest.mark.parametrize("plain", [t.INT, t.BIGINT, t.DOUBLE])
def test_text_of_a_column_of_numbers_is_digits_where_that_is_said(plain: t.SqlType) -> None:
    """`1234` is also base64 of three bytes, which are another number: an unsigned BIGINT of MySQL, or a NUMERIC."""
    columns = (Column("id", t.INT, key=True), Column("n", plain))
    change = ({"id": 1}, {"op": "c", "before": None, "after": {"id": 1, "n": "1234"}})
    assert rows(source(columns, DECIMAL_HANDLING="string"), change) == [(1, 1234)]
    (unknown,) = rows(source(columns), change)
    assert "text may be digits or bytes of a number: say DECIMAL_HANDLING" in unknown
    (unscaled,) = rows(source(columns, DECIMAL_HANDLING="precise"), change)
    assert f"declare the column as DECIMAL, not {plain}" in unscaled


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_doubles_that_are_no_numbers_are_texts_of_connect(text: str) -> None:
    columns = (Column("id", t.INT, key=True), Column("x", t.DOUBLE))
    ((number, found),) = rows(source(columns), ({"id": 1}, {"op": "r", "after": {"id": 1, "x": text}}))
    assert (number, str(found)) == (1, str(float(text)))


def test_a_long_value_that_was_not_sent_is_the_one_before_or_a_dead_letter() -> None:
    unsent = row(1, "__debezium_unavailable_value")
    known = {"op": "u", "before": row(1, "long"), "after": unsent}
    unknown = {"op": "u", "before": None, "after": unsent}
    kept, broken = rows(source(), ({"id": 1}, known), ({"id": 1}, unknown))
    assert kept == (1, "long", Decimal("1.50"))
    assert broken.startswith("column 'v' was not sent, since a long value had not changed")


def test_keys_may_be_in_another_format_or_none() -> None:
    two = (Column("id", t.INT, key=True), Column("shop", t.VARCHAR, key=True), Column("v", t.VARCHAR))
    gone = {"op": "d", "before": {"id": 1, "shop": "s"}}
    assert rows(source(two, key_format="NONE"), (b"?", None), (b"?", gone)) == [("-", 1, "s")]
    assert rows(source(two), ({"SHOP": "s", "id": 1}, None), (5, None)) == [
        ("-", 1, "s"),
        "the record's key is one value, and there are several key columns",
    ]
    kafka = source(key_format="KAFKA")
    assert rows(kafka, (b"\0\0\0\7", None), (b"x", None))[0] == ("-", 7)
    assert rows(kafka, (b"x", None))[0].startswith("the record's key: ")


def test_avro_envelopes_are_read_by_their_registered_schemas() -> None:
    memory = SchemaRegistryClient.new_client({"url": "mock://changes"})
    fields = [
        {"name": "id", "type": "int"},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
    ]
    value = {"type": "record", "name": "Value", "namespace": "db.orders", "fields": fields}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "namespace": "db.orders",
        "fields": [
            {"name": "before", "type": ["null", value]},
            {"name": "after", "type": ["null", "db.orders.Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    key = {"type": "record", "name": "Key", "namespace": "db.orders", "fields": fields[:1]}
    conf = {"subject.name.strategy.type": "TOPIC"}
    write_value = AvroSerializer(memory, json.dumps(envelope), conf=conf)
    write_key = AvroSerializer(memory, json.dumps(key), conf=conf)
    after = {"id": 1, "at": 1_700_000_000_000_001, "price": Decimal("5.00")}
    created = write_value(
        {"before": None, "after": after, "op": "c"}, SerializationContext("topic", MessageField.VALUE)
    )
    gone = write_key({"id": 1}, SerializationContext("topic", MessageField.KEY))
    columns = (Column("id", t.INT, key=True), Column("at", t.TIMESTAMP), Column("price", t.decimal(10, 2)))
    of = source(columns, "DEBEZIUM_AVRO", "AVRO")
    stream = open_changes(of, lambda: memory)
    found = rows(of, (gone, created), (gone, None), (gone, b"?"), stream=stream)
    assert (found[0][0], found[0][1].isoformat(), found[0][2]) == (1, "2023-11-14T22:13:20.000001+00:00", Decimal(5))
    assert found[1:] == [("-", 1), "no schema id before the payload"]


def test_a_row_that_is_given_to_a_test_comes_back() -> None:
    columns = (*_COLUMNS, Column("at", t.TIMESTAMP), Column("s", t.struct(("d", t.DATE), ("l", t.array(t.TIME)))))
    of = source(columns)
    writer = open_writer(of, "value", no_registry)
    assert writer is not None
    wire = {"v": "a", "price": Decimal("1.10"), "at": 1_700_000_000_000, "s": {"d": 3, "l": [5_000]}}
    ((number, text, price, at, nested),) = rows(of, (7, writer.encode(wire)))
    assert (number, text, price, at.isoformat()) == (7, "a", Decimal("1.10"), "2023-11-14T22:13:20+00:00")
    assert (nested["d"].isoformat(), nested["l"]) == ("1970-01-04", [5_000])


def test_nothing_is_written_in_avro() -> None:
    with pytest.raises(EncodeFailed, match="nothing is written in DEBEZIUM_AVRO"):
        open_writer(source(form="DEBEZIUM_AVRO"), "value", no_registry)
