"""The definitions of a lake as one reads them: from their files, by name, by pipeline, by who reads whom.

Files are read one by one, so that one that is broken hides no other.

Whatever needs a definition whose file is broken raises a CorruptState that says what to type; the rest goes on.

A query keeps the columns that its inputs had when it was registered, where they were given further ones since.

    sales (shop, qty)           SELECT * FROM sales        shop, qty
    sales (shop, qty, coupon)   the same query             shop, qty        columns_seen: sales 2

A query that is registered while a source is about to get columns was read without them, so that is noted at once; of
all others, whoever gives the columns notes it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from strandline.jobs.catalog import intents, manifest
from strandline.jobs.catalog.intents import Replacement
from strandline.jobs.catalog.name_map import NameMap, begun_swaps
from strandline.jobs.catalog.stored_definition import Broken, StoredDefinition, from_json, to_json
from strandline.jobs.functions.python import calls
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, Function, InsertQuery, PlainView, Source, View
from strandline.jobs.model.errors import UnknownName
from strandline.state_store.errors import CorruptState, FormatNewer
from strandline.state_store.layout import LakeLayout, name_of
from strandline.state_store.paths import LakePath, files_in, marks_below
from strandline.state_store.wording import Name, sentence


@dataclass(frozen=True)
class CatalogEntry:
    """A definition, its place in the order of creation, and what it is called; empty: as it is stored."""

    sequence: int
    definition: Definition
    called: str = ""


@dataclass(frozen=True)
class Content:
    """All that the files of a catalog hold.

    Attributes:
        entries: by name, in the order of creation; none reads a later one.
        functions: by upper-case name, in the order of names.
        plain: plain views, by name, which stand among the files of definitions.
        swapping: what both definitions of a swap are called that has not come to its end; the entries have it already.
        broken: definitions whose file does not read back, by name.
        broken_functions: the same of functions.
        begun: replacements of definitions that have not come to their end, by name.
        undecided: what the files of definitions say that are among the broken ones only since the intent of their
            replacement does not read back: which of the two stands, nobody knows.
    """

    entries: Mapping[str, CatalogEntry] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    broken: Mapping[str, Broken] = field(default_factory=dict)
    broken_functions: Mapping[str, Broken] = field(default_factory=dict)
    begun: Mapping[str, Replacement] = field(default_factory=dict)
    plain: Mapping[str, PlainView] = field(default_factory=dict)
    swapping: Mapping[str, str] = field(default_factory=dict)
    undecided: Mapping[str, Definition] = field(default_factory=dict)

    @cached_property
    def name_map(self) -> NameMap:
        """The stored and the shown names of renamed definitions; of broken files, as far as their remains tell."""
        whole = {name: entry.called for name, entry in self.entries.items() if entry.called}
        return NameMap(whole | {name: each.called for name, each in self.broken.items() if each.called})

    def with_entry(self, entry: CatalogEntry) -> Content:
        """The same with this definition, in place of the one of its name or of its broken file."""
        name = entry.definition.name
        entries = {**self.entries, name: entry}
        last = name not in self.entries and name not in self.broken and self._is_last(entry)
        return replace(
            self, entries=entries if last else _in_order(entries.values()), broken=_without(self.broken, name)
        )

    def _is_last(self, entry: CatalogEntry) -> bool:
        """True if it is made after all others, and none of them reads it."""
        name = entry.definition.name
        return all(
            each.sequence < entry.sequence
            and (isinstance(each.definition, Source) or name not in each.definition.inputs)
            for each in self.entries.values()
        )

    def with_function(self, function: Function) -> Content:
        """The same with this function, in place of the one of its name or of its broken file."""
        functions = {**self.functions, function.name: function}
        return replace(self, functions=functions, broken_functions=_without(self.broken_functions, function.name))


def read_content(lake: LakeLayout) -> Content:
    """The content of a lake's catalog; a lake without a catalog has an empty one.

    What is being dropped is left out. A view that is being replaced has the definition that its table has the rows of.

    Raises:
        CorruptState: an intent to swap two names does not read back.
    """
    for _ in range(_READS):
        content = _read_once(lake)
        seen = [content.name_map.of(name) for name in (*content.entries, *content.broken)]
        if len(set(seen)) == len(seen):
            break  # else two names were swapped meanwhile: one file is of before, the other of after
    return content


def _read_once(lake: LakeLayout) -> Content:
    (entries, broken), (functions, broken_functions) = _read_files(lake)
    gone = {name for drop in intents.begun_drops(lake) for name in drop.removed}
    replacements, damaged = intents.replacements(lake)
    begun = {each.name: each for each in replacements}
    swapped = begun_swaps(lake)
    after = {name: each.definition for name, each in begun.items() if each.done(lake)}
    undecided = {
        name: CatalogEntry(each.sequence, each.definition, each.called)
        for each in entries
        if isinstance(each.definition, Source | View) and (name := each.definition.name) in damaged.keys() - gone
    }
    broken |= {name: _undecided(each, damaged[name], lake) for name, each in undecided.items()}
    whole = (
        CatalogEntry(
            each.sequence,
            after.get(each.definition.name, each.definition),
            _called(each.definition.name, swapped.get(each.definition.name, each.called)),
        )
        for each in entries
        if not isinstance(each.definition, Function | PlainView) and each.definition.name not in gone | undecided.keys()
    )
    return Content(
        _in_order(whole),
        {each.definition.name: each.definition for each in functions if isinstance(each.definition, Function)},
        {name: each for name, each in broken.items() if name not in gone},
        broken_functions,
        begun,
        {each.definition.name: each.definition for each in entries if isinstance(each.definition, PlainView)},
        swapped,
        {name: each.definition for name, each in undecided.items()},
    )


def _undecided(stored: CatalogEntry, intent: bytes, lake: LakeLayout) -> Broken:
    """A definition of which nobody knows whether it stands. What either of the two may mention, it may mention."""
    name = stored.definition.name
    return Broken(
        name,
        intents.replacement_file(name, lake),
        to_json(stored.sequence, stored.definition, stored.called).encode() + intent,
        "the intent of its replacement does not read back, so it may be another one by now",
        intents.SAY_AGAIN,
    )


def stamp_of(lake: LakeLayout, content: Content) -> object | None:
    """What tells the files of a catalog, whose lock is held, from those of any other moment; None: nothing does.

    Whoever defines something changes the manifest, which has a checksum of each file. That a file was changed beside
    it, its mark tells: its place and time on a disk, its etag in an object store.
    """
    if content.begun:  # which definition stands, a table says
        return None
    try:
        return lake.definitions.read_bytes(), marks_below(lake.catalog, ".json")
    except FileNotFoundError:
        return None


_Read = tuple[list[StoredDefinition], dict[str, Broken]]
"""What files hold, and the broken ones by name."""
_READS = 5
"""A change of the catalog takes some milliseconds, so the files are seldom read more than twice."""


def _read_files(lake: LakeLayout) -> tuple[_Read, _Read]:
    """The definitions and the functions, each file as the manifest knows it."""
    known = manifest.read(lake)
    for _ in range(_READS):
        data: dict[str, bytes] = {}
        definitions = _read_folder(lake.catalog, data)
        functions = _read_folder(lake.catalog / "functions", data, functions=True)
        if known is None or not _odd(known, data):
            return definitions, functions
        now = manifest.read(lake)
        if now == known:  # nobody changed a file meanwhile
            break
        known = now
    assert known is not None
    return _told(known, data, definitions, lake), _told(known, data, functions, lake, functions=True)


def _odd(known: manifest.Manifest, data: Mapping[str, bytes]) -> bool:
    wrong = any(manifest.fault(known, key, each) for key, each in data.items())
    return wrong or any(True for _ in manifest.lost(known, data))


def _told(
    known: manifest.Manifest, data: Mapping[str, bytes], found: _Read, lake: LakeLayout, *, functions: bool = False
) -> _Read:
    """The same, where files that are lost, or not those that were registered, are broken ones."""
    whole, broken = found
    hint = sentence(
        "put the file back, or register it again: strandline apply FILE.sql; if all files are right as they are, "
        "remove '{}', which is made anew",
        lake.definitions,
    )
    kept: list[StoredDefinition] = []
    for each in whole:
        name = each.definition.name
        key = manifest.key_of(name, function=functions)
        why = manifest.fault(known, key, data[key])
        if why is None:
            kept.append(each)
        else:
            broken[name] = Broken(name, manifest.path_of(key, lake), data[key], why, hint, function=functions)
    for name, function, was in manifest.lost(known, data):
        if function == functions:
            path = manifest.path_of(manifest.key_of(name, function=function), lake)
            remains = json.dumps(was.about, ensure_ascii=False).encode() if was.about else b""
            broken[name] = Broken(name, path, remains, "its catalog file is gone", hint, function=functions)
    return kept, broken


def _read_folder(folder: LakePath, contents: dict[str, bytes], *, functions: bool = False) -> _Read:
    """What the files of a folder hold; their bytes by their keys go to `contents`."""
    whole: list[StoredDefinition] = []
    broken: dict[str, Broken] = {}
    for path in files_in(folder, ".json"):
        name, data = name_of(path.stem), b""
        try:
            data = contents[manifest.key_of(name, function=functions)] = path.read_bytes()
            stored = _stored(data, str(path))
            found = stored.definition
            if found.name != name or isinstance(found, Function) != functions:
                raise CorruptState(sentence("the catalog file holds '{}'", Name(found.name)), where=str(path))
            whole.append(stored)
        except FileNotFoundError:
            continue  # dropped since the folder was listed
        except CorruptState as error:
            newer = isinstance(error, FormatNewer)
            broken[name] = Broken(name, path, data, error.message, error.hint, function=functions, newer=newer)
        except OSError as error:
            contents[manifest.key_of(name, function=functions)] = data
            broken[name] = Broken(name, path, data, f"the catalog file cannot be read: {error}", function=functions)
    return whole, broken


@lru_cache(maxsize=4096)  # one command reads a catalog several times, and its files are the same
def _stored(data: bytes, where: str) -> StoredDefinition:
    return from_json(data, where=where)


def _called(stored: str, name: str) -> str:
    return "" if name == stored else name


def _without(broken: Mapping[str, Broken], name: str) -> dict[str, Broken]:
    return {each: value for each, value in broken.items() if each != name}


def _in_order(entries: Iterable[CatalogEntry]) -> dict[str, CatalogEntry]:
    """The entries in the order of creation; what was registered again after its file broke goes before its readers."""
    known = {e.definition.name: e for e in sorted(entries, key=lambda e: (e.sequence, e.definition.name))}
    ordered: dict[str, CatalogEntry] = {}
    for name in known:
        _put(name, known, ordered, frozenset())
    return ordered


def _put(
    name: str, known: Mapping[str, CatalogEntry], ordered: dict[str, CatalogEntry], readers: frozenset[str]
) -> None:
    """Put a definition into `ordered`, after all that it reads."""
    if name in known and name not in ordered and name not in readers:
        definition = known[name].definition
        for each in () if isinstance(definition, Source) else definition.inputs:
            _put(each, known, ordered, readers | {name})
        ordered[name] = known[name]


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
    def undecided(self) -> Mapping[str, Definition]:
        """The definitions that may stand, or not; they are among the broken ones."""
        return self._content.undecided

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
