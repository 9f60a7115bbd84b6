"""Queries built by hand over four sources: blocks with joins, groups, windows and set operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from strandline.jobs.model import types as t
from strandline.jobs.model.stage import AnalyticCall
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.logical import Block, From, Query, SetOperation, TimeWindow
from tests.support.plan_bench import block, call, e, out, source

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
