"""The check of a definition that is registered again because its file is broken: it must be the former one.

What the file said is gone. But the fingerprints of its readers and the commits of its tables tell whether it is that.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from strandline.jobs.ivm.rules.stored import unmarked
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, Function, InsertQuery, Source, View
from strandline.jobs.model.errors import NotSupported, SqlError
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import fingerprint
from strandline.state_store.delta import reader
from strandline.state_store.delta.schema import added_columns
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import CorruptState
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.catalog.stored_definition import Broken
    from strandline.state_store.layout import LakeLayout


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
