"""A subscription: a query that filters and projects one relation, applied to rows and changes of any version.

    changes of V ──> WHERE, SELECT (DuckDB) ──> old and new rows of each key ──> inserts, updates, tombstones

A row is the new value of its key; a key that is deleted, or no longer meets the WHERE, is a tombstone. A change that
the SELECT does not show gives no row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from sqlglot import exp

from jobs.functions.python.declared import attach
from jobs.functions.render import lower
from jobs.model.errors import NotSupported
from jobs.model.serving_errors import ChangesGone
from jobs.serve.elaborate import elaborate
from jobs.serve.format import json_line
from jobs.serve.pull import distinct_names
from jobs.serve.pushdown import natural_order, order_by, row_by_row
from jobs.serve.resolve import resolve
from jobs.serve.results import Tombstone
from jobs.serve.values import python_rows
from state_store.columns import VERSION, WEIGHT
from state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from jobs.catalog.catalog import Catalog
    from jobs.model.relation import Relation
    from jobs.model.types import SqlType
    from jobs.serve.duck import Duck
    from jobs.serve.resolve import Resolved
    from jobs.sql.syntax import Select
    from state_store.layout import Lake
    from state_store.paths import LakePath

_CLAUSES = {
    "joins": "JOIN",
    "group": "GROUP BY",
    "having": "HAVING",
    "distinct": "DISTINCT",
    "order": "ORDER BY",
    "offset": "OFFSET",
    "with_": "WITH",
}

Row = tuple[object, ...]
Change = Row | Tombstone


@dataclass(frozen=True)
class Subscription:
    """A query that filters and projects one relation.

    Attributes:
        text: SQL that selects of each change its version, its weight, the `keys` columns of its key, then the columns
            shown.
        stored: the columns it reads.
        types: the types of the columns shown.
        of_key: for each column shown, true if it belongs to the key: those a tombstone keeps.
    """

    relation: Relation
    path: LakePath
    text: str
    stored: tuple[str, ...]
    keys: int
    names: tuple[str, ...]
    types: tuple[SqlType, ...]
    of_key: tuple[bool, ...]

    def snapshot(self, version: int) -> pa.Table:
        """The rows of a version as insertions in that version. Raises as `state_store.delta.reader.scan`."""
        import pyarrow as pa

        rows = reader.read_rows(self.path, version, self.stored)
        for name, value in ((VERSION, version), (WEIGHT, 1)):
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
        return rows

    def changes(self, after: int, upto: int) -> pa.Table:
        """The changes of the versions after `after` up to and with `upto`. Raises as `reader.read_changes`, and:

        Raises:
            ChangesGone: another definition took the place of the relation's, without a column that is asked for.
        """
        found = reader.read_changes(self.path, after, upto)
        gone = next((name for name in self.stored if name not in found.column_names), None)
        if gone is not None:
            raise ChangesGone(
                f"'{self.relation.name}' was replaced, and has no column '{gone}' any more",
                hint="subscribe again to the columns that it has",
            )
        return found

    def weighted(self, duck: Duck, changes: pa.Table) -> list[tuple[int, Row]]:
        """The rows shown with their weights, in the order of versions and keys.

        Args:
            changes: the stored columns, `_commit_version` and `__weight`.
        """
        answer = duck.query(self.text, {self.relation.name: changes})
        return list(zip(answer.column(1).to_pylist(), self._shown(answer), strict=True))

    def visible(self, duck: Duck, changes: pa.Table) -> Iterator[Change]:
        """The rows shown that are new, and tombstones for those that are gone; `changes` as of `weighted`."""
        answer = duck.query(self.text, {self.relation.name: changes})
        shown = self._shown(answer)
        if self.relation.storage == "append":
            yield from shown
            return
        versions, weights = (answer.column(place).to_pylist() for place in (0, 1))
        keys = [str(key) for key in zip(*(answer.column(2 + i).to_pylist() for i in range(self.keys)), strict=True)]
        placed = zip(versions, keys or [""] * len(shown), weights, shown, strict=True)
        # One version changes a key at most once: its old and new row are together.
        for _, group in groupby(placed, key=itemgetter(0, 1)):
            members = list(group)
            old = [row for _, _, weight, row in members if weight < 0]
            new = [row for _, _, weight, row in members if weight > 0]
            yield from self._visible_changes(old, new)

    def _shown(self, answer: pa.Table) -> list[Row]:
        return python_rows(answer.select(range(2 + self.keys, answer.num_columns)), self.types)

    def _visible_changes(self, old: list[Row], new: list[Row]) -> Iterator[Change]:
        """A key's change from `old` to `new` rows, consolidated; without a visible key there may be several of both."""
        retracted = Counter(json_line(self.names, row) for row in old)
        replacements = 0
        for row in new:
            text = json_line(self.names, row)
            if retracted[text]:
                retracted[text] -= 1
            else:
                replacements += 1
                yield row
        for row in old:
            text = json_line(self.names, row)
            if not retracted[text]:
                continue
            retracted[text] -= 1
            # Each new row replaces a retracted one; a retraction without a replacement is a tombstone.
            replacements -= 1
            if replacements < 0:
                yield Tombstone(tuple(value if key else None for value, key in zip(row, self.of_key, strict=True)))


def subscription(statement: Select, catalog: Catalog, lake: Lake) -> Subscription:
    """The subscription that a push query asks for.

    Raises:
        NotSupported: the query does more than filter and project; the message names the clause.
        SqlError: the query is refused.
    """
    if statement.emit == "FINAL":
        raise NotSupported("EMIT FINAL is not supported yet", line=statement.line, column=statement.column)
    resolved = resolve(attach(statement.query, catalog.functions), catalog)
    _check(statement, resolved)
    (relation,) = resolved.relations.values()
    select = resolved.query
    assert isinstance(select, exp.Select)
    # Without a visible key, only the whole row identifies what was retracted.
    of_key = [
        not relation.key or (isinstance(item.unalias(), exp.Column) and item.unalias().name in relation.key)
        for item in select.expressions
    ]
    outputs = elaborate(resolved)
    order = natural_order(resolved)
    table = select.find(exp.Table)
    assert table is not None
    version, weight = (exp.column(name, table=table.alias_or_name) for name in (VERSION, WEIGHT))
    select.set("expressions", [version, weight, *order, *select.expressions])
    select.set("order", order_by((version, *order, weight)))
    return Subscription(
        relation=relation,
        path=lake.table(relation.name),
        text=lower(select, "duckdb"),
        stored=tuple(sorted(resolved.columns[relation.name] | {column.name for column in order})),
        keys=len(order),
        names=distinct_names([name for name, _ in outputs]),
        types=tuple(sql_type for _, sql_type in outputs),
        of_key=tuple(of_key),
    )


def _check(statement: Select, resolved: Resolved) -> None:
    if row_by_row(resolved):
        return
    found = [words for clause, words in _CLAUSES.items() if resolved.query.args.get(clause)]
    raise NotSupported(
        f"a push query filters and projects one stream or table: {found[0] if found else 'this one does more'}",
        line=statement.line,
        column=statement.column,
        hint="define a view that does it, and subscribe to that",
    )
