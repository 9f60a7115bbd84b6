"""The files of a catalog: read one by one, so that one that is broken hides no other."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from strandline.jobs.catalog import intents, manifest
from strandline.jobs.catalog.intents import Replacement
from strandline.jobs.catalog.name_map import NameMap, begun_swaps
from strandline.jobs.catalog.stored_definition import Broken, StoredDefinition, from_json
from strandline.jobs.model.definitions import Definition, Function, PlainView, Source
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
    """

    entries: Mapping[str, CatalogEntry] = field(default_factory=dict)
    functions: Mapping[str, Function] = field(default_factory=dict)
    broken: Mapping[str, Broken] = field(default_factory=dict)
    broken_functions: Mapping[str, Broken] = field(default_factory=dict)
    begun: Mapping[str, Replacement] = field(default_factory=dict)
    plain: Mapping[str, PlainView] = field(default_factory=dict)
    swapping: Mapping[str, str] = field(default_factory=dict)

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


def read(lake: LakeLayout) -> Content:
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
    begun = {each.name: each for each in intents.begun_replacements(lake)}
    swapped = begun_swaps(lake)
    after = {name: each.definition for name, each in begun.items() if each.done(lake)}
    whole = (
        CatalogEntry(
            each.sequence,
            after.get(each.definition.name, each.definition),
            _called(each.definition.name, swapped.get(each.definition.name, each.called)),
        )
        for each in entries
        if not isinstance(each.definition, Function | PlainView) and each.definition.name not in gone
    )
    return Content(
        _in_order(whole),
        {each.definition.name: each.definition for each in functions if isinstance(each.definition, Function)},
        {name: each for name, each in broken.items() if name not in gone},
        broken_functions,
        begun,
        {each.definition.name: each.definition for each in entries if isinstance(each.definition, PlainView)},
        swapped,
    )


def stamp(lake: LakeLayout, content: Content) -> object | None:
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
