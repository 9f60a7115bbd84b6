"""DROP: a definition, or with CASCADE all that reads it too, with their tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog import replacements
from strandline.jobs.model.definitions import Definition, InsertQuery, View
from strandline.jobs.model.errors import NameInUse, NotSupported, SqlError
from strandline.jobs.session.catalog_changes import described, stopped
from strandline.jobs.sql.dialect import quote
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.sql.syntax import Drop
    from strandline.state_store.layout import Lake


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
        return sentence("'{}' dropped", Name(name))
    if statement.cascade:
        return joined("\n", (_drop_one(each, catalog, lake) for each in _cascade(statement, catalog)))
    return _drop_one(statement, catalog, lake)


def _cascade(statement: Drop, catalog: Catalog) -> list[Drop]:
    """The drops of a definition and of all that reads it, the last reader first. Each is whole; a kill leaves the rest.

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


def _drop_one(statement: Drop, catalog: Catalog, lake: Lake) -> str:
    name = statement.name
    with stopped(name, catalog, lake):
        if name not in catalog.broken:
            if statement.if_exists and catalog.find(name) is None:
                return sentence("'{}' is not there", Name(name))
            _check_kind(statement, catalog.get(name))
        gone = catalog.remove(name, _unshared(name, catalog, lake))
    return joined("\n", (sentence("'{}' dropped", Name(each)) for each in gone))


def _unshared(name: str, catalog: Catalog, lake: Lake) -> frozenset[str]:
    """The shared tables that nothing reads once `name` is removed; see `unread`."""
    from strandline.jobs.run.shared.reading import shared_tables, unread

    if catalog.broken:
        return frozenset()
    intent = replacements.find(name, lake)
    about_to_stand = () if intent is None else (intent.definition,)
    try:
        shared = [shared_tables(each, catalog.supposing(each)) for each in (catalog.get(name), *about_to_stand)]
        return unread(frozenset().union(*shared), name, None, catalog, lake)
    except SqlError:
        return frozenset()


def _check_kind(statement: Drop, definition: Definition) -> None:
    """Refuse to drop what is of another kind than the statement says (NotSupported)."""
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
