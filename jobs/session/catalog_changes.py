"""Changes of the catalog by CREATE, ALTER, INSERT INTO … SELECT and DROP, with the topics and tables that they concern.

Defining the same again changes nothing, so a file can be run as often as one likes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from strandline.jobs.catalog import intents, manifest
from strandline.jobs.catalog.intents import table_paths
from strandline.jobs.catalog.plain_views import expanded, readers_of_plain
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import (
    Definition,
    InsertQuery,
    PlainView,
    Source,
    View,
    gives_the_same_rows,
    same,
)
from strandline.jobs.model.errors import InvalidQuery, NameInUse, NameTaken, NotSupported, OptionRefused, SqlError
from strandline.jobs.sql.dialect import quote
from strandline.jobs.sql.syntax import AlterSource, CreateSource, CreateView, InsertSelect
from strandline.state_store.delta.reader import head as delta_head
from strandline.state_store.errors import WriterBusy
from strandline.state_store.failpoints import failpoint
from strandline.state_store.wording import Name, Text, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.ivm.binding import Binding
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.sql.syntax import Drop, Rename, Swap
    from strandline.state_store.layout import LakeLayout


Defining = CreateSource | CreateView | InsertSelect | AlterSource
Replace = Callable[[Source | View, Source | View], str | None]
"""Why the rows of a view's next definition are not proved; None: they are, or it is of a source."""
Outcome = Literal["created", "replaced", "altered", "unchanged", "repaired"]
Begun = Literal["this", "other"]
"""The definition that a process which was killed had begun to put in the place of one: what is said now, or another."""

OTHER_BEGUN = "another definition of it has been begun, and the next run puts that in its place"
_ENDED = "what had been begun of it is complete now"


@dataclass(frozen=True)
class Change:
    """The effect of a statement on the catalog.

    Attributes:
        unproved: of a view that was replaced, why its rows were not compared with its SQL; None: they were.
        begun: what was found begun of its name; None: nothing.
        late: of what is computed from history, the logs that begin late, in words.
    """

    outcome: Outcome
    definition: Definition | PlainView
    unproved: str | None = None
    begun: Begun | None = None
    late: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.said

    @property
    def said(self) -> Text:
        """The change, in a sentence."""
        parts = [
            sentence("{} {} (pipeline '{}')", described(self.definition), self.outcome, self.definition.pipeline),
            *self.late,
        ]
        parts += [_ENDED if self.begun == "this" else OTHER_BEGUN] if self.begun is not None else []
        parts += [sentence("its rows are not proved: {}", self.unproved)] if self.unproved is not None else []
        return joined("; ", parts)


def described(definition: Definition | PlainView) -> Text:
    """Describe a definition: `stream 'readings'`."""
    if isinstance(definition, PlainView):
        return sentence("view '{}'", Name(definition.name))
    if isinstance(definition, InsertQuery):
        return sentence("query '{}' into '{}'", Name(definition.name), Name(definition.target))
    if isinstance(definition, View) and definition.materialized:
        return sentence("materialized view '{}'", Name(definition.name))
    return sentence("{} '{}'", definition.kind, Name(definition.name))


def register(
    statement: Defining, catalog: Catalog, pipeline: str, lake: LakeLayout, replacing: Replace, binding: Binding
) -> Change:
    """Check a definition and put it into the catalog.

    Args:
        pipeline: the pipeline of a new definition. An existing one keeps its own.
        replacing: puts in the place of the definition of a view, or of a source that gets further columns (the first),
            one that was checked against it (the second).
        binding: checks that the engines can bind what is new.

    Raises:
        NotBound, ConditionLost: the rules of the definition are not what its query says.
        NameTaken: the name is defined differently, and the statement does not say OR REPLACE.
        WriterBusy: the pipeline of what it replaces is running.
        SqlError: the definition is refused, or its formats cannot hold it; the catalog is unchanged.
        EventsGone: retention has taken events that the rows of what it replaces were computed from.
        StrandlineError: as of `replacing`; nothing is changed.
        CorruptState: the file of a definition that it needs is broken.
    """
    from strandline.jobs.session.define.analyze import define

    if isinstance(statement, CreateView) and statement.plain and not _maintained(statement.name, catalog, lake):
        return _register_plain(statement, catalog, pipeline)
    statement = expanded(statement, catalog)
    definition = define(statement, catalog, pipeline)
    if isinstance(definition, Source):
        from strandline.jobs.ingest.formats.format import check_source

        check_source(definition)
    if definition.name in catalog.undecided:
        again = partial(register, statement, catalog, pipeline, lake, replacing, binding)
        return _decided(definition, again, catalog, lake)
    if definition.name in catalog.broken:
        return _repair(definition, lambda read: define(statement, read, pipeline), catalog, lake)
    existing = catalog.find(definition.name)
    if existing != definition:
        binding.check(definition, catalog)
    if existing is None:
        late = _late(definition, catalog, lake)
        catalog.add(definition)
        _keep_compiled(definition.name, catalog)
        return Change("created", definition, late=late)
    if gives_the_same_rows(existing, definition):
        return _kept(existing, definition, catalog, replacing)
    live = _replaced_live(existing, definition, catalog, lake, replacing)
    if live is not None:
        return live
    with stopped(definition.name, catalog, lake):
        definition = define(statement, catalog, pipeline)  # again: what it replaces may be another one by now
        existing = catalog.get(definition.name)
        _check_replacement(existing, lake)
        definition = replace(definition, pipeline=existing.pipeline)
        catalog.replace(definition)
        _keep_compiled(definition.name, catalog)
    return Change("replaced", definition)


def _maintained(name: str, catalog: Catalog, lake: LakeLayout) -> bool:
    """True if a name is that of a maintained view, as CREATE VIEW made them before there were plain ones."""
    if name in catalog.broken:
        return delta_head(lake.table(name)) is not None
    return isinstance(catalog.find(name), View)


def _register_plain(statement: CreateView, catalog: Catalog, pipeline: str) -> Change:
    """Check a plain view and put it into the catalog, unless it is there.

    Raises:
        NameTaken: the name is defined differently, and the statement does not say OR REPLACE.
        SqlError: as of `plain_view_of` and `Catalog.put_plain`.
    """
    from strandline.jobs.session.define.view import plain_view_of

    existing = catalog.plain.get(statement.name)
    if existing is not None and statement.if_not_exists:
        return Change("unchanged", existing)
    try:
        made = plain_view_of(statement, catalog, existing.pipeline if existing is not None else pipeline)
    except SqlError as error:
        raise error.placed(statement.line, statement.column)  # noqa: B904 - the same error
    if existing is not None and replace(existing, sql=made.sql) == made:
        return Change("unchanged", existing)
    if existing is not None and not statement.or_replace:
        raise NameTaken(
            sentence("'{}' is defined already, differently", Name(made.name)),
            hint="CREATE OR REPLACE puts this one in its place, while nothing reads it",
        )
    catalog.put_plain(made)
    return Change("created" if existing is None else "replaced", made)


def _kept(existing: Definition, definition: Definition, catalog: Catalog, replacing: Replace) -> Change:
    """Change of a definition that gives the same rows as before: none, or only of ownership. If a killed process left a
    replacement unfinished, finish that first."""
    begun, unproved = _begun(existing, catalog), None
    if begun == "this" and isinstance(existing, Source | View):
        try:
            unproved = replacing(existing, existing)
            catalog.reload()
        except WriterBusy:
            if existing != definition:
                raise  # its end would bring the former ownership back
            begun = None  # it was not killed, and ends it itself
    if existing == definition:
        return Change("unchanged", existing, unproved, begun)
    # Beside a running stream, which has read all that it needs.
    catalog.replace(definition)
    _keep_compiled(definition.name, catalog)
    return Change("replaced", definition, unproved, begun)


def _begun(definition: Definition, catalog: Catalog) -> Begun | None:
    left = catalog.begun.get(definition.name)
    return None if left is None else "this" if same(left.definition, definition) else "other"


def _replaced_live(
    existing: Definition, definition: Definition, catalog: Catalog, lake: LakeLayout, replacing: Replace
) -> Change | None:
    """Replace a view, or add columns to a source, while others go on reading; None if it is neither."""
    from strandline.jobs.session.define.replaced import check_added_columns
    from strandline.jobs.session.define.source import extends

    begun = _begun(definition, catalog)
    if isinstance(existing, View) and isinstance(definition, View):
        definition = replace(definition, pipeline=existing.pipeline)
        check_added_columns(existing, definition, lake.table(definition.name))
        late = () if begun == "this" else _late(definition, catalog, lake)
        unproved = replacing(existing, definition)
        catalog.reload()
        # Another one that had been begun has been given up, unless this is a rehearsal.
        return Change("replaced", definition, unproved, begun if begun == "this" else _begun(definition, catalog), late)
    if isinstance(existing, Source) and isinstance(definition, Source) and extends(existing, definition):
        replacing(existing, definition)
        catalog.reload()
        return Change("altered", definition, begun=begun)
    return None


def _keep_compiled(name: str, catalog: Catalog) -> None:
    from strandline.jobs.ivm.compiled import keep_compiled

    keep_compiled([catalog.get(name)], catalog)


def _late(definition: Definition, catalog: Catalog, lake: LakeLayout) -> tuple[str, ...]:
    from strandline.jobs.ivm.retention import begins_late

    return () if isinstance(definition, Source) else begins_late(definition, catalog, lake)


def _repair(
    definition: Definition, again: Callable[[Catalog], Definition], catalog: Catalog, lake: LakeLayout
) -> Change:
    """Replace a broken file by a definition, which stays in its pipeline, as far as that is known."""
    from strandline.jobs.session.define.replaced import as_it_was, check_repaired

    definition = as_it_was(definition, again, catalog, lake)
    check_repaired(definition, catalog, lake)
    pipeline = catalog.pipeline_of(catalog.broken[definition.name])
    definition = replace(definition, pipeline=pipeline or definition.pipeline)
    catalog.add(definition)
    _keep_compiled(definition.name, catalog)
    return Change("repaired", definition)


def _decided(definition: Definition, again: Callable[[], Change], catalog: Catalog, lake: LakeLayout) -> Change:
    """Put a definition in the catalog of which nobody knows whether it or another one stands.

    An intent that reads takes the place of the damaged one where the rows are of the definition that was to come, so
    that its replacement is ended as after a kill. Else the one of the file stands, and is replaced if need be.

    Args:
        again: registers it, once the catalog knows which one stands.

    Raises:
        NotSupported: it is the one of the file, and the rows are of another.
        WriterBusy: a replacement of it is at work.
        StrandlineError: as of `register`.
    """
    from strandline.jobs.run.orphans import sole_writer
    from strandline.jobs.session.define.replaced import come_in_place

    name, of = definition.name, catalog.lake
    come = come_in_place(definition, catalog, lake)
    if of != lake:  # a rehearsal: there are no tables to go on with
        intents.end_replacement(name, of)
        catalog.reload()
        catalog.replace(definition)
        return Change("repaired", definition)
    with sole_writer(lake, tables.standby(name), f"{name}/{os.getpid()}"), manifest.locked(lake.catalog):
        if come is None:
            intents.end_replacement(name, lake)
        else:
            intents.put_replacement(come, lake)
    catalog.reload()
    return replace(again(), outcome="repaired", begun=None)


def ensure_topic(definition: Definition, settings: Settings, lake: LakeLayout) -> None:
    """Create the topic of a source if absent. Raises SourceUnavailable: the broker does not answer."""
    from strandline.jobs.ingest.topics import open_with_topic

    if isinstance(definition, Source):
        open_with_topic(definition, settings, lake)


def resolved_source(statement: CreateSource, catalog: Catalog, settings: Settings, lake: LakeLayout) -> CreateSource:
    """A statement as it is to be registered: with what it leaves to a table of others or to the schema registry;
    one over a topic once the topic is known not to contradict it.

    Raises:
        SqlError, SourceError: as of `foreign.resolved`, `registered.with_registered_columns` and `check_topic`.
    """
    from strandline.jobs.session.define.foreign import is_foreign, resolved
    from strandline.jobs.session.define.registered import with_registered_columns

    if is_foreign(statement):
        return resolved(statement, catalog, lake, settings)
    check_topic(statement, catalog, settings, lake)
    return with_registered_columns(statement, catalog, lake, settings)


def check_topic(statement: CreateSource, catalog: Catalog, settings: Settings, lake: LakeLayout) -> None:
    """Check, before a source is registered, that its topic does not contradict it: the kind of the lake's topics, and
    for a new source the number of partitions.

    Raises:
        TopicsElsewhere: the settings do not lead to the lake's topics.
        OptionRefused: it does.
        SourceUnavailable: the broker does not answer.
    """
    from strandline.jobs.ingest.topics import open_log

    log = open_log(settings, lake)
    stated = next((option for option in statement.options if option.name == "PARTITIONS"), None)
    if stated is None or statement.name in catalog.names() or statement.name in catalog.broken:
        return
    topics = [option.value for option in statement.options if option.name == "KAFKA_TOPIC"]
    topic = topics[0] if topics else statement.name
    there = len(log.end_offsets(topic)) if log.exists(topic) else None
    if there is not None and stated.value.isdigit() and int(stated.value) != there:
        raise OptionRefused(
            f"PARTITIONS is {stated.value}, but the topic '{topic}' has {there}",
            line=stated.line,
            column=stated.column,
            hint=f"write PARTITIONS = {there}, or leave it out: it is for topics that are made here",
        )


@contextmanager
def stopped(name: str, catalog: Catalog, lake: LakeLayout) -> Iterator[None]:
    """Hold the locks of the pipelines that may write the tables of `name`, with the catalog read under them.

    Raises:
        WriterBusy: one is running.
    """
    from strandline.jobs.run.orphans import sole_writer

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


def _check_replacement(existing: Definition, lake: LakeLayout) -> None:
    """Refuse to change a definition that has rows in the lake (NotSupported): they were read with the former
    columns."""
    if any((table / "_delta_log").exists() for table in table_paths(existing.name, lake)):
        raise NotSupported(
            sentence("{} has rows in the lake: changing it in place is not supported yet", described(existing)),
            hint="DROP it and CREATE it again: its topic is read from the beginning",
        )


# DROP: a definition, or with CASCADE all that reads it too, with their tables.


def drop(statement: Drop, catalog: Catalog, lake: LakeLayout) -> str:
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
        return sentence("'{}' dropped", Name(name))
    if statement.cascade:
        first = [_dropped_with_readers(statement, each, catalog, lake) for each in _plain_readers(name, catalog)]
        if name in catalog.plain:
            return joined("\n", (*first, _drop_plain(statement, catalog)))
        rest = (_drop_one(each, catalog, lake) for each in _cascade(statement, catalog))
        return joined("\n", (*first, *rest))
    return _drop_plain(statement, catalog) if name in catalog.plain else _drop_one(statement, catalog, lake)


def _plain_readers(name: str, catalog: Catalog) -> tuple[str, ...]:
    """What a cascade drops before it drops `name` and what reads that as a definition: by way of plain views."""
    if name in catalog.plain:
        return readers_of_plain(name, catalog, catalog.types)
    below = (name, *(each for each in catalog.names() if name in _all_inputs(each, catalog)))
    return tuple(each.name for each in catalog.plain.values() if set(each.inputs) & set(below))


def _all_inputs(name: str, catalog: Catalog) -> set[str]:
    """All that a definition reads, directly or not."""
    found = catalog.find(name) if name not in catalog.broken else None
    inputs = set() if found is None or isinstance(found, Source) else set(found.inputs)
    return inputs.union(*(_all_inputs(each, catalog) for each in inputs))


def _dropped_with_readers(statement: Drop, name: str, catalog: Catalog, lake: LakeLayout) -> str:
    if name not in catalog.plain and name not in catalog.names():
        return sentence("'{}' is not there", Name(name))  # it was dropped as a reader of another
    return drop(replace(statement, what="ANY", name=name), catalog, lake)


def _drop_plain(statement: Drop, catalog: Catalog) -> str:
    if statement.what not in ("VIEW", "ANY"):
        raise NotSupported(
            sentence("view '{}' is no {}", Name(statement.name), statement.what.lower()),
            line=statement.line,
            column=statement.column,
            hint=sentence("DROP VIEW {}", Name(statement.name, quote)),
        )
    catalog.remove_plain(statement.name)
    return sentence("'{}' dropped", Name(statement.name))


def _cascade(statement: Drop, catalog: Catalog) -> list[Drop]:
    """Drops of a definition and of all its readers, the last reader first. Each is whole; a kill leaves the rest.

    Raises:
        NameInUse: a query into a stream reads it: dropping the stream would take away more.
    """
    if statement.name not in catalog.broken and catalog.find(statement.name) is not None:
        _check_kind(statement, catalog.get(statement.name))
    found = [statement.name]
    for name in found:
        for reader in catalog.readers(name):
            definition = catalog.get(reader)
            if isinstance(definition, InsertQuery):
                raise NameInUse(
                    sentence("'{}' is read by {}", Name(name), described(definition)),
                    line=statement.line,
                    column=statement.column,
                    hint=sentence("DROP STREAM {} first, if nothing needs it", Name(definition.target, quote)),
                )
            found += [reader] if reader not in found else []
    order = [name for name in reversed(catalog.names()) if name in found]
    return [replace(statement, name=name, what="ANY", cascade=False) for name in order] or [
        replace(statement, cascade=False)
    ]


def _drop_one(statement: Drop, catalog: Catalog, lake: LakeLayout) -> str:
    name = statement.name
    with stopped(name, catalog, lake):
        if name not in catalog.broken:
            if statement.if_exists and catalog.find(name) is None:
                return sentence("'{}' is not there", Name(name))
            _check_kind(statement, catalog.get(name))
        gone = catalog.remove(name, _unshared(name, catalog, lake))
    return joined("\n", (sentence("'{}' dropped", Name(each)) for each in gone))


def _unshared(name: str, catalog: Catalog, lake: LakeLayout) -> frozenset[str]:
    """Shared tables that nothing reads once `name` is removed; see `unread`."""
    from strandline.jobs.run.shared import shared_tables, unread

    if catalog.broken:
        return frozenset()
    intent = intents.find_replacement(name, lake)
    about_to_stand = () if intent is None else (intent.definition,)
    try:
        shared = [shared_tables(each, catalog.supposing(each)) for each in (catalog.get(name), *about_to_stand)]
        return unread(frozenset().union(*shared), name, None, catalog, lake)
    except SqlError:
        return frozenset()


def _check_kind(statement: Drop, definition: Definition) -> None:
    """Refuse to drop a definition of another kind than the statement says (NotSupported)."""
    if statement.what == "ANY":
        return
    if isinstance(definition, InsertQuery):
        kinds: tuple[str, ...] = ()
    else:
        kinds = (definition.kind.upper(), "VIEW") if isinstance(definition, View) else (definition.kind.upper(),)
    if statement.what not in kinds:
        raise NotSupported(
            sentence("{} is no {}", described(definition), statement.what.lower()),
            line=statement.line,
            column=statement.column,
            hint=sentence("DROP {} {}", kinds[0], Name(statement.name, quote))
            if kinds
            else "DROP the stream that it feeds",
        )


# ALTER … RENAME TO: another name for a definition, and nothing else.
#
# Its tables, and all that others keep of them, say the name that it is stored under, which stays: version vectors in
# commits, fingerprints, leases, replicas, the tokens of subscribers, Dagster's assets. So no row is recomputed, no
# history ends, and a run of the pipeline, which says stored names alone, need not hear of it. One file of the catalog
# is replaced: killed at any moment, the definition has its former name or the new one.


def rename(statement: Rename, catalog: Catalog) -> str:
    """Change the name that people see of a definition.

    Args:
        statement: with the name that it is stored under.

    Returns:
        The message for the user.

    Raises:
        UnknownName: there is none of that name, and the statement does not say IF EXISTS.
        InvalidQuery: it is of another kind than the statement says; or nothing can have the name.
        NotSupported: it is a plain view.
        NameTaken: another definition is called so.
        CorruptState: the file of the definition is broken.
    """
    name, following = statement.name, statement.following
    _check_not_plain(name, catalog)
    if statement.if_exists and catalog.find(name) is None:
        return f"'{name}' is not there"
    definition, before = catalog.get(name), catalog.name_map.of(name)
    _check_renamed(definition, statement.what, before, f"RENAME TO {quote(following)}")
    from strandline.jobs.session.define.source import check_name

    check_name(following)
    if following == before:
        return f"'{before}' is called so already"
    failpoint("before-called")
    catalog.rename(name, following)
    failpoint("after-called")
    return f"`{before}` is called `{following}` from now on"


def swap(statement: Swap, catalog: Catalog) -> str:
    """Change the names that people see of two definitions with each other, both at once.

    Args:
        statement: with the names that they are stored under.

    Returns:
        The message for the user.

    Raises:
        UnknownName, InvalidQuery, NotSupported, CorruptState: as `rename`, for either.
    """
    seen = []
    for name, other in ((statement.name, statement.other), (statement.other, statement.name)):
        _check_not_plain(name, catalog)
        called = catalog.name_map.of(name)
        _check_renamed(catalog.get(name), statement.what, called, f"SWAP WITH {quote(catalog.name_map.of(other))}")
        seen.append(called)
    one, other = seen
    if one == other:
        return f"'{one}' is called so already"
    catalog.swap_names(statement.name, statement.other)
    return f"`{one}` is called `{other}` from now on, and `{other}` is called `{one}`"


def _check_not_plain(name: str, catalog: Catalog) -> None:
    if name in catalog.plain:
        raise NotSupported(
            sentence("view '{}' cannot be renamed: what reads it has its query", Name(name)),
            hint="CREATE VIEW under the other name, and DROP this one",
        )


def _check_renamed(definition: Definition, what: str, called: str, change: str) -> None:
    """Check that a definition is what the statement says, and can have another name."""
    if isinstance(definition, InsertQuery):
        raise InvalidQuery(
            sentence("'{}' is a query into '{}', and is called after it", called, Name(definition.target)),
            hint=sentence("ALTER STREAM {} RENAME TO …", Name(definition.target, quote)),
        )
    kinds = (definition.kind.upper(), *(("VIEW",) if isinstance(definition, View) else ()))
    if what not in kinds:
        raise InvalidQuery(f"'{called}' is no {what.lower()}", hint=f"ALTER {kinds[0]} {quote(called)} {change}")
