"""Pull queries: a SELECT over the present rows of tables, answered once.

    SELECT ──resolve──> tables, columns ──elaborate──> types ──lower──> DuckDB's SQL
                              │                                              │
             one version of each table ──> Arrow ──────────────────────> DuckDB ──> rows

Any SELECT over streams, tables and views is allowed: nothing has to be maintained for it. Each table is read at its
newest version when the query begins; a view whose pipeline has not run yet is empty. Without ORDER BY, the rows of one
table come in the order of its key, events in their own order; with LIMIT and no ORDER BY, any of them may come.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

from sqlglot import exp

from jobs.functions.python.declared import attach
from jobs.functions.render import lower
from jobs.serve import snapshot
from jobs.serve.duck import Duck
from jobs.serve.elaborate import elaborate
from jobs.serve.pushdown import key_predicate, natural_order, order_by, row_by_row
from jobs.serve.resolve import resolve
from jobs.serve.results import Rows
from jobs.serve.values import python_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from jobs.catalog.catalog import Catalog
    from jobs.functions.python.register import Library
    from jobs.serve.resolve import Resolved
    from jobs.sql.syntax import Select
    from state_store.layout import Lake


def pull(statement: Select, catalog: Catalog, lake: Lake, functions: Library) -> Rows:
    """Answer a SELECT.

    Args:
        functions: those that users wrote.

    Raises:
        SqlError: the query is refused, or its computation fails (an overflow).
        StoreError: a table cannot be read.
    """
    resolved = resolve(attach(statement.query, catalog.functions), catalog)
    predicate = key_predicate(resolved)
    each_row = row_by_row(resolved)
    outputs = elaborate(resolved)
    if each_row and statement.limit is None:
        _put_in_order(resolved)
    if statement.limit is not None:
        resolved.query.set("limit", exp.Limit(expression=exp.Literal.number(statement.limit)))
    text = lower(cast(exp.Expression, resolved.query), "duckdb")
    with Duck(functions) as duck:
        if each_row and statement.limit is not None:
            answer = _first(statement.limit, text, duck, resolved, lake)
        else:
            tables = {
                name: snapshot.rows(relation, sorted(resolved.columns[name]), lake, predicate)
                for name, relation in resolved.relations.items()
            }
            answer = duck.query(text, tables)
    rows = python_rows(answer, [sql_type for _, sql_type in outputs])
    return Rows(distinct_names([name for name, _ in outputs]), rows)


def _put_in_order(resolved: Resolved) -> None:
    """Order the rows of one table by key, events by their order, so that the layout of the files does not show."""
    order = natural_order(resolved)
    if order:
        (columns,) = resolved.columns.values()
        columns.update(column.name for column in order)
        resolved.query.set("order", order_by(order))


def _first(limit: int, text: str, duck: Duck, resolved: Resolved, lake: Lake) -> pa.Table:
    """The first rows of a query over one table, by record batches: a small LIMIT does not read a long event log."""
    import pyarrow as pa

    (relation,) = resolved.relations.values()
    answers: list[pa.Table] = []
    for record_batch in snapshot.batches(relation, sorted(resolved.columns[relation.name]), lake):
        answers.append(duck.query(text, {relation.name: record_batch}))
        if sum(answer.num_rows for answer in answers) >= limit:
            break
    return pa.concat_tables(answers).slice(0, limit)


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names of an answer's columns, made distinct (`id`, `id_1`), as a JSON object needs."""
    seen: Counter[str] = Counter()
    distinct: list[str] = []
    for name in names:
        number = seen[name]
        seen[name] += 1
        distinct.append(f"{name}_{number}" if number else name)
    return tuple(distinct)
