"""JSON read by columns gives what it gives record by record: the same rows, and the same reasons, whatever comes."""

from __future__ import annotations

import json
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.jobs.ingest.formats.json_format import JsonFormat, ShapeReader
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.types import BaseType, SqlType
from tests.support.decoded_alike import assert_decoded_alike
from tests.unit.ingest.formats.decoding import decode, source

RUN = 500
"""Records of a run that are enough to be read by columns."""
_PLAIN = (t.BOOLEAN, t.INT, t.BIGINT, t.DOUBLE, t.VARCHAR)
_RARE = (t.DATE, t.TIME, t.TIMESTAMP, t.BYTES, t.decimal(9, 2), t.decimal(38, 10), t.decimal(3, 3), t.decimal(18, 0))
_NUMBERS = tuple(
    """0 -0 5 -7 999999999 1999999999 -2099999999 2147483647 -2147483648 2147483648 8999999999999999999
    -8999999999999999999 9223372036854775807 -9223372036854775808 9223372036854775808 18446744073709551615
    18446744073709551616 1e3 1E400 1e-400 1e99 -0.0 1.0 1.5 0.1 0.30000000000000004 5e-324 1.7976931348623157e308
    123456789012345678.123 99999999.99 -12345.678901234 0.001 1700000000123 -62135596800000 253402300799999
    253402300800000 19000 01 +1 .5 1. NaN Infinity -Infinity 4.35 1.005 9007199254740993 2.5E+10""".split()  # noqa: SIM905  (a list of them would be three times as long)
)
_TEXTS = tuple(
    r"""5 -7 1.50 1e3 true FALSE 2024-02-29 2024-02-30 2024-13-01 2024-01-02T03:04:05Z 2024-01-02T03:04:05.123456
    2024-02-30T03:04:05Z 2024-01-02T03:04:05+02:00 0001-01-01 9999-12-31T23:59:59.999999Z 2024-01-02T24:00:00 03:04:05
    YWJj a\n\/\"\\\b\f\r\t \ud800 \udc00\ud800 \ud83d\ude00 \u0041\u00e9\uffff\u0000x \u0001 \x NaN null ü😀
    12345678901234567890123456789.123 99999999999999999999999999999999999999""".split()  # noqa: SIM905
)
_ODD = (
    "null",
    "[]",
    "{}",
    "[null]",
    "true",
    "false",
    '" 5 "',
    '"\x01"',
    '""',
    '{"a":1,"A":2}',
    "[1,[2]]",
    "[1.5]",
    "}",
    "",
)


def _type(random: Random, depth: int = 2) -> SqlType:
    if not depth or random.random() < 0.75:
        return random.choice(_PLAIN if random.random() < 0.6 else _RARE)
    if random.random() < 0.15:
        return t.array(_type(random, depth - 1))
    if random.random() < 0.1:
        return t.map_of(t.VARCHAR, _type(random, depth - 1))
    return t.struct(*((name, _type(random, depth - 1)) for name in random.sample("abcd", random.randint(1, 3))))


def _text(random: Random, of: SqlType, oddness: float) -> str:
    """A value as JSON: mostly one of the type."""
    if random.random() < oddness:
        return random.choice((random.choice(_NUMBERS), f'"{random.choice(_TEXTS)}"', random.choice(_ODD)))
    match of.base:
        case BaseType.BOOLEAN:
            return random.choice(("true", "false"))
        case BaseType.INT | BaseType.BIGINT | BaseType.TIMESTAMP | BaseType.TIME | BaseType.DATE:
            return str(random.randint(-(10 ** random.randint(0, 8)), 10 ** random.randint(0, 8)))
        case BaseType.DOUBLE:
            return repr(random.uniform(-1, 1) * 10 ** random.randint(-30, 30))
        case BaseType.DECIMAL:
            digits = random.randint(0, 10 ** min(15, of.precision) - 1)
            text = f"{digits:0{of.scale + 1}d}"
            text = f"{text[: len(text) - of.scale]}.{text[len(text) - of.scale :]}" if of.scale else text
            return text if random.random() < 0.5 else f'"{text}"'
        case BaseType.ARRAY:
            items = (_text(random, of.args[0], oddness) for _ in range(random.randint(0, 3)))
            return f"[{', '.join(items)}]"
        case BaseType.MAP:
            return f'{{"k": {_text(random, of.args[1], oddness)}}}'
        case BaseType.STRUCT:
            return _object(random, [(name, inner) for name, inner in of.fields], oddness)
        case _:
            letters = 'abc é"\\\n😀' if random.random() < oddness else "abc é😀{:,}"
            return json.dumps("".join(random.choices(letters, k=5)), ensure_ascii=random.random() < oddness)


def _object(random: Random, members: list[tuple[str, SqlType]], oddness: float) -> str:
    if random.random() < oddness:
        members = random.choice(
            (
                members[1:],
                members + members[:1],
                [(name.swapcase(), of) for name, of in members],
                random.sample(members, len(members)),
            )
        )
    space = random.choice(("", " ")) if random.random() < 0.9 else "\n\t"
    listed = (f'"{name}"{space}:{space}{_text(random, of, oddness)}' for name, of in members)
    return "{" + f"{space},{space}".join(listed) + "}"


def _records(random: Random, columns: list[Column]) -> list[bytes | None]:
    members = [(column.name, column.type) for column in columns]
    members += [(f"x{place}", _type(random)) for place in range(random.randint(0, 2))]
    if random.random() < 0.2:
        members = [(name.swapcase() if random.random() < 0.5 else name, of) for name, of in members]
    random.shuffle(members)
    oddness = random.choice((0.0, 0.01, 0.1))
    found: list[bytes | None] = [_object(random, members, oddness).encode() for _ in range(40)]
    broken = (None, b"", b"\xff", b"[]", b"{", b"null", b'{"a":"\xed\xa0\x80"}', b"{}{}", b'\xef\xbb\xbf{"a":1}')
    if oddness:
        found += random.sample(broken, 3)
    return random.choices(found, k=RUN)


@given(st.integers(0, 1 << 32))
def test_rows_and_reasons_are_those_of_reading_one_by_one(seed: int) -> None:
    random = Random(seed)
    names = random.sample(("id", "ID", "a", "Name", "b c", "ß", "x0"), random.randint(1, 4))
    columns = [Column(name, _type(random)) for name in names]
    by_columns = JsonFormat(tuple(columns), bare=False)
    for _ in range(2):  # the second run meets shapes that the first one has left
        payloads = _records(random, columns)
        errors: dict[int, str] = {}
        expected: dict[int, str] = {}
        found = by_columns.decode(payloads, errors)
        arrays = JsonFormat(tuple(columns), bare=False).decode_each(payloads, expected)
        assert_decoded_alike(columns, (found, errors), (arrays, expected))


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (t.BOOLEAN, b"true"),
        (t.INT, b"-2000000000"),
        (t.BIGINT, b"9223372036854775807"),
        (t.DOUBLE, b"1.5e-7"),
        (t.VARCHAR, '"é {1:,2}"'.encode()),
        (t.decimal(10, 2), b"12345678.25"),
        (t.decimal(38, 0), b"12345678901234567890123456789012345678"),
        (t.decimal(38, 9), b'"12345678901234567890123456789.123456789"'),
        (t.TIMESTAMP, b"1700000000123"),
        (t.TIMESTAMP, b'"2024-01-02T03:04:05.123Z"'),
        (t.DATE, b'"2024-02-29"'),
        (
            t.struct(("a", t.INT), ("b", t.struct(("c", t.VARCHAR), ("d", t.INT)))),
            b'{"B": {"c": "x", "z": {}}, "a": 1}',
        ),
    ],
)
def test_values_as_they_are_mostly_written_are_read_by_columns(of: SqlType, text: bytes) -> None:
    """What is left for one by one would be right, and slow."""
    column = Column("v", of)
    payloads = [b'{"other": {"k": 1.5, "l": "two"}, "V": %s}' % value for value in (text, text, b"null")]
    parts = ShapeReader([column]).read([*payloads[:2], b"null", *payloads])
    assert sorted(row for part in parts for row in part.rows.tolist()) == [0, 1, 3, 4, 5]
    rows, errors = decode(source("JSON", ("v", of)), list(payloads))
    assert (errors, rows[2]["v"]) == ({}, None)
    assert rows[0]["v"] is not None


@pytest.mark.parametrize(
    ("of", "odd"),
    [
        (t.DATE, b"-2147483648"),
        (t.TIMESTAMP, b"-9223372036854775808"),
        (t.TIMESTAMP, b"253402300800000"),
        (t.INT, b"-2147483649"),
        (t.BIGINT, b"9223372036854775808"),
        (t.decimal(9, 2), b"10000000.00"),
        (t.DOUBLE, b"1e400"),
    ],
)
def test_a_number_out_of_the_range_of_its_column_is_broken(of: SqlType, odd: bytes) -> None:
    """Also when it is written as others of its column are."""
    payloads: list[bytes | None] = [b'{"v": 1}' if of.base is not BaseType.DOUBLE else b'{"v": 1.5}'] * RUN
    payloads[7] = b'{"v": %s}' % odd
    rows, errors = decode(source("JSON", ("v", of)), payloads)
    assert list(errors) == [7]
    assert [place for place, row in enumerate(rows) if row["v"] is None] == [7]


def test_shapes_are_kept_as_long_as_they_match() -> None:
    reader = ShapeReader([Column("a", t.INT), Column("b", t.INT)])
    both: list[bytes | None] = [b'{"a":1,"b":2}', b'{"b":2,"a":1}'] * 300
    assert [len(part.rows) for part in reader.read(both)] == [300, 300]
    # Nothing to be learned from: after a few runs nobody tries, until there may be something again.
    broken: list[bytes | None] = [b'{"a":1.5,"b":2}'] * 300
    assert all(reader.read(broken) == [] for _ in range(4))
    assert any([len(part.rows) for part in reader.read(both)] == [300, 300] for _ in range(70))
