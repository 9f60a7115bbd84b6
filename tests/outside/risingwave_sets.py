"""Set operations, grouping sets, top-n and nested values of RisingWave's suite.

`e2e_test/streaming` of risingwavelabs/risingwave at 448c6570 (Apache License 2.0).
"""

from __future__ import annotations

from tests.outside.cases import Case, View, numbered, shown

_TWO = "CREATE TABLE t1 (id INT PRIMARY KEY, v1 INT, v2 INT); CREATE TABLE t2 (id INT PRIMARY KEY, v1 INT, v3 INT);"
_TWICE = numbered((1, 2), (1, 2))
_GONE = [(1,), (2,)]

CASES = (
    Case(
        "except.slt",
        _TWO,
        ({"t1": _TWICE}, {"t2": _TWICE}, {"t1": _GONE}),
        {"v": View("SELECT v1, v2 FROM t1 EXCEPT SELECT v1, v3 FROM t2", {0: [(1, 2)], 1: [], 2: []})},
    ),
    Case(
        "intersect.slt",
        _TWO,
        ({"t1": _TWICE}, {"t2": _TWICE}, {"t1": _GONE}),
        {"v": View("SELECT v1, v2 FROM t1 INTERSECT SELECT v1, v3 FROM t2", {0: [], 1: [(1, 2)], 2: []})},
    ),
    Case(
        "union.slt",
        """CREATE TABLE t1 (id INT PRIMARY KEY, v1 INT, v2 INT, v4 INT);
        CREATE TABLE t2 (id INT PRIMARY KEY, v1 INT, v3 INT, v4 INT);""",
        ({"t1": [(1, 1, 2, 3)]}, {"t2": [(1, 1, 2, 3)]}, {"t1": [(1,)]}, {"t2": [(1,)]}),
        {
            "v": View(
                "SELECT v1, v2, v4 FROM t1 UNION ALL SELECT v1, v3, v4 FROM t2",
                {0: [(1, 2, 3)], 1: [(1, 2, 3)] * 2, 2: [(1, 2, 3)], 3: []},
            ),
            "v2": View(
                "SELECT v1, v2, v4 FROM t1 UNION SELECT v1, v3, v4 FROM t2",
                {0: [(1, 2, 3)], 1: [(1, 2, 3)], 2: [(1, 2, 3)], 3: []},
            ),
            "v3": View(
                "SELECT v1, v2, v4 FROM t1 UNION ALL CORRESPONDING SELECT v1, v3, v4 FROM t2",
                {0: [(1, 3)], 1: [(1, 3)] * 2, 2: [(1, 3)], 3: []},
            ),
            "v4": View(
                "SELECT v1, v2, v4 FROM t1 UNION CORRESPONDING BY (v4, v1) SELECT v1, v3, v4 FROM t2",
                {0: [(3, 1)], 1: [(3, 1)], 2: [(3, 1)], 3: []},
            ),
        },
    ),
    Case(
        "distinct_on.slt",
        "CREATE TABLE t2 (id INT PRIMARY KEY, k INT, v INT);",
        ({"t2": numbered((1, 11), (2, 22), (3, 33), (1, 111))}, {"t2": [(1,)]}),
        {
            "mv2": View(
                "SELECT DISTINCT ON (k) k + v AS total FROM t2 ORDER BY k, v",
                {0: [(12,), (24,), (36,)], 1: [(112,), (24,), (36,)]},
            )
        },
    ),
    Case(
        "grouping_sets/{rollup,cube,grouping_sets}.slt",
        "CREATE TABLE items_sold (id INT PRIMARY KEY, brand VARCHAR, size VARCHAR, sales INT);",
        ({"items_sold": numbered(("Foo", "L", 10), ("Foo", "M", 20), ("Bar", "M", 15), ("Bar", "L", 5))},),
        {
            "rollup_v": shown(
                "SELECT brand, size, SUM(sales) AS total FROM items_sold GROUP BY ROLLUP (brand, size)",
                *[("Bar", "L", 5), ("Bar", "M", 15), ("Bar", None, 20), ("Foo", "L", 10), ("Foo", "M", 20)],
                *[("Foo", None, 30), (None, None, 50)],
            ),
            "grouping_v": shown(
                """SELECT brand, size, GROUPING(brand) AS b, GROUPING(size) AS s, GROUPING(brand, size) AS bs,
                SUM(sales) AS total FROM items_sold GROUP BY GROUPING SETS ((brand), (size), ())""",
                *[("Bar", None, 0, 1, 1, 20), ("Foo", None, 0, 1, 1, 30), (None, "L", 1, 0, 2, 15)],
                *[(None, "M", 1, 0, 2, 35), (None, None, 1, 1, 3, 50)],
            ),
            "cube_v": shown(
                "SELECT brand, size, SUM(sales) AS total FROM items_sold GROUP BY CUBE (brand, size)",
                *[("Bar", "L", 5), ("Bar", "M", 15), ("Bar", None, 20), ("Foo", "L", 10), ("Foo", "M", 20)],
                *[("Foo", None, 30), (None, "L", 15), (None, "M", 35), (None, None, 50)],
            ),
            "sets_v": shown(
                """SELECT brand, size, SUM(sales) AS total, COUNT(DISTINCT sales) AS different
                FROM items_sold GROUP BY GROUPING SETS ((brand), (size), ())""",
                *[("Bar", None, 20, 2), ("Foo", None, 30, 2), (None, "L", 15, 2), (None, "M", 35, 2)],
                (None, None, 50, 4),
            ),
        },
    ),
    Case(
        "group_top_n/main.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, x INT, y INT);",
        ({"t": numbered(*[(x, y) for x in (1, 2, 3) for y in (1, 2, 3, 4, 5)], (1, 3), (2, 3), (3, 3))},),
        {
            "mv": shown(
                """SELECT x, y FROM (SELECT x, y, ROW_NUMBER() OVER (PARTITION BY x ORDER BY y) AS nth FROM t) r
                WHERE nth <= 3""",
                *[(x, y) for x in (1, 2, 3) for y in (1, 2, 3)],
            ),
            "mv_with_expr_in_window": shown(
                """SELECT x, y FROM (
                SELECT x, y, ROW_NUMBER() OVER (PARTITION BY x / 2 ORDER BY 6 - y, x) AS nth FROM t) r
                WHERE nth <= 3""",
                *[(1, 3), (1, 4), (1, 5), (2, 4), (2, 5), (3, 5)],
            ),
            "mv_with_lb": shown(
                """SELECT x, y FROM (SELECT x, y, ROW_NUMBER() OVER (PARTITION BY x ORDER BY y) AS nth FROM t) r
                WHERE nth <= 3 AND nth > 1""",
                *[(x, y) for x in (1, 2, 3) for y in (2, 3)],
            ),
            "mv_rank_no_group": shown(
                "SELECT x, y FROM (SELECT x, y, RANK() OVER (ORDER BY y) AS nth FROM t) r WHERE nth <= 4",
                *[(x, y) for x in (1, 2, 3) for y in (1, 2)],
            ),
            "mv_rank": shown(
                """SELECT x, y FROM (SELECT x, y, RANK() OVER (PARTITION BY x ORDER BY y) AS nth FROM t) r
                WHERE nth <= 3""",
                *[(x, y) for x in (1, 2, 3) for y in (1, 2, 3, 3)],
            ),
        },
    ),
    Case(
        "group_top_n/group_top_1.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, a INT, b INT, c INT);",
        ({"t": [(1, 1, 1, 1)]}, {"t": [(2, 1, 0, 1)]}, {"t": [(3, 1, 0, 1)]}),
        {
            "mv": View(
                """SELECT a, b, c, nth FROM (
                SELECT a, b, c, ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) AS nth FROM t) r WHERE nth <= 1""",
                {0: [(1, 1, 1, 1)], 1: [(1, 0, 1, 1)], 2: [(1, 0, 1, 1)]},
            )
        },
    ),
    Case(
        "order_by.slt",
        "CREATE TABLE t1 (id INT PRIMARY KEY, v1 INT, v2 INT, v3 INT);",
        ({"t1": numbered((1, 1, 4), (5, 1, 4), (1, 9, 1), (9, 8, 1), (0, 2, 3))}, {"t1": [(6, None, 0, 0)]}),
        {
            "mv2": shown("SELECT v1, v2, v3 FROM t1 ORDER BY v1 LIMIT 3", (0, 2, 3), (1, 1, 4), (1, 9, 1)),
            "mv3": shown("SELECT v1, v2, v3 FROM t1 ORDER BY v1 LIMIT 3 OFFSET 1", (1, 1, 4), (1, 9, 1), (5, 1, 4)),
            "mv5": shown("SELECT v1, v2, v3 FROM t1 ORDER BY v1 NULLS FIRST LIMIT 1", (None, 0, 0), after=1),
            "mv6": shown("SELECT v1, v2, v3 FROM t1 ORDER BY v1 NULLS LAST LIMIT 1", (0, 2, 3), after=1),
            "mv7": shown("SELECT v1, v2, v3 FROM t1 ORDER BY v1 DESC NULLS LAST LIMIT 1", (9, 8, 1), after=1),
        },
    ),
    Case(
        "bug_fixes/issue_8570.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, x INT);",
        (
            {"t": [(n, n) for n in (1, 2, 3, 4)]},
            {"t": [(2,)]},
            {"t": [(5, 5), (1,)]},
            {"t": [(6, 6), (3,)]},
            {"t": [(4,), (7, 1)]},
        ),
        {
            "t_singleton": View("SELECT x FROM t ORDER BY x LIMIT 100", {}),
            "mv": View("SELECT x FROM t_singleton ORDER BY x LIMIT 1", {3: [(4,)], 4: [(1,)]}),
        },
    ),
    Case(
        "bug_fixes/limit_topn_tie_breaker.slt",
        "CREATE TABLE t (pk INT PRIMARY KEY, v INT);",
        ({"t": [(2, 1), (1, 1), (3, 1), (4, 2)]}, {"t": [(0, 1)]}, {"t": [(0,)]}),
        {
            "mv": View(
                "SELECT v, pk FROM t ORDER BY v LIMIT 2",
                {0: [(1, 1), (1, 2)], 1: [(1, 0), (1, 1)], 2: [(1, 1), (1, 2)]},
            )
        },
    ),
    Case(
        "project_set.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, x ARRAY<INT>);",
        ({"t": numbered(([1, 2],), ([1, None],), ([3, 4, 5],), (None,))}, {"t": [(1, [7])]}),
        {
            "mv": View(
                "SELECT EXPLODE(x) AS element, x FROM t",
                {
                    0: [
                        *[(1, [1, 2]), (2, [1, 2]), (1, [1, None]), (None, [1, None])],
                        *[(3, [3, 4, 5]), (4, [3, 4, 5]), (5, [3, 4, 5])],
                    ]
                },
            )
        },
    ),
    Case(
        "struct_table.slt",
        "CREATE TABLE st (id INT PRIMARY KEY, v1 INT, v2 STRUCT<v1 INT, v2 STRUCT<v1 INT, v2 INT>>);",
        (
            {
                "st": numbered(
                    (1, {"v1": 1, "v2": {"v1": 1, "v2": 2}}),
                    (1, {"v1": 1, "v2": {"v1": 1, "v2": 3}}),
                )
            },
        ),
        {"mv1": shown("SELECT v2->v2 AS inner FROM st", ({"v1": 1, "v2": 2},), ({"v1": 1, "v2": 3},))},
    ),
)
