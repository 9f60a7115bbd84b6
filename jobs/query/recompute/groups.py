"""GROUP BY, HAVING and EMIT FINAL in a recomputation.

GROUP BY ROLLUP (a, b)   ->   GROUP BY GROUPING SETS (("a", "b"), ("a"), ())
WINDOW … EMIT FINAL      ->   … WHERE windowend + grace <= the stream's time
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.model.columns import EVENT_ORDER, WINDOW_BOUNDS, WINDOW_END, WINDOW_START
from strandline.jobs.model.types import BIGINT
from strandline.jobs.query.logical.group_columns import mark_name, marks_in
from strandline.jobs.query.logical.query import Block
from strandline.jobs.query.recompute.calls import Written, call_text
from strandline.jobs.query.recompute.failed_rows import check_of_groups, condition
from strandline.jobs.query.recompute.from_where import meta_column
from strandline.jobs.query.recompute.text import Recomputation
from strandline.jobs.query.recompute.windows import CLOCK, MILLIS, closed, in_sessions

_AT = "__at"


def grouped(rows: str, block: Block, recompute: Recomputation) -> str:
    """One row per group (and window), with the groups and calls by their names, where HAVING holds."""
    groups = [recompute.name(group.name) for group in block.group or ()]
    text = _evaluated(rows, block, recompute)
    keys = list(groups)
    shown = list(groups)
    if block.window is not None and block.window.type == "session":
        text = in_sessions(text, groups, block.window)
        keys.append("__session")
        shown += [f"MIN({MILLIS}) AS {WINDOW_START}", f"MAX({MILLIS}) AS {WINDOW_END}"]
    elif block.window is not None:
        keys += WINDOW_BOUNDS
        shown += WINDOW_BOUNDS
    for call in block.calls:
        arguments = [recompute.name(f"{call.name}_{number}") for number in range(len(call.arguments))]
        where = recompute.name(f"{call.name}_filter") if call.filter is not None else None
        text_of_call = call_text(Written(call, arguments, where, _AT), recompute.engine.dialect)
        value = recompute.whole(text_of_call, call.type)
        shown.append(f"{value} AS {recompute.name(call.name)}")
    for place in marks_in(block):
        mark = recompute.engine.cast(f"GROUPING({groups[place]})", BIGINT)
        shown.append(f"{mark} AS {recompute.name(mark_name(place))}")
    by = _by(block, keys)
    text = f"SELECT {', '.join(shown) or '1 AS __one'} FROM ({text}) AS __e{by}"
    if block.window is not None and block.window.final:
        text = f"SELECT * FROM ({text}) AS __c WHERE {closed(block, recompute)}"
    check = check_of_groups(block)
    kept = condition(check, recompute) if check is not None else None
    return text if kept is None else f"SELECT * FROM ({text}) AS __a WHERE {recompute.total_after(kept)}"


def event_order(block: Block) -> dict[str, exp.Expression]:
    """The place of a row in the order of events, by name: empty where no call asks for it, or rows have none."""
    if not any(function_of(call).ordered for call in block.calls):
        return {}
    found = {name: column for name in EVENT_ORDER if (column := meta_column(block, name)) is not None}
    return found if len(found) == len(EVENT_ORDER) else {}


def _evaluated(rows: str, block: Block, recompute: Recomputation) -> str:
    """Groups, arguments and filters as columns; with SEMANTICS='ksql' without rows that have a null in the key.

    Those stay with grouping sets, which put nulls into keys themselves.
    """
    parts = [recompute.value(group) for group in block.group or ()]
    for call in block.calls:
        for number, (argument, sql_type) in enumerate(zip(call.arguments, call.argument_types, strict=True)):
            value = recompute.engine.cast(recompute.after(argument), sql_type)
            parts.append(f"{value} AS {recompute.name(f'{call.name}_{number}')}")
        if call.filter is not None:
            parts.append(f"{recompute.after(call.filter)} AS {recompute.name(f'{call.name}_filter')}")
    if any(function_of(call).ordered for call in block.calls):
        place = [(name, recompute.after(column)) for name, column in event_order(block).items()]
        parts.append(f"{recompute.engine.struct(place) if place else 'NULL'} AS {_AT}")
    if block.window is not None:
        parts += [MILLIS, CLOCK] if block.window.type == "session" else WINDOW_BOUNDS
    text = f"SELECT {', '.join(parts) or '1 AS __one'} FROM ({rows}) AS __w"
    if recompute.semantics == "sql" or not block.group or block.sets:
        return text
    known = " AND ".join(f"{recompute.name(group.name)} IS NOT NULL" for group in block.group)
    return f"SELECT * FROM ({text}) AS __v WHERE {known}"


def _by(block: Block, keys: list[str]) -> str:
    if not keys and not block.sets:
        return ""
    if not block.sets:
        return f" GROUP BY {', '.join(keys)}"
    windows = keys[len(block.group or ()) :]
    sets = [[*(keys[place] for place in each), *windows] for each in block.sets]
    listed = [f"({', '.join(each)})" for each in sets]
    return f" GROUP BY GROUPING SETS ({', '.join(listed)})"
