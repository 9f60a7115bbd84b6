"""Queries that programs write: long chains, long lists, many columns, deep nesting. Answered, or refused at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql import size
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import parse_query
from strandline.jobs.sql.statements import parse_one
from strandline.jobs.sql.syntax import Select
from tests.support.altered_lake import made
from tests.support.waiting import PATIENCE_SECONDS


def query(text: str) -> str:
    found = parse_one(text)
    assert isinstance(found, Select)
    return sql_of(found.query)


def chain(word: str, terms: Iterator[str]) -> str:
    return f"SELECT shop FROM sales WHERE {f' {word} '.join(terms)}"


def parts_of_with(number: int) -> str:
    parts = ["c0 AS (SELECT shop, qty FROM sales)"]
    for each in range(1, number):
        below = f"c{each - 1}"
        parts.append(f"c{each} AS (SELECT a.shop, a.qty FROM {below} a JOIN {below} b ON a.shop = b.shop)")
    return f"WITH {', '.join(parts)} SELECT shop FROM c{number - 1}"


ANSWERED = {
    "1,000 equalities": chain("OR", (f"qty = {each}" for each in range(1_000))),
    "1,000 texts": chain("OR", (f"shop = 'x{each}'" for each in range(1_000))),
    "1,000 inequalities": chain("AND", (f"qty <> {each}" for each in range(10, 1_010))),
    "200 terms": chain("OR", (f"(qty = {each} AND shop = 'a')" for each in range(200))),
    "2,000 values": f"SELECT shop FROM sales WHERE qty IN ({', '.join(map(str, range(2_000)))})",
}
REFUSED = {
    "1,000 terms": (chain("OR", (f"(qty = {n} AND shop = 'a')" for n in range(1_000))), "1,000 terms between OR"),
    "2,000 columns": (f"SELECT {', '.join(f'qty + {n} AS c{n}' for n in range(2_000))} FROM sales", "12,004 parts"),
    "12 parts of WITH, each named twice": (parts_of_with(12), "tables, each part of WITH wherever it is named"),
    "300 branches": (" UNION ALL ".join(["SELECT shop FROM sales"] * 300), "reads 300 tables"),
    "1,000 brackets": (f"SELECT {'(' * 1_000}qty{')' * 1_000} AS x FROM sales", "nested too deeply"),
    "500 CASEs": (f"SELECT {'CASE WHEN qty = 1 THEN 1 ELSE ' * 500}0{' END' * 500} AS x FROM sales", "too deeply"),
    "100 subqueries": (f"SELECT shop FROM {'(SELECT shop FROM ' * 100}sales{')' * 100}", "too deeply"),
    "1,000 sums": (f"SELECT {' + '.join(['qty'] * 1_000)} AS x FROM sales", "too deeply"),
    "500 calls": (f"SELECT {'ABS(' * 500}qty{')' * 500} AS x FROM sales", "too deeply"),
    "12 calls of what may fail": (f"SELECT {'ABS(' * 12}qty{')' * 12} AS x FROM sales", "nested too deeply here"),
}


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory: pytest.TempPathFactory) -> Interpreter:
    settings = load_settings(lake=tmp_path_factory.mktemp("lake") / "lake")
    made(settings)
    return Interpreter(settings, "shop")


def answers(interpreter: Interpreter, text: str) -> list[object]:
    return [list(getattr(result, "rows", ())) for result in interpreter.run(text)]


@pytest.mark.parametrize("what", ANSWERED)
def test_long_ones_are_answered_and_maintained(what: str, interpreter: Interpreter) -> None:
    [found] = interpreter.run(ANSWERED[what])
    assert isinstance(found, Rows)
    shops = {"1,000 texts": set[str](), "200 terms": {"a"}}.get(what, {"a", "b"})
    assert {row[0] for row in found.rows} == shops
    name = f"v_{list(ANSWERED).index(what)}"
    list(interpreter.run(f"CREATE MATERIALIZED VIEW {name} AS {ANSWERED[what]}"))
    assert interpreter.catalog.find(name) is not None


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("form", ["{}", "CREATE MATERIALIZED VIEW w AS {}", "EXPLAIN {}", "{} EMIT CHANGES"])
def test_what_is_larger_is_refused_at_once(what: str, form: str, interpreter: Interpreter) -> None:
    text, why = REFUSED[what]
    if "may fail" in what and "EXPLAIN" in form:
        return  # what fails is no part of the plan
    began = time.monotonic()
    with pytest.raises(NotSupported, match=why) as caught:
        answers(interpreter, form.format(text))
    assert caught.value.hint
    assert caught.value.where is not None
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_ten_thousand_values_are_answered_once_and_no_view(interpreter: Interpreter) -> None:
    text = f"SELECT shop FROM sales WHERE qty IN ({', '.join(map(str, range(10_000)))})"
    [found] = interpreter.run(text)
    assert isinstance(found, Rows)
    assert len(list(found.rows)) == 3
    with pytest.raises(NotSupported, match="IN has 10,000 values, and 2,000 are the most of a view"):
        list(interpreter.run(f"CREATE MATERIALIZED VIEW w AS {text}"))


def test_equalities_become_a_list_where_nothing_else_changes() -> None:
    many = [f"k = {n}" for n in range(64)]
    listed = ", ".join(str(n) for n in range(64))
    assert query(f"SELECT 1 AS x FROM s WHERE {' OR '.join(many)}") == f"SELECT 1 AS x FROM s WHERE k IN ({listed})"
    others = [*many, "s.k = 1", "k = 'a'", "k = 1.5", "k = -1", "k > 3", "j = 1", "j = 2"]
    wanted = f"k IN ({listed}) OR s.k = 1 OR k = 'a' OR k = 1.5 OR k = -1 OR k > 3 OR j IN (1, 2)"
    assert query(f"SELECT 1 AS x FROM s WHERE {' OR '.join(others)}") == f"SELECT 1 AS x FROM s WHERE {wanted}"
    few = " OR ".join(many[:63])
    assert query(f"SELECT 1 AS x FROM s WHERE {few}") == f"SELECT 1 AS x FROM s WHERE {few}"
    no = " AND ".join(f"k <> {n}" for n in range(64))
    assert query(f"SELECT 1 AS x FROM s WHERE {no}") == f"SELECT 1 AS x FROM s WHERE NOT k IN ({listed})"


@pytest.mark.parametrize("word", ["AND", "OR"])
def test_a_chain_is_shallow_and_says_the_same(word: str) -> None:
    terms = f" {word} ".join(f"(a > {n} OR b < {n} AND c = {n})" for n in range(200))
    text = f"SELECT 1 AS x FROM s WHERE {terms}"
    tree = parse_query(text)
    assert sql_of(tree) == text

    def depth(node: object, args: Callable[[object], list[object]]) -> int:
        return 1 + max((depth(each, args) for each in args(node)), default=0)

    where = tree.args["where"].this
    assert depth(where, lambda node: [each for each in node.iter_expressions()]) < 25  # type: ignore[attr-defined]
    assert size.VIEW.terms >= 200
