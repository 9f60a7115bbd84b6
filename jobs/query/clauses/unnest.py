"""UNNEST in FROM: the items of arrays as rows, each beside the row that the arrays are of.

    FROM s CROSS JOIN UNNEST(s.tags) WITH ORDINALITY AS u (tag, place)

        expand  __u0 = s.tags        u.tag reads __u0        u.place reads the item's number, from 1

Several arrays stand side by side, the shorter ones padded with NULL. LEFT JOIN UNNEST(…) ON TRUE keeps a row without
items, with NULL in their place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeGuard

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.columns import ITEM
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError
from strandline.jobs.model.relation import Relation
from strandline.jobs.model.stage import Output
from strandline.jobs.query.expressions.expansions import items_of
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.logical.inputs import Inputs, Part
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import call
from strandline.jobs.sql.types_text import data_type

UNNEST = "unnest"
"""The name of an UNNEST that has no other."""
NOWHERE = Relation("", (), "keyed")
"""What an UNNEST reads: no relation of its own."""


@dataclass(frozen=True)
class Unnest:
    """An UNNEST that was read.

    Attributes:
        part: its columns, which read the items.
        expand: the arrays, each under the name of its items' column.
    """

    part: Part
    expand: tuple[Output, ...]


def is_unnest(table: exp.Expr) -> TypeGuard[exp.Table]:
    """True if a table in FROM is UNNEST(…)."""
    return isinstance(table, exp.Table) and isinstance(table.this, exp.Anonymous) and table.this.name == "UNNEST"


def unnest_alias(table: exp.Expr) -> str:
    """The name by which an UNNEST goes."""
    return table.alias or UNNEST


def read_unnest(table: exp.Table, join: exp.Join | None, before: Inputs) -> Unnest:
    """An UNNEST whose arrays are over the inputs before it.

    Args:
        join: the node that joins it; None for the first of FROM.

    Raises:
        TypeMismatch: an argument is no array.
        InvalidQuery: other columns are named than it has.
        NotSupported: a join that drops rows by a condition of its own, or keeps those of UNNEST.
    """
    kept = _keeps_rows(join)
    arrays = [_array(node, table, before) for node in table.this.expressions]
    numbered = bool(table.args.get("ordinality"))
    names = _names(table, len(arrays), numbered=numbered)
    if kept:
        # A row that is kept without items has no number either.
        numbers = [_numbers(arrays, before)] if numbered else []
        arrays = [*(_or_null(each, call("ARRAY_LENGTH", each.expression)) for each in arrays), *numbers]
    expand = tuple(Output(f"__u{n}", each.expression, each.type.args[0]) for n, each in enumerate(arrays))
    read = {name: column(each.name) for name, each in zip(names, expand, strict=False)}
    types = {name: each.type for name, each in zip(names, expand, strict=False)}
    if numbered and not kept:
        read[names[-1]], types[names[-1]] = column(ITEM), t.INT
    return Unnest(Part(unnest_alias(table), UNNEST, NOWHERE, tuple(types.items()), {}, read=read), expand)


def _names(table: exp.Table, arrays: int, *, numbered: bool) -> list[str]:
    """The names of the columns: those in brackets after the alias, the others made up."""
    alias = unnest_alias(table)
    given = [each.name for each in table.args["alias"].args.get("columns") or ()] if table.args.get("alias") else []
    if not arrays or len(given) > arrays + numbered:
        line, place = position_of(table)
        raise InvalidQuery(
            f"{sql_of(table)} has {arrays + numbered} columns, and {len(given)} names are given",
            line=line,
            column=place,
            hint="UNNEST(array) AS name (column)",
        )
    made_up = [alias] if arrays == 1 else [f"{alias}_{number}" for number in range(1, arrays + 1)]
    every = [*made_up, *(["ordinality"] if numbered else [])]
    return [*given, *every[len(given) :]]


def _keeps_rows(join: exp.Join | None) -> bool:
    """True if a row without items stays: LEFT JOIN … ON TRUE."""
    if join is None:
        return False
    on, side = join.args.get("on"), join.side
    always = on is None or (isinstance(on, exp.Boolean) and on.this)
    if side not in ("", "LEFT") or join.method or join.args.get("using") or not always:
        line, place = position_of(join)
        raise NotSupported(
            f"UNNEST is joined by a comma, CROSS JOIN, or LEFT JOIN … ON TRUE: {sql_of(join)}",
            line=line,
            column=place,
            hint="put the condition into WHERE",
        )
    return bool(side)


def _array(node: exp.Expr, table: exp.Table, before: Inputs) -> Typed:
    try:
        return items_of(call("UNNEST", node), lambda each: infer(each, before))
    except SqlError as error:
        raise error.placed(*position_of(table)) from None


def _numbers(arrays: list[Typed], before: Inputs) -> Typed:
    """The numbers of the items, as one more array; one NULL where no array has any."""
    lengths = [call("ARRAY_LENGTH", each.expression) for each in arrays]
    longest = infer(lengths[0] if len(lengths) == 1 else call("GREATEST", *lengths), before).expression
    numbers = infer(call("GENERATE_SERIES", exp.Literal.number(1), longest), before)
    return _or_null(numbers, longest)


def _or_null(array: Typed, length: exp.Expression) -> Typed:
    """An array with one item that is NULL in place of none."""
    nothing = exp.Cast(this=exp.Null(), to=data_type(array.type.args[0]))
    some = exp.GT(this=length.copy(), expression=exp.Literal.number(0))
    made = exp.Case(ifs=[exp.If(this=some, true=array.expression)], default=exp.Array(expressions=[nothing]))
    return Typed(made, array.type)
