"""The rule of window functions: touched partitions are computed again and compared with the stored rows.

    SELECT id, dept, ROW_NUMBER() OVER (PARTITION BY dept ORDER BY pay DESC) AS n   keep: n <= 1   key: id

    body_new (id, dept, pay)   Δ (weight)     self_old    settled
    1 a 10                     3 b 9 (−1)     2 a 1       2        exists=false  old=(2 a 1)
    2 a 20                     3 a 30 (+1)    3 b 1       3 a 1    exists=true   old=(3 b 1)
    3 a 30                                                4 b 1    exists=true   old=NULL
    4 b 5                                     5 c 1       -        partition c is not touched
    5 c 1

    __t  the touched partitions     __b  the body's rows with the partition's values     __c  with the functions' values
    __n  the rows to be stored      __o  the stored rows

A change of one row costs its partition; without PARTITION BY that is all rows.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.ivm.rules.delta_join import ctes, where_text
from strandline.jobs.ivm.rules.frames import joined, of_frame, of_frames, ordered, over_text
from strandline.jobs.ivm.rules.named_once import NamedOnce, named_once
from strandline.jobs.ivm.rules.upserts import (
    columns,
    marked,
    marked_stored,
    only_touched,
    render,
    settled,
    state_column,
    typed,
    value_of,
)
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import ALL_ROWS, AggregateOver, AnalyticCall, AnalyticStage
from strandline.jobs.model.stage_columns import hidden_columns, key_path
from strandline.jobs.model.types import BIGINT, DOUBLE, MAX_PRECISION, BaseType, SqlType


def analytic_rule(stage: AnalyticStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form.

    Args:
        changed: the aliases of the inputs that moved; None for the first refresh, which computes every partition.

    Raises:
        NotSupported: a function whose value would be left to chance (see `jobs.ivm.rules.analytic`).
    """
    names = tuple(f"__part{number}" for number in range(len(stage.partition)))
    values = [f"{value_of(each, engine)} AS {name}" for each, name in zip(stage.partition, names, strict=True)]
    calls = [f"{analytic_text(stage, call, names, engine)} AS {engine.name(call.name)}" for call in stage.calls]
    texts = ctes(stage, engine, changed, rows=stage.body)
    new = old = hint = ""
    if names and changed is not None:
        paths = [".".join(engine.name(step) for step in key_path(stage, each.name)) for each in stage.partition]
        texts.append(f"__t AS (\n  SELECT DISTINCT {', '.join(values)}\n  FROM delta\n)")
        new, old, hint = only_touched("__b", names), only_touched("__s", names, paths), " /*+ BROADCAST(__t) */"
    texts.append(f"__b AS (\n  SELECT\n    {columns(['*', *values])}\n  FROM body_new\n)")
    joins = ""
    for call in stage.calls:
        if isinstance(call, AggregateOver):
            texts += of_frames(stage, call, names, f"__b{new}", engine)
            joins += joined(stage, call, names, engine)
    texts += [
        f"__c AS (\n  SELECT{hint}\n    {columns(['__b.*', *calls])}\n  FROM __b{joins}{new}\n)",
        marked("__n", _to_be_stored(stage, names, engine)),
        marked_stored(f"SELECT{hint} __s.* FROM self_old AS __s{old}", engine),
    ]
    return f"WITH {', '.join(texts)}\n{settled(stage, engine)}"


def _to_be_stored(stage: AnalyticStage, names: Sequence[str], engine: Engine) -> str:
    partition = {each.name: name for each, name in zip(stage.partition, names, strict=True)}
    hidden = [(name, engine.name(name) if name in stage.key else partition[name]) for name, _ in hidden_columns(stage)]
    named, keep = shown(stage)
    outputs = [
        typed(replace(each, expression=tree), engine) for each, tree in zip(stage.outputs, named.trees, strict=False)
    ]
    parts = columns([*outputs, *state_column(stage, hidden, engine)])
    return f"SELECT\n    {parts}\n  FROM {named.rows('__c', engine)}{where_text(keep, engine)}"


def shown(stage: AnalyticStage) -> tuple[NamedOnce, exp.Expression | None]:
    """The outputs of a stage over windows, and the condition of the rows that stay."""
    keep = [stage.keep] if stage.keep is not None else []
    named = named_once([*(each.expression for each in stage.outputs), *keep])
    return named, named.trees[-1] if keep else None


# The text of a function OVER a window, such that both engines agree and chance breaks no ties.
#
# Rows that the query's ORDER BY does not tell apart are ordered by the row's key, except where SQL counts them
# together:
#
# | function | ORDER BY | frame |
# | --- | --- | --- |
# | RANK, DENSE_RANK, PERCENT_RANK, CUME_DIST | the query's | - |
# | ROW_NUMBER, NTILE, LAG, LEAD | the query's, then the key | - |
# | COUNT, SUM, … over RANGE (also the default) | the query's: peers count together | the query's |
# | COUNT, SUM, … over ROWS | the query's, then the key | the query's |
# | FIRST_VALUE, LAST_VALUE, NTH_VALUE | the query's, then the key | the query's; by default `_last_peer`, `_nth` |

_RANKS = ("RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST")
_AGGREGATES = ("COUNT", "COUNT_DISTINCT", "SUM", "AVG", "MIN", "MAX", "BOOL_AND", "BOOL_OR")
_EXACT = SqlType(BaseType.DECIMAL, precision=MAX_PRECISION)
_ENDS = ("FIRST_VALUE", "LAST_VALUE", "NTH_VALUE")


def analytic_text(stage: AnalyticStage, call: AnalyticCall, partition: tuple[str, ...], engine: Engine) -> str:
    """The value of the call, as exactly its type.

        ROW_NUMBER() OVER (PARTITION BY dept ORDER BY pay DESC), key id
        -> CAST(row_number() OVER (PARTITION BY __p0 ORDER BY "pay" DESC NULLS LAST, "id" ASC NULLS FIRST) AS BIGINT)

    Args:
        partition: the columns that hold the partition's values.

    Raises:
        NotSupported: FIRST_VALUE or LAST_VALUE over RANGE with a distance, where ties have no order.
    """
    if isinstance(call, AggregateOver):
        return of_frame(call, engine)
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
    if call.function == "COUNT_DISTINCT":
        return engine.cast(engine.distinct_over(arguments[0], window), call.type)
    if call.function in ("LAG", "LEAD"):
        value, *more = call.arguments
        ignores = isinstance(value, exp.IgnoreNulls)
        values = [render(each, engine) for each in (value.this if ignores else value, *more)]
        # The value and its default must be of one type.
        arguments = [engine.cast(a, call.type) if at in (0, 2) else a for at, a in enumerate(values)]
        if ignores:
            return engine.cast(f"{engine.skipping_nulls(call.function, arguments)} OVER {window}", call.type)
    if call.null_beyond and call.type == BIGINT:
        total = f"{call.function}({engine.cast(arguments[0], _EXACT)}) OVER {window}"
        return engine.cast_or_null(total, call.type)
    return engine.cast(f"{call.function}({', '.join(arguments)}) OVER {window}", call.type)


def _window(stage: AnalyticStage, call: AnalyticCall, partition: tuple[str, ...], engine: Engine) -> str:
    order = [ordered(each, engine) for each in call.order]
    key = [ordered((name, False, True), engine) for name in stage.key]
    frame = call.frame.upper() if call.frame is not None else None
    if call.function in _RANKS:
        # A rank without an order is 1 for all rows; Spark wants an order all the same.
        return over_text(partition, order or ["TRUE"], None)
    if call.function in _AGGREGATES:
        return over_text(partition, [*order, *key] if call.by_row else order, frame)
    if call.function not in _ENDS:
        return over_text(partition, [*order, *key] or ["TRUE"], None)
    if frame is not None and not frame.startswith("ROWS") and frame != f"RANGE {ALL_ROWS}":
        raise NotSupported(
            f"{call.function} over {call.frame} has no definite value where rows tie", hint="write ROWS BETWEEN …"
        )
    return over_text(partition, [*order, *key] or ["TRUE"], frame)


def _last_peer(stage: AnalyticStage, call: AnalyticCall, partition: tuple[str, ...], engine: Engine) -> str:
    """LAST_VALUE over the default frame: the value of the last of the rows that tie with this one.

    The default frame ends with the row's peers, so it is the last one, by key, of a partition by the order as well.
    Without an order all rows of the partition tie.
    """
    peers = (*partition, *(render(expression, engine) for expression, _, _ in call.order))
    key = [ordered((name, False, True), engine) for name in stage.key] or ["TRUE"]
    value = render(call.arguments[0], engine)
    return f"LAST_VALUE({value}) OVER {over_text(peers, key, f'ROWS {ALL_ROWS}')}"


def _nth(stage: AnalyticStage, call: AnalyticCall, partition: tuple[str, ...], engine: Engine) -> str:
    """NTH_VALUE over the default frame, which ends with the row's peers: that row of the partition, if it is in it."""
    order = [ordered(each, engine) for each in call.order]
    key = [ordered((name, False, True), engine) for name in stage.key]
    value, number = (render(argument, engine) for argument in call.arguments)
    every = over_text(partition, [*order, *key] or ["TRUE"], f"ROWS {ALL_ROWS}")
    so_far = over_text(partition, order, None)
    return f"CASE WHEN COUNT(*) OVER {so_far} >= {number} THEN NTH_VALUE({value}, {number}) OVER {every} END"
