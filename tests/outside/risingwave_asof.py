"""ASOF joins and constants of RisingWave's suite: `e2e_test/streaming` of risingwavelabs/risingwave at 03c8fedd (Apache
License 2.0)."""

from __future__ import annotations

from tests.outside.cases import Case, View

_PAIR = "CREATE TABLE t1 (v3 INT PRIMARY KEY, v1 INT, v2 INT); CREATE TABLE t2 (v3 INT PRIMARY KEY, v1 INT, v2 INT);"
_SIDES = "t1.v3 AS l, t2.v3 AS r, t2.v2 AS near"


def _select(join: str, comparison: str) -> str:
    return f"SELECT {_SIDES} FROM t1 {join} t2 ON t1.v1 = t2.v1 AND t1.v2 {comparison} t2.v2"


CASES = (
    Case(
        "join/asof_join.slt: mv_rematch",
        _PAIR,
        ({"t1": [(100, 1, 5)], "t2": [(10, 1, 5), (20, 1, 8)]}, {"t2": [(10,)]}, {"t2": [(20,)]}, {"t2": [(30, 1, 6)]}),
        {"mv": View(_select("ASOF JOIN", "<="), {0: [(100, 10, 5)], 1: [(100, 20, 8)], 2: [], 3: [(100, 30, 6)]})},
    ),
    Case(
        "join/asof_join.slt: mv_multi",
        _PAIR,
        (
            {"t1": [(101, 1, 3), (102, 1, 5), (103, 1, 7)], "t2": [(200, 1, 10)]},
            {"t2": [(201, 1, 6)]},
            {"t2": [(201,)]},
        ),
        {
            "mv": View(
                _select("ASOF JOIN", "<="),
                {
                    0: [(101, 200, 10), (102, 200, 10), (103, 200, 10)],
                    1: [(101, 201, 6), (102, 201, 6), (103, 200, 10)],
                    2: [(101, 200, 10), (102, 200, 10), (103, 200, 10)],
                },
            )
        },
    ),
    Case(
        "join/asof_join.slt: mv_pk_ge",
        _PAIR,
        (
            {"t1": [(100, 1, 5)], "t2": [(20, 1, 5)]},
            {"t2": [(10, 1, 5), (50, 1, 3)]},
            {"t2": [(10,), (20,)]},
            {"t2": [(8, 1, 4), (25, 1, 4)]},
            {"t2": [(8,)]},
        ),
        {
            "mv": View(
                _select("ASOF JOIN", ">="),
                {
                    0: [(100, 20, 5)],
                    1: [(100, 10, 5)],
                    2: [(100, 50, 3)],
                    3: [(100, 8, 4)],
                    4: [(100, 25, 4)],
                },
            )
        },
    ),
    Case(
        "join/asof_join.slt: mv_pk_lt",
        _PAIR,
        (
            {"t1": [(100, 1, 5)], "t2": [(20, 1, 5)]},
            {"t2": [(30, 1, 6), (10, 1, 6)]},
            {"t2": [(10,)]},
            {"t2": [(30,)]},
        ),
        {
            "mv": View(
                _select("ASOF LEFT JOIN", "<"),
                {0: [(100, None, None)], 1: [(100, 10, 6)], 2: [(100, 30, 6)], 3: [(100, None, None)]},
            )
        },
    ),
    Case(
        "values.slt",
        "CREATE TABLE t (v INT PRIMARY KEY, c VARCHAR);",
        ({"t": [(1, "China"), (0, "United States")]},),
        {
            "mvb": View(
                "SELECT * FROM (VALUES (233, 'risingwave'), (233, 'risingwave')) AS x (a, b)",
                {0: [(233, "risingwave"), (233, "risingwave")]},
            ),
            "mv": View(
                """WITH dict (abbr, real_name) AS (VALUES ('cn', 'China'), ('us', 'United States'))
                SELECT * FROM t JOIN dict ON t.c = dict.real_name""",
                {0: [(0, "United States", "us", "United States"), (1, "China", "cn", "China")]},
            ),
        },
    ),
)
