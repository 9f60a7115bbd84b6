"""FROM and WHERE of a recomputation: the joins as they stand in the query, over whole relations.

    FROM visit JOIN info ON visit.product = info.product
    -> SELECT "visit"."length" AS "visit.length", … FROM "visit" AS "visit" JOIN "info" AS "info" ON …

A stream that joins a table as of the event's time reads the table's event log: the newest event of the key up to that
time, unless it is a tombstone.
"""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from jobs.model.columns import ITEM, META_COLUMNS
from jobs.model.relation import Relation
from jobs.model.stage import JOIN_WORDS, Output
from jobs.query.logical.query import Block, From, Query, SetOperation
from jobs.query.recompute.text import Recomputation, flat

_META = frozenset(name for name, _ in META_COLUMNS)
_NOTHING = "FROM (SELECT 1 AS __one) AS __nothing"
_NEWEST_FIRST = ("_stream_time", "_partition", "_offset")


def rows(block: Block, recompute: Recomputation, more: Iterable[exp.Expression]) -> str:
    """SELECT of every column that a later clause reads (those of `more` as well), FROM the joined inputs, WHERE."""
    later = list(_columns((*_later(block), *more)))
    within = list(_columns(_joining(block)))
    names = [
        f"{recompute.name(a)}.{recompute.name(n)} AS {recompute.name(flat(a, n))}" for a, n in dict.fromkeys(later)
    ]
    names += [recompute.name(item.name) for item in block.expand]
    names += [ITEM] if block.expand else []
    wanted = {part.alias: {name for alias, name in (*later, *within) if alias == part.alias} for part in block.inputs}
    joined = " ".join(_input(block, place, recompute, wanted) for place in range(len(block.inputs))) or _NOTHING
    if block.expand:
        arrays = [(item.name, recompute.inside(item.expression)) for item in block.expand]
        joined = f"{joined} {recompute.engine.expand(arrays)}"
    where = f" WHERE {recompute.inside(block.where)}" if block.where is not None else ""
    return f"SELECT {', '.join(names) or '1 AS __one'} {joined}{where}"


def meta_column(block: Block, name: str) -> exp.Expression | None:
    """A meta column of the block's rows: of the events, or else of the tables; the greatest time where streams join.

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
    """True if a source has a meta column. Rows that stand for several, as those of DISTINCT, have none, nor do those
    that OVER numbers."""
    if isinstance(source, Relation):
        return name in dict((*source.columns, *source.hidden))
    if isinstance(source, SetOperation):
        return source.operation == "union all" and all(_has(branch, name) for branch in source.branches)
    return _is_single(source) and any(_has(part.source, name) for part in source.inputs)


def _is_stream(source: Relation | Query) -> bool:
    """True if the rows are events, or joined events: those can be retracted, but their key is the events' places."""
    if isinstance(source, Relation):
        hidden = {name for name, _ in source.hidden}
        places = bool(source.key) and hidden.issuperset((*source.key, "_timestamp", "_offset"))
        return source.storage == "append" or places
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
    for call in block.calls:
        yield from call.arguments
        if call.filter is not None:
            yield call.filter
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


def _input(block: Block, place: int, recompute: Recomputation, wanted: dict[str, set[str]]) -> str:
    part = block.inputs[place]
    alias = recompute.name(part.alias)
    source = _source(part, recompute, wanted[part.alias])
    if place == 0:
        return f"FROM {source} AS {alias}"
    conditions = [recompute.inside(part.on)] if part.on is not None else []
    events = block.inputs[0].alias
    if part.frozen and recompute.frozen is not None:
        conditions.append(recompute.frozen(events, part.alias))
    if part.as_of:
        newest = _as_of(source, alias, events, conditions, recompute)
        return f"{JOIN_WORDS[part.join]} LATERAL ({newest}) AS {alias} ON TRUE"
    on = " AND ".join(f"({condition})" for condition in conditions)
    return f"{JOIN_WORDS[part.join]} {source} AS {alias} ON {on or 'TRUE'}"


def _as_of(log: str, alias: str, events: str, conditions: list[str], recompute: Recomputation) -> str:
    """The version of the matching key that was the newest at the event's time."""
    known = f"{alias}._stream_time <= {recompute.name(events)}._timestamp"
    matching = " AND ".join(f"({condition})" for condition in (*conditions, known))
    newest = ", ".join(f"{alias}.{name} DESC" for name in _NEWEST_FIRST)
    version = f"SELECT * FROM {log} AS {alias} WHERE {matching} ORDER BY {newest} LIMIT 1"
    return f"SELECT * FROM ({version}) AS __version WHERE NOT _tombstone"


def _source(part: From, recompute: Recomputation, wanted: set[str]) -> str:
    if isinstance(part.source, Relation):
        return recompute.source(part.source)
    outputs = part.source.outputs
    visible = {each.name if isinstance(each, Output) else each[0] for each in outputs}
    return recompute.source(part.source, tuple(sorted(name for name in wanted - visible if name in _META)))
