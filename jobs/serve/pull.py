"""Pull queries: a SELECT over the present rows of tables, answered once.

    SELECT ──resolve──> tables, columns ──elaborate──> types ──lower──> DuckDB's SQL
                              │                                              │
             one version of each table ──> Arrow ──────────────────────> DuckDB ──> rows

Any SELECT over streams, tables and views is allowed: nothing has to be maintained for it. All tables are read at one
consistent cut, the newest when the query begins; a view whose pipeline has not run yet is empty. Without ORDER BY, the
rows of one table come in the order of its key, events in their own order; with LIMIT and no ORDER BY, any may come.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, cast

from sqlglot import exp

from jobs.functions.python.declared import attach
from jobs.functions.render import lower
from jobs.serve.at_least import check_cut
from jobs.serve.cut import newest_cut
from jobs.serve.duck import Duck
from jobs.serve.elaborate import elaborate
from jobs.serve.limits import Spent
from jobs.serve.pushdown import key_predicate, natural_order, order_by, row_by_row
from jobs.serve.readable import check_stored
from jobs.serve.resolve import resolve
from jobs.serve.snapshot import Snapshot
from jobs.serve.terms import FREELY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from jobs.catalog.catalog import Catalog
    from jobs.functions.python.register import Library
    from jobs.model.types import SqlType
    from jobs.serve.cut import Cut
    from jobs.serve.resolve import Resolved
    from jobs.serve.terms import Terms
    from jobs.sql.syntax import Select
    from state_store.delta.statistics import Predicate
    from state_store.layout import Lake


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
        self, resolved: Resolved, predicate: Predicate | None, spent: Spent
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
        NoConsistentCut: its tables have no versions that fit together.
        TimeLimit, TooLarge: it takes more than it may.
        StoreError: a table cannot be read.
    """
    spent = Spent(terms.limits)
    resolved = resolve(attach(statement.query, catalog.functions), catalog)
    predicate = key_predicate(resolved)
    computed = computing.tables(resolved, predicate, spent) if computing is not None else None
    each_row = row_by_row(resolved)
    outputs = elaborate(resolved)
    if each_row and statement.limit is None:
        _put_in_order(resolved)
    text = _text(resolved, statement.limit)
    cut = computed[1] if computed is not None else _newest_stored(resolved, catalog, lake)
    check_cut(cut, terms.at_least, lake, computed[0] if computed is not None else ())
    snapshot = Snapshot(lake, cut, spent)
    with Duck(functions, spent) as duck:
        if computed is not None:
            rows = duck.query(text, computed[0])
        elif each_row and statement.limit is not None:
            (relation,) = resolved.relations.values()
            pieces = snapshot.pieces(relation, sorted(resolved.columns[relation.name]), predicate)
            rows = _first(statement.limit, (duck.query(text, {relation.name: piece}) for piece in pieces))
        else:
            tables = {
                name: snapshot.rows(relation, sorted(resolved.columns[name]), predicate)
                for name, relation in resolved.relations.items()
            }
            rows = duck.query(text, tables)
    names = distinct_names([name for name, _ in outputs])
    return Answer(names, tuple(sql_type for _, sql_type in outputs), rows, cut)


def _text(resolved: Resolved, limit: int | None) -> str:
    """The query as DuckDB's text."""
    if limit is not None:
        resolved.query.set("limit", exp.Limit(expression=exp.Literal.number(limit)))
    return lower(cast(exp.Expression, resolved.query), "duckdb")


def _newest_stored(resolved: Resolved, catalog: Catalog, lake: Lake) -> Cut:
    check_stored(resolved.relations, catalog)
    return newest_cut(resolved.relations, lake)


def _put_in_order(resolved: Resolved) -> None:
    """Order the rows of one table by key, events by their order, so that the layout of the files does not show."""
    order = natural_order(resolved)
    if order:
        (columns,) = resolved.columns.values()
        columns.update(column.name for column in order)
        resolved.query.set("order", order_by(order))


def _first(limit: int, answers: Iterable[pa.Table]) -> pa.Table:
    """The first rows of a query over one table, piece by piece: a small LIMIT does not read a long event log."""
    import pyarrow as pa

    found: list[pa.Table] = []
    for piece in answers:
        found.append(piece)
        if sum(each.num_rows for each in found) >= limit:
            break
    return pa.concat_tables(found).slice(0, limit)


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names of an answer's columns, made distinct (`id`, `id_1`), as a JSON object needs."""
    seen: Counter[str] = Counter()
    distinct: list[str] = []
    for name in names:
        number = seen[name]
        seen[name] += 1
        distinct.append(f"{name}_{number}" if number else name)
    return tuple(distinct)
