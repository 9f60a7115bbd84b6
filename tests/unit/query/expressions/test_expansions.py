"""Functions that make rows: the arrays behind them."""

from __future__ import annotations

import duckdb
import pytest

from strandline.jobs.functions.render import lower
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.relation import Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.nested import TABLE_FUNCTIONS, items_of
from strandline.jobs.query.expressions.scope import Scope, Typed
from tests.support.function_cases import COLUMNS, table
from tests.support.parsed import parse_expression


def _items(text: str) -> Typed:
    scope = Scope(Relation("cases", COLUMNS, "keyed", ("nr",)), ("cases",))
    call = parse_expression(text)
    assert call.name in TABLE_FUNCTIONS
    return items_of(call, lambda node: infer(node, scope))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("EXPLODE(tags)", t.array(t.VARCHAR), ["x", None, "y"]),
        ("UNNEST(GENERATE_SERIES(1, 3))", t.array(t.INT), [1, 2, 3]),
        ("CUBE_EXPLODE(ARRAY[1, i])", t.array(t.array(t.INT)), [[None, None], [None, 7], [1, None], [1, 7]]),
        ("CUBE_EXPLODE(ARRAY[i, NULL])", t.array(t.array(t.INT)), [[None, None], [7, None]]),
    ],
)
def test_each_item_is_a_row(text: str, kind: t.SqlType, expected: list[object]) -> None:
    found = _items(text)
    with duckdb.connect() as duck:
        duck.register("cases", table())
        rows = duck.execute(f"SELECT {lower(found.expression, 'duckdb')} FROM cases WHERE nr = 1").fetchone()
    assert (found.type, rows) == (kind, (expected,))


def test_a_map_gives_its_entries() -> None:
    assert _items("EXPLODE(ratings)").type == t.array(t.struct(("k", t.VARCHAR), ("v", t.INT)))


@pytest.mark.parametrize("text", ["EXPLODE(i)", "EXPLODE(tags, tags)", "EXPLODE()", "CUBE_EXPLODE(i)"])
def test_what_is_no_array_is_refused(text: str) -> None:
    with pytest.raises(TypeMismatch):
        _items(text)
