"""A definition in the place of another: whether all that reads it can go on, and what a broken one must have been.

CREATE OR REPLACE of a view: what reads it stays as it is: its own rows and rules must not change by the replacement,
only by the rows that come.

The names of columns that the table of a view has had stay taken as long as its change feed reaches back. The feed is
read in the columns of today, those that a row did not have yet as NULL. A column that went and came again was there
before, with other values, and nothing in the feed would say when they went.

A definition that is registered again because its file is broken must be the former one. What the file said is gone, but
the fingerprints of its readers and the commits of its tables tell whether it is that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING

from strandline.jobs.catalog.intents import Replacement
from strandline.jobs.engines.engine import Dialect
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.ivm.rules.stored import spec_of, unmarked
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, Function, InsertQuery, Source, View, gives_the_same_rows
from strandline.jobs.model.errors import InvalidQuery, NameInUse, NotSupported, SqlError
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import fingerprint
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import CorruptState
from strandline.state_store.tablespec import added_columns
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.catalog.stored_definition import Broken
    from strandline.jobs.model.types import SqlType
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath


_DIALECT: Dialect = "duckdb"


@dataclass(frozen=True)
class ColumnDiff:
    """How the visible columns of two definitions of a name differ, each in the order of its definition."""

    added: tuple[tuple[str, SqlType], ...]
    removed: tuple[tuple[str, SqlType], ...]
    retyped: tuple[tuple[str, SqlType, SqlType], ...]

    @classmethod
    def of(cls, present: Source | View, following: Source | View) -> ColumnDiff:
        """The difference between the columns of a source or view and those of the definition that is to follow."""
        old, new = ({column.name: column.type for column in each.columns} for each in (present, following))
        return cls(
            added=tuple((name, kind) for name, kind in new.items() if name not in old),
            removed=tuple((name, kind) for name, kind in old.items() if name not in new),
            retyped=tuple((n, kind, new[n]) for n, kind in old.items() if n in new and new[n] != kind),
        )

    def __str__(self) -> str:
        parts = [f"+{name} {kind}" for name, kind in self.added]
        parts += [f"-{name} {kind}" for name, kind in self.removed]
        parts += [f"~{name} {before} to {after}" for name, before, after in self.retyped]
        return ", ".join(parts) or "the same columns"


def check_replacement(present: View, following: View, catalog: Catalog) -> None:
    """Check that one definition of a view can follow another in the same table.

    Raises:
        InvalidQuery: the view would read itself, by way of what reads it.
        NotSupported: the table cannot hold the rows of both.
        NameInUse: what reads the view could not go on; with the difference, and everything that would break.
    """
    circle = _way_to(present.name, following.inputs, catalog)
    if circle is not None:
        named = joined(" -> ", (sentence("'{}'", Name(name)) for name in circle))
        raise InvalidQuery(
            sentence("'{}' would read itself: {}", Name(present.name), named),
            hint="what reads a view cannot be read by it",
        )
    diff = ColumnDiff.of(present, following)
    reason = _unfit(present, following) or _fed(present, catalog)
    if reason is not None:
        raise NotSupported(
            sentence("'{}' cannot be replaced in place: {}", Name(present.name), reason),
            hint="DROP it and CREATE it again: it is computed from history; or give the new view another name",
        )
    reason = _other_columns(present, following, diff)
    if reason is not None:
        raise NotSupported(
            sentence("'{}' cannot be replaced in place: {}", Name(present.name), reason),
            hint="give the column, or the new view, another name; or DROP it and CREATE it again",
        )
    broken = {
        name: why for name in catalog.readers(present.name) if (why := _breaks(name, present, following, catalog))
    }
    if broken:
        listed = joined("; ", (sentence("'{}': {}", Name(name), why) for name, why in broken.items()))
        raise NameInUse(
            sentence("'{}' would change by {}, and break what reads it: {}", Name(present.name), diff, listed),
            hint="keep those columns and the key, or first replace or DROP what reads them",
        )


def reads_the_same(existing: View | InsertQuery, wanted: str, catalog: Catalog) -> bool:
    """True if a query, read again over the columns that its inputs have by now, has the fingerprint `wanted`.

    An input that was replaced may have columns that the query does not read; its text then still means the same.
    """
    semantics = existing.maintenance.semantics if isinstance(existing, View) else "sql"
    try:
        return fingerprint(query_of(replace(existing, columns_seen={}), catalog), semantics) == wanted
    except SqlError:
        return False


def _way_to(name: str, inputs: Sequence[str], catalog: Catalog) -> tuple[str, ...] | None:
    """The way from these inputs to the definition of that name, which comes last; None when none leads there."""
    todo: list[tuple[str, ...]] = [(each,) for each in inputs]
    seen = set(inputs)
    while todo:
        way = todo.pop(0)
        if way[-1] == name:
            return way
        found = [catalog.find(way[-1]), *catalog.whole_queries(way[-1])]
        read = [each for d in found if isinstance(d, View | InsertQuery) for each in d.inputs]
        todo += [(*way, each) for each in read if each not in seen]
        seen.update(read)
    return None


def _unfit(present: View, following: View) -> str | None:
    """The reason why the table cannot go on with the rows of the other definition; None when it can."""
    if present.storage != following.storage:
        only_added = "its rows are" if present.storage == "append" else "the next definition's rows are"
        return f"{only_added} only ever added, and those of the other definition change and go"
    if present.kind != following.kind:
        return f"it is a {present.kind} and would become a {following.kind}"
    if present.partial or following.partial:
        return "a partial view has no table"
    return None


def _fed(present: View, catalog: Catalog) -> str | None:
    """The reason why rows of others in the table keep a definition from being replaced; None when there are none."""
    queries = catalog.whole_queries(present.name)
    return sentence("query '{}' inserts into it as well", Name(queries[0].name)) if queries else None


def _other_columns(present: View, following: View, diff: ColumnDiff) -> str | None:
    """The reason why the table cannot go on with the columns of the other definition; None when it can."""
    if present.storage == "append" and present.columns != following.columns:
        return f"its rows are only ever added, so they keep their columns, and would change by {diff}"
    if diff.retyped:
        name, before, after = diff.retyped[0]
        return f"column '{name}' is {before} and would become {after}, but its history stays in the change feed"
    return None


def _breaks(reader: str, present: View, following: View, catalog: Catalog) -> str | None:
    """The reason why a reader of the view could not go on; None when it can."""
    if (present.row_key, present.hidden) != (following.row_key, following.hidden):
        key = ", ".join(following.row_key) or "no column"
        return f"a row's key would be {key}, and is {', '.join(present.row_key) or 'no column'}"
    definition = catalog.get(reader)
    removed = ColumnDiff.of(present, following).removed
    assert isinstance(definition, View | InsertQuery)
    if removed and definition.pipeline != present.pipeline:
        return f"a run of pipeline '{definition.pipeline}' would still ask for column '{removed[0][0]}'"
    try:
        after = _rules(definition, catalog.supposing(following))
    except SqlError as error:
        return error.message
    if after == _rules(definition, catalog):
        return None
    if isinstance(definition, View) and definition.maintenance.state == "shared":
        return sentence("with STATE = 'shared' its join holds all columns of '{}'", Name(present.name))
    return "its own rows would change, since it reads all columns"


def _rules(definition: View | InsertQuery, catalog: Catalog) -> list[object]:
    """What a definition stores and by which rules: texts that are the same as long as it is not concerned."""
    stages = compiled(definition, catalog).stages
    return [(spec_of(stage), maintenance(stage, _DIALECT), maintenance(stage, _DIALECT, None)) for stage in stages]


def check_added_columns(present: View, following: View, path: LakePath) -> None:
    """Check that the columns which a view gets are new to its table.

    Args:
        path: the folder of the table, which need not be there.

    Raises:
        NotSupported: the table has had one of them.
        VersionGone, CorruptState: its log does not read.
    """
    added = [name for name, _ in ColumnDiff.of(present, following).added]
    if not added:
        return
    from strandline.state_store.tablespec import columns_of  # it loads pyarrow, which most statements do without

    former = {name for schema in _schemas(path) for name in columns_of(schema)}
    again = next((name for name in added if name in former), None)
    if again is not None:
        raise NotSupported(
            sentence(
                "'{}' cannot be replaced in place: it had a column '{}' before, whose values stay in the change feed",
                Name(present.name),
                again,
            ),
            hint="give the column another name; or DROP the view and CREATE it again",
        )


def _schemas(path: LakePath) -> Iterator[str]:
    """The columns that the table has had in all versions that are readable, as Delta's `schemaString`."""
    newest = log.newest_version(path)
    if newest is None:
        return
    from strandline.jobs.operate.verify.tables import oldest_base

    base = oldest_base(path, newest)
    if base is None or base >= 0:
        yield read_snapshot(path, newest if base is None else base).metadata["schemaString"]
    for actions in log.read_entries(path, newest if base is None else base, newest):
        yield from (action["metaData"]["schemaString"] for action in actions if "metaData" in action)


def as_it_was(
    definition: Definition, again: Callable[[Catalog], Definition], catalog: Catalog, lake: LakeLayout
) -> Definition:
    """Restore the part of a definition that only its broken file knew: which columns were added later.

    Args:
        definition: of the statement as it is read today.
        again: reads the statement over a catalog in which sources have fewer columns.
    """
    broken = catalog.broken[definition.name]
    if isinstance(definition, Source):
        return replace(definition, added=_added(definition, lake))
    if _made_rows(definition, broken, lake):
        return definition
    altered = [d for d in catalog.definitions() if isinstance(d, Source) and d.added and d.name in definition.inputs]
    for counts in product(*(range(len(d.columns) - d.added, len(d.columns)) for d in altered)):
        seen = {source.name: count for source, count in zip(altered, counts, strict=True)}
        try:
            found = again(catalog.as_seen_by(replace(definition, columns_seen=seen)))
        except SqlError:
            continue
        if not isinstance(found, Source) and _made_rows(found, broken, lake):
            return replace(found, columns_seen=seen)
    return definition


def _added(source: Source, lake: LakeLayout) -> int:
    """Number of columns that a source was given later, by the schema of its event log."""
    path = lake.table(tables.event_log(source))
    head = reader.head(path)
    if head is None:
        return 0
    later = added_columns(read_snapshot(path, head.version).metadata["schemaString"])
    return sum(column.name in later for column in source.columns)


def come_in_place(definition: Definition, catalog: Catalog, lake: LakeLayout) -> Replacement | None:
    """The replacement that has come as far as its rows, where its intent does not read back; None: it has not, or is
    of another definition.

    Raises:
        NotSupported: the definition is the one of the file, and the rows are of another.
    """
    # The prompt answers EXPLAIN within a second, and these load the engine.
    from strandline.jobs.run.shared import shared_tables
    from strandline.jobs.run.standby import next_to

    name = definition.name
    present, broken = catalog.undecided[name], catalog.broken[name]
    if _made_rows(present, broken, lake):
        return None
    if gives_the_same_rows(present, definition):
        raise NotSupported(
            sentence("the rows of '{}' in the lake were made by another definition", Name(name)),
            hint="say the one that was to come in its place; or DROP it and CREATE it again: it is computed anew",
        )
    head = reader.head(lake.table(name))
    if not (
        isinstance(present, View) and isinstance(definition, View) and head and _made_rows(definition, broken, lake)
    ):
        return None
    supposed = catalog.supposing(present)
    made = next_to(present, definition, supposed)
    return Replacement(made, head.record.epoch, table=name, shared=tuple(sorted(shared_tables(present, supposed))))


def check_repaired(definition: Definition, catalog: Catalog, lake: LakeLayout) -> None:
    """Check that a definition can take the place of the broken one of its name.

    Raises:
        NotSupported: its readers, or its rows in the lake, were made with another definition.
    """
    name = definition.name
    readers = (d for d in catalog.definitions() if not isinstance(d, Source) and name in d.inputs)
    _check_readers(name, readers, catalog.supposing(definition))
    if not _made_rows(definition, catalog.broken[name], lake):
        raise NotSupported(
            sentence("the rows of '{}' in the lake were made by another definition", Name(name)),
            hint="register it as it was; or DROP it and CREATE it again: it is computed anew",
        )


def check_repaired_function(function: Function, catalog: Catalog) -> None:
    """Check that a function can take the place of the broken one of its name. Raises NotSupported: its callers were
    made with another one."""
    from strandline.jobs.functions.python import calls

    callers = (d for d in catalog.definitions() if not isinstance(d, Source) and calls(d.query, function.name))
    _check_readers(function.name, callers, catalog.supposing(function))


def _check_readers(name: str, readers: Iterable[View | InsertQuery], catalog: Catalog) -> None:
    for each in readers:
        if not _fits(each, catalog):
            raise NotSupported(
                sentence("'{}' was made with another definition of '{}'", Name(each.name), Name(name)),
                hint=sentence("register '{}' as it was; or DROP what needs it first", Name(name)),
            )


def _fits(query: View | InsertQuery, catalog: Catalog) -> bool:
    """False if the query means something else, or nothing, with the definitions in the catalog."""
    semantics = query.maintenance.semantics if isinstance(query, View) else "sql"
    try:
        return fingerprint(query_of(query, catalog), semantics) == query.fingerprint
    except SqlError:
        return False
    except CorruptState:  # it needs something else that is broken, and is looked at when that is repaired
        return True


def _made_rows(definition: Definition, broken: Broken, lake: LakeLayout) -> bool:
    """True if the rows in the lake, if any, are of this definition."""
    if isinstance(definition, InsertQuery):
        return broken.holds(definition.fingerprint)
    head = reader.head(lake.table(definition.name))
    if isinstance(definition, View):
        return head is None or unmarked(head.record.fingerprint) in ("", definition.fingerprint)
    return _made_events(definition, lake)


def _made_events(source: Source, lake: LakeLayout) -> bool:
    """True if the event log of a source, if any, has its topic and its columns."""
    path = lake.table(tables.event_log(source))
    head = reader.head(path)
    if head is None:
        return True
    if head.record.offsets and source.topic not in head.record.offsets:
        return False
    stored = list(reader.schema(path))[: len(source.columns)]
    # The names inside a nested type depend on the writer of the table, so of those the name alone counts.
    return len(stored) == len(source.columns) and all(
        field.name == column.name and (column.type.is_nested or field.type == column.type.arrow())
        for field, column in zip(stored, source.columns, strict=True)
    )
