"""Changes of the catalog: CREATE, INSERT INTO … SELECT and DROP, with the topics and tables that they concern.

Defining the same again changes nothing, so a file can be run as often as one likes.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from jobs.catalog.drops import table_paths
from jobs.model.definitions import Definition, InsertQuery, Source, View
from jobs.model.errors import NotSupported, SqlError
from jobs.sql.syntax import CreateSource, CreateView, Drop, InsertSelect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jobs.catalog.catalog import Catalog
    from jobs.model.settings import Settings
    from state_store.layout import Lake

Defining = CreateSource | CreateView | InsertSelect
Outcome = Literal["created", "replaced", "unchanged", "repaired"]


@dataclass(frozen=True)
class Change:
    """The effect of a statement on the catalog."""

    outcome: Outcome
    definition: Definition

    def __str__(self) -> str:
        return f"{described(self.definition)} {self.outcome} (pipeline '{self.definition.pipeline}')"


def described(definition: Definition) -> str:
    """A definition in words: `stream 'readings'`."""
    if isinstance(definition, InsertQuery):
        return f"query '{definition.name}' into '{definition.target}'"
    if isinstance(definition, View) and definition.materialized:
        return f"materialized view '{definition.name}'"
    return f"{definition.kind} '{definition.name}'"


def register(statement: Defining, catalog: Catalog, pipeline: str, lake: Lake) -> Change:
    """Check a definition and put it into the catalog.

    Args:
        pipeline: the pipeline of a new definition. An existing one keeps its own.

    Raises:
        NameTaken: the name is defined differently, and the statement does not say OR REPLACE.
        WriterBusy: the pipeline of what it replaces is running.
        SqlError: the definition is refused, or its formats cannot hold it; the catalog is unchanged.
        CorruptState: the file of a definition that it needs is broken.
    """
    from jobs.session.define.analyze import define

    definition = define(statement, catalog, pipeline)
    if isinstance(definition, Source):
        from jobs.ingest.formats.format import check_source

        check_source(definition)
    if definition.name in catalog.broken:
        return _repair(definition, catalog, lake)
    existing = catalog.find(definition.name)
    if existing is None:
        catalog.add(definition)
        return Change("created", definition)
    if existing == definition:
        return Change("unchanged", existing)
    with _stopped(definition.name, catalog, lake):
        definition = define(statement, catalog, pipeline)  # again: what it replaces may be another one by now
        existing = catalog.get(definition.name)
        _check_replacement(existing, lake)
        definition = replace(definition, pipeline=existing.pipeline)
        catalog.replace(definition)
    return Change("replaced", definition)


def _repair(definition: Definition, catalog: Catalog, lake: Lake) -> Change:
    """Put a definition in the place of its broken file; it stays in its pipeline, as far as that is known."""
    from jobs.session.repair import check_repaired

    check_repaired(definition, catalog, lake)
    pipeline = catalog.pipeline_of(catalog.broken[definition.name])
    definition = replace(definition, pipeline=pipeline or definition.pipeline)
    catalog.add(definition)
    return Change("repaired", definition)


def ensure_topic(definition: Definition, settings: Settings, lake: Lake) -> None:
    """Create the topic of a source if absent. Raises SourceUnavailable: the broker does not answer."""
    from jobs.ingest.logs.open import open_with_topic

    if isinstance(definition, Source):
        open_with_topic(definition, settings, lake)


def drop(statement: Drop, catalog: Catalog, lake: Lake) -> str:
    """Forget a definition, whole or broken, and delete its tables; the topic stays, as in ksqlDB.

    A drop of that name which was killed is ended.

    Returns:
        The message for the user.

    Raises:
        UnknownName: there is none of that name, and the statement does not say IF EXISTS.
        NameInUse: something else reads it.
        CorruptState: a broken file may hold something that reads it.
        NotSupported: its kind differs from the statement's, or DELETE TOPIC.
        WriterBusy: its pipeline is running.
    """
    if statement.delete_topic:
        raise NotSupported(
            "DELETE TOPIC is not supported yet", line=statement.line, column=statement.column, hint="leave it out"
        )
    name = statement.name
    if name in catalog.finish_drops():
        return f"'{name}' dropped"
    with _stopped(name, catalog, lake):
        if name not in catalog.broken:
            if statement.if_exists and catalog.find(name) is None:
                return f"'{name}' is not there"
            _check_kind(statement, catalog.get(name))
        gone = catalog.remove(name, _unshared(name, catalog))
    return "\n".join(f"'{each}' dropped" for each in gone)


@contextmanager
def _stopped(name: str, catalog: Catalog, lake: Lake) -> Iterator[None]:
    """Hold the locks of the pipelines that may write the tables of `name`, with the catalog read under them.

    Raises:
        WriterBusy: one is running.
    """
    from jobs.run.orphans import sole_writer

    held: set[str] = set()
    with ExitStack() as locks:
        while waiting := _writers(name, catalog) - held:
            for pipeline in sorted(waiting):
                locks.enter_context(sole_writer(lake, pipeline, f"{name}/{os.getpid()}"))
            held |= waiting
            catalog.reload()
        yield


def _writers(name: str, catalog: Catalog) -> set[str]:
    """The pipelines that may write the tables of `name`: its own, or any if its file is broken."""
    if name in catalog.broken:
        owner = catalog.pipeline_of(catalog.broken[name])
        return {*catalog.pipelines(), *([owner] if owner else [])}
    found = catalog.find(name)
    return {found.pipeline} if found else set()


def _check_replacement(existing: Definition, lake: Lake) -> None:
    """Refuse to change what has rows in the lake (NotSupported): they were read with the former columns."""
    if any((table / "_delta_log").exists() for table in table_paths(existing.name, lake)):
        raise NotSupported(
            f"{described(existing)} has rows in the lake: changing it in place is not supported yet",
            hint="DROP it and CREATE it again: its topic is read from the beginning",
        )


def _unshared(name: str, catalog: Catalog) -> frozenset[str]:
    """The shared tables that nothing reads once `name` is removed.

    None of them when some plan cannot be made, as after a change of an input, or is not known: keeping a table is safe.
    """
    from jobs.run.schedule import shared_tables

    if catalog.broken:
        return frozenset()
    definition = catalog.get(name)
    try:
        kept = [shared_tables(d, catalog) for d in catalog.pipeline(definition.pipeline) if d.name != name]
        return shared_tables(definition, catalog).difference(*kept)
    except SqlError:
        return frozenset()


def _check_kind(statement: Drop, definition: Definition) -> None:
    said = "TABLE" if statement.what == "VIEW" else statement.what
    if isinstance(definition, InsertQuery) or definition.kind.upper() != said:
        raise NotSupported(
            f"{described(definition)} is no {statement.what.lower()}", line=statement.line, column=statement.column
        )
