"""Long arithmetic that stands several times in a SELECT is computed once below it, and gives the same."""

from __future__ import annotations

import duckdb
import pytest
from sqlglot import exp

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.functions.render import lower
from strandline.jobs.ivm.refresh.guarded_stage import checked
from strandline.jobs.ivm.rules.maintenance import check_written, maintenance
from strandline.jobs.ivm.rules.named_once import named_once
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import Core, Input, MapStage, Output
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Scope
from strandline.jobs.sql.trees import replaced
from tests.support.parsed import parse_expression

WIDE = t.decimal(30, 2)
T = Relation("t", (("id", t.INT), ("a", WIDE), ("b", WIDE), ("tags", t.array(WIDE))), "keyed", ("id",))
DUCKDB = engine_of("duckdb")
QUOTIENT = "[struct_pack(a := "
"""Once in DuckDB's text of a long quotient."""


def elaborated(text: str) -> exp.Expression:
    return infer(parse_expression(text), Scope(T, ("t",))).expression


def of_input(text: str) -> exp.Expression:
    """The expression as a core has it."""
    places = {("", name): exp.column(name, "t", quoted=True) for name, _ in T.columns}
    return replaced(elaborated(text), places)


def texts(*trees: exp.Expression) -> list[str]:
    return [lower(tree, "duckdb") for tree in trees]


def test_what_stands_once_or_is_short_stays_where_it_is() -> None:
    trees = [elaborated(text) for text in ("a / b", "b / a", "id + 1", "id + 1")]
    named = named_once(trees)
    assert not named.layers
    assert texts(*named.trees) == texts(*trees)


def test_the_innermost_is_named_first() -> None:
    trees = [elaborated(text) for text in ("a / b", "(a / b) / a", "(a / b) / a > 1")]
    named = named_once(trees)
    assert [list(layer) for layer in named.layers] == [["__n0"], ["__n1"]]
    assert QUOTIENT not in "".join(texts(*named.trees)).replace('"__n1"', "")
    with duckdb.connect() as connection:
        connection.execute(
            "CREATE TABLE t AS SELECT * FROM (VALUES (1, 7::DECIMAL(30, 2), 3::DECIMAL(30, 2)), (2, 1, 0),"
            " (3, NULL, 1), (4, 9999999999999999999999999999.99, 0.01)) AS v(id, a, b)"
        )
        rows = [
            connection.execute(f"SELECT id, {', '.join(texts(*each))} FROM {source} ORDER BY id").fetchall()
            for each, source in ((trees, "t AS t"), (named.trees, named.rows("t AS t", DUCKDB)))
        ]
    assert rows[0] == rows[1]
    assert len(rows[0]) == 4


@pytest.mark.parametrize("text", ["REDUCE(tags, a, (s, x) => s / x)", "TRANSFORM(tags, x => x / b)"])
def test_what_reads_a_parameter_stays(text: str) -> None:
    assert not named_once([elaborated(text), elaborated(text)]).layers


def test_what_reads_an_item_stays() -> None:
    quotients = [elaborated("a / b"), elaborated("a / b")]
    assert named_once(quotients).layers
    assert not named_once(quotients, frozenset({"a"})).layers


def test_a_call_of_a_users_function_stays() -> None:
    own = {("", "a"): exp.Anonymous(this="my_own", expressions=[exp.column("a")])}
    quotient = replaced(elaborated("a / b"), own)
    assert not named_once([quotient, quotient.copy()]).layers


def test_a_view_that_says_where_it_fails_has_its_quotient_once() -> None:
    quotient = Output("q", of_input("a / b"), t.decimal(38, 6))
    where = of_input("a / b > 1")
    core = Core((Input("t", T),), where, (Output("id", of_input("id"), t.INT), quotient), ("id",))
    stage = checked(MapStage("v", (core,), ("id", "q"), ("id",)))
    text = maintenance(stage, "duckdb")
    assert text.count(QUOTIENT) == 1
    check_written("v", stage, text, DUCKDB)
    check_written("v", stage, maintenance(stage, "spark"), engine_of("spark"))
