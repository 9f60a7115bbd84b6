"""UNION, INTERSECT and EXCEPT: their branches, converted to the same columns.

SELECT a, b FROM s UNION ALL SELECT x, y FROM t

    names are those of the first branch; types the common ones, and each branch converts to them
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from sqlglot import exp

from jobs.model import types as t
from jobs.model.errors import InvalidQuery, NotSupported, TypeMismatch
from jobs.model.stage import Output
from jobs.model.types import BaseType, SqlType
from jobs.query.clauses.from_clause import Context
from jobs.query.clauses.keys import outputs_of
from jobs.query.clauses.logical import Block, From, Query, SetOperation
from jobs.query.expressions.casts import widened
from jobs.query.expressions.scope import Typed, column
from jobs.sql.dialect import position_of

Operation = Literal["union all", "union", "intersect", "except"]
Columns = tuple[tuple[str, SqlType], ...]
_WORDS: dict[type[exp.Expr], Operation] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}


def read_set_operation(tree: exp.SetOperation, context: Context) -> SetOperation:
    """Resolve a UNION, INTERSECT or EXCEPT; `a UNION ALL b UNION ALL c` has three branches.

    Raises:
        InvalidQuery: the branches differ in the number of columns.
        TypeMismatch: a column's types have nothing in common.
        NotSupported: INTERSECT ALL, EXCEPT ALL.
    """
    operation = _operation(tree)
    branches = [context.read(each, context) for each in _branches(tree, operation)]
    columns = outputs_of(branches[0])
    for branch in branches[1:]:
        columns = _common(columns, outputs_of(branch), operation, tree)
    missing = next((name for name, sql_type in columns if sql_type.base is BaseType.NULL), None)
    if missing is not None:
        raise InvalidQuery(f"column '{missing}' is NULL in every branch and has no type", hint="CAST(NULL AS …)")
    return SetOperation(operation, tuple(_converted(branch, columns) for branch in branches), columns)


def _operation(tree: exp.SetOperation) -> Operation:
    word = _WORDS[type(tree)]
    if tree.args.get("distinct") is not False:
        return word
    if word != "union":
        line, place = position_of(tree)
        raise NotSupported(f"{word.upper()} ALL is not maintained yet", line=line, column=place)
    return "union all"


def _branches(tree: exp.SetOperation, operation: Operation) -> list[exp.Expr]:
    """The branches; nested ones of the same operation are flattened, those of EXCEPT only on the left."""
    right = [tree.expression] if operation == "except" else _flattened(tree.expression, operation)
    return [*_flattened(tree.this, operation), *right]


def _flattened(tree: exp.Expr, operation: Operation) -> list[exp.Expr]:
    """The branches that one side stands for; a side with clauses of its own is one branch."""
    while isinstance(tree, exp.Subquery) and not tree.alias:
        tree = tree.this
    own = any(tree.args.get(clause) for clause in ("with_", "order", "limit", "offset"))
    if isinstance(tree, exp.SetOperation) and not own and _operation(tree) == operation:
        return _branches(tree, operation)
    return [tree]


def _common(left: Columns, right: Columns, operation: str, tree: exp.Expr) -> Columns:
    line, place = position_of(tree)
    if len(left) != len(right):
        raise InvalidQuery(
            f"one side of {operation.upper()} has {len(left)} columns, the other {len(right)}", line=line, column=place
        )
    found = []
    for (name, one), (_, other) in zip(left, right, strict=True):
        shared = t.common_type(one, other)
        if shared is None:
            raise TypeMismatch(
                f"column '{name}' is {one} on one side of {operation.upper()}, {other} on the other",
                line=line,
                column=place,
                hint="convert one with CAST(… AS …)",
            )
        found.append((name, shared))
    return tuple(found)


def _converted(branch: Query, columns: Columns) -> Query:
    """A branch with exactly these names and types."""
    if outputs_of(branch) == columns:
        return branch
    if isinstance(branch, SetOperation) or branch.group is not None or branch.analytic or branch.distinct:
        return _around(branch, columns)
    outputs = tuple(
        Output(name, widened(Typed(output.expression, output.type), sql_type).expression, sql_type)
        for output, (name, sql_type) in zip(branch.outputs, columns, strict=True)
    )
    renamed = {old.name: new.name for old, new in zip(branch.outputs, outputs, strict=True)}
    return replace(branch, outputs=outputs, key=tuple(renamed[name] for name in branch.key))


def _around(branch: Query, columns: Columns) -> Block:
    """A block around a branch that only renames and converts its columns."""
    outputs = tuple(
        Output(new, widened(Typed(column(old, "branch"), given), sql_type).expression, sql_type)
        for (old, given), (new, sql_type) in zip(outputs_of(branch), columns, strict=True)
    )
    return Block((From("branch", branch),), None, outputs)
