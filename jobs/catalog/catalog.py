"""The catalog: the definitions of one lake, one JSON file each.

Changes take an OS lock and write atomically, so that several processes may define things at once and a reader never
sees half a file. Reading takes no lock.

The names of types that CREATE TYPE gave, in one file of the catalog: `{"crc": c, "types": {name: type as SQL}}`.

A name stands for its type while a statement is read; nothing that is defined remembers it. So a type can be dropped at
any time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace as replaced
from typing import Any

from strandline.jobs.catalog import intents, manifest, name_map
from strandline.jobs.catalog.definitions import (
    CatalogEntry,
    Content,
    Definitions,
    narrowed,
    noted,
    read_content,
    registered,
    stamp_of,
)
from strandline.jobs.catalog.intents import DropIntent
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.catalog.plain_views import readers_of_plain
from strandline.jobs.catalog.stored_definition import Broken, to_json
from strandline.jobs.functions.python import calls
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, Function, InsertQuery, PlainView, Source, View
from strandline.jobs.model.errors import NameInUse, NameTaken, SqlError, UnknownName
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.from_text import parse_type
from strandline.state_store.errors import CorruptState, StoreError
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, remove_file, replace, sync_folder
from strandline.state_store.layout import LakeLayout, safe_name
from strandline.state_store.paths import LakePath, is_folder
from strandline.state_store.stored_state import of_members
from strandline.state_store.wording import Name, quoted, sentence


class Catalog(Definitions):
    """The definitions of one lake, as they were when it was loaded or last changed through this object."""

    def __init__(self, lake: LakeLayout, content: Content | None = None) -> None:
        """Load the definitions, unless their content is given; a lake without a catalog has none."""
        super().__init__(content or read_content(lake))
        self._lake = lake
        self._supposed = content is not None
        self._stamp: object | None = None
        """Of the files that the definitions were read from or written to, under the lock; None: not taken."""

    def reload(self) -> None:
        """Read the files again, to see what others defined."""
        self._stamp = None
        self._content = read_content(self._lake)

    @property
    def lake(self) -> LakeLayout:
        """The lake whose catalog it is."""
        return self._lake

    def holds(self, definition: Definition) -> bool:
        """True if a definition stands so in the files, as they were read, and is not only supposed."""
        entry = self._content.entries.get(definition.name)
        return not self._supposed and entry is not None and entry.definition == definition

    def pipeline_of(self, broken: Broken) -> str | None:
        """The pipeline that a broken file belongs to, as far as can be told; None if not."""
        fed = tables.fed_stream(broken.name)
        if fed is None:
            return broken.pipeline(self._lake, self.pipelines())
        if fed[0] in self.broken:
            return self.pipeline_of(self.broken[fed[0]])
        stream = self.find(fed[0])
        return stream.pipeline if stream else None

    def check_pipeline(self, name: str) -> None:
        """Check that no file is broken which a pipeline needs: its own definitions, what they read and call.

        A broken file of which nobody can tell the pipeline may be all that a pipeline has which is not known otherwise,
        and may be of any that its remains name.

        Raises:
            CorruptState: one is; the first of them.
        """
        definitions = self.pipeline(name)
        for broken in self.broken.values():
            owner = self.pipeline_of(broken)
            read = any(not isinstance(d, Source) and broken.name in d.inputs for d in definitions)
            if read or owner == name or (owner is None and (not definitions or broken.may_be_of(name))):
                raise broken.error()
        for function in self.broken_functions.values():
            if any(not isinstance(d, Source) and calls(d.query, function.name) for d in definitions):
                raise function.error()

    def supposing(self, definition: Definition | Function) -> Catalog:
        """The catalog with this definition in place of the broken file of its name. Nothing is written."""
        if isinstance(definition, Function):
            return Catalog(self._lake, self._content.with_function(definition))
        called = self.name_map.names.get(definition.name, "")
        return Catalog(self._lake, self._content.with_entry(CatalogEntry(0, definition, called)))

    def as_seen_by(self, query: View | InsertQuery) -> Catalog:
        """The catalog in which the inputs of a query have the columns that they had when it was registered."""
        content = narrowed(self._content, query)
        return self if content is self._content else Catalog(self._lake, content)

    # --- changing ---------------------------------------------------------------------------------------------

    def add(self, definition: Definition) -> None:
        """Add a definition, last in the order of creation; a broken file of that name is replaced.

        Raises:
            NameTaken: the name is defined already.
            LockLost: this process stood still for so long that others may have changed the catalog; nothing is written.
        """
        read = self._content
        with self._changing() as check:
            definition = registered(definition, read, self._content, self._lake)
            if definition.name in self._content.entries or definition.name in self.plain:
                raise NameTaken(f"'{definition.name}' is defined already", hint="drop it first, or use another name")
            called = self.name_map.names.get(definition.name, "")  # of a broken file
            if called:
                self.name_map.check_free(called, definition.name, self._stored())
            else:
                self.name_map.check_new(definition.name, self._stored())
            sequence = max((entry.sequence for entry in self._content.entries.values()), default=0) + 1
            self._write(CatalogEntry(sequence, definition, called), check)

    def replace(self, definition: Definition) -> None:
        """Replace a definition, which keeps its place in the order of creation.

        Raises:
            UnknownName: nothing of that name is defined.
        """
        with self._changing() as check:
            self.get(definition.name)
            self._write(replaced(self._content.entries[definition.name], definition=definition), check)

    def rename(self, name: str, called: str) -> None:
        """Call a definition by another name from now on; it stays stored as it is. One file changes, at once.

        Raises:
            UnknownName: nothing of that name is defined.
            NameTaken: another definition is called so.
        """
        with self._changing() as check:
            self.get(name)
            self.name_map.check_free(called, name, self._stored())
            self._call(name, called, check)

    def swap_names(self, one: str, other: str) -> None:
        """Call each of two definitions by the other's name from now on, both at once; they stay stored as they are.

        Raises:
            UnknownName: nothing of one of these names is defined.
        """
        with self._changing() as check:
            self.get(one)
            self.get(other)
            check()
            called = {one: self.name_map.of(other), other: self.name_map.of(one)}
            name_map.begin_swap(called, self._lake)
            self._finish_swap(called, check)

    def keep_seen(self, name: str) -> None:
        """Note in each query that reads a source which columns it has now: further ones are not the query's."""
        with self._changing() as check:
            source = self.get(name)
            assert isinstance(source, Source)
            for reader in self.readers(name):
                entry = self._content.entries[reader]
                query = entry.definition
                assert not isinstance(query, Source)
                self._write(replaced(entry, definition=noted(query, name, len(source.columns))), check)

    def remove(self, name: str, shared: Iterable[str] = ()) -> tuple[str, ...]:
        """Drop `name` and the queries that insert into it, whole or broken, with their tables; the dropped names.

        The writer's lock must be held. Killed at any moment, the drop has not begun, or the next change ends it.

        Args:
            shared: shared tables that nothing else reads.

        Raises:
            UnknownName: nothing of that name is defined.
            NameInUse: something else reads it.
            CorruptState: a broken file may hold something that reads it.
        """
        with self._changing() as check:
            removed = self._removed_with(name)
            check()
            intents.begin_drop(DropIntent(name, removed, tuple(sorted(shared))), self._lake)
            self._finish_drops(check)
            self.reload()
            return removed

    def finish_drops(self) -> tuple[str, ...]:
        """End the drops of processes that were killed; the names that they dropped.

        Another process that is dropping something is waited for.
        """
        if not intents.begun_drops(self._lake):
            return ()
        with locked(self._lake.catalog) as check:
            return self._finish_drops(check)

    def _finish_swap(self, called: Mapping[str, str], check: Callable[[], None]) -> None:
        for name in called:
            if name in self._content.entries:
                self._call(name, called[name], check)
                failpoint("after-swap-file")
        check()
        name_map.end_swaps(self._lake)
        self._content = replaced(self._content, swapping={})

    def _call(self, name: str, called: str, check: Callable[[], None]) -> None:
        entry = self._content.entries[name]
        self._write(replaced(entry, called="" if called == name else called), check)

    def _finish_drops(self, check: Callable[[], None]) -> tuple[str, ...]:
        found = intents.begun_drops(self._lake)
        for drop in found:
            check()
            intents.finish_drop(drop, self._lake)
        return tuple(name for drop in found for name in drop.removed)

    def _removed_with(self, name: str) -> tuple[str, ...]:
        """The names that go with `name`: the queries that insert into it, then itself. Raises as `remove`."""
        if name not in self.broken:
            self.get(name)
        readers = (*self.readers(name), *(each.name for each in self.plain.values() if name in each.inputs))
        if readers:
            raise NameInUse(
                sentence("'{}' is read by {}", Name(name), quoted(readers)),
                hint="drop what reads it first, or say DROP … CASCADE",
            )
        whole, broken = self.whole_queries(name), self.broken_queries(name)
        return (*(query.name for query in whole), *(each.name for each in broken), name)

    def put_plain(self, view: PlainView) -> None:
        """Define a plain view, or put it in the place of one that nothing reads.

        Raises:
            NameTaken: something else has the name.
            NameInUse: something reads the existing one.
        """
        with self._changing() as check:
            if view.name in self._content.entries:
                raise NameTaken(f"'{view.name}' is defined already", hint="drop it first, or use another name")
            self.name_map.check_new(view.name, self._stored())
            self._check_unread(view.name)
            data = to_json(0, view).encode()
            about = {"name": view.name, "pipeline": view.pipeline}
            check()
            with manifest.changing(self._lake, manifest.key_of(view.name), data, about):
                make_folder(self._path(view.name).parent)
                replace(self._path(view.name), data)
            self.reload()

    def remove_plain(self, name: str) -> None:
        """Remove a plain view.

        Raises:
            NameInUse: something reads it.
        """
        with self._changing() as check:
            self._check_unread(name)
            check()
            with manifest.changing(self._lake, manifest.key_of(name), None, {}):
                remove_file(self._path(name))
                sync_folder(self._path(name).parent)
            self.reload()

    def _check_unread(self, plain: str) -> None:
        readers = readers_of_plain(plain, self, self.types)
        if readers:
            raise NameInUse(
                sentence("'{}' is read by {}", Name(plain), quoted(readers)),
                hint="drop what reads it first, or say DROP … CASCADE",
            )

    def put_function(self, function: Function) -> None:
        """Define a function, or change one that nothing calls; a broken file of that name is replaced.

        Raises:
            NameInUse: views or insert queries call the existing one.
        """
        with self._changing() as check:
            if function.name not in self.broken_functions:
                self._check_uncalled(function.name)
            path = self._function_path(function.name)
            make_folder(path.parent)
            data = to_json(0, function).encode()
            check()
            with manifest.changing(self._lake, manifest.key_of(function.name, function=True), data, {}):
                replace(path, data)
            self.reload()

    def remove_function(self, name: str) -> None:
        """Remove a function.

        Raises:
            UnknownName: there is none of that name.
            NameInUse: views or insert queries call it.
        """
        with self._changing() as check:
            if name not in self.broken_functions and name not in self.functions:
                raise UnknownName.among("function", name, self.functions)
            self._check_uncalled(name)
            path = self._function_path(name)
            check()
            with manifest.changing(self._lake, manifest.key_of(name, function=True), None, {}):
                remove_file(path)
                if is_folder(path.parent):
                    sync_folder(path.parent)
            self.reload()

    @property
    def types(self) -> dict[str, SqlType]:
        """The types that CREATE TYPE named. Raises CorruptState: their file is broken."""
        return read_types(self._lake)

    def change_types(self, change: Callable[[dict[str, SqlType]], Mapping[str, SqlType]]) -> None:
        """Put the types that `change` makes of those that are there in their place; what it raises leaves them."""
        with self._changing() as check:
            made = change(self.types)
            check()
            _write_types(made, self._lake)

    @contextmanager
    def _changing(self) -> Iterator[Callable[[], None]]:
        """Hold the lock, with nothing half dropped; gives the check that it is still held, for before each write.

        The files are read again, unless they are as this object has left them: a script defines one thing after the
        other, and each would read all before it.
        """
        with locked(self._lake.catalog) as check:
            self._finish_drops(check)
            stamp = stamp_of(self._lake, self._content) if self._stamp is not None else None
            if stamp is None or stamp != self._stamp:
                self.reload()
            self._stamp = None
            if self._content.swapping:
                self._finish_swap(self._content.swapping, check)
            yield check
            with suppress(StoreError, OSError):  # what was changed is changed
                stamp = stamp_of(self._lake, self._content)
                check()  # or others may have changed what it was taken of
                self._stamp = stamp

    def _stored(self) -> tuple[str, ...]:
        return (*self._content.entries, *self.broken, *self.plain)

    def _check_uncalled(self, function: str) -> None:
        callers = self.callers(function)
        if callers:
            names = ", ".join(repr(caller) for caller in callers)
            raise NameInUse(f"the function {function} is called by {names}", hint="drop what calls it first")

    def _function_path(self, name: str) -> LakePath:
        return self._lake.catalog / "functions" / f"{safe_name(name)}.json"

    def _path(self, name: str) -> LakePath:
        return self._lake.catalog / f"{safe_name(name)}.json"

    def _write(self, entry: CatalogEntry, check: Callable[[], None]) -> None:
        check()
        data = to_json(entry.sequence, entry.definition, entry.called).encode()
        with manifest.changing(self._lake, manifest.key_of(entry.definition.name), data, self._about(entry)):
            replace(self._path(entry.definition.name), data)
        self._content = self._content.with_entry(entry)

    def _about(self, entry: CatalogEntry) -> dict[str, Any]:
        """What the manifest has of a definition: all that is asked of one whose file is lost."""
        definition = entry.definition
        about: dict[str, Any] = {"name": definition.name, "pipeline": definition.pipeline}
        about |= {"called": entry.called} if entry.called else {}
        if isinstance(definition, Source):
            return about
        called = [name for name in self._content.functions if calls(definition.query, name)]
        return {**about, "inputs": list(definition.inputs), "functions": called, "fingerprint": definition.fingerprint}


def read_types(lake: LakeLayout) -> dict[str, SqlType]:
    """The types by their lower-case names; a lake without the file has none.

    Raises:
        CorruptState: the file does not read back; define the types again after removing it.
    """
    path = _path(lake)
    try:
        document = json.loads(path.read_bytes().decode())
        if document.pop("crc") != of_members(document, ascii_only=False):
            raise CorruptState("the file of types fails its checksum", where=str(path), hint=_HINT)
        return {name: parse_type(text) for name, text in document["types"].items()}
    except FileNotFoundError:
        return {}
    except (ValueError, KeyError, TypeError, AttributeError, SqlError) as error:
        raise CorruptState(f"the file of types does not read back: {error}", where=str(path), hint=_HINT) from error


def _write_types(types: Mapping[str, SqlType], lake: LakeLayout) -> None:
    """Put these types in the place of those that are there; the catalog's lock must be held."""
    path = _path(lake)
    content = {"types": {name: str(types[name]) for name in sorted(types)}}
    document = {"crc": of_members(content, ascii_only=False), **content}
    make_folder(path.parent)
    replace(path, json.dumps(document, ensure_ascii=False, indent=2).encode())


_HINT = "remove the file, and CREATE TYPE again: no definition depends on it"


def _path(lake: LakeLayout) -> LakePath:
    return lake.catalog / "types" / "types.json"
