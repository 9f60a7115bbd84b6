"""The text of a function OVER a window, such that both engines agree and chance breaks no ties.

Rows that the query's ORDER BY does not tell apart are ordered by the row's key, except where SQL counts them together:

| function | ORDER BY | frame |
| --- | --- | --- |
| RANK, DENSE_RANK, PERCENT_RANK, CUME_DIST | the query's | - |
| ROW_NUMBER, NTILE, LAG, LEAD | the query's, then the key | - |
| COUNT, SUM, AVG, MIN, MAX over RANGE (also the default) | the query's: peers count together | the query's |
| COUNT, SUM, AVG, MIN, MAX over ROWS | the query's, then the key | the query's |
| FIRST_VALUE, LAST_VALUE, NTH_VALUE | the query's, then the key | the query's; by default `_last_peer`, `_nth` |
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.ivm.rules.settled import render
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import AnalyticCall, AnalyticStage
from strandline.jobs.model.types import BIGINT, DOUBLE, MAX_PRECISION, BaseType, SqlType

_RANKS = ("RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST")
_AGGREGATES = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_EXACT = SqlType(BaseType.DECIMAL, precision=MAX_PRECISION)
_ENDS = ("FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")
_ALL_ROWS = "BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"


def analytic_text(stage: AnalyticStage, call: AnalyticCall, partition: tuple[str, ...], engine: Engine) -> str:
    """The value of the call, as exactly its type.

        ROW_NUMBER() OVER (PARTITION BY dept ORDER BY pay DESC), key id
        -> CAST(row_number() OVER (PARTITION BY __p0 ORDER BY "pay" DESC NULLS LAST, "id" ASC NULLS FIRST) AS BIGINT)

    Args:
        partition: the columns that hold the partition's values.

    Raises:
        NotSupported: FIRST_VALUE or LAST_VALUE over RANGE with a distance, where ties have no order.
    """
    if call.function == "LAST_VALUE" and call.frame is None:
        return engine.cast(_last_peer(stage, call, partition, engine), call.type)
    if call.function == "NTH_VALUE" and call.frame is None:
        return engine.cast(_nth(stage, call, partition, engine), call.type)
    window = _window(stage, call, partition, engine)
    arguments = [render(argument, engine) for argument in call.arguments]
    if call.function == "AVG":
        total = engine.cast(f"SUM({arguments[0]}) OVER {window}", DOUBLE)
        return engine.cast(f"{total} / NULLIF(COUNT({arguments[0]}) OVER {window}, 0)", call.type)
    if call.function == "COUNT" and not arguments:
        arguments = ["*"]
    if call.function in ("LAG", "LEAD"):
        # The value and its default must be of one type.
        arguments = [engine.cast(a, call.type) if at in (0, 2) else a for at, a in enumerate(arguments)]
    if call.null_beyond and call.type == BIGINT:
        total = f"{call.function}({engine.cast(arguments[0], _EXACT)}) OVER {window}"
        return engine.cast_or_null(total, call.type)
    return engine.cast(f"{call.function}({', '.join(arguments)}) OVER {window}", call.type)


def _window(stage: AnalyticStage, call: AnalyticCall, partition: tuple[str, ...], engine: Engine) -> str:
    order = [_ordered(each, engine) for each in call.order]
    if call.function in _RANKS:
        # A rank without an order is 1 for all rows; Spark wants an order all the same.
        return _over(partition, order or ["TRUE"], None)
    key = [_ordered((name, False, True), engine) for name in stage.key]
    frame = call.frame.upper() if call.frame is not None else None
    if call.function in _AGGREGATES:
        by_row = frame is not None and frame.startswith("ROWS")
        return _over(partition, [*order, *key] if by_row else order, frame)
    if call.function not in _ENDS:
        return _over(partition, [*order, *key] or ["TRUE"], None)
    if frame is not None and not frame.startswith("ROWS") and frame != f"RANGE {_ALL_ROWS}":
        raise NotSupported(
            f"{call.function} over {call.frame} has no definite value where rows tie", hint="write ROWS BETWEEN …"
        )
    return _over(partition, [*order, *key] or ["TRUE"], frame)


def _last_peer(stage: AnalyticStage, call: AnalyticCall, partition: tuple[str, ...], engine: Engine) -> str:
    """LAST_VALUE over the default frame: the value of the last of the rows that tie with this one.

    The default frame ends with the row's peers, so it is the last one, by key, of a partition by the order as well.
    Without an order all rows of the partition tie.
    """
    peers = (*partition, *(render(expression, engine) for expression, _, _ in call.order))
    key = [_ordered((name, False, True), engine) for name in stage.key] or ["TRUE"]
    value = render(call.arguments[0], engine)
    return f"LAST_VALUE({value}) OVER {_over(peers, key, f'ROWS {_ALL_ROWS}')}"


def _nth(stage: AnalyticStage, call: AnalyticCall, partition: tuple[str, ...], engine: Engine) -> str:
    """NTH_VALUE over the default frame, which ends with the row's peers: that row of the partition, if it is in it."""
    order = [_ordered(each, engine) for each in call.order]
    key = [_ordered((name, False, True), engine) for name in stage.key]
    value, number = (render(argument, engine) for argument in call.arguments)
    every = _over(partition, [*order, *key] or ["TRUE"], f"ROWS {_ALL_ROWS}")
    so_far = _over(partition, order, None)
    return f"CASE WHEN COUNT(*) OVER {so_far} >= {number} THEN NTH_VALUE({value}, {number}) OVER {every} END"


def _ordered(by: tuple[exp.Expression | str, bool, bool], engine: Engine) -> str:
    expression, descending, nulls_first = by
    text = engine.name(expression) if isinstance(expression, str) else render(expression, engine)
    return f"{text} {'DESC' if descending else 'ASC'} NULLS {'FIRST' if nulls_first else 'LAST'}"


def _over(partition: tuple[str, ...], order: list[str], frame: str | None) -> str:
    parts = [
        f"PARTITION BY {', '.join(partition)}" if partition else "",
        f"ORDER BY {', '.join(order)}" if order else "",
        frame or "",
    ]
    return f"({' '.join(part for part in parts if part)})"
