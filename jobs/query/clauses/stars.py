"""The columns that `*` stands for in a SELECT list, and what is said of them behind it.

FROM s                     *, s.*      the columns by their names
FROM l JOIN r              *, l.*      l_id, l_name, r_id, …; in a pull query id, name, id, …
address->*                             a column for each field
* EXCEPT (a), * EXCLUDE (a)            the others
* REPLACE (a + 1 AS a)                 all of them, with another value at the place of one
* RENAME (a AS b)                      all of them, with another name for one
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, TypeMismatch, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Typed
from strandline.jobs.query.logical.inputs import ROWKEY, Inputs, Part
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import identifier

Naming = Literal["ksql", "view", "pull"]
"""Whose rules give columns their names: those of ksqlDB's statements, a materialized view's, a pull query's."""


@dataclass(frozen=True)
class Item:
    """An output and its node in the text; `part` is the input of a column that was written without AS."""

    output: Output
    node: exp.Expr
    part: Part | None = None


def stars_of(node: exp.Expr, inputs: Inputs, naming: Naming) -> list[Item] | None:
    """The columns that `*`, `a.*` or `struct->*` stands for; None for anything else."""
    if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Star):
        return _fields(node, inputs)
    if isinstance(node, exp.Star):
        if naming == "pull":
            return _plain_star(node, inputs)
        found = [item for part in inputs.parts for item in _columns(part, node, inputs)]
        if naming == "ksql" and inputs.rowkey is not None and inputs.synthetic_key:
            found.insert(0, Item(Output(ROWKEY, inputs.rowkey.expression.copy(), inputs.rowkey.type), node))
        return found
    if isinstance(node, exp.Column) and isinstance(node.this, exp.Star):
        named = inputs.part(node.table)
        if named is None:
            line, place = position_of(node)
            known = [part.alias for part in inputs.parts]
            raise UnknownName.among("stream, table or alias", node.table, known, line=line, column=place)
        return _columns(named, node, inputs, plain=naming == "pull")
    return None


def _plain_star(node: exp.Expr, inputs: Inputs) -> list[Item]:
    """`*` of a pull query: all columns by their own names, that of a JOIN … USING once."""
    found: list[Item] = []
    for part in inputs.parts:
        for item in _columns(part, node, inputs, plain=True):
            name, merged = item.output.name, inputs.merged.get(item.output.name)
            if merged is None:
                found.append(item)
            elif all(each.output.name != name for each in found):
                found.append(Item(Output(name, merged.expression.copy(), merged.type), node))
    return found


def _columns(part: Part, node: exp.Expr, inputs: Inputs, *, plain: bool = False) -> list[Item]:
    several = len(inputs.parts) > 1 and not plain and not part.unnamed
    return [
        Item(Output(f"{part.alias}_{name}" if several else name, part.column(name), sql_type), node)
        for name, sql_type in part.columns
    ]


def _fields(node: exp.Dot, inputs: Inputs) -> list[Item]:
    struct = infer(node.this, inputs)
    if struct.type.base is not BaseType.STRUCT:
        line, place = position_of(node)
        raise TypeMismatch(
            f"->* takes the fields of a STRUCT; {sql_of(node.this)} is {struct.type}", line=line, column=place
        )
    found = []
    for name, _ in struct.type.fields:
        field = infer(exp.Dot(this=node.this.copy(), expression=identifier(name)), inputs)
        found.append(Item(Output(name, field.expression, field.type), node))
    return found


def changed(items: list[Item], node: exp.Expr, typed: Callable[[exp.Expr], Typed]) -> list[Item]:
    """The columns of a star without those of its EXCEPT, with the values of its REPLACE and the names of its RENAME."""
    star = node.find(exp.Star)
    assert star is not None
    for left_out in star.args.get("except_") or ():
        place = _place_of(left_out, items)
        items = [item for number, item in enumerate(items) if number != place]
    for alias in star.args.get("replace") or ():
        place = _place_of(alias.args["alias"], items)
        found = typed(alias.this)
        items[place] = Item(Output(items[place].output.name, found.expression, found.type), alias)
    renamed = [(_place_of(each.this, items), each) for each in star.args.get("rename") or ()]
    for place, each in renamed:
        items[place] = Item(replace(items[place].output, name=each.alias), each)
    return items


def _place_of(node: exp.Expr, items: list[Item]) -> int:
    """The place of the column that EXCEPT, REPLACE or RENAME names: as `*` gives it, or as its input has it."""
    table = node.args.get("table")
    read = [(each.name, each.args.get("table")) for each in (item.output.expression for item in items)]
    named = [item.output.name == node.name and table is None for item in items]
    held = [name == node.name and table in (None, of) for name, of in read]
    found = [place for place, fits in enumerate(named if any(named) else held) if fits]
    line, column = position_of(node)
    if not found:
        raise UnknownName.among("column", sql_of(node), [i.output.name for i in items], line=line, column=column)
    if len(found) > 1:
        shown = " or ".join(items[place].output.name for place in found)
        raise InvalidQuery(f"column '{node.name}' is ambiguous: {shown}", line=line, column=column)
    return found[0]
