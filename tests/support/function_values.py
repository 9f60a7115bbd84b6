"""Nasty values of every type: the columns that expressions are computed over on both engines.

The first rows are those of `tests.support.function_cases`, whose columns are among these; in the others each column
runs through its own values in an order of its own, so that values of different columns meet.
"""

from __future__ import annotations

import datetime as dt
import math
import random
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pyarrow as pa

from strandline.jobs.model import types as t
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.expressions.scope import Scope
from tests.support.function_cases import rows

_WHO = t.struct(("name", t.VARCHAR), ("age", t.INT))
COLUMNS: tuple[tuple[str, t.SqlType], ...] = (
    *rows.COLUMNS,
    ("n", t.INT),
    *(("i2", t.INT), ("b2", t.BIGINT), ("d2", t.DOUBLE), ("m2", t.decimal(10, 2)), ("s2", t.VARCHAR)),
    *(("p", t.decimal(18, 8)), ("w", t.decimal(38, 0)), ("v", t.decimal(38, 18)), ("z", t.decimal(38, 38))),
    *(("p2", t.decimal(18, 8)), ("w2", t.decimal(38, 0)), ("v2", t.decimal(38, 18)), ("z2", t.decimal(38, 38))),
    *(("bytes2", t.BYTES), ("flag2", t.BOOLEAN), ("day2", t.DATE), ("clock2", t.TIME), ("at2", t.TIMESTAMP)),
    *(("tags2", t.array(t.VARCHAR)), ("ints", t.array(t.INT)), ("ints2", t.array(t.INT))),
    *(("doubles", t.array(t.DOUBLE)), ("doubles2", t.array(t.DOUBLE)), ("decimals", t.array(t.decimal(18, 8)))),
    *(("grid", t.array(t.array(t.INT))), ("people", t.array(_WHO))),
    *(("ratings2", t.map_of(t.VARCHAR, t.INT)), ("weights", t.map_of(t.VARCHAR, t.DOUBLE)), ("who2", _WHO)),
)
SCOPE = Scope(Relation("cases", COLUMNS, "keyed", ("nr",)), ("cases",))
KINDS = tuple(name for name, _ in COLUMNS if name not in ("nr", "n") and not name.endswith("2"))
"""A column of each type; another one of the same type, where there is one, has `2` after its name."""
SMALL = "n"
"""A column of small numbers, for functions that make as much as they are asked for."""

_INTS = (0, 1, -1, 2, 3, 7, -7, 10, 2**31 - 1, -(2**31), -719_162, 2_932_896, 2_932_897)
_BIGINTS = (0, 1, -1, 7, 1000, -999, 2**53 + 1, 1_706_708_700_500, 40_000_000_000, 2**63 - 1, -(2**63), 10**18)
_DOUBLES = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.1, 0.2, 0.285, -0.285, 1.005, 2.675, 0.29, 1e-7, 1 / 3),
    *(
        math.inf,
        -math.inf,
        math.nan,
        1e300,
        -1e300,
        1.7976931348623157e308,
        5e-324,
        2.2250738585072014e-308,
        1e22,
        1e23,
    ),
    *(2.0**31, -(2.0**31) - 1, 2.0**53, 2.0**53 + 2, 2.0**63, -(2.0**63), 9.223372036854775e18, 1e15, 1e16, 1e19),
    *(123456.789, 123456789.125, 0.001, 9999999.5, 1e7, 710.0, -745.5, math.pi, math.pi / 2, 100.0, 27.0),
)
_TEXTS = (
    *(
        "",
        " ",
        "a",
        "A",
        "abc",
        "Hello World",
        "ß",
        "SS",
        "İ",
        "ı",
        "I",
        "ſ",
        "ǆ",
        "ΑΣ",
        "ας",
        "é",
        "e\u0301",
        "\u0301",
    ),
    *(
        "😀",
        "👨‍👩‍👧",
        "a😀b",
        "𝒜",
        "𐐀",
        "ﬁ",
        "ŉ",
        "ａ",
        "中文",
        "\u00a0x\u00a0",
        "\u200b",
        "\x00",
        "a\x00b",
        "\n\t",
        "\\",
        "'",
        '"',
    ),
    *("12", " 12 ", "+7", "-0", "1.5", ".5", "1e3", "-1.5E-3", "1e400", "99999999999", "2147483648", "0x1F", "1_000"),
    *("NaN", "nan", "Infinity", "-inf", "inf", "true", "YES", "f", "t", "0", "null"),
    *("2024-02-29", "2023-02-29", "2024-1-5", "2024", "2024-01", "10000-01-01", "0000-01-01", "2022-01-01 00:00:00"),
    *("2024-01-31T13:45:00Z", "2024-01-31T13:45:00.123456+02:00", "2024-01-31 13", "13:45", "13:45:09.5", "24:00:00"),
    *("25:00", "yyyy-MM-dd", "yyyy-bb", "yyyy'", "HH:mm:ss.SSS", "UTC", "Europe/Paris", "+02:00", "Nowhere/Town"),
    *(
        '{"a": [1, 2.50, null], "b": {"c": "x"}}',
        "[1, [2, 3]]",
        '{"a": [',
        '"x"',
        "$.a[0]",
        "$.b.c",
        "$[-1]",
        "{}",
        "[]",
    ),
    *("(", "[a-z]+", "(a)(b)?", "%", "_", "a%b_c", "!", "a|b", "a,b,,c", "\\%", "\\_"),
    *("http://user:pw@host:80/p/q.html?a=1&b=%20x#frag", "%41+%zz", "a b&c=d/é", "SGVsbG8=", "SGVsbG8", "6869", "zz"),
)
_BYTES = (b"", b"a", b"abc", b"\x00", b"\xff\x00", b"\x80", b"{}", "ß".encode(), "😀".encode(), b"\x00" * 8, bytes(4))
_DAYS = (
    *(dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1970, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29)),
    *(dt.date(2023, 12, 31), dt.date(1900, 2, 28), dt.date(2024, 1, 1), dt.date(1582, 10, 10)),
)
_CLOCKS = (0, 1, 43_200_000, 86_399_999, 49_500_500, 3_600_000)
_TIMES = tuple(
    dt.datetime.fromisoformat(f"{text}+00:00")
    for text in (
        *("0001-01-01T00:00:00", "9999-12-31T23:59:59.999", "1970-01-01T00:00:00", "1969-12-31T23:59:59.999999"),
        *("2024-02-29T12:30:15.123456", "2024-03-31T01:30:00", "1900-01-01T00:00:00.000001", "2024-12-31T23:59:00"),
    )
)


def _decimals(precision: int, scale: int) -> tuple[Decimal, ...]:
    """Values of DECIMAL(precision, scale): its ends, the smallest, halves of steps of other scales, small numbers."""
    most = 10**precision - 1
    wholes = [
        0,
        1,
        most,
        most // 3,
        5 * 10 ** max(scale - 3, 0),
        10**scale,
        15 * 10 ** max(scale - 1, 0),
        7 * 10**scale,
    ]
    wholes += [10 ** (precision // 2) + 1, 10**precision // 2, 25 * 10 ** max(scale - 1, 0), 99 * 10**scale + 1]
    fitting = [whole for whole in wholes if whole <= most]
    return tuple(Decimal(f"{sign}{whole}e-{scale}") for whole in fitting for sign in ("", "-"))


_WHOS = (
    *({"name": "", "age": -(2**31)}, {"name": None, "age": None}, {"name": "ß😀", "age": 2**31 - 1}),
    {"name": "a\x00b", "age": 0},
)
_LISTS: Mapping[str, tuple[object, ...]] = {
    "tags": (
        [],
        [None],
        [""],
        ["a", None, "a", "ß"],
        ["x", "X", "é", "e\u0301"],
        ["😀", "\x00", "12"],
        ["b", "a", "c"],
    ),
    "ints": ([], [None], [0], [3, None, 1, 3], [2**31 - 1, 1], [-(2**31), -1, None], [1, 2, 3, 4, 5]),
    "doubles": (
        *([], [None], [0.0, -0.0], [math.nan, 1.0, None, math.nan], [math.inf, -math.inf], [0.1, 0.2, 0.3], [-0.0]),
        [1e308, 1e308, -1e308],
    ),
    "decimals": (
        [],
        [None],
        [Decimal("0.00000001"), Decimal("-9999999999.99999999")],
        [Decimal(1), None, Decimal("1.5")],
    ),
    "grid": ([], [None], [[]], [[1, None], None, [2]], [[1], [1]]),
    "people": ([], [None], [_WHOS[0], None, _WHOS[2]], [_WHOS[1], _WHOS[1]]),
    "ratings": ([], [("", 0)], [("a", None), ("ß", 2**31 - 1)], [("b", 1), ("a", 2)], [("a", 2), ("b", 1)]),
    "weights": ([], [("a", math.nan), ("b", None)], [("", -0.0), ("x", math.inf)], [("k", 0.1)]),
}
_PLAIN: Mapping[t.BaseType, Sequence[object]] = {
    t.BaseType.INT: _INTS,
    t.BaseType.BIGINT: _BIGINTS,
    t.BaseType.DOUBLE: _DOUBLES,
    t.BaseType.VARCHAR: _TEXTS,
    t.BaseType.BYTES: _BYTES,
    t.BaseType.BOOLEAN: (True, False),
    t.BaseType.DATE: _DAYS,
    t.BaseType.TIME: _CLOCKS,
    t.BaseType.TIMESTAMP: _TIMES,
    t.BaseType.STRUCT: _WHOS,
}


def values_of(name: str, sql_type: t.SqlType) -> tuple[object, ...]:
    """The values of a column, NULL among them."""
    if name == SMALL:
        return (0, 1, -1, 2, 3, 5, None)
    found = _LISTS.get(name.removesuffix("2"))
    if found is None:
        is_decimal = sql_type.base is t.BaseType.DECIMAL
        found = _decimals(sql_type.precision, sql_type.scale) if is_decimal else tuple(_PLAIN[sql_type.base])
    return (*found, None)


def table(number: int, seed: int) -> pa.Table:
    """The rows of the cases, and `number` more by the seed: of a column with fewer values, each is in some row."""
    chance = random.Random(seed)
    columns = {}
    cases = {name: [row[place] for row in rows.ROWS] for place, (name, _) in enumerate(rows.COLUMNS)}
    for name, kind in COLUMNS:
        values = list(values_of(name, kind))
        chance.shuffle(values)
        more = [*values, *(chance.choice(values) for _ in range(number - len(values)))][:number]
        chance.shuffle(more)
        columns[name] = cases.get(name, [None] * len(rows.ROWS)) + more
    columns["nr"] = list(range(1, number + len(rows.ROWS) + 1))
    schema = pa.schema([(name, kind.arrow()) for name, kind in COLUMNS])
    return pa.Table.from_arrays([pa.array(columns[name], kind.arrow()) for name, kind in COLUMNS], schema=schema)
