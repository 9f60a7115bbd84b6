"""The tables to be verified: each with the definition that it belongs to, and the way out when it is broken.

A table whose log reads: its head, and the files of that version. All its checks look at the same version.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from strandline.jobs.catalog import intents
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.shared import shared_tables
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.snapshot import read_snapshot, unproven_snapshot
from strandline.state_store.errors import CorruptState, StrandlineError
from strandline.state_store.layout import LakeLayout, name_of
from strandline.state_store.paths import folders_in
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Definition
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath


REBUILD_HINT = "type: strandline rebuild "
"""What the way out of a broken table begins with, where a rebuild is one."""

Role = Literal["event log", "dead letters", "rows", "stage", "unknown"]
"""`dead letters` are those of a source; rows that a view keeps aside are a `stage` of it."""


@dataclass(frozen=True)
class Subject:
    """One table of the lake.

    Attributes:
        owner: the name of the definition that it belongs to; empty when there is none.
        definition: None when it is not known.
        role: what the table is to its definition.
        fingerprint: what its records must carry; empty for a table of events, None when the plan has no such stage.
        queries: the names of the queries into it: they stand before their entries in its vector.
        fault: why the definition is not known.
        hint: what to type when the table is broken.
    """

    table: str
    path: LakePath
    owner: str
    definition: Source | View | None
    role: Role
    fingerprint: str | None
    hint: str
    queries: tuple[str, ...] = ()
    fault: StrandlineError | None = None

    @property
    def keeps_aside(self) -> bool:
        """True if the rows are those of a view, or of a stage of one, on which an expression fails."""
        return self.role == "stage" and self.definition is not None and self.table.endswith(tables.dead_letters(""))

    def input_of(self, entry: str) -> str:
        """The table that an entry of the vector speaks of."""
        prefix = next((f"{query}/" for query in self.queries if entry.startswith(f"{query}/")), "")
        return entry.removeprefix(prefix)


def subjects(names: Sequence[str], catalog: Catalog, lake: LakeLayout) -> list[Subject]:
    """The tables of the named definitions, or the named tables; without names all that the lake has or should have.

    Raises:
        UnknownName: there is neither a definition nor a table of a name.
    """
    definitions = catalog.definitions()
    named = [each for each in definitions if each.name in names]
    if names and len({each.name for each in named}) == len(set(names)):
        definitions = named  # nothing else is planned
    found = _all(definitions, catalog, lake)
    if not names:
        return found
    known = {subject.owner for subject in found} | {subject.table for subject in found}
    for name in names:
        if name not in known:
            raise UnknownName.among("stream, table or view", name, map(catalog.name_map.of, known))
    return [subject for subject in found if subject.owner in names or subject.table in names]


def _all(definitions: Sequence[Definition], catalog: Catalog, lake: LakeLayout) -> list[Subject]:
    there = _there(lake)
    found: dict[str, Subject] = {}
    for definition in definitions:
        if isinstance(definition, View) and definition.partial:
            continue
        if not isinstance(definition, InsertQuery):
            for subject in _of_definition(definition, catalog, lake, there):
                found.setdefault(subject.table, subject)
    for name, broken in catalog.broken.items():
        for table in tables.owned_by(name, there):
            hint = _rebuild(name)
            subject = Subject(table, lake.table(table), name, None, "unknown", None, hint, fault=broken.error())
            found.setdefault(table, subject)
    for table in sorted(set(there) - found.keys() - _going(lake, there)):
        hint = "register its definition again, as it was; or delete the folder"
        found[table] = Subject(table, lake.table(table), "", None, "unknown", None, hint)
    return list(found.values())


def _there(lake: LakeLayout) -> list[str]:
    """The names of the tables that have a folder."""
    return sorted(name_of(path.name) for path in folders_in(lake.tables))


def _going(lake: LakeLayout, there: Sequence[str]) -> set[str]:
    """The tables of drops that were begun: the next change of the catalog deletes them."""
    begun = intents.begun_drops(lake)
    return {table for drop in begun for name in (drop.name, *drop.shared) for table in tables.owned_by(name, there)}


def _of_definition(
    definition: Source | View, catalog: Catalog, lake: LakeLayout, there: Sequence[str]
) -> Iterator[Subject]:
    name = definition.name
    fault, planned, shared = _planned(definition, catalog)
    queries = tuple(query.name for query in catalog.whole_queries(name))
    wanted = tables.event_log(definition) if isinstance(definition, Source) else name
    letters = {tables.dead_letters(each) for each in shared}.intersection(there)
    stages = sorted({*tables.owned_by(name, there), *shared, *letters} - {wanted, name})
    for table in dict.fromkeys((wanted, *stages, name)):
        role = _role(definition, table)
        events = role in ("event log", "dead letters")
        yield Subject(
            table,
            lake.table(table),
            name,
            definition,
            role,
            "" if events else planned.get(table),
            _from_topic(definition) if events and isinstance(definition, Source) else _rebuild(name),
            queries,
            fault,
        )


def _role(definition: Source | View, table: str) -> Role:
    if isinstance(definition, Source):
        if table == tables.event_log(definition):
            return "event log"
        if table == tables.dead_letters(definition.name):
            return "dead letters"
    return "rows" if table == definition.name else "stage"


def _planned(
    definition: Source | View, catalog: Catalog
) -> tuple[StrandlineError | None, Mapping[str, str], frozenset[str]]:
    """{table: the fingerprint of its records}, and the shared tables; or why the definition has no plan any more."""
    try:
        levels = maintained([definition, *catalog.insert_queries(definition.name)], catalog)
        shared = shared_tables(definition, catalog)
    except StrandlineError as error:
        return error, {}, frozenset()
    found: dict[str, str] = {}
    for item in (item for level in levels for item in level):
        made = [stage.table for stage in item.stages if item.vector_prefix is None or stage is not item.stages[-1]]
        for table in (*made, item.name):
            found |= {table: item.fingerprint, tables.dead_letters(table): item.fingerprint}
    return None, found, shared


def _rebuild(name: str) -> str:
    return sentence("{}{}", REBUILD_HINT, Name(name, shlex.quote))


def _from_topic(source: Source) -> str:
    return sentence("{}, which reads its events again from topic '{}'", _rebuild(source.name), source.topic)


@dataclass(frozen=True)
class Opened:
    """A table at its head."""

    subject: Subject
    head: Head
    snapshot: Snapshot

    @property
    def path(self) -> LakePath:
        return self.subject.path

    @property
    def version(self) -> int:
        """The version that is verified."""
        return self.head.version

    @property
    def record(self) -> CommitRecord:
        """The newest record at or below that version."""
        return self.head.record


def opened(subject: Subject) -> Opened:
    """The table at its head.

    Raises:
        TableMissing: there is no table.
        VersionGone, CorruptState, ForeignWrite: the log is broken.
    """
    head = reader.head(subject.path)
    if head is None:
        raise log.missing(subject.path)
    try:
        snapshot = read_snapshot(subject.path, head.version)
    except CorruptState:  # the check of the sums says so
        snapshot = unproven_snapshot(subject.path, head.version)
    return Opened(subject, head, snapshot)
