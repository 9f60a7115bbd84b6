"""Window functions of RisingWave's suite: `e2e_test/over_window/generated/streaming` of risingwavelabs/risingwave at
448c6570 (Apache License 2.0)."""

from __future__ import annotations

from decimal import Decimal

from tests.outside.cases import Case, View, moment, shown

_T = "CREATE TABLE t (id INT PRIMARY KEY, p1 INT, p2 INT, at INT, v1 INT, v2 INT);"
_STEPS = (
    {
        "t": [
            (100001, 100, 200, 1, 701, 805),
            (100002, 100, 200, 2, 700, 806),
            (100003, 100, 208, 2, 723, 807),
            (100004, 103, 200, 2, 702, 808),
        ]
    },
    {"t": [(100005, 100, 200, 3, 717, 810), (100006, 105, 204, 5, 703, 828)]},
    {"t": [(100002, 100, 200, 2, 799, 806), (100003, 100, 200, 2, 723, 807), (100005, 100, 200, 1, 717, 810)]},
    {"t": [(100002,), (100003,), (100004,)]},
)

CASES = (
    Case(
        "over_window/basic: v_a, v_b, v_c, v_d",
        _T,
        _STEPS,
        {
            "v_a": View(
                """SELECT id, FIRST_VALUE(v1) OVER (
                PARTITION BY p1, p2 ORDER BY at, id ROWS BETWEEN 3 PRECEDING AND CURRENT ROW) AS out1 FROM t""",
                {
                    0: [(100001, 701), (100002, 701), (100003, 723), (100004, 702)],
                    2: [(100001, 701), (100002, 701), (100003, 701), (100004, 702), (100005, 701), (100006, 703)],
                    3: [(100001, 701), (100005, 701), (100006, 703)],
                },
            ),
            "v_b": View(
                """SELECT id, SUM(v1) OVER (
                PARTITION BY p1, p2 ORDER BY at, id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS out3,
                MIN(v1) OVER (
                PARTITION BY p1, p2 ORDER BY at, id ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING) AS out4 FROM t""",
                {
                    1: [
                        *[(100001, 701, 700), (100002, 1401, 700), (100003, 723, 723), (100004, 702, 702)],
                        *[(100005, 2118, 717), (100006, 703, 703)],
                    ],
                    2: [
                        *[(100001, 701, 701), (100002, 2217, 723), (100003, 2940, 723), (100004, 702, 702)],
                        *[(100005, 1418, 717), (100006, 703, 703)],
                    ],
                    3: [(100001, 701, 701), (100005, 1418, 717), (100006, 703, 703)],
                },
            ),
            "v_b_average": View(
                "SELECT id, AVG(v1) OVER (PARTITION BY p1) AS out2 FROM t",
                {
                    1: [
                        *[(100001, Decimal("710.25")), (100002, Decimal("710.25")), (100003, Decimal("710.25"))],
                        *[(100004, 702), (100005, Decimal("710.25")), (100006, 703)],
                    ],
                    3: [(100001, 709), (100005, 709), (100006, 703)],
                },
            ),
            "v_c": View(
                """SELECT id, LAG(v1) OVER (PARTITION BY p1, p2 ORDER BY at, id) AS out7,
                LEAD(v2, 1) OVER (PARTITION BY p1, p2 ORDER BY at, id) AS out8,
                LEAD(v2, 2) OVER (PARTITION BY p1, p2 ORDER BY v1, v2) AS out9 FROM t""",
                {
                    2: [
                        *[(100001, None, 810, 807), (100002, 717, 807, None), (100003, 799, None, None)],
                        *[(100004, None, None, None), (100005, 701, 806, 806), (100006, None, None, None)],
                    ],
                    3: [(100001, None, 810, None), (100005, 701, None, None), (100006, None, None, None)],
                },
            ),
            "v_d": View(
                """SELECT id, SUM(v1) OVER (
                PARTITION BY p1 ORDER BY at RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS out11 FROM t""",
                {
                    1: [
                        *[(100001, 2124), (100002, 2841), (100003, 2841), (100004, 702)],
                        *[(100005, 2140), (100006, 703)],
                    ],
                    3: [(100001, 1418), (100005, 1418), (100006, 703)],
                },
            ),
        },
    ),
    Case(
        "over_window/basic: out10",
        _T,
        _STEPS,
        {
            "v_d10": View(
                """SELECT id, LAST_VALUE(at) OVER (
                PARTITION BY p1 ORDER BY at DESC RANGE BETWEEN CURRENT ROW AND 2 FOLLOWING) AS out10 FROM t""",
                {
                    0: [(100001, 1), (100002, 1), (100003, 1), (100004, 2)],
                    1: [(100001, 1), (100002, 1), (100003, 1), (100004, 2), (100005, 1), (100006, 5)],
                    3: [(100001, 1), (100005, 1), (100006, 5)],
                },
            )
        },
    ),
    Case(
        "over_window/ignore_nulls",
        "CREATE TABLE t (ts INT PRIMARY KEY, val INT);",
        ({"t": [(42, 3), (60, 2), (75, None)]}, {"t": [(180, None), (720, 7)]}),
        {
            "v": View(
                """SELECT ts, FIRST_VALUE(val) OVER (PARTITION BY 1::INT ORDER BY ts) AS first,
                FIRST_VALUE(val IGNORE NULLS) OVER (PARTITION BY 1::INT ORDER BY ts) AS first_non_null,
                FIRST_VALUE(val IGNORE NULLS) OVER (
                PARTITION BY 1::INT ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS first_non_null_2,
                LAST_VALUE(val) OVER (PARTITION BY 1::INT ORDER BY ts) AS last,
                LAST_VALUE(val IGNORE NULLS) OVER (PARTITION BY 1::INT ORDER BY ts) AS last_non_null,
                LAST_VALUE(val IGNORE NULLS) OVER (
                PARTITION BY 1::INT ORDER BY ts ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS last_non_null_2 FROM t""",
                {
                    0: [(42, 3, 3, 3, 3, 3, 2), (60, 3, 3, 3, 2, 2, 2), (75, 3, 3, 2, None, 2, 2)],
                    1: [
                        *[(42, 3, 3, 3, 3, 3, 2), (60, 3, 3, 3, 2, 2, 2), (75, 3, 3, 2, None, 2, 2)],
                        *[(180, 3, 3, 7, None, 2, 7), (720, 3, 3, 7, 7, 7, 7)],
                    ],
                },
            )
        },
    ),
    Case(
        "over_window/rank_func",
        "CREATE TABLE t (id INT PRIMARY KEY, score INT);",
        (
            {"t": [(10001, 95), (10002, 90), (10003, 80), (10004, 95), (10005, 90), (10006, 90), (10007, 96)]},
            {"t": [(10001, 96), (10006,)]},
        ),
        {
            "v": View(
                """SELECT id, score, ROW_NUMBER() OVER (ORDER BY score DESC, id) AS r1,
                RANK() OVER (ORDER BY score DESC) AS r2, DENSE_RANK() OVER (ORDER BY score DESC) AS r3 FROM t""",
                {
                    0: [
                        *[(10001, 95, 2, 2, 2), (10002, 90, 4, 4, 3), (10003, 80, 7, 7, 4), (10004, 95, 3, 2, 2)],
                        *[(10005, 90, 5, 4, 3), (10006, 90, 6, 4, 3), (10007, 96, 1, 1, 1)],
                    ],
                    1: [
                        *[(10001, 96, 1, 1, 1), (10002, 90, 4, 4, 3), (10003, 80, 6, 6, 4), (10004, 95, 3, 3, 2)],
                        *[(10005, 90, 5, 4, 3), (10007, 96, 2, 1, 1)],
                    ],
                },
            )
        },
    ),
    Case(
        "over_window/with_filter",
        "CREATE TABLE t (id INT PRIMARY KEY, cat VARCHAR, rule VARCHAR, at TIMESTAMP);",
        ({"t": [(1, "foo", "A", moment("2023-11-23T12:00:42")), (2, "foo", "B", moment("2023-11-23T12:01:15"))]},),
        {
            "v1": shown(
                "SELECT rule, LAG(rule) OVER (PARTITION BY cat ORDER BY at) AS prev FROM t WHERE rule = 'B'",
                ("B", None),
            ),
            "v2": shown(
                """SELECT rule, prev FROM (SELECT rule, LAG(rule) OVER (PARTITION BY cat ORDER BY at) AS prev FROM t) r
                WHERE rule = 'B'""",
                ("B", "A"),
            ),
        },
    ),
)
