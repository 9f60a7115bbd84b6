"""The columns of a stage's table: which are visible, which are kept in `__state` and can be read by name, which are the
key; and the stage's table as another stage reads it.

What `__state` keeps beside them for the rule alone, `jobs.ivm.rules.stored` says.
"""

from __future__ import annotations

from typing import Literal

from sqlglot import exp

from strandline.jobs.model.stage import (
    COPY_NUMBER,
    AggregateStage,
    AnalyticStage,
    Core,
    LatestStage,
    MapStage,
    Output,
    RecursiveStage,
    Stage,
    storage_of_body,
)
from strandline.jobs.model.tables import BAG, ITEM, PLACE, WINDOW_BOUNDS, Relation
from strandline.jobs.model.types import BIGINT, SqlType, struct
from strandline.state_store.tablespec import STATE, TableSpec

Columns = tuple[tuple[str, SqlType], ...]
_EVENT = ("_partition", "_offset")


def storage_of(stage: Stage) -> Literal["append", "keyed"]:
    """Storage of the stage's rows: `append` if rows are only added, `keyed` if they change and go."""
    return storage_of_body(stage.body) if isinstance(stage, MapStage) else "keyed"


def visible_columns(stage: Stage) -> Columns:
    """The visible columns, in order; those of an append stage include the meta columns."""
    if isinstance(stage, MapStage):
        types = {column.name: column.type for column in stage.body[0].columns}
        return tuple((name, types[name]) for name in stage.visible)
    return tuple((output.name, output.type) for output in stage.outputs)


def hidden_columns(stage: Stage) -> Columns:
    """The columns kept in `__state` because nobody selected them; another stage can read them by name."""
    shown = {name for name, _ in visible_columns(stage)}
    match stage:
        case MapStage():
            wanted: Columns = tuple((column.name, column.type) for column in stage.body[0].columns)
        case LatestStage():
            wanted = (*BAG, *PLACE) if stage.bag else PLACE
        case RecursiveStage():
            wanted = () if stage.distinct else ((COPY_NUMBER, BIGINT),)
        case AggregateStage():
            wanted = tuple((group.name, group.type) for group in stage.group)
            if stage.session is not None:
                wanted += tuple((name, BIGINT) for name in WINDOW_BOUNDS)
        case AnalyticStage():
            types = {column.name: column.type for column in stage.body[0].columns}
            wanted = (
                *((name, types[name]) for name in stage.key),
                *((each.name, each.type) for each in stage.partition),
            )
    return tuple({name: (name, sql_type) for name, sql_type in wanted if name not in shown}.values())


def key_names(stage: Stage) -> tuple[str, ...]:
    """Names of all key columns, visible and hidden, each once. An equality between the keys of two inputs leaves one
    column for both."""
    bounds = WINDOW_BOUNDS if isinstance(stage, AggregateStage) and stage.session is not None else ()
    return tuple(dict.fromkeys((*stage.key, *bounds)))


def key_path(stage: Stage, name: str) -> tuple[str, ...]:
    """The path of a column in the stored row: `(name,)`, or `("__state", name)`."""
    return (STATE, name) if name in {hidden for hidden, _ in hidden_columns(stage)} else (name,)


def relation_of(stage: Stage) -> Relation:
    """Describe the stage's table as another stage reads it."""
    if storage_of(stage) == "append":
        assert isinstance(stage, MapStage)
        return Relation(stage.table, visible_columns(stage), "append", identity=_identity(stage))
    return Relation(stage.table, visible_columns(stage), "keyed", key_names(stage), hidden_columns(stage))


def visible_key(stage: Stage) -> tuple[str, ...]:
    """The key of the stage's rows, for who sees the visible columns alone: empty where one of it is hidden."""
    relation = relation_of(stage)
    return relation.key if {name for name, _ in relation.columns}.issuperset(relation.key) else ()


def _identity(stage: MapStage) -> tuple[str, ...]:
    """Columns that identify a row of an append stage: the place of its one event, and the number of the item if events
    are repeated for items; empty if any of these is no column."""
    if not all(_is_of_one_event(core) for core in stage.body):
        return ()
    if not any(core.expand for core in stage.body):
        return _EVENT
    items = [each.name for each in stage.body[0].columns if _is_number_of_item(each)]
    return (*_EVENT, *items[:1]) if items and len(stage.body) == 1 else ()


def _is_of_one_event(core: Core) -> bool:
    events = [each for each in core.inputs if each.join != "semi" and not each.frozen]
    return len(events) == 1 and events[0].relation.identity == _EVENT


def _is_number_of_item(column: Output) -> bool:
    node = column.expression
    return isinstance(node, exp.Column) and not node.table and node.name == ITEM


def spec_of_input(relation: Relation) -> TableSpec:
    """Describe the table of an input, as far as a stage reads it."""
    hidden = {name for name, _ in relation.hidden}
    return TableSpec(
        relation.name,
        tuple((name, sql_type.spark()) for name, sql_type in relation.columns),
        relation.storage,
        tuple(f"{STATE}.{name}" if name in hidden else name for name in relation.key),
        struct(*relation.hidden).spark() if relation.hidden else None,
    )
