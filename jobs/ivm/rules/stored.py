"""The stored form of a stage's rows: the visible columns, and the struct `__state` beside them.

| stage | storage | `__state` |
| --- | --- | --- |
| map, all inputs append | append | none |
| map | keyed | the columns of the body that are not visible: key columns, an event's time and place, a row's place |
| latest | keyed | time and place of the newest event: `EVENT_ORDER`, `_timestamp` |
| aggregate | keyed | the group columns that are not visible, `__rows` (rows in the group), an accumulator per call |
| aggregate by session | keyed | the group columns and bounds that are not visible, `__rows` |
| analytic | keyed | the key and partition columns that are not visible |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.model.relation import EVENT_ORDER
from strandline.jobs.model.stage import AggregateStage, MapStage, Stage, body_of
from strandline.jobs.model.stage_columns import (
    Columns,
    hidden_columns,
    key_names,
    key_path,
    storage_of,
    visible_columns,
)
from strandline.jobs.model.types import BIGINT, SqlType, struct
from strandline.state_store.tablespec import STATE, TableSpec

ROWS = "__rows"
_MARK = "."
_PLACES_FORM: Final = 3
"""Higher than those of accumulators: before it, lists over subqueries of tables were in another order."""
_CONSTANTS_FORM: Final = 4
"""Before it, the condition by which the first relation joins constants was lost, and rows were stored that fail it."""


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


def form_of(stages: Iterable[Stage]) -> int:
    """The number of the form in which the stages store rows: that of their newest accumulator, of places, or of joins
    with constants."""
    stages = tuple(stages)
    forms = [_PLACES_FORM] if any(map(_keeps_places, stages)) else []
    forms += [_CONSTANTS_FORM] if any(map(_joins_constants, stages)) else []
    forms += [
        function_of(call).form(call)
        for stage in stages
        if isinstance(stage, AggregateStage) and stage.session is None
        for call in stage.aggregates
    ]
    return max(forms, default=1)


def _keeps_places(stage: Stage) -> bool:
    """True if a stage keeps the places of rows that are no events."""
    hidden = {name for name, _ in hidden_columns(stage)} if isinstance(stage, MapStage) else set()
    return hidden.issuperset(EVENT_ORDER) and "_timestamp" not in hidden


def _joins_constants(stage: Stage) -> bool:
    """True if the first relation of a core joins constants."""
    return any(core.inputs and not core.inputs[0].joins_nothing for core in body_of(stage))


def marked(fingerprint: str, stages: Iterable[Stage]) -> str:
    """The fingerprint that a definition's commits carry: its own, marked where `__state` is in a later form.

    A version that stored sums otherwise left commits without the mark, or with another: their rows are not misread.
    """
    form = form_of(stages)
    return fingerprint if form == 1 else f"{fingerprint}{_MARK}{form}"


def unmarked(fingerprint: str) -> str:
    """The definition's own part of a fingerprint."""
    return fingerprint.partition(_MARK)[0]


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
