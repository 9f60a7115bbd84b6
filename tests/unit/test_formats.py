"""The formats: what is written reads back, what does not fit is refused with a reason, no value is bent to fit."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.ingest.formats import columns
from jobs.ingest.formats.coerce import Misfit, coerce
from jobs.ingest.formats.encoding import wire_value
from jobs.ingest.formats.format import FORMATS, check_source, open_format
from jobs.ingest.formats.timestamps import check_timestamp_format, reader
from jobs.model import types as t
from jobs.model.definitions import Column, Source
from jobs.model.errors import EncodeFailed, NotSupported, OptionRefused, SourceUnavailable, UnknownName
from jobs.model.types import SqlType

Decoded = tuple[list[dict[str, Any]], dict[int, str]]


def no_registry() -> SchemaRegistryClient:
    raise AssertionError("this format needs no registry")


def source(value_format: str, *wanted: tuple[str, SqlType], key_format: str = "KAFKA", **options: str) -> Source:
    """Columns named `k…` come from the key."""
    cells = tuple(Column(name, kind, key=name.startswith("k")) for name, kind in wanted)
    return Source("s", "stream", cells, "topic", key_format, value_format, "p", "", options=options)


def decode(
    of: Source, payloads: list[bytes | None], role: Any = "value", registry: Callable[[], Any] = no_registry
) -> Decoded:
    form = open_format(of, role, registry)
    assert form is not None
    errors: columns.Errors = {}
    arrays = form.decode(payloads, errors)
    names = [column.name for column in of.columns if column.key is (role == "key")]
    for array, column in zip(arrays, (c for c in of.columns if c.name in names), strict=True):
        assert array.type == column.type.arrow()
        assert len(array) == len(payloads)
    rows = zip(*(array.to_pylist() for array in arrays), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows], errors


def one(kind: SqlType, text: str | bytes) -> Any:
    """The value a JSON literal gives in a column of the type, or the reason it gives none."""
    literal = text.encode() if isinstance(text, str) else text
    # Beside a good and a broken row: a reason must stick to its own.
    rows, errors = decode(source("JSON", ("v", kind)), [b'{"v": null}', b'{"v": ' + literal + b"}", b"["])
    assert rows[0] == {"v": None}
    assert set(errors) - {1} == {2}
    if 1 in errors:
        assert rows[1]["v"] is None
        return errors[1]
    return rows[1]["v"]


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        (t.BOOLEAN, "true", True),
        (t.BOOLEAN, '"False"', False),
        (t.INT, "2147483647", 2147483647),
        (t.INT, "3.0", 3),
        (t.BIGINT, "-9223372036854775808", -(2**63)),
        (t.BIGINT, '" 42 "', 42),
        (t.DOUBLE, "1", 1.0),
        (t.DOUBLE, "18446744073709551616", 18446744073709551616.0),
        (t.DOUBLE, '"2.5"', 2.5),
        (t.decimal(5, 2), "1.10", Decimal("1.10")),
        (t.decimal(5, 2), '"005.4"', Decimal("5.40")),
        (t.decimal(5, 2), "1E+2", Decimal("100.00")),
        (t.decimal(38, 0), "1" * 38, Decimal("1" * 38)),
        (t.decimal(18, 17), "0.12345678901234567", Decimal("0.12345678901234567")),
        (t.decimal(5, 2), "-0.000", Decimal("0.00")),
        (t.VARCHAR, '"ü\\n"', "ü\n"),
        (t.VARCHAR, "1.10", "1.10"),
        (t.VARCHAR, "true", "true"),
        (t.VARCHAR, '{"a": [1.50, null]}', '{"a":[1.50,null]}'),
        (t.VARCHAR, "123456789012345678901234567890", "123456789012345678901234567890"),
        (t.BYTES, '"AP8="', b"\x00\xff"),
        (t.DATE, "19000", date(2022, 1, 8)),
        (t.DATE, '"2022-01-08"', date(2022, 1, 8)),
        (t.TIME, "3600000", 3600000),
        (t.TIME, '"01:00:00.5"', 3600500),
        (t.TIMESTAMP, "1500", datetime(1970, 1, 1, 0, 0, 1, 500000, tzinfo=UTC)),
        (t.TIMESTAMP, '"2024-02-29T12:00:00+02:00"', datetime(2024, 2, 29, 10, tzinfo=UTC)),
        (t.TIMESTAMP, '"2024-02-29 12:00:00"', datetime(2024, 2, 29, 12, tzinfo=UTC)),
        (t.array(t.INT), "[1, null, 2]", [1, None, 2]),
        (t.map_of(t.VARCHAR, t.DOUBLE), '{"a": 1}', [("a", 1.0)]),
        (t.map_of(t.INT, t.VARCHAR), '{"7": "x"}', [(7, "x")]),
        (t.struct(("x", t.INT), ("y", t.array(t.VARCHAR))), '{"X": 1, "y": ["a", 2.50]}', {"x": 1, "y": ["a", "2.50"]}),
    ],
)
def test_json_values_that_fit(kind: SqlType, text: str, expected: object) -> None:
    assert one(kind, text) == expected


@pytest.mark.parametrize(
    ("kind", "text", "reason"),
    [
        (t.BOOLEAN, "1", "1 is not a BOOLEAN"),
        (t.INT, "2147483648", "out of the range of INT"),
        (t.INT, "1.5", "1.5 is not a INT"),
        (t.INT, "true", "true is not a INT"),
        (t.BIGINT, "9223372036854775808", "out of the range of BIGINT"),
        (t.BIGINT, "1e300", "out of the range of BIGINT"),
        (t.BIGINT, '"x"', "'x' is not a BIGINT"),
        (t.DOUBLE, "NaN", "not JSON"),
        (t.DOUBLE, "-Infinity", "not JSON"),
        (t.DOUBLE, "1e400", "not JSON"),
        (t.DOUBLE, '"nan"', "'nan' is not a DOUBLE"),
        (t.DOUBLE, "true", "is not a DOUBLE"),
        (t.decimal(5, 2), "1.234", "more than 2 decimal places"),
        (t.decimal(5, 2), "1000", "out of the range"),
        (t.decimal(5, 2), '"1e999999999"', "out of the range"),
        (t.VARCHAR, '"\\ud800"', "not JSON"),
        (t.VARCHAR, b'"\xff"', "not JSON"),
        (t.BYTES, '"?"', "not base64"),
        (t.DATE, "99999999", "is not a DATE"),
        (t.TIME, "86400000", "is not a TIME"),
        (t.TIMESTAMP, "9999999999999999", "is not a TIMESTAMP"),
        (t.TIMESTAMP, '"yesterday"', "is not a TIMESTAMP"),
        (t.array(t.INT), '[1, "x"]', "'x' is not a INT"),
        (t.array(t.INT), "{}", "is not a ARRAY"),
        (t.struct(("x", t.INT)), '{"x": "a"}', "field 'x'"),
    ],
)
def test_json_values_that_do_not_fit(kind: SqlType, text: str | bytes, reason: str) -> None:
    found = one(kind, text)
    assert isinstance(found, str)
    assert reason in found


def test_huge_exponents_cost_nothing() -> None:
    """1E+999999999 has a gigabyte of digits: every type must refuse it, or keep it short, without writing it out."""
    for kind in (t.INT, t.BIGINT, t.DOUBLE, t.decimal(38, 10)):
        with pytest.raises(Misfit):
            coerce(Decimal("1E+999999999"), kind)
    assert coerce(Decimal("1E+999999999"), t.VARCHAR) == "1E+999999999"


def test_json_names_match_without_regard_to_case_exact_first() -> None:
    of = source("JSON", ("id", t.INT), ("Id", t.INT), ("gone", t.INT))
    rows, errors = decode(of, [b'{"ID": 1, "Id": 2}', b'{"id": 3}', b'{"GONE": null}', b'{"iD": 4, "gOnE": 5}'])
    assert errors == {}
    assert rows == [
        {"id": 1, "Id": 2, "gone": None},
        {"id": 3, "Id": 3, "gone": None},
        {"id": None, "Id": None, "gone": None},
        {"id": 4, "Id": 4, "gone": 5},
    ]


@pytest.mark.parametrize(
    "text", [b"", b"[1]", b'"x"', b"1", b"null", b"{", b"{}{}", b'{"v": 1,}', b"\xff", b"{'v': 1}"]
)
def test_a_value_that_is_no_json_object_is_broken(text: bytes) -> None:
    rows, errors = decode(source("JSON", ("v", t.INT)), [b'{"v": 7}', text, b'{"v": 8}'])
    assert list(errors) == [1]
    assert [row["v"] for row in rows] == [7, None, 8]


def test_a_reason_speaks_only_of_its_own_record() -> None:
    payloads: list[bytes | None] = [b'{"v": "secret-%d"}' % n for n in range(3)]
    _, errors = decode(source("JSON", ("v", t.INT)), payloads)
    for row, reason in errors.items():
        assert [n for n in range(3) if f"secret-{n}" in reason] == [row]


def test_reasons_show_little_of_a_value() -> None:
    _, errors = decode(source("JSON", ("v", t.INT)), [b'{"v": "' + b"x" * 10_000 + b'"}'])
    assert len(errors[0]) < 100


def test_a_key_of_one_column_is_bare_of_several_an_object() -> None:
    single = source("JSON", ("k", t.BIGINT), ("v", t.INT), key_format="JSON")
    rows, errors = decode(single, [b"5", b'"6"', b'{"k": 7}', None, b"null"], "key")
    assert [row["k"] for row in rows] == [5, 6, None, None, None]
    assert list(errors) == [2]
    double = source("JSON", ("k1", t.BIGINT), ("k2", t.VARCHAR), key_format="JSON")
    assert decode(double, [b'{"k1": 1, "K2": "x"}'], "key") == ([{"k1": 1, "k2": "x"}], {})


def test_delimited_text() -> None:
    of = source("DELIMITED", ("a", t.INT), ("b", t.VARCHAR), ("c", t.decimal(4, 1)))
    lines: list[bytes | None] = [b'1,"x,""y""",2.5', b"2,,", b"1,2", b"1,2,3,4", b'1,"x', b"\xff,,", b"x,,", None, b""]
    rows, errors = decode(of, lines)
    assert rows[0] == {"a": 1, "b": 'x,"y"', "c": Decimal("2.5")}
    assert rows[1] == {"a": 2, "b": None, "c": None}
    assert set(errors) == {2, 3, 4, 5, 6, 8}
    assert errors[2] == "2 values for 3 columns"


@pytest.mark.parametrize(("option", "line"), [("|", b"1|2"), ("TAB", b"1\t2"), ("space", b"1 2")])
def test_delimiters(option: str, line: bytes) -> None:
    of = source("DELIMITED", ("a", t.INT), ("b", t.INT), VALUE_DELIMITER=option)
    assert decode(of, [line]) == ([{"a": 1, "b": 2}], {})


def test_a_delimiter_of_two_characters_is_refused() -> None:
    with pytest.raises(OptionRefused, match="one character"):
        open_format(source("DELIMITED", ("a", t.INT), VALUE_DELIMITER="::"), "value", no_registry)


@pytest.mark.parametrize(
    ("kind", "good", "value", "bad"),
    [
        (t.INT, struct.pack(">i", -7), -7, b"\0" * 8),
        (t.BIGINT, struct.pack(">q", 2**40), 2**40, b"\0" * 4),
        (t.DOUBLE, struct.pack(">d", 0.1), 0.1, b"1"),
        (t.VARCHAR, "ü".encode(), "ü", b"\xff"),
        (t.BYTES, b"\xff", b"\xff", None),
    ],
)
def test_primitives_are_those_of_kafkas_serializers(kind: SqlType, good: bytes, value: object, bad: bytes) -> None:
    of = source("JSON", ("k", kind))
    assert decode(of, [good, good], "key") == ([{"k": value}] * 2, {})
    rows, errors = decode(of, [good, None, bad], "key")
    assert [row["k"] for row in rows] == [value, None, None]
    assert list(errors) == ([] if bad is None else [2])


def test_formats_refuse_columns_they_cannot_hold() -> None:
    for of in (
        source("KAFKA", ("a", t.INT), ("b", t.INT)),
        source("KAFKA", ("a", t.DATE)),
        source("DELIMITED", ("a", t.array(t.INT))),
    ):
        with pytest.raises(OptionRefused):
            open_format(of, "value", no_registry)
    with pytest.raises(NotSupported, match="PROTOBUF"):
        open_format(source("PROTOBUF", ("a", t.INT)), "value", no_registry)


def test_no_columns_no_format() -> None:
    assert open_format(source("JSON", ("v", t.INT)), "key", no_registry) is None


_SCALARS: list[tuple[SqlType, st.SearchStrategy[Any]]] = [
    (t.BOOLEAN, st.booleans()),
    (t.INT, st.integers(-(2**31), 2**31 - 1)),
    (t.BIGINT, st.integers(-(2**63), 2**63 - 1)),
    (t.DOUBLE, st.floats(allow_nan=False, allow_infinity=False)),
    (t.decimal(20, 6), st.decimals(-(10**13), 10**13, places=6)),
    (t.VARCHAR, st.text(min_size=1, max_size=20)),
    (t.DATE, st.dates()),
    (t.TIME, st.integers(0, 86_399_999)),
    (t.TIMESTAMP, st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda ms: ms)),
]
_NESTED: list[tuple[SqlType, st.SearchStrategy[Any]]] = [
    (t.BYTES, st.binary(max_size=20)),
    (t.array(t.decimal(20, 6)), st.lists(st.none() | st.decimals(-(10**13), 10**13, places=6), max_size=4)),
    (t.map_of(t.VARCHAR, t.BIGINT), st.dictionaries(st.text(max_size=5), st.none() | st.integers(-9, 9), max_size=4)),
    (
        t.struct(("x", t.VARCHAR), ("y", t.struct(("z", t.DATE)))),
        st.fixed_dictionaries({"x": st.none() | st.text(max_size=5), "y": st.fixed_dictionaries({"z": st.dates()})}),
    ),
]


def _rows(kinds: list[tuple[SqlType, st.SearchStrategy[Any]]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({f"c{n}": st.none() | values for n, (_, values) in enumerate(kinds)})


def _round_trip(form: str, kinds: list[tuple[SqlType, Any]], row: dict[str, Any], registry: Any) -> None:
    of = source(form, *((f"c{n}", kind) for n, (kind, _) in enumerate(kinds)))
    writer = open_format(of, "value", registry)
    assert writer is not None
    payload = writer.encode({column.name: wire_value(row[column.name], column) for column in of.columns})
    rows, errors = decode(of, [payload], registry=registry)
    assert errors == {}
    expected = {}
    for column in of.columns:
        errors = {}
        expected[column.name] = columns.build(column, [row[column.name]], errors).to_pylist()[0]
        assert errors == {}
    assert rows == [expected]


@pytest.fixture(scope="module")
def memory() -> SchemaRegistryClient:
    return SchemaRegistryClient.new_client({"url": "mock://formats"})


@pytest.mark.parametrize("form", [name for name in FORMATS if name != "KAFKA"])
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_what_insert_writes_reads_back(form: str, memory: SchemaRegistryClient, data: st.DataObject) -> None:
    """Property: decode(encode(row)) = row, for every format, every type and NULL anywhere."""
    kinds = _SCALARS if form == "DELIMITED" else _SCALARS + _NESTED
    _round_trip(form, kinds, data.draw(_rows(kinds)), lambda: memory)


@pytest.mark.parametrize("form", ["AVRO", "JSON_SR"])
def test_a_registry_frame_is_asked_for(form: str, memory: SchemaRegistryClient) -> None:
    of = source(form, ("v", t.INT))
    writer = open_format(of, "value", lambda: memory)
    assert writer is not None
    good = writer.encode({"v": 3})
    assert good is not None
    assert good[0] == 0
    payloads: list[bytes | None] = [good, b"", b"\0\0\0\0\1", b"\1" + good[1:], b"\0\0\0\xff\xff" + good[5:], None]
    rows, errors = decode(of, payloads, registry=lambda: memory)
    assert [row["v"] for row in rows] == [3] + [None] * 5
    assert set(errors) == {1, 2, 3, 4}
    assert errors[4] == "the registry has no schema with id 65535"


def test_avro_bytes_that_are_not_of_the_schema_are_broken(memory: SchemaRegistryClient) -> None:
    of = source("AVRO", ("v", t.VARCHAR), ("w", t.BIGINT))
    writer = open_format(of, "value", lambda: memory)
    assert writer is not None
    good = writer.encode({"v": "abcdef", "w": 5})
    assert good is not None
    cut = [good[:end] for end in range(6, len(good))]
    rows, errors = decode(of, [good, *cut], registry=lambda: memory)
    assert rows[0] == {"v": "abcdef", "w": 5}
    assert set(errors) == set(range(1, len(cut) + 1))


def test_avro_written_by_others_meets_columns_by_name(memory: SchemaRegistryClient) -> None:
    """Upper-case fields, another order, fields we do not know, a narrower number, a bare string as key."""
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    fields = [{"name": "EXTRA", "type": "string"}, {"name": "N", "type": "int"}, {"name": "V", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "theirs", "fields": fields})
    conf = {"subject.name.strategy.type": "TOPIC"}
    value = AvroSerializer(memory, schema, conf=conf)(
        {"EXTRA": "e", "N": 4, "V": "x"}, SerializationContext("topic", MessageField.VALUE)
    )
    of = source("AVRO", ("k", t.VARCHAR), ("v", t.VARCHAR), ("n", t.BIGINT), key_format="AVRO")
    assert decode(of, [value], registry=lambda: memory) == ([{"v": "x", "n": 4}], {})
    key = AvroSerializer(memory, '"string"', conf=conf)("me", SerializationContext("topic", MessageField.KEY))
    assert decode(of, [key], "key", registry=lambda: memory) == ([{"k": "me"}], {})


class _Silent(SchemaRegistryClient):
    def get_schema(self, *_: object, **__: object) -> Any:
        raise SchemaRegistryError(503, 50301, "leader not known")


def test_a_registry_that_does_not_answer_breaks_no_record() -> None:
    """It stops the batch, to be tried again: a record is only broken when the registry says so."""
    silent = _Silent({"url": "http://localhost"})
    with pytest.raises(SourceUnavailable, match="503"):
        decode(source("AVRO", ("v", t.INT)), [b"\0\0\0\0\1x"], registry=lambda: silent)
    closed = SchemaRegistryClient({"url": "http://127.0.0.1:9", "max.retries": 0})
    with pytest.raises(SourceUnavailable, match="does not answer"):
        decode(source("JSON_SR", ("v", t.INT)), [b"\0\0\0\0\1{}"], registry=lambda: closed)


def test_what_topics_cannot_carry_is_not_written() -> None:
    moment = Column("at", t.TIMESTAMP)
    assert wire_value("2024-01-01T00:00:00.123", moment) == 1704067200123
    with pytest.raises(EncodeFailed, match="whole milliseconds"):
        wire_value("2024-01-01T00:00:00.123456", moment)
    with pytest.raises(EncodeFailed, match="column 'n'"):
        wire_value("x", Column("n", t.INT))
    form = open_format(source("DELIMITED", ("a", t.VARCHAR), ("b", t.INT)), "value", no_registry)
    assert form is not None
    with pytest.raises(EncodeFailed, match="empty string"):
        form.encode({"a": "", "b": 1})


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2024-02-29 01:02:03", "2024-02-29T01:02:03+00:00"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSX", "2024-02-29T01:02:03.450Z", "2024-02-29T01:02:03.450+00:00"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-02-29T01:02:03+05:30", "2024-02-28T19:32:03+00:00"),
        ("dd/MMM/yy hh:mm a", "29/Feb/24 01:02 PM", "2024-02-29T13:02:00+00:00"),
        ("'o''clock' yyyyDDD", "o'clock 2024060", "2024-02-29T00:00:00+00:00"),
        (None, "2024-02-29T01:02:03.000004Z", "2024-02-29T01:02:03.000004+00:00"),
    ],
)
def test_timestamp_formats(pattern: str | None, text: str, expected: str) -> None:
    wanted = datetime.fromisoformat(expected)
    assert reader(pattern)(text) == (wanted - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6


@pytest.mark.parametrize("pattern", ["yyyy-MM-ddQ", "eee", "yyyy 'open", "HHH", "kk"])
def test_unknown_timestamp_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(OptionRefused, match="TIMESTAMP_FORMAT"):
        check_timestamp_format(pattern)


def test_a_time_that_does_not_fit_its_format_is_a_misfit() -> None:
    with pytest.raises(Misfit, match="format 'yyyy-MM-dd'"):
        reader("yyyy-MM-dd")("2024-02-30")


def test_create_refuses_what_could_never_be_read() -> None:
    good = source("AVRO", ("k", t.INT), ("at", t.VARCHAR), ("n", t.INT), key_format="JSON_SR")
    check_source(replace(good, timestamp="at", timestamp_format="yyyy-MM-dd"))
    refused: list[tuple[Source, type[Exception]]] = [
        (source("KAFKA", ("a", t.INT), ("b", t.INT)), OptionRefused),
        (source("XML", ("a", t.INT)), NotSupported),
        (replace(good, timestamp="att"), UnknownName),
        (replace(good, timestamp="n"), OptionRefused),
        (replace(good, timestamp="at", timestamp_format="QQ"), OptionRefused),
        (replace(source("JSON", ("at", t.BIGINT)), timestamp="at", timestamp_format="yyyy"), OptionRefused),
    ]
    for bad, error in refused:
        with pytest.raises(error):
            check_source(bad)
