"""The rule of GROUP BY: fold the changes per group, merge with the accumulators of the stored row, show the result.

    self_old (__state)      Δ (weight)              settled                      (k, COUNT(*), SUM(v) GROUP BY k)
    a 2 9  (2, 9:2)         a 5 (−1), a 1 (+1)      a 2 5 (2, 5:2)  exists=true  old=(a 2 9)
    b 1 7  (1, 7:1)         b 7 (−1)                b     (0, 0:0)  exists=false old=(b 1 7)
                            c NULL (+1)             c 1 NULL (1, 0:0)            old=NULL

    __e  what is grouped by and aggregated, per change     __d  one accumulator per touched group and call
    __m  merged with the stored row                        __r  the visible results

A group whose weights sum below zero is an upstream fault: the query fails with `NEGATIVE_WEIGHT` and nothing is stored.
"""

from __future__ import annotations

from jobs.errors import NotSupported
from jobs.ivm.aggregates import FUNCTIONS, Changes
from jobs.ivm.by_offset import ORDER_TYPE
from jobs.ivm.engine import NEGATIVE_WEIGHT, Engine
from jobs.ivm.rule_text import (
    EXISTS,
    OLD,
    WEIGHT,
    before,
    columns,
    old_row,
    render,
    same_key,
    state_column,
    typed,
    value_of,
)
from jobs.ivm.stage import AggregateCall, AggregateStage, Output
from jobs.ivm.storage import ROWS, hidden_keys
from jobs.sql.model import EVENT_ORDER
from jobs.sql.types import BIGINT
from state_store.tablespec import STATE

_ORDER = "__at"


def aggregate_rule(stage: AggregateStage, engine: Engine) -> str:
    """The settled form. A global aggregate (no key) settles its one row even when there are no changes.

    Raises:
        NotSupported: an aggregate over DISTINCT values.
    """
    groups = [engine.name(group.name) for group in stage.group]
    grouped = f"\n  GROUP BY {', '.join(groups)}" if groups else ""
    results = [f"{_result(call, engine)} AS {engine.name(call.name)}" for call in stage.aggregates]
    passed = [*groups, ROWS, *(_kept(call, engine) for call in stage.aggregates), EXISTS, OLD]
    return f"""WITH __e AS (
  SELECT
    {columns(_evaluated(stage, engine))}
  FROM delta{_where(stage, engine)}
), __d AS (
  SELECT
    {columns([*groups, *_folded(stage, engine)])}
  FROM __e{grouped}
), {before(stage, engine)}, __m AS (
  SELECT
    {columns([*(f"__d.{group}" for group in groups), *_merged(stage, engine), old_row(stage, engine)])}
  FROM __d LEFT JOIN __o ON {same_key(stage, engine)}
), __x AS (
  SELECT *, {_exists(stage, engine)} AS {EXISTS}
  FROM __m
), __r AS (
  SELECT
    {columns([*passed, *results])}
  FROM __x
)
SELECT
    {columns(_settled(stage, engine))}
  FROM __r
  WHERE {EXISTS} OR {OLD} IS NOT NULL"""


def _argument(call: AggregateCall, number: int, engine: Engine) -> str:
    return engine.name(f"{call.name}_{number}")


def _filter(call: AggregateCall, engine: Engine) -> str | None:
    return engine.name(f"{call.name}_filter") if call.filter is not None else None


def _kept(call: AggregateCall, engine: Engine) -> str:
    return engine.name(f"{call.name}_kept")


def _evaluated(stage: AggregateStage, engine: Engine) -> list[str]:
    """The columns of `__e`."""
    parts = [typed(group, engine) for group in stage.group]
    for call in stage.aggregates:
        if call.distinct:
            raise NotSupported(f"{call.function}(DISTINCT …) is not maintained yet", hint="leave DISTINCT out")
        for number, (argument, kind) in enumerate(zip(call.arguments, call.argument_types, strict=True)):
            parts.append(f"{engine.cast(render(argument, engine), kind)} AS {_argument(call, number, engine)}")
        if call.filter is not None:
            parts.append(f"{render(call.filter, engine)} AS {_filter(call, engine)}")
    if any(FUNCTIONS[call.function].ordered for call in stage.aggregates):
        place = engine.struct([(name, engine.name(name)) for name in EVENT_ORDER])
        parts.append(f"{engine.cast(place, ORDER_TYPE)} AS {_ORDER}")
    return [*parts, WEIGHT]


def _where(stage: AggregateStage, engine: Engine) -> str:
    conditions = [render(stage.where, engine)] if stage.where is not None else []
    if stage.skip_null_keys:
        conditions += [f"{value_of(group, engine)} IS NOT NULL" for group in stage.group]
    return f"\n  WHERE {' AND '.join(f'({condition})' for condition in conditions)}" if conditions else ""


def _folded(stage: AggregateStage, engine: Engine) -> list[str]:
    """The columns of `__d` beside the groups: rows, and an accumulator per call."""
    parts = [f"{engine.cast(f'COALESCE(SUM({WEIGHT}), 0)', BIGINT)} AS {ROWS}"]
    for call in stage.aggregates:
        arguments = tuple(_argument(call, number, engine) for number in range(len(call.arguments)))
        changes = Changes(arguments=arguments, weight=WEIGHT, order=_ORDER, where=_filter(call, engine))
        parts.append(f"{FUNCTIONS[call.function].add(engine, call, changes)} AS {_kept(call, engine)}")
    return parts


def _merged(stage: AggregateStage, engine: Engine) -> list[str]:
    """The columns of `__m` beside groups and `__old`: rows and accumulators after the epoch."""
    parts = [f"COALESCE(__o.{STATE}.{ROWS}, 0) + __d.{ROWS} AS {ROWS}"]
    for call in stage.aggregates:
        function = FUNCTIONS[call.function]
        old = f"__o.{STATE}.{engine.name(call.name)}"
        merged = function.merge(engine, call, old, f"__d.{_kept(call, engine)}")
        parts.append(f"{engine.cast(merged, function.accumulator(call))} AS {_kept(call, engine)}")
    return parts


def _exists(stage: AggregateStage, engine: Engine) -> str:
    lasting = not stage.drop_empty or not stage.key
    return f"CASE WHEN {ROWS} < 0 THEN {engine.fail(NEGATIVE_WEIGHT)} ELSE {'TRUE' if lasting else f'{ROWS} > 0'} END"


def _result(call: AggregateCall, engine: Engine) -> str:
    return engine.cast(FUNCTIONS[call.function].result(engine, call, _kept(call, engine)), call.type)


def _settled(stage: AggregateStage, engine: Engine) -> list[str]:
    """The columns of the result."""
    fields = [(key.name, engine.name(key.name)) for key in hidden_keys(stage)]
    fields += [(ROWS, ROWS), *((call.name, _kept(call, engine)) for call in stage.aggregates)]
    outputs = [_output(stage, output, engine) for output in stage.outputs]
    return [*outputs, *state_column(stage, fields, engine), EXISTS, OLD]


def _output(stage: AggregateStage, output: Output, engine: Engine) -> str:
    """Only the key is computed for a group that goes away: `100 / COUNT(*)` has no value there, and would fail."""
    if output.name in stage.key:
        return typed(output, engine)
    return f"CASE WHEN {EXISTS} THEN {value_of(output, engine)} END AS {engine.name(output.name)}"
