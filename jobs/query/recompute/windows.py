"""Time windows in a recomputation: the windows that a row belongs to, and the condition that a window is closed.

TUMBLING (SIZE 10 s), rowtime 00:00:07    windowstart 0 ms      windowend 10000 ms
HOPPING (10 s, ADVANCE BY 5 s)            windowstart 0, 5000   windowend 10000, 15000
SESSION (10 s)                            first and last rowtime of rows no further than 10 s apart
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.engines.engine import Dialect
from strandline.jobs.model.columns import WINDOW_END, WINDOW_START
from strandline.jobs.query.logical.query import Block, TimeWindow
from strandline.jobs.query.recompute.text import Recomputation

MILLIS = "__millis"
CLOCK = "__clock"

_SERIES: dict[Dialect, str] = {
    "duckdb": "range({first}, {last} + 1, {step})",
    # Spark's sequence counts down when the first is after the last.
    "spark": "IF({first} <= {last}, sequence({first}, {last}, {step}), CAST(array() AS ARRAY<BIGINT>))",
}


def in_windows(rows: str, block: Block, recompute: Recomputation) -> str:
    """The rows with `__millis`, and with `windowstart` and `windowend`, once for each window; without the late ones."""
    window = block.window
    assert window is not None
    assert block.time is not None
    now = recompute.millis(clock(block.time))
    timed = f"SELECT *, {recompute.millis(block.time)} AS {MILLIS}, {now} AS {CLOCK} FROM ({rows}) AS __f"
    if window.type == "session":
        kept = f" WHERE {CLOCK} - {MILLIS} <= {window.size + window.grace}" if window.grace is not None else ""
        return f"SELECT * FROM ({timed}) AS __t{kept}"
    expanded = recompute.engine.expand([(WINDOW_START, _starts(window, recompute))])
    placed = f"SELECT __t.*, CAST({WINDOW_START} AS BIGINT) AS {WINDOW_START} FROM ({timed}) AS __t {expanded}"
    late = f" WHERE {WINDOW_START} + {window.size + window.grace} > {CLOCK}" if window.grace is not None else ""
    return f"SELECT *, {WINDOW_START} + {window.size} AS {WINDOW_END} FROM ({placed}) AS __p{late}"


def in_sessions(rows: str, partition: list[str], window: TimeWindow) -> str:
    """The rows with `__session`, a number for each session of a group.

    A row begins a session when the previous row is too far away, or when its session had closed before the row arrived.
    """
    by = f"PARTITION BY {', '.join(partition)} " if partition else ""
    before = f"LAG({MILLIS}) OVER ({by}ORDER BY {MILLIS}, {CLOCK})"
    still = f" AND {CLOCK} <= {before} + {window.size + window.grace}" if window.grace is not None else ""
    begins = f"CASE WHEN {MILLIS} - {before} <= {window.size}{still} THEN 0 ELSE 1 END"
    begun = f"SELECT *, {begins} AS __begins FROM ({rows}) AS __g"
    return f"SELECT *, SUM(__begins) OVER ({by}ORDER BY {MILLIS}) AS __session FROM ({begun}) AS __h"


def closed(block: Block, recompute: Recomputation) -> str:
    """The condition of EMIT FINAL: the window is closed, no row can enter it any more."""
    window = block.window
    assert window is not None
    assert isinstance(block.time, exp.Column)
    source = next(part.source for part in block.inputs if part.alias == block.time.table)
    stream_time = recompute.millis(exp.column("_stream_time"))
    open_for = (window.grace or 0) + (window.size + 1 if window.type == "session" else 0)
    events = recompute.source(source, ("_stream_time",))
    return f"{WINDOW_END} + {open_for} <= (SELECT MAX({stream_time}) FROM {events} AS __s)"


def clock(time: exp.Expression) -> exp.Expression:
    """The stream's time at a row, as an expression made from that of the row's own time."""
    made = exp.Paren(this=time.copy())
    for node in list(made.find_all(exp.Column)):
        node.set("this", exp.to_identifier("_stream_time", quoted=True))
    found = made.this
    assert isinstance(found, exp.Expression)
    return found


def _starts(window: TimeWindow, recompute: Recomputation) -> str:
    """The array of the windows' starts: the multiples of the advance after `time - size`, none before 1970."""
    first = (
        f"GREATEST(CAST(FLOOR(({MILLIS} - {window.size}) / {window.advance}.0) AS BIGINT) + 1, 0) * {window.advance}"
    )
    return _SERIES[recompute.engine.dialect].format(first=first, last=MILLIS, step=window.advance)
