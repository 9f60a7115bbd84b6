"""The tables of the lake that a definition owns, by name. No other module puts such a name together.

| definition | event log | rows | rows kept aside |
| --- | --- | --- | --- |
| stream `s` declared with columns | `s` | the same | `s__dead_letters` |
| table `t` declared with columns | `t__log` | `t` | `t__dead_letters` |
| view `v` | | `v` | `v__dead_letters` |
| query `s__insert_1` into a stream | | those of `s` | `s__insert_1__dead_letters` |

A view or query may have inner stages `v__stage_1`, …; a stage that several views share is `shared__<digest>`.
"""

from __future__ import annotations

from jobs.model.definitions import Definition, InsertQuery, Source, View
from state_store.layout import safe_name

_SHARED = "shared__"


def event_log(source: Source) -> str:
    """The event log of a source; that of a stream is the stream."""
    return source.name if source.kind == "stream" else log_below(source.name)


def log_below(table: str) -> str:
    """The event log below a keyed source (`CREATE TABLE … (… PRIMARY KEY)`)."""
    return f"{table}__log"


def dead_letters(name: str) -> str:
    """The rows kept aside of a source, a view, a query into a stream, or an inner stage: records that do not decode,
    rows on which an expression fails."""
    return f"{name}__dead_letters"


def inner_stage(view: str, number: int) -> str:
    """An inner stage of a view, or of a query into a stream; the first is number 1."""
    return f"{view}__stage_{number}"


def inner_stages(definition: Source | View) -> tuple[str, ...]:
    """Patterns, as of folders' names, of the inner stages below a view, and below the queries into a stream."""
    name = safe_name(definition.name)
    below_queries = f"{name}__insert_[0-9]*__stage_[0-9]*"
    return (f"{name}__stage_[0-9]*", below_queries) if isinstance(definition, View) else (below_queries,)


def shared_stage(digest: str) -> str:
    """A stage that several views read; `digest` says what it holds."""
    return f"{_SHARED}{digest}"


def is_shared(table: str) -> bool:
    """True for the table of a stage that several views read."""
    return table.startswith(_SHARED)


def own_tables(definition: Definition) -> tuple[str, ...]:
    """The tables that belong to a definition alone, in the order in which they are made; inner stages are not among
    them. A query into a stream has none: its rows are the stream's."""
    if isinstance(definition, InsertQuery):
        return ()
    below = (event_log(definition),) if isinstance(definition, Source) else ()
    return tuple(dict.fromkeys((*below, definition.name, dead_letters(definition.name))))
