"""Joins of RisingWave's suite: `e2e_test/streaming` of risingwavelabs/risingwave at 448c6570 (Apache License 2.0)."""

from __future__ import annotations

from tests.outside.cases import Case, View, numbered, shown

_THREE = "(id INT PRIMARY KEY, v1 INT, v2 INT, v3 INT)"
_SIDES = "l.v1, l.v2, l.v3, r.v1 AS v10, r.v2 AS v20, r.v3 AS v30"
_LEFT = numbered((1, 4, 2), (2, 3, 3))

CASES = (
    Case(
        "outer_join.slt",
        "CREATE TABLE t1 (id INT PRIMARY KEY, b INT); CREATE TABLE t2 (id INT PRIMARY KEY, b INT);",
        ({"t1": [(1, 1)]}, {"t2": [(1, 1)]}, {"t2": [(1,)]}, {"t1": [(1,)]}),
        {
            "v": View(
                "SELECT t1.id AS t1_id, t2.id AS t2_id FROM t1 LEFT JOIN t2 ON t1.id = t2.id",
                {0: [(1, None)], 1: [(1, 1)], 2: [(1, None)], 3: []},
            )
        },
    ),
    Case(
        "join/join.slt.part: mv1 to mv3, mv_full_outer_cond",
        f"CREATE TABLE l {_THREE}; CREATE TABLE r {_THREE}; CREATE TABLE empty_one {_THREE};",
        ({"l": _LEFT, "r": numbered((1, 3, 5), (2, 4, 6)), "empty_one": [(9, 0, 0, 0)]}, {"empty_one": [(9,)]}),
        {
            "mv1": shown(f"SELECT {_SIDES} FROM l JOIN r ON l.v1 = r.v1", (1, 4, 2, 1, 3, 5), (2, 3, 3, 2, 4, 6)),
            "mv2": shown(
                f"SELECT {_SIDES} FROM l LEFT JOIN empty_one r ON l.v1 = r.v1",
                (1, 4, 2, None, None, None),
                (2, 3, 3, None, None, None),
                after=1,
            ),
            "mv3": shown(
                f"SELECT {_SIDES} FROM empty_one l RIGHT JOIN r ON l.v1 = r.v1",
                (None, None, None, 1, 3, 5),
                (None, None, None, 2, 4, 6),
                after=1,
            ),
            "mv_full_outer_cond": shown(
                f"SELECT {_SIDES} FROM l FULL JOIN r ON l.v1 = r.v1 AND l.v2 > r.v2",
                (1, 4, 2, 1, 3, 5),
                (2, 3, 3, None, None, None),
                (None, None, None, 2, 4, 6),
            ),
        },
    ),
    Case(
        "join/join.slt.part: mv4",
        f"CREATE TABLE l {_THREE}; CREATE TABLE r {_THREE};",
        ({"l": _LEFT, "r": numbered((3, 3, 5), (4, 4, 6))},),
        {
            "mv4": shown(
                f"SELECT {_SIDES} FROM l FULL JOIN r ON l.v1 = r.v1",
                (1, 4, 2, None, None, None),
                (2, 3, 3, None, None, None),
                (None, None, None, 3, 3, 5),
                (None, None, None, 4, 4, 6),
            )
        },
    ),
    Case(
        "join/join.slt.part: a condition over both sides' columns in one text",
        """CREATE TABLE t1 (id INT PRIMARY KEY, uid INT, item_id INT, event VARCHAR, name VARCHAR);
        CREATE TABLE t2 (id INT PRIMARY KEY, uid INT, name VARCHAR);""",
        (
            {
                "t1": numbered((0, 0, "event_0_0", "a"), (1, None, "event_1", "b"), (2, 3, "event_2_1", "c")),
                "t2": numbered((0, "a"), (1, "b"), (2, "c")),
            },
        ),
        {
            "v": shown(
                """SELECT t1.event, t1.name FROM t1 JOIN t2 ON t1.name = t2.name
                AND t1.event = 'event_' || CONCAT_WS('_', CAST(t2.uid AS VARCHAR), CAST(t1.item_id AS VARCHAR))""",
                ("event_0_0", "a"),
                ("event_1", "b"),
            )
        },
    ),
    Case(
        "join/join-3way.slt.part",
        """CREATE TABLE t1 (id INT PRIMARY KEY, v1 INT); CREATE TABLE t2 (id INT PRIMARY KEY, v3 INT);
        CREATE TABLE t3 (id INT PRIMARY KEY, v5 INT);""",
        ({name: numbered((0,), (1,), (2,), (3,)) for name in ("t1", "t2", "t3")},),
        {
            "mv1": shown(
                "SELECT v1, v3, v5 FROM t1, t2, t3 WHERE t1.v1 = t2.v3 AND t1.v1 = t3.v5",
                *[(n, n, n) for n in range(4)],
            )
        },
    ),
    Case(
        "join/full_outer_join_global_agg.slt.part",
        "CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, amount INT);",
        ({"t": [(1, "k", 100), (2, "k", 200)]},),
        {
            "t1_v": shown("SELECT SUM(amount) AS amount, MAX(k) AS k FROM t WHERE id = 1", (100, "k")),
            "t2_v": shown("SELECT SUM(amount) AS amount, MAX(k) AS k FROM t WHERE id = 2", (200, "k")),
            "t_stat": shown(
                """SELECT COALESCE(a.k, b.k) AS k, COALESCE(a.amount, 0) AS amount_1, COALESCE(b.amount, 0) AS amount_2
                FROM t1_v a FULL JOIN t2_v b ON a.k = b.k""",
                ("k", 100, 200),
            ),
        },
    ),
    Case(
        "natural_and_cross_join.slt",
        """CREATE TABLE employees (id INT PRIMARY KEY, employee_name VARCHAR, department_id INT);
        CREATE TABLE departments (department_id INT PRIMARY KEY, department_name VARCHAR);""",
        (
            {
                "employees": [(1, "Alice", 1), (2, "Bob", 2), (3, "Charlie", 1)],
                "departments": [(1, "Engineering"), (2, "HR")],
            },
        ),
        {
            "employee_department_natural_join": shown(
                "SELECT e.employee_name, d.department_name FROM employees e JOIN departments d USING (department_id)",
                ("Alice", "Engineering"),
                ("Bob", "HR"),
                ("Charlie", "Engineering"),
            )
        },
    ),
    Case(
        "null_safe_equal_join.slt: unequal types",
        "CREATE TABLE t1 (id INT PRIMARY KEY, v1 INT); CREATE TABLE t2 (id INT PRIMARY KEY, v2 BIGINT);",
        ({"t1": numbered((1,), (None,)), "t2": numbered((1,), (None,))},),
        {"v": shown("SELECT v1, v2 FROM t1 JOIN t2 ON v1 IS NOT DISTINCT FROM v2", (1, 1), (None, None))},
    ),
    Case(
        "dynamic_filter.slt",
        "CREATE TABLE t1 (id INT PRIMARY KEY, v1 INT); CREATE TABLE t2 (id INT PRIMARY KEY, v2 INT);",
        (
            {"t1": numbered((1,), (2,), (3,))},
            {"t2": [(1, 0)]},
            {"t2": [(2, 2)]},
            {"t2": [(2, 1)]},
            {"t2": [(1,), (2,)]},
            {"t2": [(3, 1)]},
        ),
        {
            "mv1": View(
                "WITH top AS (SELECT MAX(v2) AS best FROM t2) SELECT v1 FROM t1, top WHERE v1 > best",
                {0: [], 1: [(1,), (2,), (3,)], 2: [(3,)], 3: [(2,), (3,)], 4: [], 5: [(2,), (3,)]},
            ),
            "mv2": View(
                """WITH top AS (SELECT v2 AS best FROM t2 ORDER BY best DESC LIMIT 1)
                SELECT v1 FROM t1, top WHERE v1 > best""",
                {1: [(1,), (2,), (3,)], 2: [(3,)], 3: [(2,), (3,)], 4: [], 5: [(2,), (3,)]},
            ),
        },
    ),
    Case(
        "mv_on_mv.slt: m1 to m5",
        "CREATE TABLE t1 (id INT PRIMARY KEY, v1 INT, v2 INT);",
        ({"t1": numbered((2, 1), (1, 2), (1, 1))}, {"t1": numbered((3, 1), (1, 3), first=4)}),
        {
            "m1": shown("SELECT v1, v2 FROM t1 WHERE v1 = 1", (1, 1), (1, 2)),
            "m2": shown("SELECT v1, v2 FROM t1 WHERE v2 = 1", (1, 1), (2, 1)),
            "m3": shown("SELECT SUM(v1) AS sum_v1, SUM(v2) AS sum_v2 FROM m1", (2, 3)),
            "m4": View(
                """SELECT m1.v1 AS m1v1, m1.v2 AS m1v2, m2.v1 AS m2v1, m2.v2 AS m2v2
                FROM m1 JOIN m2 ON m1.v1 = m2.v1""",
                {0: [(1, 1, 1, 1), (1, 2, 1, 1)], 1: [(1, 1, 1, 1), (1, 2, 1, 1), (1, 3, 1, 1)]},
            ),
        },
    ),
    Case(
        "bug_fixes/issue_13094.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT);",
        ({"t": [(1, 1)]},),
        {
            "m": shown(
                """WITH sub AS (SELECT MAX(v) AS v1 FROM t)
                SELECT s1.v1 AS sv1, s2.v1 AS sv2 FROM sub AS s1, sub AS s2 WHERE s1.v1 = s2.v1""",
                (1, 1),
            )
        },
    ),
    Case(
        "bug_fixes/mv_on_singleton_mv_4153.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, v INT);",
        ({"t": numbered((666,), (233,), (233,))},),
        {
            "mv": shown("SELECT v FROM t ORDER BY v LIMIT 10", (233,), (233,), (666,)),
            "mvjoin": shown(
                "SELECT mv1.v AS vvvv FROM mv AS mv1, mv AS mv2 WHERE mv1.v = mv2.v",
                *[(233,)] * 4,
                (666,),
            ),
        },
    ),
    Case(
        "bug_fixes/issue_7698.slt",
        "CREATE TABLE t (id INT PRIMARY KEY, src INT, dst INT);",
        ({"t": numbered((1, 2), (2, 1))}, {"t": numbered((2, 3), (3, 1), first=3)}),
        {
            "cycle_3": View(
                """SELECT t1.src AS p1, t1.dst AS p2, t2.dst AS p3 FROM t t1, t t2, t t3
                WHERE t1.dst = t2.src AND t2.src = t3.dst AND t3.dst = t1.src""",
                {0: []},
            )
        },
    ),
)
