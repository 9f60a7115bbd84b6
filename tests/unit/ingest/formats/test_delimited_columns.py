"""DELIMITED read by columns gives what it gives line by line: the same rows, and the same reasons, whatever comes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.jobs.ingest.formats.plain import DelimitedFormat, read_lines
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.types import BaseType, SqlType
from tests.support.decoded_alike import assert_decoded_alike

RUN = 500
"""Records of a run that are enough to be read by columns."""
_PLAIN = (t.BOOLEAN, t.INT, t.BIGINT, t.DOUBLE, t.VARCHAR, t.VARCHAR)
_RARE = (t.DATE, t.TIME, t.TIMESTAMP, t.BYTES, t.decimal(9, 2), t.decimal(38, 10), t.decimal(3, 3), t.decimal(18, 0))
_ODD = (
    *r"""0 -0 5 -7 +1 01 .5 1. 1.5 1e3 1E400 1e-400 -0.0 NaN nan Infinity inf null NULL true TRUE False 2147483647
    2147483648 -2147483649 9223372036854775807 9223372036854775808 18446744073709551616 99999999.99 12345.678 -1
    1700000000123 253402300799999 253402300800000 19000 -2147483648 2024-02-29 2024-02-30 2024-01-02T03:04:05Z 4.35
    2024-01-02T03:04:05.123456 2024-01-02T03:04:05+02:00 0001-01-01 03:04:05 YWJj 1_000 ٣ ü😀 "x" "a""b" x"y 'x' \ \n
    0.30000000000000004""".split(),  # noqa: SIM905  (a list of them would be three times as long)
    *(" 5", "5 ", " ", '"', '"x', "a\nb", "\r", "\x00", "a\tb", "\x7f", ""),
)


def _text(random: Random, of: SqlType, oddness: float) -> str:
    if random.random() < oddness:
        return random.choice(_ODD)
    match of.base:
        case BaseType.BOOLEAN:
            return random.choice(("true", "false"))
        case BaseType.INT | BaseType.BIGINT | BaseType.TIMESTAMP | BaseType.TIME | BaseType.DATE:
            return str(random.randint(-(10 ** random.randint(0, 8)), 10 ** random.randint(0, 8)))
        case BaseType.DOUBLE:
            return repr(random.uniform(-1, 1) * 10 ** random.randint(-30, 30))
        case BaseType.DECIMAL:
            text = f"{random.randint(0, 10 ** min(15, of.precision) - 1):0{of.scale + 1}d}"
            return f"{text[: len(text) - of.scale]}.{text[len(text) - of.scale :]}" if of.scale else text
        case _:
            return "".join(random.choices("abc é😀{:.'", k=random.randint(1, 5)))


def _line(random: Random, columns: list[Column], delimiter: str, oddness: float) -> str:
    texts = [_text(random, column.type, oddness) if random.random() < 0.95 else "" for column in columns]
    if random.random() < oddness:
        texts = random.choice((texts[1:], [*texts, "x"], texts[:-1]))
    return delimiter.join(texts)


@given(st.integers(0, 1 << 32))
def test_rows_and_reasons_are_those_of_reading_line_by_line(seed: int) -> None:
    random = Random(seed)
    columns = [
        Column(f"c{place}", random.choice(_PLAIN if random.random() < 0.7 else _RARE))
        for place in range(random.randint(1, 5))
    ]
    delimiter = random.choice((",", ",", "|", "\t", " ", ";", "§"))
    of = DelimitedFormat(tuple(columns), delimiter, random.randint(0, len(columns) - 1))
    oddness = random.choice((0.0, 0.01, 0.1))
    lines: list[bytes | None] = [_line(random, columns, delimiter, oddness).encode() for _ in range(40)]
    if oddness:
        lines += random.sample((None, b"", b"\xff", b"a,\xed\xa0\x80", b"\xef\xbb\xbf1", b",,,,"), 3)
    payloads = random.choices(lines, k=RUN)
    errors: dict[int, str] = {}
    expected: dict[int, str] = {}
    found, arrays = of.decode(payloads, errors), of.decode_each(payloads, expected)
    assert_decoded_alike(columns, (found, errors), (arrays, expected))


@pytest.mark.parametrize(
    ("of", "text"),
    [
        (t.BOOLEAN, "true"),
        (t.INT, "-2000000000"),
        (t.BIGINT, "9223372036854775807"),
        (t.DOUBLE, "1.5e-7"),
        (t.VARCHAR, "é {1:.2} 'x' \\"),
        (t.decimal(10, 2), "12345678.25"),
        (t.decimal(38, 0), "12345678901234567890123456789012345678"),
        (t.TIMESTAMP, "1700000000123"),
        (t.TIMESTAMP, "2024-01-02T03:04:05.123Z"),
        (t.TIMESTAMP, "2024-01-02 03:04:05"),
        (t.DATE, "2024-02-29"),
        (t.DATE, "-5"),
    ],
)
def test_values_as_they_are_mostly_written_are_read_by_columns(of: SqlType, text: str) -> None:
    """What is left for line by line would be right, and slow."""
    columns = [Column("k", t.INT), Column("v", of), Column("w", t.VARCHAR)]
    lines = [f"1,{text},x".encode(), b"2,,", None, f'3,{text},"y"'.encode(), f"4,{text},".encode(), b"5"]
    (part,) = read_lines(lines, columns, ",")
    assert part.rows.tolist() == [0, 1, 4]
    keys, values, others = (array.to_pylist() for array in part.columns)
    assert keys == [1, 2, 4]
    assert values[0] == values[2] is not None
    assert values[1] is None
    assert others == ["x", None, None]
