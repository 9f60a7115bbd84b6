"""Pull queries: a SELECT over the present rows of tables, answered once.

    SELECT ──read_pull──> logical query ──recompute──> DuckDB's SQL
                              │                             │
             one version of each table ──> Arrow ───────> DuckDB ──> rows

Any SELECT over streams, tables and views is allowed: it is read as the definition of a view is, and nothing has to be
maintained for it. All tables are read at one consistent cut, the newest when the query begins; a view whose pipeline
has not run yet is empty. Without ORDER BY, the rows of one table come in the order of its key, events in their own
order; with LIMIT and no ORDER BY, any may come. A predicate over keys is pushed down to the reader of a table.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, Protocol

from sqlglot import exp

from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.engines.engine import engine_of, listed
from strandline.jobs.model import tables
from strandline.jobs.model.stage import Output
from strandline.jobs.model.tables import EVENT_ORDER, META_COLUMNS, TOMBSTONE, Relation
from strandline.jobs.model.types import BaseType, struct
from strandline.jobs.query.clauses.read import read_pull
from strandline.jobs.query.clock import asks
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.logical import Block, OrderItem, outputs_of
from strandline.jobs.query.pulled import HIDDEN
from strandline.jobs.query.recompute import recompute_sql
from strandline.jobs.serve.catalogued import check_stored
from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot, newest_snapshot
from strandline.jobs.serve.past import not_kept, with_past
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.terms import FREELY, QueryBudget, check_cut
from strandline.state_store.delta import reader
from strandline.state_store.errors import VersionGone
from strandline.state_store.tablespec import STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python import Library
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.query.logical import PullQuery
    from strandline.jobs.query.pulled import Unnamed
    from strandline.jobs.serve.consistent_snapshot import Pinned
    from strandline.jobs.serve.past import Past
    from strandline.jobs.serve.query_engine import QueryDatabase
    from strandline.jobs.serve.terms import Terms
    from strandline.jobs.sql.syntax import Select
    from strandline.state_store.commits import Head
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.layout import LakeLayout


_BITS = {BaseType.INT: 32, BaseType.BIGINT: 64}


def key_predicate(pull: PullQuery) -> Predicate | None:
    """A condition that every row of the answer meets, for the reader of the only table; None when there is none.

    It is made of the terms `column = constant` and `column IN (constants)` of WHERE, joined with AND and OR, over whole
    numbers and text: there the reader compares as DuckDB does. DuckDB applies the whole WHERE again.
    """
    relation = only_relation(pull)
    if relation is None or not isinstance(pull.query, Block):
        return None
    return _met(pull.query.where, relation, None)


def part_predicate(pull: PullQuery, name: str) -> Predicate | None:
    """The same of the rows of one table among those that a query joins; None too where it is read more than once."""
    if not isinstance(pull.query, Block) or pull.nested:
        return None
    parts = [part for part in pull.query.inputs if isinstance(part.source, Relation) and part.source.name == name]
    if len(parts) != 1 or not all(isinstance(part.source, Relation) for part in pull.query.inputs):
        return None
    (part,) = parts
    assert isinstance(part.source, Relation)
    return _met(pull.query.where, part.source, part.alias)


def _met(condition: exp.Expr | None, relation: Relation, alias: str | None) -> Predicate | None:
    """{column: the values that it may have} where a condition is true; None where it says nothing of that.

    Args:
        alias: of the columns that are meant; None: all are.
    """
    node = condition.unnest() if condition is not None else None
    if isinstance(node, exp.And):
        found: dict[str, list[Any]] = {}
        for side in (_met(node.left, relation, alias), _met(node.right, relation, alias)):
            for name, values in (side or {}).items():
                found[name] = [value for value in values if name not in found or value in found[name]]
        return found or None
    if isinstance(node, exp.Or):
        left, right = (_met(side, relation, alias) or {} for side in (node.left, node.right))
        return {name: list(dict.fromkeys((*left[name], *right[name]))) for name in left if name in right} or None
    compared = _comparison(node, relation, alias) if node is not None else None
    return None if compared is None else dict([compared])


def row_by_row(pull: PullQuery) -> bool:
    """True if each row of the answer comes from one row of one table, in any order."""
    block = pull.query
    if only_relation(pull) is None or not isinstance(block, Block) or pull.order or pull.offset:
        return False
    combined = block.group is not None or block.calls or block.analytic or block.distinct
    return not (combined or block.having is not None or block.expand)


def in_natural_order(pull: PullQuery) -> PullQuery:
    """A row-by-row query in the order of its table: a stream's order of events, a table's key (maybe none)."""
    block, order = pull.query, natural_order(pull)
    assert isinstance(block, Block)
    items = tuple(OrderItem(each.name, descending=False, nulls_first=False) for each in order)
    return replace(pull, query=replace(block, outputs=(*block.outputs, *order)), order=items)


def natural_order(pull: PullQuery) -> tuple[Output, ...]:
    """The columns that order a row-by-row query's table, as further outputs; none when its key is not visible."""
    assert isinstance(pull.query, Block)
    (part,) = pull.query.inputs
    relation = part.source
    assert isinstance(relation, Relation)
    types = dict(relation.columns)
    names = EVENT_ORDER if relation.storage == "append" else relation.key
    if not types.keys() >= set(names):
        return ()
    return tuple(
        Output(f"{HIDDEN}{number}", column(name, part.alias), types[name]) for number, name in enumerate(names)
    )


def only_relation(pull: PullQuery) -> Relation | None:
    """The table of a query that reads one, once."""
    if not isinstance(pull.query, Block) or len(pull.query.inputs) != 1 or pull.nested:
        return None
    (part,) = pull.query.inputs
    return part.source if isinstance(part.source, Relation) else None


def _comparison(node: exp.Expr, relation: Relation, alias: str | None) -> tuple[str, list[Any]] | None:
    column, constants = node.this, node.expressions if isinstance(node, exp.In) else [node.args.get("expression")]
    if not isinstance(node, exp.EQ | exp.In) or not isinstance(column, exp.Column) or not constants:
        return None
    # An item that rows are repeated for has a name alone.
    if not column.table or (alias is not None and column.table != alias):
        return None
    base = relation.type_of(column.name).base
    values = [_constant(constant, base) for constant in constants]
    return None if None in values else (column.name, values)


def _constant(node: exp.Expr | None, base: BaseType) -> int | str | None:
    """The value of a literal of the column's own type; None for any other."""
    negated = isinstance(node, exp.Neg)
    literal = node.this if isinstance(node, exp.Neg) else node
    if not isinstance(literal, exp.Literal):
        return None
    if literal.is_string:
        return literal.name if base is BaseType.VARCHAR and not negated else None
    if base not in _BITS or not literal.is_int:
        return None
    value, most = int(literal.name) * (-1 if negated else 1), 1 << (_BITS[base] - 1)
    return value if -most <= value < most else None


@dataclass(frozen=True)
class Answer:
    """The answer of a pull query.

    Attributes:
        names: distinct, one for each column.
        types: one for each column.
        table: the rows.
        cut: the version of each table that they were computed from.
    """

    names: tuple[str, ...]
    types: tuple[SqlType, ...]
    table: pa.Table
    cut: ConsistentSnapshot


class Computing(Protocol):
    """What computes the rows of views of which nothing is stored."""

    def tables(
        self, pull: PullQuery, predicate: Predicate | None, spent: QueryBudget
    ) -> tuple[dict[str, pa.Table], ConsistentSnapshot] | None:
        """The rows that a query asks of such a view, and the cut that they come from; None when it reads none.

        Args:
            predicate: a condition that every row of the answer meets, as `key_predicate` finds it.
        """


@dataclass(frozen=True)
class PlannedPull:
    """A SELECT as it is computed, whatever rows its tables have.

    Attributes:
        limit: the most rows of its answer.
        predicate: a condition that every row of the answer meets.
        piecewise: its rows are computed from one piece of its one table after the other.
        past: the names that stand for tables as they were.
        lasts: the same text over the same definitions has the same plan. False where it asks the clock or for versions.
    """

    pull: PullQuery
    limit: int | None
    predicate: Predicate | None
    piecewise: bool
    asked: Computation
    past: Mapping[str, Past]
    lasts: bool


def plan_pull(statement: Select, catalog: Catalog, lake: LakeLayout, unnamed: Unnamed = "postgres") -> PlannedPull:
    """Plan a SELECT. No rows are read.

    Args:
        unnamed: whose names the columns get that nobody named.

    Raises:
        SqlError: the query is refused.
        VersionNotKept: it reads a version that is not there.
    """
    tree, past = with_past(statement.query, catalog, lake)
    pull = read_pull(tree, catalog, unnamed, dt.datetime.now(dt.UTC), _relations(past))
    predicate = key_predicate(pull)
    piecewise = row_by_row(pull) and statement.limit is not None
    if row_by_row(pull) and not piecewise:
        pull = in_natural_order(pull)
    lasts = not past and not asks(statement.query)
    return PlannedPull(pull, statement.limit, predicate, piecewise, computation(pull, statement.limit), past, lasts)


def answer(
    plan: PlannedPull,
    catalog: Catalog,
    lake: LakeLayout,
    functions: Library,
    terms: Terms = FREELY,
    computing: Computing | None = None,
    database: QueryDatabase | None = None,
) -> Answer:
    """Answer a SELECT.

    Args:
        catalog: that it was planned over.
        functions: those that users wrote.
        computing: without it, partial views are not read.
        database: that it is computed in, see `QueryEngine`.

    Raises:
        NotYet: the newest cut does not reflect `terms.at_least`. Nothing was computed.
        RequestRefused: it names a table that the query does not read.
        SqlError: its computation fails (an overflow).
        KeyRequired: it reads a partial view otherwise than by key.
        NoConsistentSnapshot: its tables have no versions that fit together, or one is not in `terms.pinned`.
        SnapshotExpired: `terms.pinned` has expired.
        TimeLimit, TooLarge: it takes more than it may.
        StoreError: a table cannot be read.
    """
    spent = QueryBudget(terms.limits)
    pull, asked, predicate = plan.pull, plan.asked, plan.predicate
    computed = computing.tables(pull, predicate, spent) if computing is not None else None
    cut = computed[1] if computed is not None else _stored_cut(pull, catalog, lake, terms.pinned, plan.past)
    check_cut(cut, terms.at_least, lake, computed[0] if computed is not None else ())
    snapshot = PinnedTables(lake, cut, spent, plan.past)
    again = partial(_again, plan)
    with QueryEngine(functions, spent, database) as duck:
        if computed is None and plan.piecewise and plan.limit is not None:
            rows = _first(plan.limit, _by_piece(duck, asked, snapshot, predicate, again))
            return Answer(*_outputs(pull), rows, cut)
        given, met = (computed[0], None) if computed is not None else ({}, predicate)
        stored = {name: each for name, each in asked.tables.items() if name not in given}
        tables = given | {name: snapshot.rows(each, _columns(each), met) for name, each in stored.items()}
        rows = duck.query(asked.text, tables, again)
    return Answer(*_outputs(pull), rows, cut)


def _again(plan: PlannedPull) -> str:
    """The text that says by what a row fails, if one does: one that joins nothing is none of the query's."""
    return computation(plan.pull, plan.limit, again=True).text


def columns_of(statement: Select, catalog: Catalog, lake: LakeLayout) -> tuple[tuple[str, ...], tuple[SqlType, ...]]:
    """The names and types of the columns that the answer would have.

    Raises:
        SqlError: the query is refused.
        VersionNotKept: it reads a version that is not there.
    """
    tree, past = with_past(statement.query, catalog, lake)
    return _outputs(read_pull(tree, catalog, moment=dt.datetime.now(dt.UTC), beside=_relations(past)))


def _relations(past: Mapping[str, Past]) -> dict[str, Relation]:
    return {name: each.relation for name, each in past.items()}


def _outputs(pull: PullQuery) -> tuple[tuple[str, ...], tuple[SqlType, ...]]:
    return tuple(name for name, _ in pull.outputs), tuple(sql_type for _, sql_type in pull.outputs)


def _stored_cut(
    pull: PullQuery, catalog: Catalog, lake: LakeLayout, pinned: Pinned | None, past: Mapping[str, Past]
) -> ConsistentSnapshot:
    """The cut of the tables as they are, and the versions of those as they were that are read in no other way."""
    names = [relation.name for relation in pull.relations if relation.name not in past]
    check_stored(names, catalog)
    now = newest_snapshot(names, lake) if pinned is None else pinned.cut(names, lake)
    then = {each.table: each.reflected(lake) for each in past.values() if each.table not in now.tables}
    return ConsistentSnapshot({**now.tables, **then})


def _columns(relation: Relation) -> list[str]:
    return [name for name, _ in relation.columns]


def _by_piece(
    duck: QueryEngine,
    asked: Computation,
    snapshot: PinnedTables,
    predicate: Predicate | None,
    again: Callable[[], str],
) -> Iterator[pa.Table]:
    """The answers of a query over one table, for one piece of the table after the other."""
    ((name, relation),) = asked.tables.items()
    for piece in snapshot.pieces(relation, _columns(relation), predicate):
        yield duck.query(asked.text, {name: piece}, again)


def _first(limit: int, answers: Iterable[pa.Table]) -> pa.Table:
    """The first rows of a query over one table, piece by piece: a small LIMIT does not read a long event log."""
    import pyarrow as pa

    found: list[pa.Table] = []
    for piece in answers:
        found.append(piece)
        if sum(each.num_rows for each in found) >= limit:
            break
    return pa.concat_tables(found).slice(0, limit)


# A pull query as DuckDB computes it: its text, and the tables that the text names.
#
#     PullQuery ──recompute──> SELECT a, b FROM (… AS "__o0" …) ORDER BY "__o0" LIMIT 3
#
# A pull query is computed as the view of it would be computed anew; what views keep in `__state` can be read here
# too.

_ENGINE: Final = engine_of("duckdb")
_OF_EVENTS: Final = frozenset((*(name for name, _ in META_COLUMNS), TOMBSTONE))


@dataclass(frozen=True)
class Computation:
    """A pull query in DuckDB's text.

    Attributes:
        tables: those that the text names, each a relation with the stored columns that are read of it.
    """

    text: str
    tables: dict[str, Relation]


def computation(pull: PullQuery, limit: int | None, *, again: bool = False) -> Computation:
    """The computation of a pull query; `limit` is the most rows of its answer.

    Args:
        again: after it failed on a row: rows are joined first, and an error says by what one fails.

    Raises:
        NotSupported: DuckDB has no function for one of its aggregates.
    """
    joins = again and only_relation(pull) is None
    text = recompute_sql(pull.query, "duckdb", fate="error", joins_first=joins, faults=again, nested=pull.nested)
    text = _in_order(text, pull, limit)
    tables: dict[str, Relation] = {}
    plain: list[str] = []
    for number, relation in enumerate(pull.relations):
        read = _read(relation, text)
        if not read.hidden:
            tables[relation.name] = read
            continue
        stored = f"__stored_{number}"
        tables[stored] = replace(read, columns=(*read.columns, (STATE, struct(*read.hidden))), hidden=())
        plain.append(f"{_ENGINE.name(relation.name)} AS (SELECT {', '.join(listed(read, _ENGINE))} FROM {stored})")
    return Computation(f"WITH {', '.join(plain)} {text}" if plain else text, tables)


def _in_order(text: str, pull: PullQuery, limit: int | None) -> str:
    """The text with ORDER BY, LIMIT and OFFSET, and without the columns that only ORDER BY reads."""
    name = _ENGINE.name
    items = [
        f"{name(each.column)} {'DESC' if each.descending else 'ASC'} NULLS {'FIRST' if each.nulls_first else 'LAST'}"
        for each in pull.order
    ]
    last = f" ORDER BY {', '.join(items)}" if items else ""
    last += f" LIMIT {limit}" if limit is not None else ""
    last += f" OFFSET {pull.offset}" if pull.offset else ""
    hides = len(outputs_of(pull.query)) > pull.shown
    shown = ", ".join(name(column) for column, _ in pull.outputs) if hides else "*"
    return f"SELECT {shown} FROM ({text}) AS __answer{last}" if last or hides else text


def _read(relation: Relation, text: str) -> Relation:
    """The relation with the columns that a text may read: those whose names stand in it; at least one."""
    columns = tuple(each for each in relation.columns if _stands_in(each[0], text))
    hidden = tuple(each for each in relation.hidden if _stands_in(each[0], text))
    return replace(relation, columns=columns or relation.columns[:1], hidden=hidden)


def _stands_in(name: str, text: str) -> bool:
    """True if a column may be read by a text, which has the names that events bring without quotes too."""
    return _ENGINE.name(name) in text or (name in _OF_EVENTS and name in text)


# The rows a query needs, read at the versions of its cut. A table that is not there has no rows.


class PinnedTables:
    """The tables of one query, each at one version.

    Args:
        spent: told of every batch that is read.
        past: the names that stand for tables as they were.
    """

    def __init__(
        self, lake: LakeLayout, cut: ConsistentSnapshot, spent: QueryBudget, past: Mapping[str, Past] | None = None
    ) -> None:
        self._lake = lake
        self._past = past or {}
        self._cut = cut
        self._spent = spent

    def rows(self, relation: Relation, columns: Sequence[str], predicate: Predicate | None = None) -> pa.Table:
        """The rows that meet the predicate, with these columns (see `state_store.delta.reader.scan`)."""
        import pyarrow as pa

        empty = nothing(relation, columns)
        found = list(self._batches(relation, columns, predicate))
        return pa.Table.from_batches(found) if found else empty

    def pieces(
        self, relation: Relation, columns: Sequence[str], predicate: Predicate | None = None
    ) -> Iterator[pa.Table]:
        """The same rows, one record batch a table, in no particular order; at least one, which may be empty."""
        import pyarrow as pa

        yield nothing(relation, columns)
        for record_batch in self._batches(relation, columns, predicate):
            yield pa.Table.from_batches([record_batch])

    def _batches(
        self, relation: Relation, columns: Sequence[str], predicate: Predicate | None
    ) -> Iterator[pa.RecordBatch]:
        wanted = _at_least_one(relation, columns)
        past = self._past.get(relation.name)
        if past is not None:
            return self._spent.reading(self._as_it_was(past, wanted, predicate))
        version = self._cut.version(relation.name)
        scans = [] if version is None else [reader.scan(self._lake.table(relation.name), version, wanted, predicate)]
        for name, head in _inner_letters(relation.name, self._lake):
            scans.append(reader.scan(self._lake.table(name), head.version, wanted, predicate))
        return self._spent.reading(chain.from_iterable(scans))

    def _as_it_was(self, past: Past, columns: Sequence[str], predicate: Predicate | None) -> Iterator[pa.RecordBatch]:
        if past.first is not None:
            yield from past.changes(self._lake, columns)
            return
        path = self._lake.table(past.table)
        try:
            yield from reader.scan(path, past.version, list(columns), predicate)
        except VersionGone:
            not_kept(path, past.table, past.version)


def _inner_letters(name: str, lake: LakeLayout) -> Iterator[tuple[str, Head]]:
    """The tables that belong to the dead letters of a view beside the one of that name, at their heads."""
    view = tables.definition_of(name)
    if name == tables.dead_letters(view):
        yield from (found for found in letters_of(lake, stage_tables(lake, view)).items() if found[0] != name)


def nothing(relation: Relation, columns: Sequence[str]) -> pa.Table:
    """A table without rows, of the declared types."""
    import pyarrow as pa

    fields = [(name, relation.type_of(name).arrow()) for name in _at_least_one(relation, columns)]
    # Not `empty_table()`: that one imports pandas first, a quarter of a second.
    return pa.Table.from_batches([], pa.schema(fields))


def _at_least_one(relation: Relation, columns: Sequence[str]) -> list[str]:
    """The columns, or the first of the relation: a query over none (`COUNT(*)`) still counts rows."""
    return list(columns) or [relation.columns[0][0]]
