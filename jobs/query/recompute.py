"""The recomputation: a whole query as one plain SELECT over its relations, without stages and rules.

It is the oracle of the incremental engine: DuckDB runs it, and a view must equal its result. The relations are read by
their names and have their visible, meta and hidden columns. The text follows SQL's order of evaluation, one subquery
inside the next:

    FROM … WHERE …        the columns that are needed, `alias.column` as one name; items of EXPLODE  recompute_from
    WINDOW …              a row for each window, late rows left out                               recompute_from
    GROUP BY … HAVING …   groups and calls by their plain names                                   here, recompute_calls
    OVER …, QUALIFY       a column for each call, and a WHERE over them                           here
    SELECT [DISTINCT] …   the outputs

    SELECT k, COUNT(*) AS n FROM s GROUP BY k
    -> SELECT CAST("k" AS VARCHAR) AS "k", CAST("__a0" AS BIGINT) AS "n" FROM (
         SELECT "k", CAST(COUNT(*) AS BIGINT) AS "__a0" FROM (
           SELECT CAST("s.k" AS VARCHAR) AS "k" FROM (
             SELECT "s"."k" AS "s.k" FROM "s" AS "s")) GROUP BY "k")
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.engines.engine import Dialect, all_rounds, engine_of, rounds
from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.functions.failing import strict
from strandline.jobs.functions.failing_rows import truth
from strandline.jobs.functions.faults import cause_of, marking
from strandline.jobs.model.definitions import Semantics
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import AggregateFramed, AggregateOver, AnalyticCall, Output
from strandline.jobs.model.tables import (
    EVENT_ORDER,
    ITSELF,
    LEVEL,
    PARTITIONS_EACH,
    WINDOW_BOUNDS,
    WINDOW_END,
    WINDOW_START,
    Relation,
)
from strandline.jobs.model.types import BIGINT, DOUBLE, INT
from strandline.jobs.query.inputs import mark_name, marks_in
from strandline.jobs.query.logical import Block, Query, Recursion, SetOperation, identity
from strandline.jobs.query.recompute_calls import Written, call_text
from strandline.jobs.query.recompute_context import (
    ROW_FAILS,
    Fate,
    FrozenJoin,
    Recomputation,
    cause,
    check_of,
    check_of_groups,
    condition,
    flag,
    flags_of,
    is_plain,
    marked,
    needed_of,
    unsure,
)
from strandline.jobs.query.recompute_from import (
    CLOCK,
    MILLIS,
    clock,
    closed,
    in_sessions,
    in_time,
    in_windows,
    meta_column,
    rows,
)
from strandline.jobs.sql.trees import all_of


def recompute_sql(
    query: Query,
    dialect: Dialect,
    *,
    fate: Fate,
    semantics: Semantics = "sql",
    shared: bool = False,
    joins_first: bool = False,
    faults: bool = False,
    frozen: FrozenJoin | None = None,
    nested: Mapping[str, Query] | None = None,
) -> str:
    """Write the query as text for an engine.

    Args:
        fate: of the rows on which an expression fails; a row fails here if it does in a view of the query.
        shared: the view has STATE = 'shared'.
        joins_first: with errors: rows are joined before any is looked at. Otherwise an engine may look at the rows of
            one input first, as it does with any condition, and fail on one that joins nothing: an error may be none.
            What is not an error is right either way, and found faster.
        faults: with errors: they say by what a row fails, which takes a longer text.
        semantics: of the view. With `ksql` rows with a null in a group key are left out. With either, a group that has
            lost all its rows is not in the result: the relations do not hold that it once existed.
        frozen: the condition that a row of a frozen input existed when an event arrived; None: all of them did.
        nested: the queries inside the expressions of a pull query, for DuckDB.

    Raises:
        NotSupported: the engine has no function of its own for an aggregate.
    """
    engine = engine_of(dialect)
    context = Recomputation(engine, semantics, frozen, _query, fate, shared, joins_first, nested or {})
    with marking() if faults else nullcontext():
        return _query(query, context)


def _query(query: Query, recompute: Recomputation, more: tuple[str, ...] = (), is_open: bool = False) -> str:
    """The text of a query; `more` are meta columns wanted beside the outputs.

    Args:
        is_open: with the flags of `jobs.query.recompute_context`.
    """
    if isinstance(query, SetOperation):
        return _set_operation(query, recompute, more, is_open=is_open)
    if isinstance(query, Recursion):
        return _recursion(query, recompute)
    return _block(query, recompute, more, is_open=is_open and is_plain(query))


def _set_operation(query: SetOperation, recompute: Recomputation, more: tuple[str, ...], *, is_open: bool) -> str:
    texts = []
    name_of = recompute.name
    flags = dict(sorted(unsure(query, recompute).items())) if is_open else {}
    for number, branch in enumerate(_branches(query), 1):
        names = [each.name if isinstance(each, Output) else each[0] for each in branch.outputs]
        columns = [
            f"{recompute.engine.cast(name_of(own), sql_type)} AS {name_of(name)}"
            for own, (name, sql_type) in zip(names, query.outputs, strict=True)
        ]
        columns += [f"{name} + {number * PARTITIONS_EACH} AS {name}" if name == "_partition" else name for name in more]
        own_flags = unsure(branch, recompute) if is_open else {}
        given = {ROW_FAILS: ROW_FAILS, **{name: own for own, (name, _) in zip(names, query.outputs, strict=True)}}
        for name in flags:
            value = name_of(flag(given[name])) if given[name] in own_flags else "FALSE"
            columns.append(f"{value} AS {name_of(flag(name))}")
            of = own_flags.get(given[name], set())
            if len(flags[name]) > 1:
                by = name_of(cause(given[name])) if len(of) > 1 else f"'{min(of)}'" if of else "NULL"
                columns.append(f"{by} AS {name_of(cause(name))}")
        texts.append(f"SELECT {', '.join(columns)} FROM ({_query(branch, recompute, more, is_open)}) AS __b")
    text = texts[0]
    for each in texts[1:]:
        text = f"({text}) {query.operation.upper()} ({each})"
    return text


def _recursion(query: Recursion, recompute: Recomputation) -> str:
    """WITH RECURSIVE. What fails in a step fails the whole: all that would follow from its row is unknown."""
    engine = recompute.engine
    whole = recompute if recompute.fate == "null" else replace(recompute, fate="error")
    names = [name for name, _ in query.outputs]
    steps = [_query(step if query.levels is None else _with_level(step), whole) for step in query.steps]
    seed = f"SELECT * FROM ({_query(query.seed, recompute)}) AS __seed"
    text = rounds(names, seed, steps, engine, distinct=query.distinct, levels=query.levels)
    return f"WITH RECURSIVE {text} {all_rounds(names, engine, levels=query.levels)}"


def _with_level(step: Block) -> Block:
    """A step that also gives the round of the row that each of its rows follows from."""
    itself = next(
        part.alias for part in step.inputs if isinstance(part.source, Relation) and part.source.name == ITSELF
    )
    return replace(step, outputs=(*step.outputs, Output(LEVEL, exp.column(LEVEL, table=itself, quoted=True), INT)))


def _branches(query: SetOperation) -> list[Query]:
    """The branches, with those of a UNION ALL inside a UNION ALL in its place."""
    found: list[Query] = []
    for branch in query.branches:
        nested = isinstance(branch, SetOperation) and branch.operation == query.operation == "union all"
        found += _branches(branch) if nested and isinstance(branch, SetOperation) else [branch]
    return found


def _block(block: Block, recompute: Recomputation, more: tuple[str, ...], *, is_open: bool) -> str:
    block = marked(block, recompute)
    meta = {name: column for name in more if (column := meta_column(block, name)) is not None}
    groups = block.group is not None or bool(block.calls)
    order = event_order(block).values()
    apart = identity(block) if block.analytic and not groups else []
    clocks = [clock(block.time)] if block.time is not None else []
    taken = in_time(block) if recompute.fate == "error" else None
    timed = block if taken is None else replace(block, where=all_of(taken, block.where))
    check = check_of(timed, recompute, () if is_open else tuple(needed_of(block)))
    flags = flags_of(block, check) if is_open else {}
    causes = {name: by for name, each in flags.items() if (by := cause_of(each))}
    beside = (*meta.values(), *order, *apart, *clocks, *flags.values(), *causes.values())
    text = rows(block, recompute, check, beside, passing=is_open)
    if block.window is not None:
        text = in_windows(text, block, recompute)
    if groups:
        text = grouped(text, block, recompute)
    if block.analytic:
        names = [recompute.name(group.name) for group in block.group or ()]
        names += WINDOW_BOUNDS if block.window is not None else []
        text = analytic(text, block, recompute, names if groups else [recompute.after(each) for each in apart])
    whole = bool(block.analytic) or (groups and check_of_groups(block) is None)
    if block.qualify is not None:
        kept = block.qualify if recompute.fate == "null" else strict(block.qualify)
        text = f"SELECT * FROM ({text}) AS __q WHERE {recompute.total_after(kept)}"
    sound = block.before_windows
    outputs = [recompute.value(each, whole=whole and each not in sound) for each in block.outputs]
    outputs += [f"{recompute.after(column)} AS {recompute.name(name)}" for name, column in meta.items()]
    outputs += [f"{recompute.total_after(truth(each))} AS {recompute.name(flag(name))}" for name, each in flags.items()]
    outputs += [f"{recompute.total_after(each)} AS {recompute.name(cause(name))}" for name, each in causes.items()]
    return f"SELECT {'DISTINCT ' if block.distinct else ''}{', '.join(outputs)} FROM ({text}) AS __s"


# GROUP BY, HAVING and EMIT FINAL in a recomputation.
#
# GROUP BY ROLLUP (a, b)   ->   GROUP BY GROUPING SETS (("a", "b"), ("a"), ())
# WINDOW … EMIT FINAL      ->   … WHERE windowend + grace <= the stream's time

_AT = "__at"
_TIED = "__tied"
_LISTED = "__listed"


def grouped(rows: str, block: Block, recompute: Recomputation) -> str:
    """Select one row per group (and window), with groups and calls by their names, WHERE HAVING holds."""
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
    # HAVING alone makes one group of all rows; a constant would be one for each of them.
    text = f"SELECT {', '.join(shown) or 'COUNT(*) AS __one'} FROM ({text}) AS __e{by}"
    if block.window is not None and block.window.final:
        text = f"SELECT * FROM ({text}) AS __c WHERE {closed(block, recompute)}"
    check = check_of_groups(block)
    kept = condition(check, recompute) if check is not None else None
    return text if kept is None else f"SELECT * FROM ({text}) AS __a WHERE {recompute.total_after(kept)}"


def event_order(block: Block) -> dict[str, exp.Expression]:
    """Place of a row in the order of events, by name; empty if no call needs it, or rows have none."""
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


# Functions OVER a window in a recomputation.
#
# Ties are broken by the columns that identify a row, so that the value is the same as the rule's; see
# `jobs.ivm.rules.recompute` for where SQL counts tied rows together.

_PEERS_TOGETHER = ("COUNT", "COUNT_DISTINCT", "SUM", "AVG", "MIN", "MAX", "BOOL_AND", "BOOL_OR")
_BY_ORDER_ALONE = ("RANK", "DENSE_RANK", "PERCENT_RANK", "CUME_DIST")


def analytic(rows: str, block: Block, recompute: Recomputation, identity: list[str]) -> str:
    """Select the rows with a column for each call.

    Args:
        identity: texts of the columns that identify a row.
    """
    partition = [recompute.after(each) for each in block.partition]
    placed = [
        f"ROW_NUMBER() OVER {_over(partition, _by_row(call, recompute, identity), None)} AS {_AT}{call.name}"
        for call in block.analytic
        if _is_placed(call)
    ]
    placed += [
        f"DENSE_RANK() OVER {_over(partition, _ordered(call, recompute) or ['TRUE'], None)} AS {_TIED}{call.name}"
        for call in block.analytic
        if _without_ties(call)
    ]
    if placed:
        rows = f"SELECT *, {', '.join(placed)} FROM ({rows}) AS __p"
    listed = [
        _frame_as_list(call, recompute, _over(partition, _by_row(call, recompute, identity), _frame(call, recompute)))
        for call in block.analytic
        if isinstance(call, AggregateFramed) and _without_ties(call)
    ]
    if listed:
        rows = f"SELECT *, {', '.join(listed)} FROM ({rows}) AS __l"
    calls = [f"{_value(call, block, recompute, identity)} AS {recompute.name(call.name)}" for call in block.analytic]
    return f"SELECT *, {', '.join(calls)} FROM ({rows}) AS __r"


def _is_placed(call: AnalyticCall) -> bool:
    """True if a call lists values in the order of its window."""
    if not isinstance(call, AggregateOver):
        return False
    if _without_ties(call):
        return True
    function = function_of(call.call)
    return function.needs_order or (function.ordered and bool(call.order))


def _ordered(call: AnalyticCall, recompute: Recomputation) -> list[str]:
    return [
        f"{recompute.after(by)} {'DESC' if down else 'ASC'} NULLS {'FIRST' if first else 'LAST'}"
        for by, down, first in call.order
    ]


def _by_row(call: AnalyticCall, recompute: Recomputation, identity: list[str]) -> list[str]:
    """The order in which no two rows tie."""
    return [*_ordered(call, recompute), *(f"{each} ASC NULLS FIRST" for each in identity)]


def _as_of_groups(over: AggregateOver, block: Block, recompute: Recomputation, identity: list[str]) -> str:
    """An aggregate in the engine's own words, each of them OVER the window."""
    dialect = recompute.engine.dialect
    if dialect != "duckdb":
        raise NotSupported(f"{over.function} OVER a window has no words of {dialect}'s own")
    partition = [recompute.after(each) for each in block.partition]
    order = _by_row(over, recompute, identity) if over.by_row else _ordered(over, recompute)
    call = over.call
    arguments = [
        recompute.engine.cast(recompute.after(argument), sql_type)
        for argument, sql_type in zip(call.arguments, call.argument_types, strict=True)
    ]
    where = recompute.after(call.filter) if call.filter is not None else None
    place = f"{_AT}{over.name}" if _is_placed(over) else "NULL"
    if isinstance(over, AggregateFramed) and _without_ties(over):
        return recompute.whole(_of_listed(over, len(arguments)), over.type)
    written = Written(call, arguments, where, place, _over(partition, order, _frame(over, recompute)))
    return recompute.whole(call_text(written, dialect), over.type)


# ROWS … EXCLUDE GROUP or TIES: DuckDB finds the rows of such a frame in an order in which none tie, so it leaves none
# out. Each row has its frame as a list of structs: the arguments `v0`, …, FILTER's condition `f`, the row's number `n`
# and its group's `g`.


def _frame(over: AggregateOver, recompute: Recomputation) -> str | None:
    """The frame in DuckDB's words; one that fails reaches over nothing, since DuckDB looks at every row's."""
    if not isinstance(over, AggregateFramed) or over.frame is None:
        return over.frame
    parts = over.frame.split("?")
    found = parts[0] + "".join(
        f"COALESCE({recompute.after(each)}, 0){part}" for each, part in zip(over.distances, parts[1:], strict=True)
    )
    return f"{found} EXCLUDE {over.exclude}" if over.exclude and not _without_ties(over) else found


def _without_ties(call: AnalyticCall) -> bool:
    return isinstance(call, AggregateFramed) and call.by_row and call.exclude in ("GROUP", "TIES")


def _frame_as_list(over: AggregateFramed, recompute: Recomputation, window: str) -> str:
    call = over.call
    values = [
        recompute.engine.cast(recompute.after(argument), sql_type)
        for argument, sql_type in zip(call.arguments, call.argument_types, strict=True)
    ]
    items = [f"v{place} := {value}" for place, value in enumerate(values)]
    items += [f"f := {recompute.after(call.filter)}"] if call.filter is not None else []
    items += [f"n := {_AT}{over.name}", f"g := {_TIED}{over.name}"]
    return f"list(struct_pack({', '.join(items)})) OVER {window} AS {_LISTED}{over.name}"


def _of_listed(over: AggregateFramed, arguments: int) -> str:
    """The aggregate over the rows that are left of the list of a frame."""
    call = over.call
    written = Written(
        call, [f"e.v{each}" for each in range(arguments)], "e.f" if call.filter is not None else None, "e.n"
    )
    left = f"e.g <> {_TIED}{over.name}" + (f" OR e.n = {_AT}{over.name}" if over.exclude == "TIES" else "")
    return f"(SELECT {call_text(written, 'duckdb')} FROM (SELECT unnest({_LISTED}{over.name}) AS e) WHERE {left})"


def _value(call: AnalyticCall, block: Block, recompute: Recomputation, identity: list[str]) -> str:
    if isinstance(call, AggregateOver):
        return _as_of_groups(call, block, recompute, identity)
    order = _ordered(call, recompute)
    arguments = [recompute.after(argument) for argument in call.arguments] or (
        ["*"] if call.function == "COUNT" else []
    )
    if call.function not in _BY_ORDER_ALONE and (call.function not in _PEERS_TOGETHER or call.by_row):
        order = _by_row(call, recompute, identity)
    frame = call.frame
    if call.function == "LAST_VALUE" and frame is None:
        return _last_peer(call, block, recompute, identity)
    if call.function == "NTH_VALUE" and frame is None:
        return _nth(call, block, recompute, identity)
    if call.function == "AVG":
        arguments = [recompute.engine.cast(arguments[0], DOUBLE)]
    window = _over([recompute.after(each) for each in block.partition], order, frame)
    if call.function == "COUNT_DISTINCT":
        return recompute.whole(recompute.engine.distinct_over(arguments[0], window), call.type)
    if call.function in ("LAG", "LEAD") and isinstance(call.arguments[0], exp.IgnoreNulls):
        arguments[0] = recompute.after(call.arguments[0].this)
        return recompute.whole(f"{recompute.engine.skipping_nulls(call.function, arguments)} OVER {window}", call.type)
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
    order = _ordered(call, recompute)
    value, number = (recompute.after(argument) for argument in call.arguments)
    rows = _over(partition, _by_row(call, recompute, identity), None)
    frame = "ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"
    every = rows.removesuffix(")") + f" {frame})"
    found = f"CASE WHEN COUNT(*) OVER {_over(partition, order, None)} >= {number} THEN"
    return recompute.engine.cast(f"{found} NTH_VALUE({value}, {number}) OVER {every} END", call.type)


def _over(partition: list[str], order: list[str], frame: str | None) -> str:
    parts = [f"PARTITION BY {', '.join(partition)}"] if partition else []
    parts += [f"ORDER BY {', '.join(order)}"] if order else []
    return f"({' '.join([*parts, *([frame] if frame else [])])})"
