"""The columns that can be read after grouping beside groups and calls: marks of grouping sets, bounds of windows."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.columns import WINDOW_BOUNDS
from strandline.jobs.model.stage import Output
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.logical.query import Block
from strandline.jobs.sql.types_text import data_type

BOUNDS = tuple(Output(name, column(name), t.BIGINT) for name in WINDOW_BOUNDS)
"""The bounds of a group's window, as columns that can be read after grouping."""
_MARK = "__grouping_"


def mark_name(index: int) -> str:
    """The plain name of the mark of a group column, by its place in GROUP BY (from 0)."""
    return f"{_MARK}{index}"


def mark_value(value: int) -> exp.Expression:
    """A mark that is known: 0 or 1, as a BIGINT."""
    return exp.Cast(this=exp.Literal.number(value), to=data_type(t.BIGINT))


def marks_in(block: Block) -> tuple[int, ...]:
    """The group columns, by their places, whose marks the clauses after grouping read."""
    nodes = [*(output.expression for output in block.outputs), *block.partition]
    nodes += [node for node in (block.having, block.qualify) if node is not None]
    nodes += [node for call in block.analytic for node in (*call.arguments, *(each for each, _, _ in call.order))]
    names = {found.name for node in nodes for found in node.find_all(exp.Column) if not found.table}
    return tuple(index for index in range(len(block.group or ())) if mark_name(index) in names)


def mark_outputs(block: Block) -> tuple[Output, ...]:
    """The marks that the clauses after grouping read, as columns of the groups."""
    names = [mark_name(index) for index in marks_in(block)]
    return tuple(Output(name, column(name), t.BIGINT) for name in names)
