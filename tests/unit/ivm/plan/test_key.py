"""The key of joined rows: the fewest columns that tell them apart, read off the join's conditions."""

from __future__ import annotations

import pytest

from strandline.jobs.ivm.plan.rows import key_of
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import Input, JoinType
from strandline.jobs.model.tables import META_COLUMNS, Relation
from tests.support.plan_bench import e

ORDERS = Relation("orders", (("id", t.INT), ("who", t.INT), ("big", t.BIGINT)), "keyed", ("id",))
USERS = Relation("users", (("id", t.INT), ("city", t.INT)), "keyed", ("id",))
LINES = Relation("lines", (("order", t.INT), ("line", t.INT)), "keyed", ("order", "line"))
TOTAL = Relation("total", (("n", t.BIGINT),), "keyed", ())
CLICKS = Relation("clicks", (("who", t.INT), *META_COLUMNS), "append")
WORDS = Relation("words", (("word", t.INT), *META_COLUMNS), "append", identity=())


def key(*joins: tuple[Relation, JoinType, str | None], where: str | None = None) -> list[str]:
    inputs = [Input(r.name[0], r, kind, e(on) if on is not None else None) for r, kind, on in joins]
    found = key_of(inputs, e(where) if where is not None else None)
    return [f"{column.alias}.{column.name}" for column in found]


@pytest.mark.parametrize(
    ("right", "kind", "on", "expected"),
    [
        (USERS, "inner", "o.who = u.id", ["o.id"]),
        (USERS, "left", "o.who = u.id", ["o.id"]),
        (USERS, "right", "o.who = u.id", ["o.id", "u.id"]),
        (USERS, "full", "o.who = u.id", ["o.id", "u.id"]),
        (USERS, "semi", "o.who = u.id", ["o.id"]),
        (USERS, "anti", "o.who < u.id", ["o.id"]),
        (USERS, "inner", "o.id = u.id", ["o.id"]),
        (USERS, "full", "o.id = u.id", ["o.id", "u.id"]),
        (USERS, "right", "o.id = u.city", ["u.id"]),
        (USERS, "left", "o.id = u.city", ["o.id", "u.id"]),
        (USERS, "inner", "o.id = u.city", ["u.id"]),
        (USERS, "inner", "o.who < u.id", ["o.id", "u.id"]),
        (USERS, "inner", "o.who = u.id OR o.who = 1", ["o.id", "u.id"]),
        (USERS, "left", "u.id = o.who + 1 AND u.city > 2", ["o.id"]),
        (USERS, "inner", "CAST(u.id AS BIGINT) = o.big", ["o.id"]),
        (USERS, "inner", "CAST(u.id AS BOOLEAN) = (o.big = 1)", ["o.id", "u.id"]),
        (USERS, "inner", "u.id = 7", ["o.id"]),
        (LINES, "inner", "o.id = l.`order`", ["l.order", "l.line"]),
        (LINES, "left", "o.id = l.`order` AND l.line = 1", ["o.id"]),
        (TOTAL, "inner", None, ["o.id"]),
        (CLICKS, "inner", "o.who = c.who", ["o.id", "c._partition", "c._offset"]),
        (CLICKS, "inner", "o.id = c.who", ["c._partition", "c._offset"]),
    ],
)
def test_an_input_drops_out_when_the_join_makes_its_key_a_function_of_the_others(
    right: Relation, kind: JoinType, on: str | None, expected: list[str]
) -> None:
    assert key((ORDERS, "inner", None), (right, kind, on)) == expected


def test_functions_of_functions_count() -> None:
    assert key((LINES, "inner", None), (ORDERS, "inner", "o.id = l.`order`"), (USERS, "left", "u.id = o.who")) == [
        "l.order",
        "l.line",
    ]


def test_inputs_that_make_each_other_s_key_do_not_both_drop_out() -> None:
    assert key((ORDERS, "inner", None), (USERS, "inner", "o.id = u.id AND u.id = o.id")) == ["o.id"]


def test_conditions_of_where_count_as_well() -> None:
    assert key((ORDERS, "inner", None), (USERS, "full", "o.who = u.id"), where="u.id = 3") == ["o.id"]


def test_columns_that_are_always_equal_stand_for_each_other() -> None:
    inputs = [Input("o", ORDERS), Input("u", USERS, "inner", e("o.id = u.id"))]
    (column,) = key_of(inputs, None)
    assert column.same == {("o", "id"), ("u", "id")}


def test_of_an_outer_join_they_are_not_always_equal() -> None:
    (column,) = key_of([Input("o", ORDERS), Input("u", USERS, "left", e("o.id = u.id"))], None)
    assert column.same == {("o", "id")}


def test_rows_that_cannot_be_told_apart_are_refused() -> None:
    with pytest.raises(NotSupported, match="'words' cannot be told apart"):
        key((ORDERS, "inner", None), (WORDS, "inner", "o.id = w.word"))


def test_a_table_as_of_a_time_has_one_row_per_key() -> None:
    log = Relation("users__log", (*USERS.columns, *META_COLUMNS), "append", ("id",))
    inputs = [Input("c", CLICKS), Input("u", log, "left", e("c.who = u.id"), frozen=True, as_of=True)]
    assert [f"{column.alias}.{column.name}" for column in key_of(inputs, None)] == ["c._partition", "c._offset"]
