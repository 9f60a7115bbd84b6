"""A subscription: a query that filters and projects one relation, applied to rows and changes of any version.

    changes of V ──> WHERE, SELECT (DuckDB) ──> rows that went and came, key by key ──> changes as they are told

| the SELECT shows | a row that came | a row that went, or left the WHERE |
| --- | --- | --- |
| a stream | the row | – |
| every column of a table's key | the row, in the place of its key's | `Tombstone`, unless a row took its place |
| rows that no key tells apart | `Weighted` +1: one row more | `Weighted` -1: one row equal to it less |

So whoever applies what comes, from the snapshot on, holds what the SELECT gives. A change that the SELECT does not show
gives nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby, islice, repeat, zip_longest
from operator import itemgetter
from threading import Event
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.model import tables
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import Output
from strandline.jobs.model.types import BIGINT
from strandline.jobs.query.clauses.read import read_pull
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.inputs import expressions_of, places_in
from strandline.jobs.query.logical import Block
from strandline.jobs.query.recompute import recompute_sql
from strandline.jobs.serve.catalogued import check_stored
from strandline.jobs.serve.errors import ChangesGone
from strandline.jobs.serve.pull import natural_order, only_relation, row_by_row
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.jobs.serve.results import LiveRows, Tombstone, Weighted, json_line, python_rows
from strandline.jobs.serve.watch import CommitWatch
from strandline.jobs.sql.dialect import quote
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import newest_version
from strandline.state_store.errors import TableMissing
from strandline.state_store.tablespec import VERSION, WEIGHT
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python import Library
    from strandline.jobs.model.tables import Relation
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.query.logical import PullQuery
    from strandline.jobs.query.pulled import Unnamed
    from strandline.jobs.sql.syntax import Select
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath


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
Change = Row | Tombstone | Weighted


@dataclass(frozen=True)
class Subscription:
    """A query that filters and projects one relation.

    Attributes:
        text: SQL that selects of each change its version, its weight, the `keys` columns of its key, then the columns
            shown.
        stored: the columns it reads.
        keys: the columns that order the changes of one version; 0: the table's key cannot be read.
        types: the types of the columns shown.
        of_key: for each column shown, true if it is one of the key's.
        by_key: every column of the table's key is shown, so that a row takes the place of another.
        computes: it has a WHERE, or shows more than columns.
    """

    relation: Relation
    path: LakePath
    text: str
    stored: tuple[str, ...]
    keys: int
    names: tuple[str, ...]
    types: tuple[SqlType, ...]
    of_key: tuple[bool, ...]
    by_key: bool
    computes: bool

    @property
    def shows_deletions(self) -> bool:
        """True where the columns alone, without a mark, tell a row that came from the tombstone of one that went."""
        return self.relation.storage == "append" or (self.by_key and not all(self.of_key))

    def check_key(self, version: int) -> None:
        """Check that the rows of a version are told apart by the key that this subscription goes by.

        Raises:
            ChangesGone: another definition gave the rows another key since, or just now: who holds rows of one key
                cannot do anything with the changes of rows of another.
            VersionGone, CorruptState: the version's commit does not read.
        """
        last = None if self.relation.storage == "append" else reader.newest_key(self.path)
        if last is None:
            return
        same = set(last.key) == set(self.relation.key)
        if not same or reader.record_at(self.path, version, ours=False).rekeyed != last:
            raise ChangesGone(
                sentence("'{}' was replaced, and another key tells its rows apart", Name(self.relation.name)),
                hint="subscribe again: a snapshot comes first",
            )

    def snapshot(self, version: int, *, by_weight: bool = False) -> pa.Table:
        """The rows of a version as insertions in that version. Raises as `reader.scan`, and but for rows that are told
        by their weights as `check_key`."""
        import pyarrow as pa

        if not by_weight:
            self.check_key(version)
        rows = reader.read_rows(self.path, version, self.stored)
        for name, value in ((VERSION, version), (WEIGHT, 1)):
            rows = rows.append_column(name, pa.repeat(pa.scalar(value, pa.int64()), rows.num_rows))
        return rows

    def changes(self, after: int, upto: int, *, by_weight: bool = False) -> pa.Table:
        """The changes of the versions after `after` up to and with `upto`. Raises as `reader.read_changes`, and:

        Args:
            by_weight: they are told by their weights, which mean the same whatever the key is.

        Raises:
            ChangesGone: another definition took the place of the relation's, without a column that is asked for, or
                with another key.
        """
        for version in () if by_weight else (max(after, 0), upto):
            self.check_key(version)
        found = reader.read_changes(self.path, after, upto)
        gone = next((name for name in self.stored if name not in found.column_names), None)
        if gone is not None:
            raise ChangesGone(
                sentence("'{}' was replaced, and has no column '{}' any more", Name(self.relation.name), gone),
                hint="subscribe again to the columns that it has",
            )
        return found

    def pairs(self, duck: QueryEngine, changes: pa.Table) -> Iterator[tuple[Row | None, Row | None]]:
        """The row that went and the row that came in its place, or None for either: in the order of versions and keys,
        the same at each look. Where no key tells rows apart, which row took the place of which means nothing.

        Args:
            changes: the stored columns, `_commit_version` and `__weight`.
        """
        for went, came in self._by_key(duck, changes):
            yield from zip_longest(went, came)

    def weighted(self, duck: QueryEngine, changes: pa.Table) -> Iterator[Weighted]:
        """Every change as rows that went and rows that came; `changes` and order as of `pairs`."""
        for went, came in self._by_key(duck, changes):
            yield from (Weighted(row, -1) for row in went)
            yield from (Weighted(row, 1) for row in came)

    def visible(self, duck: QueryEngine, changes: pa.Table) -> Iterator[Change]:
        """The changes as the module says; `changes` and order as of `pairs`."""
        if self.relation.storage == "keyed" and not self.by_key:
            yield from self.weighted(duck, changes)
            return
        for went, came in self.pairs(duck, changes):
            if came is not None:
                yield came
            elif went is not None:
                # A stream that was rebuilt may lose an event, and has no key to say so by.
                yield Tombstone(self.key_of(went)) if self.by_key else Weighted(went, -1)

    def key_of(self, row: Row) -> Row:
        """The row with None in the columns that are not of the key."""
        return tuple(value if key else None for value, key in zip(row, self.of_key, strict=True))

    def _by_key(self, duck: QueryEngine, changes: pa.Table) -> Iterator[tuple[list[Row], list[Row]]]:
        """The rows shown that went and those that came: of each version and key, or of each version."""
        answer = duck.query(self.text, {self.relation.name: changes})
        shown = python_rows(answer.select(range(2 + self.keys, answer.num_columns)), self.types)
        versions, weights, *keys = (answer.column(place).to_pylist() for place in range(2 + self.keys))
        texts = map(_key_text, zip(*keys, strict=True)) if keys else repeat("")
        placed = zip(versions, texts, weights, shown, strict=False)
        # One version changes a key at most once: its old and new row are together.
        for _, group in groupby(placed, key=itemgetter(0, 1)):
            yield self._net([(weight, row) for _, _, weight, row in group])

    def _net(self, changes: list[tuple[int, Row]]) -> tuple[list[Row], list[Row]]:
        """The rows that went and those that came, without what did both; several in the order of their text, as
        nothing else orders them alike at each look."""
        if len(changes) == 1:
            ((weight, row),) = changes
            return [row] * -weight, [row] * weight
        rows = {json_line(self.names, row): row for _, row in changes}
        weights = dict.fromkeys(sorted(rows), 0)
        for weight, row in changes:
            weights[json_line(self.names, row)] += weight
        net = [(rows[text], weight) for text, weight in weights.items()]
        return [row for row, weight in net for _ in range(-weight)], [row for row, weight in net for _ in range(weight)]


def _key_text(key: Row) -> str:
    """What one key's rows have in common: 0.0 and -0.0 are one key, and each version may spell it its own way."""
    return str(tuple(value + 0.0 if isinstance(value, float) else value for value in key))


def subscription(statement: Select, catalog: Catalog, lake: LakeLayout, unnamed: Unnamed = "postgres") -> Subscription:
    """The subscription that a push query asks for.

    Args:
        unnamed: whose names the columns get that nobody named.

    Raises:
        NotSupported: the query does more than filter and project, and the message names the clause; or it is of dead
            letters that stand in several tables.
        SqlError: the query is refused.
    """
    if statement.emit == "FINAL":
        raise NotSupported("EMIT FINAL is not supported yet", line=statement.line, column=statement.column)
    pull = read_pull(statement.query, catalog, unnamed)
    check_stored([relation.name for relation in pull.relations], catalog)
    _check(statement, pull)
    relation, block = only_relation(pull), pull.query
    assert relation is not None
    assert isinstance(block, Block)
    relation = replace(relation, name=_only_table(relation.name, lake, statement))
    part = replace(block.inputs[0], source=relation)
    block = replace(block, inputs=(part,))
    shown = [each.expression.name if isinstance(each.expression, exp.Column) else None for each in block.outputs]
    order = natural_order(pull)
    version, weight = (Output(name, column(name, part.alias), BIGINT) for name in (VERSION, WEIGHT))
    made = replace(block, outputs=(version, weight, *order, *block.outputs))
    text = f"{recompute_sql(made, 'duckdb', fate='error')} ORDER BY {', '.join(_places(len(order)))}"
    return Subscription(
        relation=relation,
        path=lake.table(relation.name),
        text=text,
        stored=_stored(block, order, relation, statement),
        keys=len(order),
        names=tuple(name for name, _ in pull.outputs),
        types=tuple(sql_type for _, sql_type in pull.outputs),
        of_key=tuple(name in relation.key for name in shown),
        by_key=relation.storage == "keyed" and bool(relation.key) and set(relation.key) <= set(shown),
        computes=block.where is not None or None in shown,
    )


def _only_table(name: str, lake: LakeLayout, statement: Select) -> str:
    """The table whose changes are those of a relation: of the dead letters of a view it may be that of a part which is
    computed apart.

    Raises:
        NotSupported: they are of several tables.
    """
    view = tables.definition_of(name)
    if name != tables.dead_letters(view):
        return name
    found = tuple(letters_of(lake, stage_tables(lake, view)))
    if len(found) > 1:
        raise NotSupported(
            sentence(
                "the rows on which '{}' fails stand in {} tables, and a push query reads one", Name(view), len(found)
            ),
            line=statement.line,
            column=statement.column,
            hint=sentence("SELECT … FROM {} shows all of them", Name(name, quote)),
        )
    return found[0] if found else name


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
            sentence("the changes of '{}' do not show '{}'", Name(relation.name), hidden[0]),
            line=statement.line,
            column=statement.column,
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


# Push queries: the present rows of one table as changes, then every change as it is committed.
#
#     version V ──> snapshot ──┐
#     V+1, V+2, … ──> changes ─┴─> subscription ──> rows, tombstones, weighted rows
#
# For a stream each event is a row, in the order of the stream.

# Only so that Ctrl-C is seen: a commit ends the wait at once.
_WAIT_SECONDS = 1.0


def push(
    statement: Select, catalog: Catalog, lake: LakeLayout, functions: Library, *, from_latest: bool = False
) -> LiveRows:
    """Subscribe to the changes of one stream, table or view.

    Args:
        functions: those that users wrote.
        from_latest: leave out the present rows of the table.

    Raises:
        NotSupported: the query does more than filter and project; the message names the clause.
        SqlError: the query is refused. And while rows are read, StoreError: the table cannot be read.
    """
    made = subscription(statement, catalog, lake)
    changes = _follow(made, lake, functions, from_latest=from_latest)
    return LiveRows(made.names, islice(changes, statement.limit), marked=not made.shows_deletions)


def _follow(made: Subscription, lake: LakeLayout, functions: Library, *, from_latest: bool) -> Iterator[Change]:
    """The changes, without end."""
    name, moved = made.relation.name, Event()

    def told(table: str) -> None:
        if table == name:
            moved.set()

    with QueryEngine(functions) as duck, CommitWatch(lake, told, lambda: [name]):
        version = _newest(made, lake)
        if version >= 0 and not from_latest:
            yield from made.visible(duck, made.snapshot(version))
        while True:
            # Before the look: a commit after it ends the next wait.
            moved.clear()
            newest = _newest(made, lake)
            if newest < version:
                raise TableMissing(
                    sentence("'{}' was dropped, or made anew", Name(name)), hint="subscribe again to what is there"
                )
            if newest > version:
                yield from made.visible(duck, made.changes(version, newest))
                version = newest
            moved.wait(_WAIT_SECONDS)


def _newest(made: Subscription, lake: LakeLayout) -> int:
    """The newest version; −1 while there is no table yet, so that every version is a change. Raises TableLost."""
    version = newest_version(lake, made.relation.name)
    return -1 if version is None else version
