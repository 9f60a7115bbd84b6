"""Functions OVER a window in a recomputation.

Ties are broken by the columns that identify a row, so that the value is the same as the rule's; see
`jobs.ivm.rules.analytic_text` for where SQL counts tied rows together.
"""

from __future__ import annotations

from strandline.jobs.model.calls import AnalyticCall
from strandline.jobs.model.types import DOUBLE
from strandline.jobs.query.logical.query import Block
from strandline.jobs.query.recompute.text import Recomputation

_PEERS_TOGETHER = ("COUNT", "SUM", "AVG", "MIN", "MAX")
_BY_ORDER_ALONE = ("RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST")


def analytic(rows: str, block: Block, recompute: Recomputation, identity: list[str]) -> str:
    """The rows with a column for each call.

    Args:
        identity: texts of the columns that identify a row.
    """
    calls = [f"{_value(call, block, recompute, identity)} AS {recompute.name(call.name)}" for call in block.analytic]
    return f"SELECT *, {', '.join(calls)} FROM ({rows}) AS __r"


def _value(call: AnalyticCall, block: Block, recompute: Recomputation, identity: list[str]) -> str:
    order = [
        f"{recompute.after(by)} {'DESC' if down else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
        for by, down, first in call.order
    ]
    arguments = [recompute.after(argument) for argument in call.arguments] or (
        ["*"] if call.function == "COUNT" else []
    )
    rows_frame = call.frame is not None and call.frame.upper().startswith("ROWS")
    if call.function not in _BY_ORDER_ALONE and (call.function not in _PEERS_TOGETHER or rows_frame):
        order += [f"{each} ASC NULLS FIRST" for each in identity]
    frame = call.frame
    if call.function == "LAST_VALUE" and frame is None:
        return _last_peer(call, block, recompute, identity)
    if call.function == "NTH_VALUE" and frame is None:
        return _nth(call, block, recompute, identity)
    if call.function == "AVG":
        arguments = [recompute.engine.cast(arguments[0], DOUBLE)]
    window = _over([recompute.after(each) for each in block.partition], order, frame)
    return recompute.whole(f"{call.function}({', '.join(arguments)}) OVER {window}", call.type)


def _last_peer(call: AnalyticCall, block: Block, recompute: Recomputation, identity: list[str]) -> str:
    """LAST_VALUE with the default frame, which ends with the rows that tie with this one."""
    peers = [recompute.after(each) for each in (*block.partition, *(by for by, _, _ in call.order))]
    order = [f"{each} ASC NULLS FIRST" for each in identity]
    all_rows = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    value = f"LAST_VALUE({recompute.after(call.arguments[0])}) OVER {_over(peers, order, all_rows)}"
    return recompute.engine.cast(value, call.type)


def _nth(call: AnalyticCall, block: Block, recompute: Recomputation, identity: list[str]) -> str:
    """NTH_VALUE with the default frame: of the rows up to those that tie with this one."""
    partition = [recompute.after(each) for each in block.partition]
    order = [
        f"{recompute.after(by)} {'DESC' if down else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
        for by, down, first in call.order
    ]
    value, number = (recompute.after(argument) for argument in call.arguments)
    rows = _over(partition, [*order, *(f"{each} ASC NULLS FIRST" for each in identity)], None)
    frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    every = rows.removesuffix(")") + f" {frame})"
    found = f"CASE WHEN COUNT(*) OVER {_over(partition, order, None)} >= {number} THEN"
    return recompute.engine.cast(f"{found} NTH_VALUE({value}, {number}) OVER {every} END", call.type)


def _over(partition: list[str], order: list[str], frame: str | None) -> str:
    parts = [f"PARTITION BY {', '.join(partition)}"] if partition else []
    parts += [f"ORDER BY {', '.join(order)}"] if order else []
    return f"({' '.join([*parts, *([frame] if frame else [])])})"
