"""The rule of GROUP BY: changes are folded per group and merged with the accumulators of the stored row.

    self_old (__state)      Δ (weight)              settled                      (k, COUNT(*), SUM(v) GROUP BY k)
    a 2 9  (2, 9:2)         a 5 (−1), a 1 (+1)      a 2 5 (2, 5:2)  exists=true  old=(a 2 9)
    b 1 7  (1, 7:1)         b 7 (−1)                b     (0, 0:0)  exists=false old=(b 1 7)
                            c NULL (+1)             c 1 NULL (1, 0:0)            old=NULL

    __e  group columns and arguments, per change     __d  one accumulator per touched group and call
    __m  merged with the stored row                  __r  the visible results

A function such as MAX cannot retract a row from its accumulator. When one that could have decided the result is
retracted, its group, and only that, is computed again from the body's rows as they are now:

    __f  the groups to compute again     __g  one accumulator per such group and call

Of a join these are rows of many relations, and a maximum that has come decides which of them are needed at all:

    __l  the values that a group has by what came: of product a 5, no row below 5 can be the maximum

Calls that take other rows of the body, as the different values of a group are, have such relations of their own (`__f1`
and so on): what one of them lost is no reason to read what another one takes. Over a body that only grows nothing is
retracted, and that part of the text is left out.

A group whose weights sum below zero is an upstream fault: the query fails with `NEGATIVE_WEIGHT` and nothing is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace

from strandline.jobs.engines.engine import NEGATIVE_WEIGHT, Engine, filtered
from strandline.jobs.functions.aggregates.contract import ORDER_TYPE, GroupChanges
from strandline.jobs.functions.aggregates.linear import result_text
from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.ivm.rules.computed_again import Again, bounds_of, computed_again, known, known_columns
from strandline.jobs.ivm.rules.delta_join import all_rows, ctes
from strandline.jobs.ivm.rules.named_once import named_once
from strandline.jobs.ivm.rules.stored import ROWS, before, columns, reads_values, render, state_column, typed, value_of
from strandline.jobs.model.stage import PART, AggregateCall, AggregateStage, Output
from strandline.jobs.model.stage_columns import hidden_columns
from strandline.jobs.model.tables import EVENT_ORDER
from strandline.jobs.model.types import BIGINT
from strandline.state_store.tablespec import EXISTS, OLD, STATE, WEIGHT

_ORDER = "__at"
_UPTO, _EVERY = "upto", "every"


def aggregate_rule(stage: AggregateStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form. A global aggregate (no key) settles its one row even when there are no changes."""
    again = computed_again(stage, first=changed is None)
    results = [f"{shown(call, engine)} AS {engine.name(call.name)}" for call in stage.aggregates]
    groups = [engine.name(group.name) for group in stage.group]
    passed = [*groups, ROWS, *(_kept(call, engine) for call in stage.aggregates), EXISTS, OLD]
    texts = [
        *_before_results(stage, again, engine, changed),
        *_computed_again(stage, again, engine),
        f"""__x AS (
  SELECT *, {_exists(stage, engine)} AS {EXISTS}
  FROM {"__w" if again else "__m"}
)""",
        f"""__r AS (
  SELECT
    {columns([*passed, *results])}
  FROM __x
)""",
    ]
    named = named_once([each.expression for each in stage.outputs])
    outputs = tuple(replace(each, expression=tree) for each, tree in zip(stage.outputs, named.trees, strict=True))
    return f"""WITH {", ".join(texts)}
SELECT
    {columns(_settled(replace(stage, outputs=outputs), engine))}
  FROM {named.rows("__r", engine)}
  WHERE {EXISTS} OR {OLD} IS NOT NULL"""


def _before_results(
    stage: AggregateStage,
    again: tuple[Again, ...],
    engine: Engine,
    changed: Collection[str] | None,
) -> list[str]:
    """The relations up to `__m`."""
    groups = [engine.name(group.name) for group in stage.group]
    lost = _lost_by(again)
    stored = before(stage, engine)
    merged = [*(f"__d.{group}" for group in groups), *_merged(stage, lost, engine), stored.row]
    return [
        *folds(stage, lost, engine, changed),
        *stored.relations,
        f"""__m AS (
  SELECT
    {columns(merged)}
  FROM {stored.joined}
)""",
    ]


def folds(
    stage: AggregateStage, lost: tuple[AggregateCall, ...], engine: Engine, changed: Collection[str] | None
) -> list[str]:
    """The relations up to `__d`.

    Args:
        lost: the calls of which it must be known what they lost.
    """
    groups = [engine.name(group.name) for group in stage.group]
    added = [call for call in stage.aggregates if function_of(call).kept]
    return [
        *ctes(stage, engine, changed),
        f"""__e AS (
  SELECT
    {columns(evaluated(stage, engine, WEIGHT))}
  FROM delta{chosen(stage, engine)}
)""",
        f"""__d AS (
  SELECT
    {columns([*groups, _rows(stage, engine), *folded(added, WEIGHT, engine), *_lost(lost, engine)])}
  FROM __e{_grouped(groups)}
)""",
    ]


def combined(stage: AggregateStage, folded_parts: str, engine: Engine) -> str | None:
    """`__d` of all first rows, from what `folds` gave of parts of them; None where a call has no such text.

    Args:
        folded_parts: the relation of those rows.
    """
    groups = [engine.name(group.name) for group in stage.group]
    parts = []
    for call in stage.aggregates:
        kept = _kept(call, engine)
        made = function_of(call).combine(engine, call, kept)
        if made is None:
            return None
        parts.append(f"{made} AS {kept}")
    rows = f"{engine.cast(f'SUM({ROWS})', BIGINT)} AS {ROWS}"
    return f"""__d AS (
  SELECT
    {columns([*groups, rows, *parts])}
  FROM {folded_parts}{_grouped(groups)}
)"""


def groups_computed_again(stage: AggregateStage, again: Again, engine: Engine, changed: Collection[str]) -> str:
    """SELECT of the groups, all their columns, whose rows are read again for these calls; with what is known of their
    values (`Bounds.columns`), where they have bounds."""
    texts = [*_before_results(stage, (again,), engine, changed), *_groups_again(stage, (again,), engine)]
    names = [*(engine.name(group.name) for group in stage.group), *known_columns(stage, again, engine)]
    return f"WITH {', '.join(texts)}\nSELECT {', '.join(names)} FROM __f{again.number}"


def _known_values(stage: AggregateStage, again: Again, engine: Engine) -> str:
    """`__l`: of each group the values of rows that it has for certain, since more of them came than went."""
    groups = [engine.name(group.name) for group in stage.group]
    taken = [name for call in again.calls for name in _arguments(call, engine)]
    taken += [name for call in again.calls for name in [filter_name(call, engine)] if name is not None]
    made = [
        f"{function_of(call).anew(engine, call, _changes(call, '1', engine))} AS {known(call, engine)}"
        for call in again.calls
    ]
    listed = ", ".join([*groups, *taken])
    return f"""__l{again.number} AS (
  SELECT
    {columns([*groups, *made])}
  FROM (SELECT {listed} FROM __e GROUP BY {listed} HAVING SUM({WEIGHT}) > 0) AS __came{_grouped(groups)}
)"""


def evaluated(stage: AggregateStage, engine: Engine, weight: str) -> list[str]:
    """The columns of `__e`, over those of the body: group columns, arguments, filters, order and weight."""
    parts = [typed(group, engine) for group in stage.group]
    for call in stage.aggregates:
        for number, (argument, sql_type) in enumerate(zip(call.arguments, call.argument_types, strict=True)):
            parts.append(f"{engine.cast(render(argument, engine), sql_type)} AS {_argument(call, number, engine)}")
        if call.filter is not None:
            parts.append(f"{render(call.filter, engine)} AS {filter_name(call, engine)}")
    if any(function_of(call).ordered for call in stage.aggregates):
        # Rows that are no events, such as groups, have no place in the order of events.
        events = {column.name for column in stage.body[0].columns}.issuperset(EVENT_ORDER)
        place = engine.struct([(name, engine.name(name)) for name in EVENT_ORDER]) if events else "NULL"
        parts.append(f"{engine.cast(place, ORDER_TYPE)} AS {_ORDER}")
    if reads_values(stage):
        parts.append(engine.name(PART))
    return [*parts, f"{weight} AS {WEIGHT}" if weight != WEIGHT else weight]


def chosen(stage: AggregateStage, engine: Engine) -> str:
    """The WHERE clause of `__e`: ksqlDB leaves out rows with a null in the group key."""
    if not stage.skip_null_keys or not stage.group:
        return ""
    return f"\n  WHERE {' AND '.join(f'({value_of(group, engine)}) IS NOT NULL' for group in stage.group)}"


def folded(calls: Iterable[AggregateCall], weight: str, engine: Engine) -> list[str]:
    """An accumulator per call, over the columns of `evaluated`."""
    return [
        f"{function_of(call).add(engine, call, _changes(call, weight, engine))} AS {_kept(call, engine)}"
        for call in calls
    ]


def _grouped(groups: list[str]) -> str:
    return f"\n  GROUP BY {', '.join(groups)}" if groups else ""


def _changes(call: AggregateCall, weight: str, engine: Engine) -> GroupChanges:
    ranks = (engine.name(f"{call.name}_{name}") for name in (_UPTO, _EVERY))
    return GroupChanges(_arguments(call, engine), weight, _ORDER, filter_name(call, engine), *ranks)


def _arguments(call: AggregateCall, engine: Engine) -> tuple[str, ...]:
    return tuple(_argument(call, number, engine) for number in range(len(call.arguments)))


def _argument(call: AggregateCall, number: int, engine: Engine) -> str:
    return engine.name(f"{call.name}_{number}")


def filter_name(call: AggregateCall, engine: Engine) -> str | None:
    """The column of `__e` that says which rows a call takes; None when it takes all."""
    return engine.name(f"{call.name}_filter") if call.filter is not None else None


def _kept(call: AggregateCall, engine: Engine) -> str:
    return engine.name(f"{call.name}_kept")


def _lost_name(call: AggregateCall, engine: Engine) -> str:
    return engine.name(f"{call.name}_lost")


def _rows(stage: AggregateStage, engine: Engine) -> str:
    count = filtered(f"SUM({WEIGHT})", f"{engine.name(PART)} = 0" if reads_values(stage) else None)
    return f"{engine.cast(f'COALESCE({count}, 0)', BIGINT)} AS {ROWS}"


def _lost_by(again: tuple[Again, ...]) -> tuple[AggregateCall, ...]:
    """The calls of which it must be known what they lost."""
    return tuple(call for each in again for call in each.calls if function_of(call).kept)


def _lost(again: tuple[AggregateCall, ...], engine: Engine) -> list[str]:
    return [
        f"{function_of(call).lost(engine, call, _changes(call, WEIGHT, engine))} AS {_lost_name(call, engine)}"
        for call in again
    ]


def _merged(stage: AggregateStage, again: tuple[AggregateCall, ...], engine: Engine) -> list[str]:
    """The columns of `__m` beside groups and `__old`: rows, accumulators after the epoch, and what was lost."""
    parts = [f"COALESCE(__o.{STATE}.{ROWS}, 0) + __d.{ROWS} AS {ROWS}"]
    for call in stage.aggregates:
        function = function_of(call)
        if not function.kept:
            parts.append(f"{engine.cast('NULL', function.accumulator(call))} AS {_kept(call, engine)}")
            continue
        old = f"__o.{STATE}.{engine.name(call.name)}"
        merged = function.merge(engine, call, old, f"__d.{_kept(call, engine)}")
        parts.append(f"{engine.cast(merged, function.accumulator(call))} AS {_kept(call, engine)}")
    return [*parts, *(f"__d.{_lost_name(call, engine)}" for call in again)]


def _computed_again(stage: AggregateStage, again: tuple[Again, ...], engine: Engine) -> list[str]:
    """`__w`: as `__m`, but the accumulators of groups that lost a deciding row are computed from the body's rows."""
    if not again:
        return []
    groups = [engine.name(group.name) for group in stage.group]
    made = {call.name: each for each in again for call in each.calls}
    fresh = [
        _fresh(call, made[call.name], engine) if call.name in made else f"__n.{_kept(call, engine)}"
        for call in stage.aggregates
    ]
    joined = " ".join(
        f"LEFT JOIN __g{each.number} ON __n.{_flag(each)} AND {_same(groups, '__n', f'__g{each.number}')}"
        for each in again
    )
    return [
        *_groups_again(stage, again, engine),
        *(text for each in again for text in _accumulated_again(stage, each, engine)),
        f"""__w AS (
  SELECT
    {columns([*(f"__n.{group}" for group in groups), f"__n.{ROWS}", *fresh, f"__n.{OLD}"])}
  FROM __n {joined}
)""",
    ]


def _groups_again(stage: AggregateStage, again: tuple[Again, ...], engine: Engine) -> list[str]:
    """`__n`: as `__m`, with what is to be computed again; and `__f`, the groups of it."""
    flags = [
        f"{' OR '.join(f'({_must_recompute(call, engine)})' for call in each.calls)} AS {_flag(each)}" for each in again
    ]
    texts = [f"__n AS (\n  SELECT *, {', '.join(flags)}\n  FROM __m\n)"]
    groups = [engine.name(group.name) for group in stage.group]
    for each in again:
        listed, source = [f"__n.{group}" for group in groups] or ["TRUE AS __any"], "__n"
        beside = known_columns(stage, each, engine)
        if beside:
            texts.append(_known_values(stage, each, engine))
            listed += beside
            source = f"__n LEFT JOIN __l{each.number} ON {_same(groups, '__n', f'__l{each.number}')}"
        texts.append(
            f"__f{each.number} AS (SELECT {', '.join(listed)} FROM {source} WHERE __n.{_flag(each)} AND __n.{ROWS} > 0)"
        )
    return texts


def _must_recompute(call: AggregateCall, engine: Engine) -> str:
    function = function_of(call)
    if not function.kept:
        return "TRUE"
    return function.must_recompute(engine, call, _kept(call, engine), _lost_name(call, engine))


def _flag(again: Again) -> str:
    return f"__again{again.number}"


def _accumulated_again(stage: AggregateStage, again: Again, engine: Engine) -> Iterator[str]:
    """`__g`: the accumulators of the groups in `__f`, from the rows of the body."""
    groups = [engine.name(group.name) for group in stage.group]
    body, number = f"body_new{again.number}", again.number
    only = [
        {each.alias: f"SEMI JOIN __f{number} ON {each.needed(f'__f{number}', engine)}"} if each is not None else {}
        for each in bounds_of(stage, again)
    ]
    yield f"{body} AS (\n{all_rows(again.rows, engine, only=only)}\n)"
    yield f"""__b{number} AS (
  SELECT
    {columns(evaluated(replace(stage, aggregates=again.calls), engine, "CAST(1 AS BIGINT)"))}
  FROM {body}{chosen(stage, engine)}
)"""
    taken = f"__b{number} SEMI JOIN __f{number} ON {_same(groups, f'__b{number}', f'__f{number}')}"
    ranked = [each for call in again.calls for each in _ranked(call, groups, f"__b{number}", engine)]
    if ranked:
        listed = ", ".join([f"__b{number}.*", *ranked])
        taken = f"(SELECT /*+ BROADCAST(__f{number}) */ {listed} FROM {taken}) AS __b{number}"
    made = [
        f"{function_of(call).anew(engine, call, _changes(call, '1', engine))} AS {_kept(call, engine)}"
        for call in again.calls
    ]
    yield f"""__g{number} AS (
  SELECT /*+ BROADCAST(__f{number}) */
    {columns([*(f"__b{number}.{group}" for group in groups), *made])}
  FROM {taken}{_grouped([f"__b{number}.{group}" for group in groups])}
)"""


def _ranked(call: AggregateCall, groups: list[str], rows: str, engine: Engine) -> Iterator[str]:
    """The columns by which a call ranks the rows that it takes."""
    ranking = function_of(call).ranking(engine, call, _arguments(call, engine))
    if ranking is None:
        return
    key, weight = ranking
    parts = [f"PARTITION BY {', '.join(f'{rows}.{group}' for group in groups)}"] if groups else []
    up = " ".join([*parts, f"ORDER BY {key} ROWS UNBOUNDED PRECEDING"])
    # Spark has no FILTER with OVER.
    total = f"SUM({_value_where(weight, filter_name(call, engine))})"
    yield f"{engine.cast(f'{total} OVER ({up})', BIGINT)} AS {engine.name(f'{call.name}_{_UPTO}')}"
    yield f"{engine.cast(f'{total} OVER ({chr(32).join(parts)})', BIGINT)} AS {engine.name(f'{call.name}_{_EVERY}')}"


def _value_where(value: str, where: str | None) -> str:
    """The value of rows that meet a condition, NULL of others."""
    return f"CASE WHEN {where} THEN {value} END" if where else value


def _fresh(call: AggregateCall, again: Again, engine: Engine) -> str:
    name = _kept(call, engine)
    computed = engine.cast(f"__g{again.number}.{name}", function_of(call).accumulator(call))
    return f"CASE WHEN __n.{_flag(again)} THEN {computed} ELSE __n.{name} END AS {name}"


def _same(groups: list[str], left: str, right: str) -> str:
    return " AND ".join(f"{left}.{group} IS NOT DISTINCT FROM {right}.{group}" for group in groups) or "TRUE"


def _exists(stage: AggregateStage, engine: Engine) -> str:
    lasting = not stage.drop_empty or not stage.key
    return f"CASE WHEN {ROWS} < 0 THEN {engine.fail(NEGATIVE_WEIGHT)} ELSE {'TRUE' if lasting else f'{ROWS} > 0'} END"


def shown(call: AggregateCall, engine: Engine) -> str:
    """The visible value of the accumulator that `folded` gives."""
    return result_text(engine, call, function_of(call).result(engine, call, _kept(call, engine)))


def _settled(stage: AggregateStage, engine: Engine) -> list[str]:
    """The columns of the result."""
    fields = [(name, engine.name(name)) for name, _ in hidden_columns(stage)]
    fields += [(ROWS, ROWS), *((call.name, _kept(call, engine)) for call in stage.aggregates if function_of(call).kept)]
    outputs = [_output(stage, output, engine) for output in stage.outputs]
    return [*outputs, *state_column(stage, fields, engine), EXISTS, OLD]


def _output(stage: AggregateStage, output: Output, engine: Engine) -> str:
    """An output column. Of a deleted group only the key is computed: `100 / COUNT(*)` has no value there, and fails."""
    if output.name in stage.key:
        return typed(output, engine)
    return f"CASE WHEN {EXISTS} THEN {value_of(output, engine)} END AS {engine.name(output.name)}"
