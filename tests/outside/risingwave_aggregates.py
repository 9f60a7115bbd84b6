"""Aggregates of RisingWave's suite.

`e2e_test/streaming` of risingwavelabs/risingwave at 448c6570 (Apache License 2.0).
"""

from __future__ import annotations

from decimal import Decimal

from tests.outside.cases import Case, View, numbered, shown

_SELECTIVE = "COUNT(x) FILTER (WHERE x < 100) AS n, SUM(y) FILTER (WHERE y < 100) AS s"

CASES = (
    Case(
        "aggregate/basic_agg.slt: mv_sum",
        """CREATE TABLE t (
        id INT PRIMARY KEY, v1 INT, v2 DECIMAL(9, 2), v3 DOUBLE, b BOOLEAN, s VARCHAR, arr ARRAY<INT>);""",
        (
            {"t": [(9, None, None, None, None, None, None)]},
            {"t": [(9,)]},
            {
                "t": numbered(
                    (None, Decimal(2), 3.0, True, "", []),
                    (4, None, 6.0, None, "a", None),
                    (7, Decimal(8), None, False, None, [2]),
                    (10, Decimal(11), 12.0, None, "zz", [3, 2]),
                )
            },
        ),
        {
            "mv_sum": View(
                """SELECT COUNT(*) AS n, COUNT(v1) AS n1, COUNT(v2) AS n2, COUNT(v3) AS n3, COUNT(b) AS nb,
                COUNT(s) AS ns, COUNT(arr) AS na, SUM(v1) AS s1, SUM(v2) AS s2, SUM(v3) AS s3, MIN(v1) AS l1,
                MIN(v2) AS l2, MIN(v3) AS l3, MAX(v1) AS h1, MAX(v2) AS h2, MAX(v3) AS h3 FROM t""",
                {1: [(0,) * 7 + (None,) * 9], 2: [(4, 3, 3, 3, 2, 3, 3, 21, 21, 21, 4, 2, 3, 10, 11, 12)]},
            )
        },
    ),
    Case(
        "aggregate/basic_agg.slt: v, v2",
        "CREATE TABLE t1 (row_id INT PRIMARY KEY, id INT);",
        ({"t1": [(1, 1)]}, {"t1": [(1,)]}, {"t1": [(2, 1)]}),
        {
            "v": View(
                "SELECT COUNT(*) AS cnt, SUM(id) AS total, ARRAY_AGG(id ORDER BY id) AS arr FROM t1",
                # The suite has NULL for the array of no rows; ours is empty, as COLLECT_LIST's is in ksqlDB.
                {1: [(0, None, [])], 2: [(1, 1, [1])]},
            ),
            "v2": View(
                "SELECT COUNT(*) AS cnt, SUM(id) AS total, ARRAY_AGG(id ORDER BY id) AS arr FROM t1 GROUP BY id",
                {1: [], 2: [(1, 1, [1])]},
            ),
        },
    ),
    Case(
        "aggregate/array_agg.slt: mv2",
        "CREATE TABLE t (id INT PRIMARY KEY, a VARCHAR, b INT, c INT);",
        (
            {"t": numbered(("aaa", 1, 1), ("bbb", 0, 2), ("ccc", 0, 5), ("ddd", 1, 4))},
            {"t": [(8, "x", 1, 2), (9, "y", 3, 6)]},
        ),
        {
            "mv2": View(
                "SELECT ARRAY_AGG(a ORDER BY b ASC, a DESC) AS res FROM t",
                {0: [(["ccc", "bbb", "ddd", "aaa"],)], 1: [(["ccc", "bbb", "x", "ddd", "aaa", "y"],)]},
            )
        },
    ),
    Case(
        "aggregate/basic_agg.slt: first_value and last_value",
        "CREATE TABLE t (id INT PRIMARY KEY, v1 INT, v2 INT);",
        ({"t": numbered((1, 2), (5, None), (4, 0))},),
        {
            "mv": View(
                # RisingWave's NULL is greater than any value.
                """SELECT FIRST_VALUE(v1 ORDER BY v1) AS o1, FIRST_VALUE(v1 ORDER BY v2 DESC NULLS FIRST) AS o2,
                LAST_VALUE(v1 ORDER BY v1) AS o3, LAST_VALUE(v1 ORDER BY v2 ASC NULLS FIRST) AS o4 FROM t""",
                {0: [(1, 5, 5, 1)]},
            )
        },
    ),
    Case(
        "aggregate/bit_agg.slt",
        "CREATE TABLE t1 (id INT PRIMARY KEY, v1 SMALLINT, v2 INT, v3 BIGINT);",
        ({"t1": [(n, n, n, n) for n in (1, 10, 38, 41)]}, {"t1": [(1,)]}),
        {
            "agg_mv": View(
                "SELECT BIT_XOR(v1) AS a1, BIT_XOR(v2) AS a2, BIT_XOR(v3) AS a3 FROM t1",
                {0: [(4, 4, 4)], 1: [(5, 5, 5)]},
            )
        },
    ),
    Case(
        "aggregate/boolean.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, v BOOLEAN);",
        ({"t": [(1, True)]}, {"t": [(2, False)]}, {"t": [(1,)]}, {"t": [(2,)]}),
        {
            "mv": View(
                "SELECT BOOL_AND(v) AS every_one, BOOL_OR(v) AS some FROM t",
                {0: [(True, True)], 1: [(False, True)], 2: [(False, False)], 3: [(None, None)]},
            )
        },
    ),
    Case(
        "aggregate/distinct_agg.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, v1 INT, v2 INT, v3 INT);",
        ({"t": numbered((1, 2, 3), (1, 2, 4), (5, 3, 8), (2, 4, 4))},),
        {
            "mv1": shown("SELECT COUNT(DISTINCT v1) AS n FROM t", (3,)),
            "mv2": shown("SELECT v2, COUNT(DISTINCT v1) AS n FROM t GROUP BY v2", (2, 1), (3, 1), (4, 1)),
            "mv3": shown(
                "SELECT v2, COUNT(DISTINCT v1) AS n, MAX(v3) AS h FROM t GROUP BY v2", (2, 1, 4), (3, 1, 8), (4, 1, 4)
            ),
            "mv4": shown(
                "SELECT v1, COUNT(DISTINCT v2) AS n2, COUNT(DISTINCT v3) AS n3, MAX(v2) AS h FROM t GROUP BY v1",
                (1, 1, 2, 2),
                (2, 1, 1, 4),
                (5, 1, 1, 3),
            ),
            "mv5": shown(
                """SELECT v1, COUNT(DISTINCT v2) AS n2, MIN(DISTINCT v2) AS l2, COUNT(DISTINCT v3) AS n3, MAX(v3) AS h3
                FROM t GROUP BY v1""",
                (1, 1, 2, 2, 4),
                (2, 1, 4, 1, 4),
                (5, 1, 3, 1, 8),
            ),
            "mv6": shown(
                """SELECT v1, BIT_OR(DISTINCT v3) AS b, BIT_AND(DISTINCT v3) AS c, LOGICAL_OR(DISTINCT v3 > 3) AS d,
                EVERY(DISTINCT v3 > 3) AS e, MAX_BY(DISTINCT v2, v3) AS f FROM t GROUP BY v1""",
                (1, 7, 0, True, False, 2),
                (2, 4, 4, True, True, 4),
                (5, 8, 8, True, True, 3),
            ),
        },
    ),
    Case(
        "aggregate/selective_agg.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, x INT, y INT);",
        ({"t": numbered((1, 2), (1, 100), (100, 4))},),
        {
            "mv1": shown(f"SELECT {_SELECTIVE} FROM t", (2, 6)),
            "mv2": shown(
                f"SELECT {_SELECTIVE} FROM t GROUP BY x",
                (0, 4),
                (2, 2),
            ),
        },
    ),
    Case(
        "aggregate/two_phase_agg.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, v1 INT, v2 SMALLINT, v3 VARCHAR);",
        (
            {
                "t": numbered(
                    (1, 2, "abc"),
                    (3, 4, "aaaaaaaaaaaaabc"),
                    (1, 2222, "ajhaajaj"),
                    (1, -2, "aj22jj1j1"),
                    (0, 2, "aaaaaaaaaanz"),
                )
            },
        ),
        {
            "m1": shown(
                "SELECT MIN(v3) AS c1, SUM(v1) AS c2 FROM t GROUP BY v1, v3, v2",
                ("aaaaaaaaaaaaabc", 3),
                ("aaaaaaaaaanz", 0),
                ("abc", 1),
                ("aj22jj1j1", 1),
                ("ajhaajaj", 1),
            ),
            "m1_by_v1": shown(
                "SELECT MIN(v3) AS c1, SUM(v1) AS c2, MIN(v1) AS c3 FROM t GROUP BY v1",
                ("aaaaaaaaaaaaabc", 3, 3),
                ("aaaaaaaaaanz", 0, 0),
                ("abc", 3, 1),
            ),
        },
    ),
    Case(
        "extreme_null.slt",
        "CREATE TABLE t4 (id INT PRIMARY KEY, v1 REAL, v2 INT, v3 REAL);",
        ({"t4": numbered((1.0, 1, 4.0), (None, 1, 4.0), (2.0, 9, 1.0), (None, 8, 1.0), (0.0, 2, 3.0))},),
        {
            "mv3": shown(
                "SELECT SUM(v1) AS s, MIN(v1) AS l, MAX(v1) AS h, v3 FROM t4 GROUP BY v3",
                (0, 0, 0, 3),
                (1, 1, 1, 4),
                (2, 2, 2, 1),
            )
        },
    ),
)
