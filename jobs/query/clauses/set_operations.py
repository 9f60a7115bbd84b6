"""UNION, INTERSECT and EXCEPT: their branches, converted to the same columns.

SELECT a, b FROM s UNION ALL SELECT x, y FROM t

    names are those of the first branch; types the common ones, and each branch converts to them

SELECT a, b FROM s UNION ALL BY NAME SELECT b, c FROM t

    a, b, c: columns are matched by their names, and what a branch does not have is NULL

SELECT a, b FROM s UNION ALL CORRESPONDING [BY (b)] SELECT b, c FROM t

    b: the columns that all branches have
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, NotSupported, TypeMismatch, UnknownName
from strandline.jobs.model.stage import Output
from strandline.jobs.model.types import SqlType, without_null
from strandline.jobs.query.clauses.from_clause import Context
from strandline.jobs.query.expressions.casts import widened
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.logical import Block, From, Query, SetOperation, outputs_of
from strandline.jobs.sql.dialect import position_of, sql_of

Operation = Literal["union all", "union", "intersect", "except", "intersect all", "except all"]
Columns = tuple[tuple[str, SqlType], ...]
_MATCHING = ("by_name", "kind", "on")
"""The arguments that say how the columns of the branches are matched."""
_WORDS: dict[type[exp.Expr], Operation] = {exp.Union: "union", exp.Intersect: "intersect", exp.Except: "except"}


def read_set_operation(tree: exp.SetOperation, context: Context) -> SetOperation:
    """Read a UNION, INTERSECT or EXCEPT; `a UNION ALL b UNION ALL c` has three branches.

    Raises:
        InvalidQuery: the branches differ in the number of columns.
        TypeMismatch: a column's types have nothing in common.
        NotSupported: BY NAME of anything but a UNION.
    """
    operation = _operation(tree)
    inner = replace(context.branches, outermost=context.outermost and operation == "union all")
    branches = [context.read(each, inner) for each in branches_of(tree, operation)]
    if tree.args.get("by_name"):
        branches = _by_name(branches, tree)
    columns = outputs_of(branches[0])
    for branch in branches[1:]:
        columns = common_columns(columns, outputs_of(branch), operation, tree)
    if not context.branch:
        columns = with_types(columns)
    return SetOperation(operation, tuple(converted(branch, columns) for branch in branches), columns)


def with_types(columns: Columns) -> Columns:
    """The columns, those that are NULL in every row as texts."""
    return tuple((name, without_null(of)) for name, of in columns)


def _operation(tree: exp.SetOperation) -> Operation:
    word = _WORDS[type(tree)]
    if tree.args.get("distinct") is not False:
        return word
    every: dict[Operation, Operation] = {"union": "union all", "intersect": "intersect all", "except": "except all"}
    return every[word]


def branches_of(tree: exp.SetOperation, operation: Operation) -> list[exp.Expr]:
    """The branches; nested ones of the same operation are flattened, those of EXCEPT only on the left."""
    right = [tree.expression] if operation.startswith("except") else _flattened(tree.expression, tree)
    return [*_flattened(tree.this, tree), *right]


def _flattened(side: exp.Expr, tree: exp.SetOperation) -> list[exp.Expr]:
    """The branches that one side of `tree` stands for; a side with clauses of its own is one branch."""
    while isinstance(side, exp.Subquery) and not side.alias:
        side = side.this
    own = any(side.args.get(clause) for clause in ("with_", "order", "limit", "offset"))
    if own or not isinstance(side, exp.SetOperation) or any(side.args.get(a) != tree.args.get(a) for a in _MATCHING):
        return [side]
    operation = _operation(side)
    return branches_of(side, operation) if operation == _operation(tree) else [side]


def _by_name(branches: list[Query], tree: exp.SetOperation) -> list[Query]:
    """The branches, each with all columns of all of them, in the order in which they are first met."""
    if not isinstance(tree, exp.Union):
        raise NotSupported(f"{tree.key.upper()} BY NAME is not supported yet").placed(*position_of(tree))
    named = (exp.Alias, exp.Column, exp.Dot, exp.Star)
    nameless = next((item for item in _items(tree) if not isinstance(item, named)), None)
    if nameless is not None:
        raise InvalidQuery(
            f"BY NAME matches columns by their names, and {sql_of(nameless)} has none", hint="give it one with AS"
        ).placed(*position_of(nameless))
    names = list(dict.fromkeys(name for branch in branches for name, _ in outputs_of(branch)))
    if tree.args.get("kind"):
        names = _corresponding(names, branches, tree)
    return [_with_columns(branch, names) for branch in branches]


def _items(side: exp.Expr) -> Iterator[exp.Expr]:
    """The items of the SELECT lists of the branches."""
    if isinstance(side, exp.SetOperation):
        yield from _items(side.this)
        yield from _items(side.expression)
    elif isinstance(side, exp.Subquery):
        yield from _items(side.this)
    else:
        yield from side.expressions


def _corresponding(names: list[str], branches: list[Query], tree: exp.SetOperation) -> list[str]:
    """The columns of CORRESPONDING: those that all branches have, or of them those after BY."""
    held = [{name for name, _ in outputs_of(branch)} for branch in branches]
    shared = [name for name in names if all(name in each for each in held)]
    wanted = [each.name for each in tree.args.get("on") or ()]
    line, place = position_of(tree)
    for name in wanted:
        if name not in shared:
            raise UnknownName.among("column of all branches", name, shared, line=line, column=place)
    if not shared:
        raise InvalidQuery("CORRESPONDING: the branches have no column in common", line=line, column=place)
    return wanted or shared


def _with_columns(branch: Query, names: list[str]) -> Query:
    if [name for name, _ in outputs_of(branch)] == names:
        return branch
    absent = {name: Output(name, exp.Null(), t.NULL) for name in names}
    if _is_combined(branch):
        held = {name: Output(name, column(name, "branch"), sql_type) for name, sql_type in outputs_of(branch)}
        return Block((From("branch", branch),), None, tuple({**absent, **held}[name] for name in names))
    assert isinstance(branch, Block)
    shown = {output.name: output for output in branch.outputs}
    return replace(branch, outputs=tuple({**absent, **shown}[name] for name in names))


def _is_combined(branch: Query) -> bool:
    """True if another output would change which rows there are, so that a block around it must add it."""
    return not isinstance(branch, Block) or branch.group is not None or bool(branch.analytic) or branch.distinct


def common_columns(left: Columns, right: Columns, operation: str, tree: exp.Expr) -> Columns:
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


def converted(branch: Query, columns: Columns) -> Query:
    """A branch with exactly these names and types."""
    if outputs_of(branch) == columns:
        return branch
    if _is_combined(branch):
        return _around(branch, columns)
    assert isinstance(branch, Block)
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
