"""What the runner must know of a view to read its records: which columns make the key, and in which order they stand.

Records whose columns have names do not need an order. Separated values do, and there ksqlDB has two rules of its own:
several key columns stand in the order of GROUP BY, and `SELECT * … PARTITION BY` puts the former key columns last.
"""

from __future__ import annotations

from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.stage import AggregateStage, Stage, storage_of_body
from strandline.jobs.model.stage_columns import storage_of
from strandline.jobs.model.tables import WINDOW_BOUNDS
from tests.conformance.compare import ComparedRelation
from tests.conformance.program import Program


def compared_relation(view: View | Source, program: Program) -> ComparedRelation:
    """The view, or the source that queries write to, as what its records are compared with."""
    keys = [column for column in view.columns if column.key]
    # A window is not compared where it is not selected; ksqlDB keeps its bounds in the record's key.
    values = [column for column in view.columns if not column.key and column.name not in WINDOW_BOUNDS]
    table = view.name in program.tables
    if isinstance(view, View):
        order = _grouped(view, program)
        keys.sort(key=lambda column: order.index(column.name) if column.name in order else len(order))
        former = _former_keys(view, program)
        values.sort(key=lambda column: column.name in former)
    # The rows of a stream can only go when it is an outer join of streams, or reads one.
    padded = isinstance(view, View) and not table and storage_of(_last_stage(view, program)) == "keyed"
    kept = isinstance(view, View) and any(_keeps_empty(stage) for stage in plan(view, program.catalog).stages)
    held_back = padded and isinstance(view, View) and "GRACE PERIOD" in view.query.upper()
    wire = program.wires[view.name]
    return ComparedRelation(view.name, tuple(keys), tuple(values), wire, table, padded, held_back, kept)


def _grouped(view: View, program: Program) -> tuple[str, ...]:
    """The group columns, in the order of GROUP BY."""
    last = _last_stage(view, program)
    return last.key if isinstance(last, AggregateStage) else ()


def _keeps_empty(stage: Stage) -> bool:
    return isinstance(stage, AggregateStage) and not stage.drop_empty and storage_of_body(stage.body) == "keyed"


def _last_stage(view: View, program: Program) -> Stage:
    return plan(view, program.catalog).stages[-1]


def _former_keys(view: View, program: Program) -> tuple[str, ...]:
    text = " ".join(view.query.upper().split())
    if " PARTITION BY " not in text or not text.startswith("SELECT *"):
        return ()
    source = program.catalog.get(view.inputs[0])
    return () if isinstance(source, InsertQuery) else source.key
