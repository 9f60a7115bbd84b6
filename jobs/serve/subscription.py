"""A subscription: a query that filters and projects one relation, applied to rows and changes of any version.

    changes of V ──> WHERE, SELECT (DuckDB) ──> old and new rows of each key ──> inserts, updates, tombstones

A row is the new value of its key; a key that is deleted, or no longer meets the WHERE, is a tombstone. A change that
the SELECT does not show gives no row.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from sqlglot import exp

from jobs.model.errors import NotSupported
from jobs.model.serving_errors import ChangesGone
from jobs.model.stage import Output
from jobs.model.types import BIGINT
from jobs.query.blocks.block_columns import expressions_of, places_in
from jobs.query.clauses.read_pull import read_pull
from jobs.query.expressions.scope import column
from jobs.query.logical.query import Block
from jobs.query.recompute.select import recompute_sql
from jobs.serve.format import json_line
from jobs.serve.pushdown import natural_order, only_relation, row_by_row
from jobs.serve.readable import check_stored
from jobs.serve.results import Tombstone
from jobs.serve.values import python_rows
from state_store.columns import VERSION, WEIGHT
from state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from jobs.catalog.catalog import Catalog
    from jobs.model.relation import Relation
    from jobs.model.types import SqlType
    from jobs.query.logical.pull import PullQuery
    from jobs.serve.duck import Duck
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
    pull = read_pull(statement.query, catalog)
    check_stored([relation.name for relation in pull.relations], catalog)
    _check(statement, pull)
    relation, block = only_relation(pull), pull.query
    assert relation is not None
    assert isinstance(block, Block)
    (part,) = block.inputs
    # Without a visible key, only the whole row identifies what was retracted.
    by_key = set(relation.key) <= {name for name, _ in relation.columns} and bool(relation.key)
    of_key = [
        not by_key or (isinstance(each.expression, exp.Column) and each.expression.name in relation.key)
        for each in block.outputs
    ]
    order = natural_order(pull)
    version, weight = (Output(name, column(name, part.alias), BIGINT) for name in (VERSION, WEIGHT))
    made = replace(block, outputs=(version, weight, *order, *block.outputs))
    text = f"{recompute_sql(made, 'duckdb')} ORDER BY {', '.join(_places(len(order)))}"
    return Subscription(
        relation=relation,
        path=lake.table(relation.name),
        text=text,
        stored=_stored(block, order, relation, statement),
        keys=len(order),
        names=tuple(name for name, _ in pull.outputs),
        types=tuple(sql_type for _, sql_type in pull.outputs),
        of_key=tuple(of_key),
    )


def _places(keys: int) -> list[str]:
    """The order of changes by places: version, key, weight."""
    return ["1", *(str(3 + place) for place in range(keys)), "2"]


def _stored(block: Block, order: Sequence[Output], relation: Relation, statement: Select) -> tuple[str, ...]:
    """The columns that a block reads.

    Raises:
        NotSupported: the changelog of the relation does not show one.
    """
    read = {name for _, name in places_in((*expressions_of(block), *(each.expression for each in order)))}
    hidden = sorted(read - {name for name, _ in relation.columns})
    if hidden:
        raise NotSupported(
            f"the changes of '{relation.name}' do not show '{hidden[0]}'", line=statement.line, column=statement.column
        )
    return tuple(sorted(read))


def _check(statement: Select, pull: PullQuery) -> None:
    if row_by_row(pull):
        return
    found = [words for clause, words in _CLAUSES.items() if statement.query.args.get(clause)]
    raise NotSupported(
        f"a push query filters and projects one stream or table: {found[0] if found else 'this one does more'}",
        line=statement.line,
        column=statement.column,
        hint="define a view that does it, and subscribe to that",
    )
