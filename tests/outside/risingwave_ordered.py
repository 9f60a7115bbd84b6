"""Aggregates over values in an order, of RisingWave's suite: lists, texts, percentiles, modes.

`e2e_test/streaming` of risingwavelabs/risingwave at 448c6570 (Apache License 2.0).
"""

from __future__ import annotations

from tests.outside.cases import Case, View, numbered, shown

CASES = (
    Case(
        "aggregate/basic_agg.slt: first_value, last_value",
        "CREATE TABLE t (id INT PRIMARY KEY, v1 INT, v2 INT);",
        ({"t": numbered((1, 2), (5, None), (4, 0))},),
        {
            "mv": shown(
                """SELECT FIRST_VALUE(v1 ORDER BY v1) AS o1, LAST_VALUE(v1 ORDER BY v1) AS o3,
                LAST_VALUE(v1 ORDER BY v2 ASC NULLS FIRST) AS o4 FROM t""",
                (1, 5, 1),
            )
        },
    ),
    Case(
        "aggregate/array_agg.slt: mv1",
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR, b INT, c INT);",
        (
            {"t": numbered(("aaa", 1, 1), ("bbb", 0, 2), ("ccc", 0, 5), ("ddd", 1, 4))},
            {"t": numbered(("x", 1, 2), ("y", 3, 6), first=5)},
        ),
        {
            "mv1": View(
                "SELECT ARRAY_AGG(c ORDER BY c) AS res FROM t",
                {0: [([1, 2, 4, 5],)], 1: [([1, 2, 2, 4, 5, 6],)]},
            ),
        },
    ),
    Case(
        "aggregate/string_agg.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR, b INT, c INT);",
        (
            {"t": numbered(("a", 1, 2), ("b", 4, 6))},
            {"t": numbered(("c", 2, 2), ("d", 3, 0), (None, 4, 5), first=3)},
            {"t": numbered(("c", 8, 10), ("e", 9, 7), first=6)},
        ),
        {
            "mv1": View("SELECT STRING_AGG(a, ',' ORDER BY a DESC) AS res FROM t", {0: [("b,a",)], 1: [("d,c,b,a",)]}),
            "mv3": View(
                "SELECT STRING_AGG(a, '' ORDER BY b) FILTER (WHERE c <> 0) AS res FROM t", {0: [("ab",)], 1: [("acb",)]}
            ),
            "mv4": View(
                "SELECT COUNT(a) AS n, COUNT(*) AS rows, COUNT(DISTINCT a) AS different FROM t",
                {1: [(4, 5, 4)], 2: [(6, 7, 5)]},
            ),
        },
    ),
    Case(
        "aggregate/ordered_set_agg.slt: percentiles",
        "CREATE TABLE t (id INT PRIMARY KEY, a DOUBLE);",
        (
            {"t": numbered((1.0,), (3.0,), (5.0,), (7.0,))},
            {"t": numbered((9.0,), (11.0,), first=5)},
            {"t": [(1,)]},
            {"t": numbered((None,), (None,), first=7)},
        ),
        {
            "mv_percentile": View(
                """SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a) AS cont,
                PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a) AS disc FROM t""",
                {0: [(4, 3)], 1: [(6, 5)], 2: [(7, 7)], 3: [(7, 7)]},
            ),
            "mv_percentile_25": shown("SELECT PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY a) AS cont FROM t", (2.5,)),
        },
    ),
    Case(
        "aggregate/ordered_set_agg.slt: percentiles of groups",
        "CREATE TABLE t (id INT PRIMARY KEY, g INT, a DOUBLE);",
        (
            {"t": numbered((1, 1.0), (1, 3.0), (1, 5.0), (1, 7.0), (2, 10.0), (2, 20.0), (2, 30.0))},
            {"t": [(8, 1, 9.0)]},
            {"t": [(9, 2, 40.0)]},
        ),
        {
            "mv_grouped_percentile": View(
                """SELECT g, PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY a) AS cont,
                PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY a) AS disc FROM t GROUP BY g""",
                {
                    0: [(1, 4, 3), (2, 20, 20)],
                    1: [(1, 5, 5), (2, 20, 20)],
                    2: [(1, 5, 5), (2, 25, 20)],
                },
            )
        },
    ),
    Case(
        "aggregate/ordered_set_agg.slt: mode",
        "CREATE TABLE t (id INT PRIMARY KEY, g INT, v INT); CREATE TABLE texts (id INT PRIMARY KEY, v VARCHAR);",
        (
            {
                "t": numbered((1, 10), (1, 20), (1, 20), (1, 30), (1, 30), (1, 30), (2, 100), (2, 200), (2, 200)),
                "texts": numbered(*[(each,) for each in "abbccdddc"]),
            },
            {"t": numbered((1, 10), (1, 10), (1, 10), first=10)},
        ),
        {
            "mv_mode_grouped": View(
                "SELECT g, MODE() WITHIN GROUP (ORDER BY v) AS most FROM t GROUP BY g",
                {0: [(1, 30), (2, 200)], 1: [(1, 10), (2, 200)]},
            ),
            "mv_mode_text": shown("SELECT MODE() WITHIN GROUP (ORDER BY v) AS most FROM texts", ("c",)),
        },
    ),
)
