"""The stage of filters, projections, joins and UNION ALL: its rows are stored as they are.

| rows | stored |
| --- | --- |
| only ever added | appended, with the meta columns of their events |
| change and go | by key; the key columns that nobody selected are hidden: `__k0`, … |
| events joined so that they may change and go | by key, time and place of the event hidden as well |
| branches of a UNION ALL, all only ever added | appended; a branch's events have partitions of their own |
| branches of which one changes | by `__branch` and the branch's key, all hidden |
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from strandline.jobs.ivm.plan.rows import (
    KeyColumn,
    PlannedRows,
    Selected,
    all_columns,
    apart,
    named,
    number,
    of_relation,
)
from strandline.jobs.model import types as t
from strandline.jobs.model.relation import EVENT_ORDER, META_COLUMNS, WINDOW_BOUNDS, Relation
from strandline.jobs.model.stage import Core, MapStage, Output
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.trees import place_of

BRANCH = "__branch"
_HERE = "__here"

# Stored beside the rows of events that may change and go: their time and place.
_EVENT = ("_timestamp", "_stream_time", "_partition", "_offset")


def map_stage(parts: Sequence[Selected], *, with_events: bool = False, with_places: bool = False) -> MapStage:
    """The stage that stores those rows; each part is a branch of a UNION ALL.

    Args:
        with_events: keep time and place of events also where the rows are those of tables.
        with_places: keep places there. Without its time, nobody takes such a row for an event.

    Raises:
        NotSupported: the rows of an input cannot be told apart.
    """
    parts = apart(parts)
    visible = tuple(output.name for output in parts[0].outputs)
    if all(part.rows.is_append for part in parts):
        body = tuple(part.rows.core((*part.outputs, *appended(part.rows))) for part in parts)
        return MapStage("", body, (*visible, *(name for name, _ in META_COLUMNS)))
    events = with_events or all(part.rows.is_of_events() for part in parts)
    names = _EVENT if events else EVENT_ORDER if with_places else ()
    if len(parts) == 1:
        core = _keyed(parts[0], names)
        return MapStage("", (core,), visible, core.key)
    return _union(parts, visible, names)


def marked_stage(relation: Relation) -> MapStage:
    """A keyed relation as it is, with a column in its key that is never NULL."""
    rows = of_relation(relation, "rows")
    columns = tuple(Output(name, named(name, "rows"), sql_type) for name, sql_type in all_columns(relation))
    key = (*relation.key, _HERE)
    core = rows.core((*columns, Output(_HERE, exp.Boolean(this=True), t.BOOLEAN)), key)
    return MapStage("", (core,), tuple(name for name, _ in relation.columns), key)


def appended(rows: PlannedRows) -> tuple[Output, ...]:
    """The meta columns of rows that are only ever added."""
    meta = rows.meta()
    return tuple(Output(name, meta[name], sql_type) for name, sql_type in META_COLUMNS)


def keyed_columns(rows: PlannedRows, outputs: tuple[Output, ...]) -> tuple[tuple[str, ...], tuple[Output, ...]]:
    """The names of the key, and the columns that must be hidden for it: a key column that is selected is visible.

    A window's bounds keep their names, even hidden, so that queries over the rows can read them.
    """
    taken = {each.name for each in outputs}
    names, hidden = [], []
    for place, column in enumerate(rows.key()):
        bound = column.name in WINDOW_BOUNDS
        named_so = (o for o in outputs if not bound or o.name == column.name)
        shown = next((o.name for o in named_so if place_of(o.expression) in column.same), None)
        if shown is None:
            name = column.name if bound and column.name not in taken else f"__k{place}"
            taken.add(name)
            hidden.append(Output(name, column.expression, column.type))
        names.append(shown or name)
    return tuple(names), tuple(hidden)


def _keyed(part: Selected, names: Sequence[str]) -> Core:
    key, hidden = keyed_columns(part.rows, part.outputs)
    return part.rows.core((*part.outputs, *hidden, *_events([part.rows], names)[0]), key)


def _events(branches: Sequence[PlannedRows], names: Sequence[str]) -> list[tuple[Output, ...]]:
    """Those of the columns of time and place of the events that all branches have."""
    types = dict(META_COLUMNS)
    known = [rows.meta() for rows in branches]
    shared = [name for name in names if all(name in meta for meta in known)]
    return [tuple(Output(name, meta[name], types[name]) for name in shared) for meta in known]


def _union(parts: Sequence[Selected], visible: tuple[str, ...], names: Sequence[str]) -> MapStage:
    keys = [part.rows.key() for part in parts]
    slots = _slots(keys)
    events = _events([part.rows for part in parts], names)
    key = (BRANCH, *(f"__k{place}" for place in range(len(slots))))
    body = []
    for place, (part, own, event) in enumerate(zip(parts, keys, events, strict=True), 1):
        branch = Output(BRANCH, number(place), t.INT)
        values = _filled(own, slots)
        hidden = (
            Output(f"__k{at}", value, sql_type) for at, (value, sql_type) in enumerate(zip(values, slots, strict=True))
        )
        body.append(part.rows.core((*part.outputs, branch, *hidden, *event), key))
    return MapStage("", tuple(body), visible, key)


def _slots(keys: Sequence[tuple[KeyColumn, ...]]) -> list[SqlType]:
    """The types of the fewest columns that can hold the key of every branch."""
    slots: list[SqlType] = []
    for key in keys:
        types = [column.type for column in key]
        for sql_type in dict.fromkeys(types):
            slots += [sql_type] * (types.count(sql_type) - slots.count(sql_type))
    return slots


def _filled(key: tuple[KeyColumn, ...], slots: Sequence[SqlType]) -> list[exp.Expression]:
    """A value for each slot; NULL where this branch has none."""
    left = list(key)
    values: list[exp.Expression] = []
    for sql_type in slots:
        column = next((each for each in left if each.type == sql_type), None)
        if column is not None:
            left.remove(column)
        values.append(column.expression if column is not None else exp.Null())
    return values
