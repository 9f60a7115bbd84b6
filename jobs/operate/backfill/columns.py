"""The columns of a view by whose values its rows can be separated: times that are part of the row's key.

    key (page, windowstart, windowend)   windowstart, windowend    a window's rows are computed from its own events
    key (page, day)                      day                       a DATE or TIMESTAMP that rows are grouped by
    key (page)                           none                      a row moves out of a range when its time changes

What decides a row's place in or out of a range must not change while the row is the same row: a backfill that takes it
away on one side would not put it back on the other.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from sqlglot import exp

from strandline.jobs.model.errors import RangeInseparable
from strandline.jobs.model.relation import WINDOW_BOUNDS
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, MapStage
from strandline.jobs.model.stage_columns import key_names, storage_of, visible_columns
from strandline.jobs.model.types import BIGINT, DATE, TIMESTAMP
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.model.stage import Stage

Unit = Literal["milliseconds", "date", "timestamp"]
"""How a column says a moment; windows have theirs in milliseconds since the epoch, as ksqlDB has them."""


@dataclass(frozen=True)
class TimeColumn:
    """A visible column that separates the rows of a view by time.

    Attributes:
        key: the name of the key column that it shows.
    """

    name: str
    key: str
    unit: Unit


def time_column(stage: Stage, wanted: str | None) -> TimeColumn:
    """The column that separates the rows of a stage: the wanted one, or else the begin of its windows, or the only one.

    Raises:
        RangeInseparable: there is none, or several, or the wanted one is none.
    """
    if storage_of(stage) == "append":
        raise RangeInseparable(
            sentence(
                "the rows of '{}' are events, which are only ever added: none can be taken back", Name(stage.table)
            ),
            hint=sentence("compute it anew with what reads it: strandline rebuild {}", Name(stage.table, shlex.quote)),
        )
    found = {each.name: each for each in _time_columns(stage)}
    if wanted is not None and wanted in found:
        return found[wanted]
    begins = [each for each in found.values() if each.key == WINDOW_BOUNDS[0]]
    if wanted is None and len(begins or found) == 1:
        return (begins or [*found.values()])[0]
    named = ", ".join(found)
    if wanted is None and found:
        raise RangeInseparable(
            sentence("several columns separate the rows of '{}' by time: {}", Name(stage.table), named),
            hint=f"say which: --by {named}",
        )
    what = f"the column '{wanted}' of" if wanted is not None else "no column of"
    verb = "does not separate" if wanted is not None else "separates"
    raise RangeInseparable(
        sentence(
            "{} '{}' {} its rows by time: it takes a DATE, a TIMESTAMP or a window among what a row is grouped by",
            what,
            Name(stage.table),
            verb,
        ),
        hint=f"--by {named}"
        if found
        else sentence("compute all of it anew: strandline rebuild {}", Name(stage.table, shlex.quote)),
    )


def _time_columns(stage: Stage) -> Iterator[TimeColumn]:
    types = dict(visible_columns(stage))
    for name, key in _shown_keys(stage):
        if types[name] == TIMESTAMP:
            yield TimeColumn(name, key, "timestamp")
        elif types[name] == DATE:
            yield TimeColumn(name, key, "date")
        elif types[name] == BIGINT and key in WINDOW_BOUNDS:
            yield TimeColumn(name, key, "milliseconds")


def _shown_keys(stage: Stage) -> Iterator[tuple[str, str]]:
    """Visible columns that have the value of a key column, each with that key column."""
    keys = key_names(stage)
    match stage:
        case MapStage():
            shown = [{each.name: each.expression for each in core.columns} for core in stage.body]
            for name in stage.visible:
                same = (key for key in keys if all(core[name] == core[key] for core in shown))
                yield from ((name, key) for key in [*same][:1])
        case AggregateStage() | AnalyticStage():
            for output in stage.outputs:
                of = output.expression
                if isinstance(of, exp.Column) and of.name in keys:
                    yield output.name, of.name
        case _:
            yield from ((name, name) for name, _ in visible_columns(stage) if name in keys)
