"""Queries by their names, each with the same in DuckDB's words."""

from __future__ import annotations

from dataclasses import replace

from strandline.jobs.model import types as t
from strandline.jobs.query.logical import From, TimeWindow
from tests.support.plan_bench import block, call, e, out
from tests.unit.ivm.plan.queries_by_hand import (
    GROUPED,
    MILLIS,
    Case,
    exploded,
    grouped,
    groups,
    joined,
    names,
    rollup,
    set_of,
    top,
    window,
)

CASES = {
    "filter of a stream": Case(
        lambda of: block([From("v", of("visit"))], [out("d", "v.length + 1", t.INT)], "v.length > 1"),
        "SELECT length + 1 FROM visit WHERE length > 1",
    ),
    "filter of a table": Case(
        lambda of: block([From("i", of("info"))], [out("p", "i.price", t.INT)], "i.price > 1"),
        "SELECT price FROM info WHERE price > 1",
    ),
    **{f"{kind} join of stream and table": joined(kind) for kind in ("inner", "left", "right", "full", "semi", "anti")},
    **{f"{kind} join of tables": joined(kind, "info", "stock") for kind in ("inner", "left", "right", "full")},
    **{f"{kind} join of streams": joined(kind, "visit", "click") for kind in ("inner", "left", "full")},
    "three inputs": Case(
        lambda of: block(
            [
                From("visit", of("visit")),
                From("info", of("info"), "left", e("info.product = visit.product")),
                From("stock", of("stock"), "inner", e("stock.category = info.category")),
            ],
            [out("l", "visit.length", t.INT), out("a", "stock.amount", t.INT)],
        ),
        "SELECT length, amount FROM visit LEFT JOIN info ON info.product = visit.product"
        " JOIN stock ON stock.category = info.category",
    ),
    "group over a join": Case(grouped, GROUPED),
    "having": Case(lambda of: grouped(of, having=e("__a1 > 1")), f"{GROUPED} HAVING COUNT(*) > 1"),
    "distinct": Case(
        lambda of: block([From("i", of("info"))], [out("c", "i.category", t.VARCHAR)], distinct=True),
        "SELECT DISTINCT category FROM info",
    ),
    "distinct over groups": Case(
        lambda of: replace(grouped(of), outputs=(out("c", "__a1", t.BIGINT),), distinct=True),
        "SELECT DISTINCT COUNT(*) FROM visit JOIN info ON visit.product = info.product GROUP BY info.category",
    ),
    "global": Case(
        lambda of: block([From("i", of("info"))], [out("c", "__a0", t.BIGINT)], group=(),
                         calls=(call("__a0", "COUNT"),)),
        "SELECT COUNT(*) FROM info",
    ),
    "global having": Case(
        lambda of: block([From("i", of("info"))], [out("c", "__a0", t.BIGINT)], group=(), having=e("__a0 > 1"),
                         calls=(call("__a0", "COUNT"),)),
        "SELECT COUNT(*) FROM info HAVING COUNT(*) > 1",
    ),
    "tumbling": Case(
        lambda of: window(of, TimeWindow("tumbling", 10_000, 10_000, None)),
        f"SELECT product, {MILLIS} // 10000 * 10000 AS w, COUNT(*) FROM visit GROUP BY product, w",
    ),
    "tumbling with grace": Case(
        lambda of: window(of, TimeWindow("tumbling", 10_000, 10_000, 5_000)),
        f"SELECT product, {MILLIS} // 10000 * 10000 AS w, COUNT(*) FROM visit"
        " WHERE w + 15000 > epoch_ms(_stream_time) GROUP BY product, w",
    ),
    "hopping": Case(
        lambda of: window(of, TimeWindow("hopping", 10_000, 4_000, 5_000)),
        f"SELECT product, w, COUNT(*) FROM (SELECT *, unnest([{MILLIS} // 4000 * 4000 - 4000 * i"
        f" FOR i IN range(3)]) AS w FROM visit) AS visit"
        f" WHERE w + 10000 > {MILLIS} AND w + 15000 > epoch_ms(_stream_time) GROUP BY product, w",
    ),
    "tumbling, final": Case(
        lambda of: window(of, TimeWindow("tumbling", 10_000, 10_000, 5_000, final=True)),
        f"SELECT product, {MILLIS} // 10000 * 10000 AS w, COUNT(*) FROM visit"
        " WHERE w + 15000 > epoch_ms(_stream_time) GROUP BY product, w"
        " HAVING w + 15000 <= (SELECT MAX(epoch_ms(_stream_time)) FROM visit)",
    ),
    "grouping sets": Case(
        rollup,
        "SELECT category, price, COUNT(*) FROM info GROUP BY GROUPING SETS ((category, price), (category), (price))",
    ),
    "explode": Case(exploded, "SELECT unnest([price, price + 1]) FROM info WHERE price > 1"),
    "top k": Case(
        top,
        "SELECT ROW_NUMBER() OVER (PARTITION BY category ORDER BY price DESC NULLS LAST, product) AS place, price"
        " FROM info QUALIFY place <= 2",
    ),
    "union all of streams": Case(
        lambda of: set_of("union all", names(of, "visit"), names(of, "click", "click.n > 1")),
        "SELECT product FROM visit UNION ALL SELECT product FROM click WHERE n > 1",
    ),
    "union all of a stream, tables and a join": Case(
        lambda of: set_of("union all", names(of, "visit"), names(of, "info"), names(of, "info", "info.price > 1"),
                          names(of, "stock")),
        "SELECT product FROM visit UNION ALL SELECT product FROM info"
        " UNION ALL SELECT product FROM info WHERE price > 1 UNION ALL SELECT item FROM stock",
    ),
    "union": Case(
        lambda of: set_of("union", names(of, "visit"), names(of, "info")),
        "SELECT product FROM visit UNION SELECT product FROM info",
    ),
    "intersect": Case(
        lambda of: set_of("intersect", names(of, "visit"), names(of, "info")),
        "SELECT product FROM visit INTERSECT SELECT product FROM info",
    ),
    "except": Case(
        lambda of: set_of("except", names(of, "visit"), names(of, "info", "info.price > 1"), names(of, "click")),
        "SELECT product FROM visit EXCEPT SELECT product FROM info WHERE price > 1 EXCEPT SELECT product FROM click",
    ),
    "group over a union all": Case(
        lambda of: block(
            [From("u", set_of("union all", names(of, "visit"), names(of, "info")))],
            [out("k", "k", t.VARCHAR), out("n", "__a0", t.BIGINT)],
            "u.k <> 'apple'",
            group=(out("k", "u.k", t.VARCHAR),),
            calls=(call("__a0", "COUNT"),),
        ),
        "SELECT k, COUNT(*) FROM (SELECT product AS k FROM visit UNION ALL SELECT product FROM info)"
        " WHERE k <> 'apple' GROUP BY k",
    ),
    "group over groups": Case(
        lambda of: block(
            [From("q", grouped(of))],
            [out("m", "m", t.INT), out("n", "__a0", t.BIGINT)],
            group=(out("m", "q.m", t.INT),),
            calls=(call("__a0", "COUNT"),),
        ),
        f"SELECT m, COUNT(*) FROM ({GROUPED}) AS q (c, m, n, s) GROUP BY m",
    ),
    "full join of groups, NULL being one": Case(
        lambda of: block(
            [
                From("a", groups(of, "info", "category")),
                From("b", groups(of, "visit", "person"), "full", e("a.k = b.k")),
            ],
            [out("an", "a.n", t.BIGINT), out("bn", "b.n", t.BIGINT)],
        ),
        "SELECT a.n, b.n FROM (SELECT category AS k, COUNT(*) AS n FROM info GROUP BY k) a"
        " FULL JOIN (SELECT person AS k, COUNT(*) AS n FROM visit GROUP BY k) b ON a.k = b.k",
    ),
    "subqueries on both sides": Case(
        lambda of: block(
            [
                From("q", block([From("v", of("visit"))],
                                [out("p", "v.product", t.VARCHAR), out("l", "v.length + 1", t.INT)], "v.length > 1")),
                From("r", block([From("i", of("info"))],
                                [out("p", "i.product", t.VARCHAR), out("x", "i.price", t.INT)], "i.price > 1"),
                     "left", e("q.p = r.p")),
            ],
            [out("l", "q.l * 2", t.INT), out("x", "r.x", t.INT)],
            "q.l > 3",
        ),
        "SELECT (length + 1) * 2, x FROM visit LEFT JOIN (SELECT product AS p, price AS x FROM info WHERE price > 1) r"
        " ON product = p WHERE length > 1 AND length + 1 > 3",
    ),
    "a constant of a padded side": Case(
        lambda of: block(
            [
                From("visit", of("visit")),
                From("r", block([From("i", of("info"))], [out("p", "i.product", t.VARCHAR), out("x", "1", t.INT)]),
                     "left", e("visit.product = r.p")),
            ],
            [out("l", "visit.length", t.INT), out("x", "r.x", t.INT)],
        ),
        "SELECT length, x FROM visit LEFT JOIN (SELECT product AS p, 1 AS x FROM info) r ON product = p",
    ),
}  # fmt: skip
