"""Pull queries: a SELECT over the present rows of tables, answered once.

    SELECT ──read_pull──> logical query ──recompute──> DuckDB's SQL
                              │                             │
             one version of each table ──> Arrow ───────> DuckDB ──> rows

Any SELECT over streams, tables and views is allowed: it is read as the definition of a view is, and nothing has to be
maintained for it. All tables are read at one consistent cut, the newest when the query begins; a view whose pipeline
has not run yet is empty. Without ORDER BY, the rows of one table come in the order of its key, events in their own
order; with LIMIT and no ORDER BY, any may come.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from strandline.jobs.query.clauses.read import read_pull
from strandline.jobs.serve.at_least import check_cut
from strandline.jobs.serve.computation import computation
from strandline.jobs.serve.cut import Cut, newest_cut
from strandline.jobs.serve.duck import Duck
from strandline.jobs.serve.limits import Spent
from strandline.jobs.serve.past import with_past
from strandline.jobs.serve.pushdown import in_natural_order, key_predicate, row_by_row
from strandline.jobs.serve.readable import check_stored
from strandline.jobs.serve.snapshot import Snapshot
from strandline.jobs.serve.terms import FREELY

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python.register import Library
    from strandline.jobs.model.relation import Relation
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.query.logical import PullQuery
    from strandline.jobs.serve.computation import Computation
    from strandline.jobs.serve.past import Past
    from strandline.jobs.serve.pinned import Pinned
    from strandline.jobs.serve.terms import Terms
    from strandline.jobs.sql.syntax import Select
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.layout import Lake


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
    cut: Cut


class Computing(Protocol):
    """What computes the rows of views of which nothing is stored."""

    def tables(
        self, pull: PullQuery, predicate: Predicate | None, spent: Spent
    ) -> tuple[dict[str, pa.Table], Cut] | None:
        """The rows that a query asks of such a view, and the cut that they come from; None when it reads none.

        Args:
            predicate: a condition that every row of the answer meets, as `key_predicate` finds it.
        """


def answer(
    statement: Select,
    catalog: Catalog,
    lake: Lake,
    functions: Library,
    terms: Terms = FREELY,
    computing: Computing | None = None,
) -> Answer:
    """Answer a SELECT.

    Args:
        functions: those that users wrote.
        computing: without it, partial views are not read.

    Raises:
        NotYet: the newest cut does not reflect `terms.at_least`. Nothing was computed.
        RequestRefused: it names a table that the query does not read.
        SqlError: the query is refused, or its computation fails (an overflow).
        KeyRequired: it reads a partial view otherwise than by key.
        NoConsistentCut: its tables have no versions that fit together, or one is not in `terms.pinned`.
        CutExpired: `terms.pinned` has expired.
        VersionNotKept: it reads a version that is not there.
        TimeLimit, TooLarge: it takes more than it may.
        StoreError: a table cannot be read.
    """
    spent = Spent(terms.limits)
    tree, past = with_past(statement.query, catalog, lake)
    pull = read_pull(tree, catalog, terms.unnamed, dt.datetime.now(dt.UTC), _relations(past))
    predicate = key_predicate(pull)
    computed = computing.tables(pull, predicate, spent) if computing is not None else None
    piecewise = row_by_row(pull) and statement.limit is not None
    if row_by_row(pull) and not piecewise:
        pull = in_natural_order(pull)
    asked = computation(pull, statement.limit)
    cut = computed[1] if computed is not None else _stored_cut(pull, catalog, lake, terms.pinned, past)
    check_cut(cut, terms.at_least, lake, computed[0] if computed is not None else ())
    snapshot = Snapshot(lake, cut, spent, past)
    with Duck(functions, spent) as duck:
        if computed is not None:
            joined = {name: each for name, each in asked.tables.items() if name not in computed[0]}
            stored = {name: snapshot.rows(each, _columns(each), None) for name, each in joined.items()}
            rows = duck.query(asked.text, computed[0] | stored)
        elif piecewise and statement.limit is not None:
            rows = _first(statement.limit, _by_piece(duck, asked, snapshot, predicate))
        else:
            tables = {name: snapshot.rows(each, _columns(each), predicate) for name, each in asked.tables.items()}
            rows = duck.query(asked.text, tables)
    return Answer(*_outputs(pull), rows, cut)


def columns_of(statement: Select, catalog: Catalog, lake: Lake) -> tuple[tuple[str, ...], tuple[SqlType, ...]]:
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


def _stored_cut(pull: PullQuery, catalog: Catalog, lake: Lake, pinned: Pinned | None, past: Mapping[str, Past]) -> Cut:
    """The cut of the tables as they are, and the versions of those as they were that are read in no other way."""
    names = [relation.name for relation in pull.relations if relation.name not in past]
    check_stored(names, catalog)
    now = newest_cut(names, lake) if pinned is None else pinned.cut(names, lake)
    then = {each.table: each.reflected(lake) for each in past.values() if each.table not in now.tables}
    return Cut({**now.tables, **then})


def _columns(relation: Relation) -> list[str]:
    return [name for name, _ in relation.columns]


def _by_piece(duck: Duck, asked: Computation, snapshot: Snapshot, predicate: Predicate | None) -> Iterator[pa.Table]:
    """The answers of a query over one table, for one piece of the table after the other."""
    ((name, relation),) = asked.tables.items()
    for piece in snapshot.pieces(relation, _columns(relation), predicate):
        yield duck.query(asked.text, {name: piece})


def _first(limit: int, answers: Iterable[pa.Table]) -> pa.Table:
    """The first rows of a query over one table, piece by piece: a small LIMIT does not read a long event log."""
    import pyarrow as pa

    found: list[pa.Table] = []
    for piece in answers:
        found.append(piece)
        if sum(each.num_rows for each in found) >= limit:
            break
    return pa.concat_tables(found).slice(0, limit)
