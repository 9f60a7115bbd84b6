"""The rules that compute again what changes touch, and compare it with the stored rows: partitions of window functions,
groups of sessions, recursions.

# Window functions: the partitions that are touched are computed again.

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

# WINDOW SESSION: the groups that are touched are cut into sessions again.

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

# WITH RECURSIVE: all rounds are computed again.

    WITH RECURSIVE r (a, b) AS (SELECT a, b FROM e UNION SELECT r.a, e.b FROM r JOIN e ON r.b = e.a)

    new_e (a, b)     __itself (a, b)               self_old     settled
    1 2              round 0: 1 2, 2 3, 3 1        1 2          1 3   exists=true   old=NULL
    2 3              round 1: 1 3, 2 1, 3 2        2 3          …
    3 1              round 2: 1 1, 2 2, 3 3        9 9          9 9   exists=false  old=(9 9)

What a change takes away may follow from other rows in another way, so that no rule over the changes alone can tell
(docs/design/0045-recursion.md). The difference goes on: what stands above it is maintained from changes.

Where rows only come, and no round is counted, what is stored stays, and the rounds begin with what is new:

    stored 1 2, 2 3, 1 3      Δe 3 4      round 0: 3 4 (begins), 2 4, 1 4 (follow from stored rows by a new edge)
                                          round 1: what follows from these by any edge
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Final

from sqlglot import exp

from strandline.jobs.engines.engine import Engine, all_rounds, rounds
from strandline.jobs.ivm.rules.aggregate import chosen, evaluated, folded
from strandline.jobs.ivm.rules.aggregate import shown as group_columns_shown
from strandline.jobs.ivm.rules.delta_join import all_rows, changes, ctes, where_text
from strandline.jobs.ivm.rules.frames import joined, of_frame, of_frames, ordered, over_text
from strandline.jobs.ivm.rules.named_once import NamedOnce, named_once
from strandline.jobs.ivm.rules.stored import (
    ROWS,
    columns,
    marked_new,
    marked_stored,
    only_touched,
    render,
    settled,
    state_column,
    typed,
    value_of,
)
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import (
    ALL_ROWS,
    COPY_NUMBER,
    AggregateOver,
    AggregateStage,
    AnalyticCall,
    AnalyticStage,
    Core,
    RecursiveStage,
    SessionWindow,
    body_of,
)
from strandline.jobs.model.stage_columns import hidden_columns, key_path
from strandline.jobs.model.tables import WINDOW_END, WINDOW_START
from strandline.jobs.model.types import BIGINT, DOUBLE, MAX_PRECISION, BaseType, SqlType
from strandline.jobs.sql.trees import columns_in
from strandline.state_store.tablespec import WEIGHT


def analytic_rule(stage: AnalyticStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form.

    Args:
        changed: the aliases of the inputs that moved; None for the first refresh, which computes every partition.

    Raises:
        NotSupported: a function whose value would be left to chance (see `jobs.ivm.rules.recompute`).
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
        marked_new("__n", _to_be_stored(stage, names, engine)),
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
        marked_new("__n", _sessions_to_be_stored(stage, engine)),
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


def _sessions_to_be_stored(stage: AggregateStage, engine: Engine) -> str:
    values = [f"{group_columns_shown(call, engine)} AS {engine.name(call.name)}" for call in stage.aggregates]
    fields = [(name, engine.name(name)) for name, _ in hidden_columns(stage)]
    parts = [*(typed(o, engine) for o in stage.outputs), *state_column(stage, [*fields, (ROWS, ROWS)], engine)]
    return f"SELECT\n    {columns(parts)}\n  FROM (SELECT {columns(['*', *values])} FROM __d) AS __r"


SELF: Final = "self_old"


def grows(stage: RecursiveStage) -> bool:
    """True if rows that come into its inputs only ever add rows to it, and these follow without those that are stored
    being computed again.

    Not where rounds are counted: in which round a row is reached first, the stored rows do not say. And not where an
    input decides or pads (outer, semi and anti joins), or is read by a column that is not visible, such as ROWTIME: a
    row may change there without being counted as one that goes.
    """
    return stage.distinct and stage.levels is None and all(map(_adds, body_of(stage)))


def _adds(core: Core) -> bool:
    if any(each.join != "inner" or each.frozen for each in core.inputs):
        return False
    trees = [each.expression for each in (*core.columns, *core.expand)]
    trees += [each.on for each in core.inputs if each.on is not None] + ([core.where] if core.where is not None else [])
    hidden = {(each.alias, name) for each in core.inputs for name, _ in each.relation.hidden}
    return not any((column.table, column.name) in hidden for tree in trees for column in columns_in(tree))


def recursive_rule(stage: RecursiveStage, engine: Engine, changed: Collection[str] | None) -> str:
    """The settled form.

    Args:
        changed: the aliases of the inputs into which rows have come, and of which none went; None: all rounds are
            computed.

    Raises:
        NotSupported: the engine has no recursion of sets.
    """
    if engine.dialect != "duckdb":
        raise NotSupported("Spark has no WITH RECURSIVE with UNION: DuckDB runs it")
    names = [each.name for each in stage.outputs]
    steps = [all_rows((core,), engine) for core in stage.steps]
    if changed is not None and grows(stage):
        return _added(stage, names, steps, engine, changed)
    seed = all_rows(stage.seed, engine)
    itself = rounds(names, seed, steps, engine, distinct=stage.distinct, levels=stage.levels)
    rows = all_rounds(names, engine, levels=stage.levels)
    return f"""WITH RECURSIVE {itself}, {marked_new("__n", _rounds_to_be_stored(stage, names, rows, engine))}, \
{marked_stored("SELECT * FROM self_old", engine)}
{settled(stage, engine)}"""


def _added(
    stage: RecursiveStage, names: Sequence[str], steps: Sequence[str], engine: Engine, changed: Collection[str]
) -> str:
    """The rows that come, with what follows from them."""
    columns = ", ".join(map(engine.name, names))
    first = [changes(stage.seed, engine, changed), changes(stage.steps, engine, changed, itself=SELF)]
    seed = "\nUNION ALL\n".join(f"SELECT {columns} FROM (\n{each}\n) AS __begin WHERE {WEIGHT} > 0" for each in first)
    stored = f"SELECT {columns} FROM {SELF}"
    begin = f"SELECT {columns} FROM (\n{seed}\n) AS __new EXCEPT {stored}"
    itself = rounds(names, begin, steps, engine, distinct=True, levels=None)
    # What is stored is left out at both ends, and not in between: a round would read all of it.
    rows = _rounds_to_be_stored(stage, names, f"{all_rounds(names, engine, levels=None)} EXCEPT {stored}", engine)
    none = marked_stored(f"SELECT * FROM {SELF} WHERE FALSE", engine)
    return f"""WITH RECURSIVE {itself}, {marked_new("__n", rows)}, {none}
{settled(stage, engine)}"""


def _rounds_to_be_stored(stage: RecursiveStage, names: Sequence[str], rows: str, engine: Engine) -> str:
    """The rows with what is kept of them; equal ones are numbered."""
    if not stage.distinct:
        equal = f"ROW_NUMBER() OVER (PARTITION BY {', '.join(map(engine.name, names))})"
        rows = f"SELECT *, {equal} AS {COPY_NUMBER} FROM ({rows}) AS __all"
    parts = [typed(each, engine) for each in stage.outputs]
    parts += [] if stage.distinct else state_column(stage, [(COPY_NUMBER, COPY_NUMBER)], engine)
    return f"SELECT {', '.join(parts)} FROM ({rows}) AS __rows"
