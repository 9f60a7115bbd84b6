"""The stored form of a stage's rows: the visible columns, and the struct `__state` beside them.

| stage | storage | `__state` |
| --- | --- | --- |
| map, all inputs append | append | none |
| map | keyed | the columns of the body that are not visible: key columns, an event's time and place |
| latest | keyed | time and place of the newest event: `EVENT_ORDER`, `_timestamp` |
| aggregate | keyed | the group columns that are not visible, `__rows` (rows in the group), an accumulator per call |
| aggregate by session | keyed | the group columns and bounds that are not visible, `__rows` |
| analytic | keyed | the key and partition columns that are not visible |
"""

from __future__ import annotations

from jobs.functions.aggregates.registry import function_of
from jobs.model.stage import AggregateStage, Stage
from jobs.model.stage_columns import Columns, hidden_columns, key_names, key_path, storage_of, visible_columns
from jobs.model.types import BIGINT, SqlType, struct
from state_store.columns import STATE
from state_store.tablespec import TableSpec

ROWS = "__rows"


def state_type(stage: Stage) -> SqlType | None:
    """The struct `__state`; None when the stage needs none."""
    fields = hidden_columns(stage)
    if isinstance(stage, AggregateStage):
        fields += ((ROWS, BIGINT),)
        if stage.session is None:
            fields += tuple((call.name, function_of(call).accumulator(call)) for call in stage.aggregates)
    return struct(*fields) if fields else None


def stored_columns(stage: Stage) -> Columns:
    """Every stored column: the visible ones, then `__state` if there is one."""
    state = state_type(stage)
    return (*visible_columns(stage), (STATE, state)) if state else visible_columns(stage)


def spec_of(stage: Stage) -> TableSpec:
    """The table that a stage is stored in."""
    state = state_type(stage)
    return TableSpec(
        name=stage.table,
        columns=tuple((name, sql_type.spark()) for name, sql_type in visible_columns(stage)),
        storage=storage_of(stage),
        key=tuple(".".join(key_path(stage, name)) for name in key_names(stage)),
        state=state.spark() if state else None,
    )
