"""FROM, WHERE and time windows of a recomputation: the joins as they stand in the query, over whole relations.

    FROM visit JOIN info ON visit.product = info.product
    -> SELECT "visit"."length" AS "visit.length", … FROM "visit" AS "visit" JOIN "info" AS "info" ON …

A stream that joins a table as of the event's time reads the table's event log: the newest event of the key up to that
time, unless it is a tombstone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from sqlglot import exp

from strandline.jobs.engines.engine import Dialect
from strandline.jobs.functions.failing import in_words, lenient, strict
from strandline.jobs.functions.failing_rows import Apart, RowCheck
from strandline.jobs.functions.faults import words_of
from strandline.jobs.functions.scalars.contract import total
from strandline.jobs.functions.scalars.domains import FAIL
from strandline.jobs.model.stage import JOIN_WORDS, Output
from strandline.jobs.model.tables import ITEM, META_COLUMNS, WINDOW_END, WINDOW_START, Relation
from strandline.jobs.query.logical import Block, From, Query, Recursion, SetOperation, TimeWindow
from strandline.jobs.query.recompute_context import Recomputation, condition, flat, is_open, passed_on
from strandline.jobs.sql.trees import all_of, call

_META = frozenset(name for name, _ in META_COLUMNS)
_ONE = "1 AS __one"
_NOTHING = f"FROM (SELECT {_ONE}) AS __nothing"
_DECIDING = ("semi", "anti")
_COUNTED: Final = f"LIMIT {(1 << 62) - 1}"
"""All rows; but what is asked of them is asked of those alone that were counted, so of no row that joins nothing."""
_NEWEST_FIRST = ("_stream_time", "_partition", "_offset")


def rows(
    block: Block, recompute: Recomputation, check: RowCheck, more: Iterable[exp.Expression], *, passing: bool = False
) -> str:
    """Select every column that a later clause reads, those of `more` too, FROM the joined inputs, WHERE.

    Args:
        check: of the block's rows.
        passing: rows that fail stay; what becomes of them is decided further out.
    """
    later = list(_columns((*_later(block), *more)))
    within = list(_columns(_joining(block)))
    items = [recompute.name(item.name) for item in block.expand]
    items += [ITEM] if block.expand else []
    wanted = {part.alias: {name for alias, name in (*later, *within) if alias == part.alias} for part in block.inputs}
    places = range(len(block.inputs))
    joined = " ".join(_input(block, place, recompute, wanted, check) for place in places) or _NOTHING
    if block.expand:
        arrays = [(item.name, recompute.total(_array(item, block, recompute, check))) for item in block.expand]
        joined = f"{joined} {recompute.engine.expand(arrays)}"
    kept = passed_on(check) if passing else condition(check, recompute, _read(block, wanted))
    if kept is not None and not passing and recompute.joins_first:
        shown = ", ".join((*_flat((*later, *_columns((kept,))), recompute), *items)) or _ONE
        return f"SELECT * FROM (SELECT {shown} {joined} {_COUNTED}) AS __j WHERE {recompute.total_after(kept)}"
    where = f" WHERE {recompute.total(kept)}" if kept is not None else ""
    return f"SELECT {', '.join((*_flat(later, recompute), *items)) or _ONE} {joined}{where}"


def _flat(columns: Iterable[tuple[str, str]], recompute: Recomputation) -> list[str]:
    """Inputs' columns, each once, by their names in the clauses after FROM."""
    name = recompute.name
    return [f"{name(alias)}.{name(each)} AS {name(flat(alias, each))}" for alias, each in dict.fromkeys(columns)]


def _array(array: Output, block: Block, recompute: Recomputation, check: RowCheck) -> exp.Expression:
    """An array for whose items a row is repeated: without any where it fails, or an error."""
    if recompute.fate != "error":
        return lenient(array.expression)
    return strict(array.expression, check.own_terms({ITEM, *(item.name for item in block.expand)}))


def _read(block: Block, wanted: Mapping[str, Collection[str]]) -> list[exp.Expression]:
    """A column of each joined input: an error that reads them is raised of joined rows alone."""
    giving = [part for part in block.inputs if part.join not in _DECIDING]
    columns = [(part.alias, min(wanted[part.alias])) for part in giving if wanted[part.alias]]
    return [exp.column(name, table=alias, quoted=True) for alias, name in columns] if len(giving) > 1 else []


def meta_column(block: Block, name: str) -> exp.Expression | None:
    """Meta column of the block's rows: of the events, or else of the tables; the greatest time if streams join.

    None when the inputs have no such column.
    """
    joined = [part for part in block.inputs if part.join not in ("semi", "anti") and not part.frozen]
    streams = [part for part in joined if _is_stream(part.source)] or joined
    streams = [part for part in streams if _has(part.source, name)]
    if not streams:
        return None
    found: list[exp.Expression] = [exp.column(name, table=part.alias, quoted=True) for part in streams]
    if name in ("_timestamp", "_stream_time") and len(found) > 1:
        return exp.Anonymous(this="GREATEST", expressions=found)
    pads = any(part.join in ("right", "full") for part in block.inputs)
    return exp.Anonymous(this="COALESCE", expressions=found) if pads and len(found) > 1 else found[0]


def _has(source: Relation | Query, name: str) -> bool:
    """True if a source has a meta column. Rows that combine several, as DISTINCT's, have none, nor have rows numbered
    by OVER."""
    if isinstance(source, Relation):
        return name in dict((*source.columns, *source.hidden))
    if isinstance(source, Recursion):
        return False
    if isinstance(source, SetOperation):
        return source.operation == "union all" and all(_has(branch, name) for branch in source.branches)
    return _is_single(source) and any(_has(part.source, name) for part in source.inputs)


def _is_stream(source: Relation | Query) -> bool:
    """True if the rows are events, or joined events: those can be retracted, but their key is the events' places."""
    if isinstance(source, Relation):
        hidden = {name for name, _ in source.hidden}
        places = bool(source.key) and hidden.issuperset((*source.key, "_timestamp", "_offset"))
        return source.storage == "append" or places
    if isinstance(source, Recursion):
        return False
    if isinstance(source, SetOperation):
        return source.operation == "union all" and all(_is_stream(branch) for branch in source.branches)
    return _is_single(source) and any(_is_stream(part.source) for part in source.inputs if not part.frozen)


def _is_single(block: Block) -> bool:
    """True if each row of a block is one of its joined rows, and known by it."""
    return block.group is None and not block.calls and not block.distinct and not block.analytic


def _columns(expressions: Iterable[exp.Expression]) -> Iterable[tuple[str, str]]:
    for expression in expressions:
        yield from ((node.table, node.name) for node in expression.find_all(exp.Column) if node.table)


def _later(block: Block) -> Iterable[exp.Expression]:
    """Every expression of the clauses after WHERE."""
    yield from (each.expression for each in (*block.outputs, *(block.group or ())))
    for each in block.calls:
        yield from each.arguments
        if each.filter is not None:
            yield each.filter
    for over in block.analytic:
        yield from over.arguments
        yield from (expression for expression, _, _ in over.order)
    yield from block.partition
    yield from (each for each in (block.having, block.qualify, block.time) if each is not None)


def _joining(block: Block) -> Iterable[exp.Expression]:
    yield from (part.on for part in block.inputs if part.on is not None)
    yield from (item.expression for item in block.expand)
    if block.where is not None:
        yield block.where


def _input(block: Block, place: int, recompute: Recomputation, wanted: dict[str, set[str]], check: RowCheck) -> str:
    part = block.inputs[place]
    alias = recompute.name(part.alias)
    source = _source(block, place, recompute, wanted[part.alias], check)
    if place == 0:
        return f"FROM {source} AS {alias}"
    on_condition = check.joins[place].lenient if recompute.fate == "null" else check.joins[place].on
    conditions = [recompute.total(on_condition)] if on_condition is not None else []
    events = block.inputs[0].alias
    if part.frozen and recompute.frozen is not None:
        conditions.append(recompute.frozen(events, part.alias))
    if part.as_of:
        newest = _as_of(source, alias, events, conditions, recompute)
        return f"{JOIN_WORDS[part.join]} LATERAL ({newest}) AS {alias} ON TRUE"
    on = " AND ".join(f"({each})" for each in (*conditions, *_pairs_that_fail(part, check, recompute)))
    return f"{JOIN_WORDS[part.join]} {source} AS {alias} ON {on or 'TRUE'}"


def _pairs_that_fail(part: From, check: RowCheck, recompute: Recomputation) -> list[str]:
    """An error on the pairs of rows that fail without joining."""
    if recompute.fate != "error":
        return []
    apart = (each for each in check.apart if len(each.aliases) > 1 and not each.shown and part.alias in each.aliases)
    return [recompute.total(_unless(each)) for each in apart]


def _unless(rows: Apart) -> exp.Expression:
    """TRUE, or an error on the rows that fail."""
    error = exp.If(this=rows.fails, true=call(FAIL, words_of(in_words(rows.term), rows.fails)))
    return exp.Case(ifs=[error], default=exp.true())


def _as_of(log: str, alias: str, events: str, conditions: list[str], recompute: Recomputation) -> str:
    """The version of the matching key that was the newest at the event's time."""
    known = f"{alias}._stream_time <= {recompute.name(events)}._timestamp"
    matching = " AND ".join(f"({condition})" for condition in (*conditions, known))
    newest = ", ".join(f"{alias}.{name} DESC" for name in _NEWEST_FIRST)
    version = f"SELECT * FROM {log} AS {alias} WHERE {matching} ORDER BY {newest} LIMIT 1"
    return f"SELECT * FROM ({version}) AS __version WHERE NOT _tombstone"


def _source(block: Block, place: int, recompute: Recomputation, wanted: set[str], check: RowCheck) -> str:
    part = block.inputs[place]
    if isinstance(part.source, Relation):
        text = recompute.source(part.source)
    else:
        outputs = part.source.outputs
        visible = {each.name if isinstance(each, Output) else each[0] for each in outputs}
        meta = tuple(sorted(name for name in wanted - visible if name in _META))
        text = recompute.source(part.source, meta, is_open=is_open(block, place, recompute))
    if recompute.fate != "error":
        return text
    for each in check.apart:
        if each.aliases == {part.alias}:
            given = f"(SELECT * FROM {text} AS __g {_COUNTED})" if recompute.joins_first else text
            text = f"(SELECT * FROM {given} AS {recompute.name(part.alias)} WHERE {recompute.total(_unless(each))})"
    return text


# Time windows in a recomputation: the windows that a row belongs to, and the condition that a window is closed.
#
# TUMBLING (SIZE 10 s), rowtime 00:00:07    windowstart 0 ms      windowend 10000 ms
# HOPPING (10 s, ADVANCE BY 5 s)            windowstart 0, 5000   windowend 10000, 15000
# SESSION (10 s)                            first and last rowtime of rows no further than 10 s apart

MILLIS = "__millis"
CLOCK = "__clock"

_SERIES: dict[Dialect, str] = {
    "duckdb": "range({first}, {last} + 1, {step})",
    # Spark's sequence counts down when the first is after the last.
    "spark": "IF({first} <= {last}, sequence({first}, {last}, {step}), CAST(array() AS ARRAY<BIGINT>))",
}


def in_windows(rows: str, block: Block, recompute: Recomputation) -> str:
    """Repeat the rows for each window, with `__millis`, `windowstart` and `windowend`; late rows are left out."""
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
    """Add `__session`, the number of a row's session in its group.

    A row begins a session when the previous row is too far away, or when its session had closed before the row arrived.
    """
    by = f"PARTITION BY {', '.join(partition)} " if partition else ""
    before = f"LAG({MILLIS}) OVER ({by}ORDER BY {MILLIS}, {CLOCK})"
    still = f" AND {CLOCK} <= {before} + {window.size + window.grace}" if window.grace is not None else ""
    begins = f"CASE WHEN {MILLIS} - {before} <= {window.size}{still} THEN 0 ELSE 1 END"
    begun = f"SELECT *, {begins} AS __begins FROM ({rows}) AS __g"
    return f"SELECT *, SUM(__begins) OVER ({by}ORDER BY {MILLIS}) AS __session FROM ({begun}) AS __h"


def closed(block: Block, recompute: Recomputation) -> str:
    """Condition of EMIT FINAL: the window is closed, and no row can enter it any more."""
    window = block.window
    assert window is not None
    assert isinstance(block.time, exp.Column)
    source = next(part.source for part in block.inputs if part.alias == block.time.table)
    stream_time = recompute.millis(exp.column("_stream_time"))
    open_for = (window.grace or 0) + (window.size + 1 if window.type == "session" else 0)
    events = recompute.source(source, ("_stream_time",))
    return f"{WINDOW_END} + {open_for} <= (SELECT MAX({stream_time}) FROM {events} AS __s)"


def clock(time: exp.Expression) -> exp.Expression:
    """Stream's time at a row, made from the expression of the row's own time."""
    made = exp.Paren(this=time.copy())
    for node in list(made.find_all(exp.Column)):
        node.set("this", exp.to_identifier("_stream_time", quoted=True))
    found = made.this
    assert isinstance(found, exp.Expression)
    return found


def _starts(window: TimeWindow, recompute: Recomputation) -> str:
    """The array of the windows' starts: the multiples of the advance after `time - size`; of hops none before 1970."""
    number = f"CAST(FLOOR(({MILLIS} - {window.size}) / {window.advance}.0) AS BIGINT) + 1"
    first = number if window.type == "tumbling" else f"GREATEST({number}, 0)"
    return _SERIES[recompute.engine.dialect].format(
        first=f"({first}) * {window.advance}", last=MILLIS, step=window.advance
    )


def in_time(block: Block) -> exp.Expression | None:
    """The condition that some window takes a row; None: one does. Of any other nothing is computed that could fail."""
    window, time = block.window, block.time
    if window is None or time is None:
        return None
    number, at = exp.Literal.number, call("UNIX_TIMESTAMP", time)
    begins = exp.GTE(this=at.copy(), expression=number(0)) if window.type == "hopping" else None
    if window.grace is None:
        return begins
    now, open_for = call("UNIX_TIMESTAMP", clock(time)), number(window.size + window.grace)
    if window.type == "session":
        return exp.GTE(this=total(exp.Paren(this=exp.Add(this=at, expression=open_for))), expression=now)
    step = number(window.advance)
    rest = exp.Add(this=exp.Mod(this=at, expression=step), expression=step.copy())
    past = exp.Mod(this=exp.Paren(this=rest), expression=step.copy())
    last = exp.Paren(this=exp.Sub(this=at.copy(), expression=past))
    ends = total(exp.Paren(this=exp.Add(this=last, expression=open_for)))
    return all_of(begins, exp.GT(this=ends, expression=now))
