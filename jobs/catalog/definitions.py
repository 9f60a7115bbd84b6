"""The definitions of a lake as one reads them: by name, by pipeline, by who reads whom; and the columns that a query
has seen.

Whatever needs a definition whose file is broken raises a CorruptState that says what to type; the rest goes on.

A query keeps the columns that its inputs had when it was registered, where they were given further ones since.

    sales (shop, qty)           SELECT * FROM sales        shop, qty
    sales (shop, qty, coupon)   the same query             shop, qty        columns_seen: sales 2

A query that is registered while a source is about to get columns was read without them, so that is noted at once; of
all others, whoever gives the columns notes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.files import Content
from strandline.jobs.catalog.intents import Replacement
from strandline.jobs.catalog.name_map import NameMap
from strandline.jobs.catalog.stored_definition import Broken
from strandline.jobs.functions.python import calls
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, Function, InsertQuery, PlainView, Source, View
from strandline.jobs.model.errors import UnknownName

if TYPE_CHECKING:
    from strandline.state_store.layout import LakeLayout


class Definitions:
    """The definitions that files hold, and the broken files beside them. All names are those that are stored, where
    nothing else is said."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def find(self, name: str) -> Definition | None:
        """The definition of `name`, or None. Raises CorruptState: its file is broken."""
        if name in self.broken:
            raise self.broken[name].error()
        entry = self._content.entries.get(name)
        return entry.definition if entry else None

    def get(self, name: str) -> Definition:
        """The definition of `name`.

        Raises:
            UnknownName: nearest names proposed.
            CorruptState: its file is broken.
        """
        found = self.find(name)
        if found is None:
            raise UnknownName.among("stream, table or view", name, self.relations())
        return found

    def names(self) -> tuple[str, ...]:
        """All names, in the order of creation; queries that insert into streams are among them."""
        return tuple(self._content.entries)

    @property
    def name_map(self) -> NameMap:
        """The stored and the shown names of renamed definitions."""
        return self._content.name_map

    def relations(self) -> tuple[str, ...]:
        """What the sources and views are called: the names that a query can read."""
        stored = (self.name_map.of(d.name) for d in self.definitions() if not isinstance(d, InsertQuery))
        return (*stored, *self.plain)

    def definitions(self) -> list[Definition]:
        """All definitions whose files are whole, in the order of creation: none reads a later one."""
        return [entry.definition for entry in self._content.entries.values()]

    def pipeline(self, name: str) -> list[Definition]:
        """The definitions of one pipeline, in the order of creation."""
        return [d for d in self.definitions() if d.pipeline == name]

    def pipelines(self) -> tuple[str, ...]:
        """The names of the pipelines, in the order of their first definition."""
        return tuple(dict.fromkeys(d.pipeline for d in self.definitions()))

    def readers(self, name: str) -> tuple[str, ...]:
        """The views and insert queries that read `name`. Raises CorruptState: a broken file may hold one more."""
        self._check_unmentioned(name)
        return tuple(d.name for d in _queries(self.definitions()) if name in d.inputs)

    def insert_queries(self, target: str) -> tuple[InsertQuery, ...]:
        """The queries that insert into `target`, by number. Raises CorruptState: the file of one is broken."""
        for each in self.broken_queries(target):
            raise each.error()
        return self.whole_queries(target)

    def whole_queries(self, target: str) -> tuple[InsertQuery, ...]:
        """The queries that insert into `target` and whose files are whole, by number."""
        found = (d for d in self.definitions() if isinstance(d, InsertQuery) and d.target == target)
        return tuple(sorted(found, key=lambda query: query.number))

    @property
    def functions(self) -> Mapping[str, Function]:
        """The functions that users wrote, by upper-case name, in the order of names.

        Looking for one whose file is broken raises CorruptState.
        """
        return _Functions(self._content)

    def callers(self, function: str) -> tuple[str, ...]:
        """The views and insert queries that call the function of that upper-case name. Raises as `readers`."""
        self._check_unmentioned(function)
        return tuple(d.name for d in _queries(self.definitions()) if calls(d.query, function))

    @property
    def plain(self) -> Mapping[str, PlainView]:
        """The plain views, by name: no definition, and read in no other place than the text of one."""
        return self._content.plain

    @property
    def begun(self) -> Mapping[str, Replacement]:
        """The replacements of definitions that have not come to their end, by name; refused ones are not among them."""
        return self._content.begun

    # --- broken files -----------------------------------------------------------------------------------------

    @property
    def broken(self) -> Mapping[str, Broken]:
        """The definitions whose files are broken, by name."""
        return self._content.broken

    @property
    def broken_functions(self) -> Mapping[str, Broken]:
        """The functions whose files are broken, by upper-case name."""
        return self._content.broken_functions

    def broken_queries(self, target: str) -> tuple[Broken, ...]:
        """The broken files of queries that insert into `target`, by number."""
        found = (each for each in self.broken.values() if each.name == tables.insert_query(target, each.number))
        return tuple(sorted(found, key=lambda each: each.number))

    def _check_unmentioned(self, name: str) -> None:
        own = {name, *(each.name for each in self.broken_queries(name))}  # a query does not read what it feeds
        for each in self.broken.values():
            if each.name not in own and each.may_mention(name):
                raise each.error()


class _Functions(Mapping[str, Function]):
    """The functions whose files are whole; another one is not there, or broken."""

    def __init__(self, content: Content) -> None:
        self._content = content

    def __getitem__(self, name: str) -> Function:
        if name in self._content.broken_functions:
            raise self._content.broken_functions[name].error()
        return self._content.functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._content.functions)

    def __len__(self) -> int:
        return len(self._content.functions)


def _queries(definitions: Iterable[Definition]) -> Iterator[View | InsertQuery]:
    return (d for d in definitions if not isinstance(d, Source))


def narrowed(content: Content, query: View | InsertQuery) -> Content:
    """The content in which the inputs of a query have the columns that they had when it was registered."""
    for name, seen in query.columns_seen.items():
        entry = content.entries.get(name)
        if entry is not None and isinstance(entry.definition, Source):
            narrow = replace(entry.definition, columns=entry.definition.columns[:seen])
            content = content.with_entry(replace(entry, definition=narrow))
    return content


def noted(query: View | InsertQuery, name: str, seen: int) -> View | InsertQuery:
    """The query with a note of an input's columns, unless it has one: then it knows fewer."""
    return query if name in query.columns_seen else replace(query, columns_seen={**query.columns_seen, name: seen})


def registered(definition: Definition, read: Content, now: Content, lake: LakeLayout) -> Definition:
    """A definition as it is to be added, with notes of sources that have, or are about to get, further columns.

    Args:
        read: what it was read over.
        now: what is there, under the catalog's lock.
    """
    for name in () if isinstance(definition, Source) else definition.inputs:
        before, after = (content.entries.get(name) for content in (read, now))
        if before is None or after is None or not isinstance(before.definition, Source):
            continue
        assert not isinstance(definition, Source)
        if before.definition != after.definition or about_to_change(name, lake):
            definition = noted(definition, name, len(before.definition.columns))
    return definition


def about_to_change(source: str, lake: LakeLayout) -> bool:
    """True if a source is about to get further columns."""
    intent = intents.find_replacement(source, lake)
    return intent is not None and intent.refused is None
