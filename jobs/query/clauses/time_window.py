"""WINDOW and EMIT of a SELECT: the window of its groups, and the time that places a row in it."""

from __future__ import annotations

from typing import Literal, cast

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.query.logical.inputs import Inputs
from strandline.jobs.query.logical.query import TimeWindow
from strandline.jobs.sql.dialect import position_of
from strandline.jobs.sql.time_clauses import milliseconds

# ksqlDB's default, for its statements: a row that is a day late is left out.
DEFAULT_GRACE = 24 * 60 * 60 * 1000


def read_window(
    select: exp.Select, inputs: Inputs, *, default_grace: int | None
) -> tuple[TimeWindow | None, exp.Expression | None]:
    """The window, and the column that gives the rows' time; nothing without WINDOW.

    Args:
        default_grace: the grace when GRACE PERIOD is not given and the window is not EMIT FINAL.

    Raises:
        InvalidQuery: EMIT FINAL without a window; rows without a time; lengths that do not fit together.
    """
    node = select.args.get("time_window")
    emit = select.args.get("emit")
    final = emit is not None and emit.name == "FINAL"
    if node is None:
        if final:
            raise InvalidQuery("EMIT FINAL is for queries with WINDOW: others never end", hint="EMIT CHANGES")
        return None, None
    line, place = position_of(select)
    time = inputs.time()
    if time is None:
        names = ", ".join(repr(part.name) for part in inputs.parts)
        raise InvalidQuery(f"WINDOW places rows by their time, and those of {names} have none", line=line, column=place)
    size = milliseconds(node, "size") or 0
    advance = milliseconds(node, "advance") or size
    grace, retention = milliseconds(node, "grace"), milliseconds(node, "retention")
    if advance > size:
        raise InvalidQuery(
            "ADVANCE BY must not be more than SIZE: rows between the windows would belong to none",
            line=line,
            column=place,
        )
    if retention is not None and retention < size + (grace or 0):
        raise InvalidQuery("RETENTION must be at least SIZE and GRACE PERIOD together", line=line, column=place)
    if grace is None:
        grace = 0 if final else default_grace
    window_type = cast(Literal["tumbling", "hopping", "session"], node.name.lower())
    return TimeWindow(window_type, size, advance, grace, retention, final), time
