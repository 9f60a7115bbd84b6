"""Plans do what their queries say: after every epoch the view equals the query over all rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import pytest

from jobs.ivm.plan.builder import State
from jobs.ivm.plan.plan import plan_of_query
from jobs.model import types as t
from jobs.model.calls import AnalyticCall
from jobs.model.relation import Relation
from jobs.query.clauses.logical import Block, From, Query, SetOperation, TimeWindow
from state_store.layout import Lake
from tests.plan_bench import Feeder, PlanBench, block, call, e, out, source

VISIT = source("visit", "stream", "product", product=t.VARCHAR, person=t.VARCHAR, length=t.INT)
CLICK = source("click", "stream", "product", product=t.VARCHAR, n=t.INT)
INFO = source("info", "table", "product", product=t.VARCHAR, category=t.VARCHAR, price=t.INT)
STOCK = source("stock", "table", "item", item=t.VARCHAR, category=t.VARCHAR, amount=t.INT)
SOURCES = (VISIT, CLICK, INFO, STOCK)

PRODUCTS = ["apple", "banana", "carrot", "date", None]
VALUES: dict[str, dict[str, Sequence[Any]]] = {
    "visit": {"product": PRODUCTS, "person": ["ann", "bob", None], "length": [1, 5, 20, None]},
    "click": {"product": PRODUCTS, "n": [1, 2, 3]},
    "info": {"product": PRODUCTS[:3], "category": ["fruit", "root", None], "price": [1, 2, 7]},
    "stock": {"item": ["apple", "banana", "date"], "category": ["fruit", "root", None], "amount": [1, 2, 7]},
}
MILLIS = "epoch_ms(visit._timestamp)"


@dataclass(frozen=True)
class Case:
    """A query over the relations of the sources, and the same in DuckDB's words."""

    query: Callable[[Callable[[str], Relation]], Query]
    sql: str


def product_of(name: str) -> str:
    return "item" if name == "stock" else "product"


def joined(kind: str, left: str = "visit", right: str = "info") -> Case:
    on = f"{right}.{product_of(right)} = {left}.{product_of(left)}"
    columns = {"visit": "length", "click": "n", "info": "price", "stock": "amount"}

    def query(of: Callable[[str], Relation]) -> Query:
        inputs = [From(left, of(left)), From(right, of(right), kind, e(on))]  # type: ignore[arg-type]
        outputs = [out("a", f"{left}.{columns[left]}", t.INT)]
        if kind not in ("semi", "anti"):
            outputs.append(out("b", f"{right}.{columns[right]}", t.INT))
        return block(inputs, outputs)

    shown = f"{left}.{columns[left]}" + ("" if kind in ("semi", "anti") else f", {right}.{columns[right]}")
    return Case(query, f"SELECT {shown} FROM {left} {kind.upper()} JOIN {right} ON {on}")


def grouped(of: Callable[[str], Relation], **clauses: Any) -> Block:
    """MAX(length) per category: the state-store article's example, with more calls."""
    join = [From("visit", of("visit")), From("info", of("info"), "inner", e("visit.product = info.product"))]
    calls = (
        call("__a0", "MAX", ("visit.length", t.INT)),
        call("__a1", "COUNT"),
        call("__a2", "SUM", ("visit.length + info.price", t.INT), where="visit.length > 1"),
    )
    outputs = [out("category", "category", t.VARCHAR), out("m", "__a0", t.INT), out("c", "__a1 + 0", t.BIGINT)]
    return block(
        join,
        [*outputs, out("s", "__a2", t.BIGINT)],
        group=(out("category", "info.category", t.VARCHAR),),
        calls=calls,
        **clauses,
    )


GROUPED = (
    "SELECT info.category, MAX(length), COUNT(*), SUM(length + price) FILTER (WHERE length > 1)"
    " FROM visit JOIN info ON visit.product = info.product GROUP BY info.category"
)


def window(of: Callable[[str], Relation], kind: TimeWindow) -> Block:
    return block(
        [From("visit", of("visit"))],
        [out("p", "product", t.VARCHAR), out("ws", "windowstart", t.BIGINT), out("n", "__a0", t.BIGINT)],
        window=kind,
        time=e("visit._timestamp"),
        group=(out("product", "visit.product", t.VARCHAR),),
        calls=(call("__a0", "COUNT"),),
    )


def names(of: Callable[[str], Relation], name: str, where: str | None = None) -> Block:
    column = product_of(name)
    return block([From(name, of(name))], [out("k", f"{name}.{column}", t.VARCHAR)], where)


def groups(of: Callable[[str], Relation], name: str, column: str) -> Block:
    return block(
        [From(name, of(name))],
        [out("k", "k", t.VARCHAR), out("n", "__a0", t.BIGINT)],
        group=(out("k", f"{name}.{column}", t.VARCHAR),),
        calls=(call("__a0", "COUNT"),),
    )


def top(of: Callable[[str], Relation]) -> Block:
    number = AnalyticCall(
        "__w0", "ROW_NUMBER", (), ((e("info.price"), True, False), (e("info.product"), False, False)), t.BIGINT
    )
    inner = block(
        [From("info", of("info"))],
        [out("product", "info.product", t.VARCHAR), out("price", "info.price", t.INT), out("place", "__w0", t.BIGINT)],
        partition=(e("info.category"),),
        analytic=(number,),
    )
    return block(
        [From("q", inner)], [out("place", "q.place", t.BIGINT), out("price", "q.price", t.INT)], "q.place <= 2"
    )


def rollup(of: Callable[[str], Relation]) -> Block:
    return block(
        [From("info", of("info"))],
        [out("c", "c", t.VARCHAR), out("p", "__k0", t.INT), out("n", "__a0", t.BIGINT)],
        group=(out("c", "info.category", t.VARCHAR), out("__k0", "info.price", t.INT)),
        sets=((0, 1), (0,), (1,)),
        calls=(call("__a0", "COUNT"),),
    )


def exploded(of: Callable[[str], Relation]) -> Block:
    return block(
        [From("info", of("info"))],
        [out("x", "x", t.INT)],
        "info.price > 1",
        expand=(out("x", "ARRAY[info.price, info.price + 1]", t.INT),),
    )


def set_of(operation: str, *queries: Query) -> SetOperation:
    return SetOperation(operation, queries, (("k", t.VARCHAR),))  # type: ignore[arg-type]


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


@pytest.mark.parametrize("state", ["full", "shared"])
@pytest.mark.parametrize("name", CASES)
def test_after_every_epoch_the_view_equals_the_query_over_all_rows(
    name: str, state: State, lake: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    case = CASES[name]
    bench = PlanBench(lake, SOURCES, duck)
    feeder = Feeder(bench, VALUES, seed=2)
    feeder.epoch()
    bench.maintain(plan_of_query("view", case.query(bench.relation), state=state, pipeline="p"))
    bench.refresh()
    seen = 0
    for _ in range(4):
        feeder.epoch(most=5)
        assert bench.shown("view") == bench.truth(case.sql)
        seen += bench.shown("view").total()
    bench.close()
    assert seen, "the events of this seed never make a row"


def test_with_ksql_semantics_a_group_lasts_also_when_its_row_went_within_one_epoch(
    lake: Lake, duck: duckdb.DuckDBPyConnection
) -> None:
    bench = PlanBench(lake, SOURCES, duck)
    feeder = Feeder(bench, VALUES, seed=1)
    query = groups(bench.relation, "info", "category")
    bench.maintain(plan_of_query("view", replace(query, where=e("info.price > 1")), "ksql"))
    row = {"product": "apple", "category": "fruit", "price": 7}
    feeder.feed("info", [row, {**row, "product": "carrot", "category": "root"}, {**row, "_tombstone": True}])
    feeder.feed("info", [{**row, "category": "cheap", "price": 1}, {**row, "category": None}])
    bench.refresh()
    assert bench.shown("view") == {("fruit", 0): 1, ("root", 1): 1}
    feeder.feed("info", [{**row, "product": "carrot", "_tombstone": True}])
    bench.refresh()
    assert bench.shown("view") == {("fruit", 0): 1, ("root", 0): 1}
    bench.close()
