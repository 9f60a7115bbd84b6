"""Subqueries of RisingWave's suite: `e2e_test/batch/subquery` of risingwavelabs/risingwave at 448c6570 (Apache License
2.0), as views."""

from __future__ import annotations

from tests.outside.cases import Case, numbered, shown

_ROWS = ((2, 2), (1, None), (None, 2), (2, None), (None, 1), (None, None))
_THREE = """CREATE TABLE t1 (id INT PRIMARY KEY, x INT, y INT); CREATE TABLE t2 (id INT PRIMARY KEY, x INT, y INT);
CREATE TABLE t3 (id INT PRIMARY KEY, x INT, y INT);"""
_STEP = {"t1": numbered((1, 1), *_ROWS), "t2": numbered((1, 2), *_ROWS), "t3": numbered((1, 2), *_ROWS)}

CASES = (
    Case(
        "subquery/subquery.slt.part: exists, in",
        _THREE,
        (_STEP,),
        {
            "another_y": shown(
                "SELECT x, y FROM t1 WHERE EXISTS (SELECT 1 FROM t2 WHERE t1.x = t2.x AND t1.y <> t2.y)", (1, 1)
            ),
            "no_other_y": shown(
                "SELECT x, y FROM t1 WHERE NOT EXISTS (SELECT 1 FROM t2 WHERE t1.x = t2.x AND t1.y <> t2.y)",
                *[(1, None), (2, 2), (2, None), (None, 1), (None, 2), (None, None)],
            ),
            "y_in_both": shown(
                """SELECT x, y FROM t1 WHERE EXISTS (
                SELECT 1 FROM t2 JOIN t3 ON t2.x = t3.x WHERE t1.y = t2.y AND t1.y = t3.y)""",
                *[(2, 2), (None, 2)],
            ),
            "y_of_a_query": shown(
                """SELECT x, y FROM t1 WHERE y IN (SELECT t2.y FROM t2 JOIN t3 ON t2.x = t3.x)""",
                *[(2, 2), (None, 2)],
            ),
        },
    ),
    Case(
        "subquery/subquery.slt.part: except (b, d); exists over a join",
        _THREE,
        (_STEP,),
        {
            "without_columns": shown(
                """SELECT * EXCEPT (b, d) FROM (
                SELECT t1.x AS a, t1.y AS b, t2.x AS c, t2.y AS d FROM t1 JOIN t2 ON t1.x = t2.x WHERE t1.x = 1) r""",
                *[(1, 1)] * 4,
            ),
            "there_in_t3": shown(
                """SELECT t1.x AS x, t2.y AS y FROM t1 JOIN t2 ON t1.y = t2.y
                WHERE EXISTS (SELECT 1 FROM t3 WHERE t1.x = t3.x AND t2.y = t3.y)""",
                *[(2, 2)] * 3,
            ),
        },
    ),
    Case(
        "subquery/subquery.slt.part: a sum that decides",
        "CREATE TABLE t1 (id INT PRIMARY KEY, x INT, y INT); CREATE TABLE t2 (id INT PRIMARY KEY, x INT);",
        ({"t1": numbered((1, 1), (1, 2)), "t2": numbered((1,), (1,))},),
        {"v": shown("SELECT x, y FROM t1 WHERE y = (SELECT SUM(t2.x) FROM t2)", (1, 2))},
    ),
)
