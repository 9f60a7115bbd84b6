"""The rule of WINDOW SESSION: touched groups are cut into sessions again and compared with the stored rows.

    COUNT(*) GROUP BY k, gap 30 s (times in seconds)

    body_new (k, time)   Δ              self_old (k, start, end, n)    settled
    a 0                  a 50 (+1)      a 0  20 2                      a 0  20     exists=false  old=(a 0 20 2)
    a 20                                a 80 80 1                      a 80 80     exists=false  old=(a 80 80 1)
    a 50                                b 7  7  1                      a 0  80 4   exists=true   old=NULL
    a 80                                                               -           group b is not touched
    b 7

A session is the rows of one group no further apart than the gap, from the first row's time to the last row's, both in
milliseconds. A row whose own session (its time and nothing else) had closed by `grace` when it arrived is left out: the
row alone decides; ksqlDB accepts a late row that touches a session which is still open. A row that is in time and near
a session which had closed begins one of its own, as in Kafka Streams, where a closed session has been forgotten.

    __t  the touched groups        __e  group columns and arguments, per row, with its time
    __s  where a session begins    __i  the session's number in its group    __d  an accumulator per session and call
    __n  the rows to be stored     __o  the stored rows
"""

from __future__ import annotations

from collections.abc import Collection

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.ivm.rules.aggregate import chosen, evaluated, folded, shown
from strandline.jobs.ivm.rules.delta_join import ctes
from strandline.jobs.ivm.rules.stored import ROWS
from strandline.jobs.ivm.rules.upserts import (
    columns,
    marked,
    marked_stored,
    only_touched,
    render,
    settled,
    state_column,
    typed,
)
from strandline.jobs.model.relation import WINDOW_END, WINDOW_START
from strandline.jobs.model.stage import AggregateStage, SessionWindow
from strandline.jobs.model.stage_columns import hidden_columns, key_path
from strandline.jobs.model.types import BIGINT

_TIME = "__time"
_CLOCK = "__clock"


def session_rule(stage: AggregateStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form.

    Args:
        changed: the aliases of the inputs that moved; None for the first refresh, which computes every group.
    """
    assert stage.session is not None
    groups = [engine.name(group.name) for group in stage.group]
    texts = ctes(stage, engine, changed, rows=stage.body)
    new = old = hint = ""
    if groups and changed is not None:
        paths = [".".join(engine.name(step) for step in key_path(stage, group.name)) for group in stage.group]
        values = ", ".join(typed(group, engine) for group in stage.group)
        texts.append(f"__t AS (\n  SELECT DISTINCT {values}\n  FROM delta{chosen(stage, engine)}\n)")
        new, old, hint = only_touched("__e", groups), only_touched("__s", groups, paths), " /*+ BROADCAST(__t) */"
    texts += [
        _rows(stage, stage.session, engine),
        *_sessions(groups, stage.session, hint, new),
        _folded(stage, groups, engine),
        marked("__n", _to_be_stored(stage, engine)),
        marked_stored(f"SELECT{hint} __s.* FROM self_old AS __s{old}", engine),
    ]
    return f"WITH {', '.join(texts)}\n{settled(stage, engine)}"


def _millis(column: str, engine: Engine) -> str:
    return render(exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[exp.column(column, quoted=True)]), engine)


def _rows(stage: AggregateStage, session: SessionWindow, engine: Engine) -> str:
    """The rows that are not late."""
    time, clock = _millis(session.time, engine), _millis(session.clock, engine)
    late = f" WHERE {clock} - {time} <= {session.gap + session.grace}" if session.grace is not None else ""
    parts = [*evaluated(stage, engine, "CAST(1 AS BIGINT)"), f"{time} AS {_TIME}", f"{clock} AS {_CLOCK}"]
    return f"""__e AS (
  SELECT
    {columns(parts)}
  FROM (SELECT * FROM body_new{late}) AS __taken{chosen(stage, engine)}
)"""


def _sessions(groups: list[str], session: SessionWindow, hint: str, touched: str) -> list[str]:
    """The sessions of the rows: one begins where the row before is too far away, or had closed when the row arrived.

    Rows of one time have one number: a default frame counts peers together. Of them the first to arrive, by the clock,
    decides if the session before was still open.
    """
    partition = f"PARTITION BY {', '.join(groups)} " if groups else ""
    window = f"OVER ({partition}ORDER BY {_TIME})"
    before = f"LAG({_TIME}) OVER ({partition}ORDER BY {_TIME}, {_CLOCK})"
    closed = f" OR {before} + {session.gap + session.grace} < {_CLOCK}" if session.grace is not None else ""
    begins = f"CASE WHEN {_TIME} - {before} > {session.gap}{closed} THEN 1 ELSE 0 END AS __begins"
    return [
        f"__s AS (\n  SELECT{hint}\n    __e.*, {begins}\n  FROM __e{touched}\n)",
        f"__i AS (\n  SELECT *, SUM(__begins) {window} AS __session\n  FROM __s\n)",
    ]


def _folded(stage: AggregateStage, groups: list[str], engine: Engine) -> str:
    bounds = [f"MIN({_TIME}) AS {WINDOW_START}", f"MAX({_TIME}) AS {WINDOW_END}"]
    rows = f"{engine.cast('COUNT(*)', BIGINT)} AS {ROWS}"
    return f"""__d AS (
  SELECT
    {columns([*groups, *bounds, rows, *folded(stage.aggregates, "1", engine)])}
  FROM __i
  GROUP BY {", ".join([*groups, "__session"])}
)"""


def _to_be_stored(stage: AggregateStage, engine: Engine) -> str:
    values = [f"{shown(call, engine)} AS {engine.name(call.name)}" for call in stage.aggregates]
    fields = [(name, engine.name(name)) for name, _ in hidden_columns(stage)]
    parts = [*(typed(o, engine) for o in stage.outputs), *state_column(stage, [*fields, (ROWS, ROWS)], engine)]
    return f"SELECT\n    {columns(parts)}\n  FROM (SELECT {columns(['*', *values])} FROM __d) AS __r"
