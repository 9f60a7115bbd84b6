"""The stage of functions OVER a window, and of the conditions on them.

SELECT id FROM (SELECT id, dept, ROW_NUMBER() OVER (PARTITION BY dept ORDER BY pay) AS n FROM emp) WHERE n <= 2

    body   id, __c0 = emp.dept, __c1 = emp.pay     partition  __p0 = __c0     calls  __w0     keep  __w0 <= 2
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.functions.failing import can_fail
from strandline.jobs.functions.scalars.domains import guards_in
from strandline.jobs.ivm.plan.builder import Stages
from strandline.jobs.ivm.plan.inputs import is_plain
from strandline.jobs.ivm.plan.rows import PlannedRows, Selected, keyed_columns, map_stage, named, of_relation
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import AnalyticStage, Output
from strandline.jobs.model.tables import ITEM
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.inputs import ReadableColumns
from strandline.jobs.query.logical import Block, From, gives_events
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import Place, all_of, columns_in, place_of, replaced, replaced_call

_OVER = "rows"
"""Alias of a UNION ALL that has a table of its own."""


def fused(block: Block) -> Block:
    """A filter or projection of a subquery with analytic functions, merged into that subquery with QUALIFY.

    Not one with guards, or with what can fail of a row: a row that QUALIFY leaves out has no place among the dead
    letters, and QUALIFY chooses before any is put there.
    """
    if not is_plain(block) or block.expand or len(block.inputs) != 1 or guards_in(block.where):
        return block
    source = block.inputs[0].source
    if not isinstance(source, Block):
        return block
    below = fused(source)
    if not below.analytic or below.distinct:
        return block
    meant = {(block.inputs[0].alias, output.name): output.expression for output in below.outputs}
    wanted = [output.expression for output in block.outputs] + ([block.where] if block.where is not None else [])
    if any(map(can_fail, wanted)):
        return block
    if not {(c.table, c.name) for each in wanted for c in columns_in(each)} <= set(meant):
        return block
    where = replaced(block.where, meant) if block.where is not None else None
    outputs = tuple(replace(each, expression=replaced(each.expression, meant)) for each in block.outputs)
    return replace(below, outputs=outputs, qualify=all_of(below.qualify, where), key=block.key)


def analytic_stage(branches: Sequence[PlannedRows], block: Block, stages: Stages) -> AnalyticStage:
    """The stage of a block with analytic functions over those rows.

    Raises:
        NotSupported: the rows cannot be told apart.
    """
    places = _places(block)
    if len(branches) > 1:
        branches = (_united(branches, places, block, stages),)
    rows = branches[0]
    below = block.before_windows
    shown = tuple(rows.output(each) for each in block.outputs if each in below or place_of(each.expression) in places)
    key, hidden = keyed_columns(rows, shown)
    names: dict[Place, exp.Expression] = {}
    for each in block.outputs:
        place = place_of(each.expression)
        if place is not None and place in places:
            names.setdefault(place, named(each.name))
    above = _places(replace(block, outputs=tuple(each for each in block.outputs if each not in below)))
    others = tuple(place for place in above if place not in names)
    names.update({place: named(f"__c{at}") for at, place in enumerate(others)})
    inner = _columns(rows, others, block, "__c")
    outputs = tuple(
        replace(each, expression=named(each.name) if each in below else replaced(each.expression, names))
        for each in block.outputs
    )
    return AnalyticStage(
        table="",
        body=(rows.core((*shown, *inner, *hidden), key),),
        partition=_partition(block, outputs, names),
        calls=tuple(replaced_call(each, names) for each in block.analytic),
        outputs=outputs,
        keep=replaced(block.qualify, names) if block.qualify is not None else None,
        key=key,
    )


def items_told_apart(block: Block) -> Block:
    """The block, over subqueries that also give the number of the item where they repeat an event for its items.

    A subquery that repeats events has a table of its own, in which the place of the event tells no row from the next:
    the windows of HOP, the items of an array.
    """
    return replace(block, inputs=tuple(_told_apart(each) for each in block.inputs))


def _told_apart(source: From) -> From:
    query = source.source
    if not isinstance(query, Block) or not is_plain(query):
        return source
    below = items_told_apart(query)
    if below.expand and gives_events(below):
        below = replace(below, outputs=(*below.outputs, Output(ITEM, named(ITEM), t.INT)))
    return replace(source, source=below)


def _places(block: Block) -> tuple[Place, ...]:
    """The columns that a block reads after WHERE and grouping, in the order of the text."""
    calls = {("", call.name) for call in block.analytic}
    trees = [each.expression for each in block.outputs] + list(block.partition)
    for call in block.analytic:
        trees += [*call.arguments, *(each for each, _, _ in call.order)]
    trees += [block.qualify] if block.qualify is not None else []
    found = dict.fromkeys((column.table, column.name) for tree in trees for column in columns_in(tree))
    return tuple(place for place in found if place not in calls)


def _united(branches: Sequence[PlannedRows], places: tuple[Place, ...], block: Block, stages: Stages) -> PlannedRows:
    """A UNION ALL as one relation: its rows get a key there."""
    parts = [Selected(rows, _columns(rows, places, block, "__u")) for rows in branches]
    rows = of_relation(stages.add(map_stage(parts)), _OVER)
    return replace(rows, values={place: named(f"__u{at}", _OVER) for at, place in enumerate(places)})


def _columns(rows: PlannedRows, places: Sequence[Place], block: Block, prefix: str) -> tuple[Output, ...]:
    """Columns of the body that hold those of the block."""
    scope = ReadableColumns(block)
    columns = [named(name, alias) for alias, name in places]
    return tuple(Output(f"{prefix}{at}", rows.read(each), scope.resolve(each).type) for at, each in enumerate(columns))


def _partition(block: Block, outputs: tuple[Output, ...], names: dict[Place, exp.Expression]) -> tuple[Output, ...]:
    made = []
    for at, each in enumerate(block.partition):
        expression = replaced(each, names)
        shown = next((o for o in outputs if sql_of(o.expression) == sql_of(expression)), None)
        sql_type = shown.type if shown is not None else infer(each, ReadableColumns(block)).type
        made.append(Output(shown.name if shown is not None else f"__p{at}", expression, sql_type))
    return tuple(made)
