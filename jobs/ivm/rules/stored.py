"""The stored form of a stage's rows: the visible columns, and the struct `__state` beside them.

| stage | storage | `__state` |
| --- | --- | --- |
| map, all inputs append | append | none |
| map | keyed | the columns of the body that are not visible: key columns, an event's time and place, a row's place |
| latest | keyed | time and place of the newest event: `EVENT_ORDER`, `_timestamp` |
| latest, of a bag | keyed | the key, the hash of the values; time and place of the event that brought the row |
| aggregate | keyed | the group columns that are not visible, `__rows` (rows in the group), an accumulator per call |
| aggregate by session | keyed | the group columns and bounds that are not visible, `__rows` |
| analytic | keyed | the key and partition columns that are not visible |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.model.stage import PART, AggregateStage, MapStage, Stage, body_of
from strandline.jobs.model.stage_columns import (
    Columns,
    hidden_columns,
    key_names,
    key_path,
    storage_of,
    visible_columns,
)
from strandline.jobs.model.tables import EVENT_ORDER, Relation
from strandline.jobs.model.types import BIGINT, SqlType, struct
from strandline.state_store.tablespec import STATE, VERSION, WEIGHT, TableSpec

ROWS = "__rows"
_MARK = "."
_PLACES_FORM: Final = 3
"""Higher than those of accumulators: before it, lists over subqueries of tables were in another order."""
_VALUES_FORM: Final = 5
"""Before it, the different values of a group were an array in its row."""
_CONSTANTS_FORM: Final = 4
"""Before it, the condition by which the first relation joins constants was lost, and rows were stored that fail it."""


def state_type(stage: Stage) -> SqlType | None:
    """The struct `__state`; None when the stage needs none."""
    fields = hidden_columns(stage)
    if isinstance(stage, AggregateStage):
        fields += ((ROWS, BIGINT),)
        if stage.session is None:
            kept = ((call, function) for call in stage.aggregates if (function := function_of(call)).kept)
            fields += tuple((call.name, function.accumulator(call)) for call, function in kept)
    return struct(*fields) if fields else None


def stored_columns(stage: Stage) -> Columns:
    """Every stored column: the visible ones, then `__state` if there is one."""
    state = state_type(stage)
    return (*visible_columns(stage), (STATE, state)) if state else visible_columns(stage)


def form_of(stages: Iterable[Stage]) -> int:
    """The number of the form in which the stages store rows: that of their newest accumulator, of places, of joins
    with constants, or of values."""
    stages = tuple(stages)
    forms = [_PLACES_FORM] if any(map(_keeps_places, stages)) else []
    forms += [_CONSTANTS_FORM] if any(map(_joins_constants, stages)) else []
    forms += [_VALUES_FORM] if any(map(reads_values, stages)) else []
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


def reads_values(stage: Stage) -> bool:
    """True if a stage reads the different values of its groups from inner stages."""
    return isinstance(stage, AggregateStage) and any(each.name == PART for each in stage.body[0].columns)


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


# The consolidated changes of a keyed relation over several commits, as SQL: rules read these.
#
#     _commit_version   k v weight          consolidated
#     5                 a 1 (−1), a 2 (+1)  a 1 (−1), a 3 (+1)
#     6                 a 2 (−1), a 3 (+1)
#     5                 b 7 (+1)            (nothing: b was not there before and is not there now)
#     6                 b 7 (−1)
#
# Without this a value that existed only between two commits could win a MAX.


def consolidated(relation: Relation, changes: str, engine: Engine) -> str:
    """One SELECT over the relation `changes` (the input's columns, `__weight`, `_commit_version`): per key at most one
    row of weight −1, as it was before all of them, and one of weight +1, as it is after."""
    names = [name for name, _ in (*relation.columns, *relation.hidden)]
    row = engine.struct([("__came", f"{WEIGHT} > 0"), *((name, engine.name(name)) for name in names)])
    place = engine.struct([("version", VERSION), ("weight", WEIGHT)])
    keys = ", ".join(engine.name(name) for name in relation.key)
    grouped = f"GROUP BY {keys}" if keys else "HAVING COUNT(*) > 0"
    ends = f"{engine.oldest(row, place)} AS __first, {engine.newest(row, place)} AS __last"

    def end(side: str, weight: str, condition: str) -> str:
        taken = ", ".join(f"{engine.field(side, name)} AS {engine.name(name)}" for name in names)
        return f"SELECT {taken}, CAST({weight} AS BIGINT) AS {WEIGHT} FROM __ends WHERE {condition}"

    return f"""WITH __ends AS (
  SELECT {ends}
  FROM {changes}
  {grouped}
)
{end("__first", "-1", "NOT (__first).__came")}
UNION ALL
{end("__last", "1", "(__last).__came")}"""
