"""How a stage's rows are stored: its visible columns, and what `__state` keeps beside them.

| stage | kind | `__state` |
| --- | --- | --- |
| map over append | append | none |
| map over keyed | keyed | the key columns that are not visible, if there are any |
| latest | keyed | the place of the newest event: `EVENT_ORDER` |
| aggregate | keyed | the group columns that are not visible, `__rows` (rows in the group), an accumulator per call |
"""

from __future__ import annotations

from typing import Literal

from jobs.ivm.aggregates import FUNCTIONS
from jobs.ivm.by_offset import ORDER_TYPE
from jobs.ivm.stage import AggregateStage, LatestStage, MapStage, Output, Relation, Stage
from jobs.sql.types import BIGINT, SqlType, struct
from state_store.tablespec import STATE, TableSpec

ROWS = "__rows"


def kind_of(stage: Stage) -> Literal["append", "keyed"]:
    """Whether the stage's rows are only ever added, or change and go by key."""
    return "append" if isinstance(stage, MapStage) and stage.input.kind == "append" else "keyed"


def hidden_keys(stage: Stage) -> tuple[Output, ...]:
    """The key columns that are kept in `__state`, because nobody selected them."""
    match stage:
        case MapStage():
            return stage.hidden_key
        case LatestStage():
            return ()
        case AggregateStage():
            visible = {output.name for output in stage.outputs}
            return tuple(group for group in stage.group if group.name not in visible)


def state_type(stage: Stage) -> SqlType | None:
    """The struct `__state`; None when the stage needs none."""
    hidden = [(key.name, key.type) for key in hidden_keys(stage)]
    match stage:
        case MapStage():
            return struct(*hidden) if hidden else None
        case LatestStage():
            return ORDER_TYPE
        case AggregateStage():
            kept = [(call.name, FUNCTIONS[call.function].accumulator(call)) for call in stage.aggregates]
            return struct(*hidden, (ROWS, BIGINT), *kept)


def key_path(stage: Stage, name: str) -> tuple[str, ...]:
    """Where a key column is in the stored row: `(name,)`, or `("__state", name)`."""
    return (STATE, name) if name in {key.name for key in hidden_keys(stage)} else (name,)


def key_names(stage: Stage) -> tuple[str, ...]:
    """The names of all key columns, visible ones and hidden ones."""
    hidden = tuple(key.name for key in stage.hidden_key) if isinstance(stage, MapStage) else ()
    return (*stage.key, *(name for name in hidden if name not in stage.key))


def spec_of(stage: Stage) -> TableSpec:
    """The table that a stage is stored in."""
    state = state_type(stage)
    return TableSpec(
        name=stage.table,
        columns=tuple((output.name, output.type.spark()) for output in stage.outputs),
        kind=kind_of(stage),
        key=tuple(".".join(key_path(stage, name)) for name in key_names(stage)),
        state=state.spark() if state else None,
    )


def spec_of_input(relation: Relation) -> TableSpec:
    """The table of an input, as far as a stage reads it: without the state its own maintenance keeps."""
    columns = tuple((name, kind.spark()) for name, kind in relation.columns)
    return TableSpec(relation.name, columns, relation.kind, relation.key)
