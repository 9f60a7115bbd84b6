"""Aggregates of Feldera's suite: `python/tests/runtime_aggtest` of feldera/feldera at 5c7931d0 (MIT License)."""

from __future__ import annotations

from decimal import Decimal

from tests.outside.cases import Case, Row, View, numbered, shown

# Of the suite's columns c1 to c8 one of each type: eight cost three times as much and show no more.
_COLUMNS = (1, 5, 7)


def _each(function: str, after: str = "") -> str:
    """The function over each of the columns."""
    return ", ".join(f"{function.format(f'c{n}')}{after} AS c{n}" for n in _COLUMNS)


def _of(*values: object) -> Row:
    """What the suite states for the columns, out of its values for all eight."""
    return tuple(values[n - 1] for n in _COLUMNS)


def _whole(function: str, *values: object) -> View:
    """The function over all rows."""
    return shown(f"SELECT {_each(function)} FROM int0_tbl", _of(*values))


def _by_id(function: str, first: Row, second: Row, after: str = "") -> View:
    """The function over the rows of each id."""
    select = f"SELECT id, {_each(function, after)} FROM int0_tbl GROUP BY id"
    return shown(select, (0, *_of(*first)), (1, *_of(*second)))


def _decimals(*texts: str | None) -> Row:
    return tuple(None if text is None else Decimal(text) for text in texts)


_INT_COLUMNS = "c1 SMALLINT, c2 SMALLINT, c3 SMALLINT, c4 SMALLINT, c5 INT, c6 INT, c7 BIGINT, c8 BIGINT"
_INTS = f"CREATE TABLE int0_tbl (row_id INT PRIMARY KEY, id INT, {_INT_COLUMNS});"
_INT_ROWS = numbered(
    (0, 5, 2, None, 4, 5, 6, None, 8),
    (1, 4, 3, 4, 6, 2, 3, 4, 2),
    (0, None, 2, 3, 2, 3, 4, 3, 3),
    (1, None, 5, 6, 2, 2, 1, None, 5),
)
# The table and what becomes of it: a row of each id goes, and comes back as it was.
_INT_STEPS = ({"int0_tbl": _INT_ROWS}, {"int0_tbl": [(1,), (4,)]}, {"int0_tbl": [_INT_ROWS[0], _INT_ROWS[3]]})

_CONDITIONS = ("c1 = 4", "c6 % 2 = 1", "c8 > 2")
_EVERY, _SOME = (
    ", ".join(f"{function}({condition}) AS c{n}" for n, condition in enumerate(_CONDITIONS))
    for function in ("BOOL_AND", "BOOL_OR")
)

_DECIMALS = "CREATE TABLE decimal_tbl (row_id INT PRIMARY KEY, id INT, c1 DECIMAL(6, 2), c2 DECIMAL(6, 2));"
_DECIMAL_ROWS = numbered(
    (0, *_decimals("1111.52", "2231.90")),
    (0, *_decimals(None, "3802.71")),
    (1, *_decimals("5681.08", "7689.88")),
    (1, *_decimals("5681.08", "7335.88")),
)
_LARGE = "FILTER (WHERE c2 > 2231.90)"

_ROW = "ROW(c1, c2, c3)"
_ROW_ROWS = numbered(
    (0, 4, None, "adios"), (0, 3, "ola", "ciao"), (1, 7, "hi", "hiya"), (1, 2, "elo", "ciao"), (1, 2, "elo", "ciao")
)


def _row(*values: object) -> dict[str, object]:
    return {f"f{place}": value for place, value in enumerate(values, 1)}


CASES = (
    Case(
        "aggregate_tests: test_sum, test_count_col, test_max",
        _INTS,
        ({"int0_tbl": _INT_ROWS},),
        {
            "int_sum": _whole("SUM({})", 9, 12, 13, 14, 12, 14, 7, 18),
            "int_sum_distinct_gby": _by_id("SUM(DISTINCT {})", (5, 2, 3, 6, 8, 10, 3, 11), (4, 8, 10, 8, 2, 4, 4, 7)),
            "int_sum_where_gby": _by_id(
                "SUM({})", (5, 4, 3, 6, 8, 10, 3, 11), (None, 5, 6, 2, 2, 1, None, 5), " FILTER (WHERE c8 > 2)"
            ),
            "int_count_col_gby": _by_id("COUNT({})", (1, 2, 1, 2, 2, 2, 1, 2), (1, 2, 2, 2, 2, 2, 1, 2)),
            "int_count_col_distinct": _whole("COUNT(DISTINCT {})", 2, 3, 3, 3, 3, 4, 2, 4),
            "int_max_gby": _by_id("MAX({})", (5, 2, 3, 4, 5, 6, 3, 8), (4, 5, 6, 6, 2, 3, 4, 5)),
        },
    ),
    Case(
        "aggregate_tests: test_bit_and, test_bit_or, test_bit_xor",
        _INTS,
        ({"int0_tbl": _INT_ROWS},),
        {
            "int_bit_and": _whole("BIT_AND({})", 4, 0, 0, 0, 0, 0, 0, 0),
            "int_bit_or_groupby": _by_id("BIT_OR({})", (5, 2, 3, 6, 7, 6, 3, 11), (4, 7, 6, 6, 2, 3, 4, 7)),
            "int_bit_xor_gby": _by_id("BIT_XOR({})", (5, 0, 3, 6, 6, 2, 3, 11), (4, 6, 2, 4, 0, 2, 4, 7)),
        },
    ),
    Case(
        "aggregate_tests: test_every, test_some",
        _INTS,
        _INT_STEPS,
        {
            "int_every_gby": View(
                f"SELECT id, {_EVERY} FROM int0_tbl GROUP BY id",
                {
                    step: [
                        (0, False, False, True),
                        (1, True, True, False),
                    ]
                    for step in (0, 2)
                },
            ),
            "int_some_gby": View(
                f"SELECT id, {_SOME} FROM int0_tbl GROUP BY id",
                {
                    step: [
                        (0, False, False, True),
                        (1, True, True, True),
                    ]
                    for step in (0, 2)
                },
            ),
        },
    ),
    Case(
        "aggregate_tests: test_decimal_sum, test_decimal_max",
        _DECIMALS,
        ({"decimal_tbl": _DECIMAL_ROWS},),
        {
            "decimal_sum_gby": shown(
                "SELECT id, SUM(c1) AS c1, SUM(c2) AS c2 FROM decimal_tbl GROUP BY id",
                (0, *_decimals("1111.52", "6034.61")),
                (1, *_decimals("11362.16", "15025.76")),
            ),
            "decimal_sum_distinct": shown(
                "SELECT SUM(DISTINCT c1) AS c1, SUM(DISTINCT c2) AS c2 FROM decimal_tbl",
                _decimals("6792.60", "21060.37"),
            ),
            "decimal_sum_where_gby": shown(
                f"SELECT id, SUM(c1) {_LARGE} AS c1, SUM(c2) {_LARGE} AS c2 FROM decimal_tbl GROUP BY id",
                (0, *_decimals(None, "3802.71")),
                (1, *_decimals("11362.16", "15025.76")),
            ),
            "decimal_max_where_gby": shown(
                """SELECT id, MAX(c1) FILTER (WHERE c2 <> 7689.88) AS c1, MAX(c2) FILTER (WHERE c2 <> 7689.88) AS c2
                FROM decimal_tbl GROUP BY id""",
                (0, *_decimals("1111.52", "3802.71")),
                (1, *_decimals("5681.08", "7335.88")),
            ),
        },
    ),
    Case(
        "aggregate_tests: test_decimal_avg, test_decimal_stddev_samp",
        _DECIMALS,
        ({"decimal_tbl": _DECIMAL_ROWS},),
        {
            "decimal_avg_gby": shown(
                "SELECT id, ROUND(AVG(c1), 2) AS c1, ROUND(AVG(c2), 2) AS c2 FROM decimal_tbl GROUP BY id",
                # The suite cuts 3017.305 to the column's digits; ROUND gives the nearer 3017.31.
                (0, 1111.52, 3017.31),
                (1, 5681.08, 7512.88),
            ),
            "decimal_stddev_samp": shown(
                "SELECT ROUND(STDDEV_SAMPLE(c1), 2) AS c1, ROUND(STDDEV_SAMPLE(c2), 2) AS c2 FROM decimal_tbl",
                # The suite cuts 2638.2367 after the second digit.
                (2638.24, 2677.47),
            ),
        },
    ),
    Case(
        # Of `row_max_gby` without c2, whose NULL the suite takes for the least.
        "aggregate_tests: test_row_max, as printed",
        "CREATE TABLE row_tbl (row_id INT PRIMARY KEY, id INT, c1 INT, c2 VARCHAR, c3 VARCHAR);",
        ({"row_tbl": _ROW_ROWS},),
        {
            "row_max": shown(f"SELECT MAX({_ROW}) AS c1 FROM row_tbl", (_row(7, "hi", "hiya"),)),
            "row_max_gby": shown(
                f"SELECT id, MAX({_ROW}) AS c1 FROM row_tbl GROUP BY id",
                (0, _row(4, None, "adios")),
                (1, _row(7, "hi", "hiya")),
            ),
            "row_max_distinct": shown(f"SELECT MAX(DISTINCT {_ROW}) AS c1 FROM row_tbl", (_row(7, "hi", "hiya"),)),
            "row_max_distinct_gby": shown(
                f"SELECT id, MAX(DISTINCT {_ROW}) AS c1 FROM row_tbl GROUP BY id",
                (0, _row(4, None, "adios")),
                (1, _row(7, "hi", "hiya")),
            ),
            "row_max_where_gby": shown(
                f"SELECT id, MAX({_ROW}) FILTER (WHERE c2 < c3) AS c1 FROM row_tbl GROUP BY id",
                (0, None),
                (1, _row(7, "hi", "hiya")),
            ),
        },
    ),
)
