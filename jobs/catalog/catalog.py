"""The catalog: the definitions of one lake, one JSON file each.

Changes take an OS lock and write atomically, so that several processes may define things at once and a reader never
sees half a file. Reading takes no lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.catalog.as_json import from_json, to_json
from jobs.catalog.lock import locked
from jobs.functions.python.declared import calls
from jobs.model.definitions import Definition, Function, InsertQuery, Source
from jobs.model.errors import NameInUse, NameTaken, UnknownName
from state_store.files import replace, sync_folder
from state_store.layout import Lake, safe_name


@dataclass(frozen=True)
class _Entry:
    sequence: int
    definition: Definition


class Catalog:
    """The definitions of one lake, as they were when it was loaded or last changed through this object."""

    def __init__(self, lake: Lake) -> None:
        """Load the definitions; a lake without a catalog has none.

        Raises:
            CorruptState: a file does not read back.
        """
        self._lake = lake
        self._entries: dict[str, _Entry] = {}
        self._functions: dict[str, Function] = {}
        self.reload()

    def reload(self) -> None:
        """Read the files again, to see what others defined."""
        entries = []
        for path in self._lake.catalog.glob("*.json"):
            sequence, definition = from_json(path.read_text(encoding="utf-8"), where=str(path))
            assert not isinstance(definition, Function)
            entries.append(_Entry(sequence, definition))
        entries.sort(key=lambda entry: entry.sequence)
        self._entries = {entry.definition.name: entry for entry in entries}
        self._functions = self._read_functions()

    # --- reading ----------------------------------------------------------------------------------------------

    def find(self, name: str) -> Definition | None:
        """The definition of `name`, or None."""
        entry = self._entries.get(name)
        return entry.definition if entry else None

    def get(self, name: str) -> Definition:
        """The definition of `name`.

        Raises:
            UnknownName: nearest names proposed.
        """
        found = self.find(name)
        if found is None:
            raise UnknownName.among("stream, table or view", name, self.relations())
        return found

    def names(self) -> tuple[str, ...]:
        """All names, in the order of creation; queries that insert into streams are among them."""
        return tuple(self._entries)

    def relations(self) -> tuple[str, ...]:
        """The names that a query can read: sources and views."""
        return tuple(d.name for d in self.definitions() if not isinstance(d, InsertQuery))

    def definitions(self) -> list[Definition]:
        """All definitions, in the order of creation: none reads a later one."""
        return [entry.definition for entry in self._entries.values()]

    def pipeline(self, name: str) -> list[Definition]:
        """The definitions of one pipeline, in the order of creation."""
        return [d for d in self.definitions() if d.pipeline == name]

    def pipelines(self) -> tuple[str, ...]:
        """The names of the pipelines, in the order of their first definition."""
        return tuple(dict.fromkeys(d.pipeline for d in self.definitions()))

    def readers(self, name: str) -> tuple[str, ...]:
        """The views and insert queries that read `name`."""
        return tuple(d.name for d in self.definitions() if not isinstance(d, Source) and name in d.inputs)

    def insert_queries(self, target: str) -> tuple[InsertQuery, ...]:
        """The queries that insert into `target`, by number."""
        return tuple(d for d in self.definitions() if isinstance(d, InsertQuery) and d.target == target)

    @property
    def functions(self) -> Mapping[str, Function]:
        """The functions that users wrote, by upper-case name, in the order of names."""
        return self._functions

    def callers(self, function: str) -> tuple[str, ...]:
        """The views and insert queries that call the function of that upper-case name."""
        return tuple(d.name for d in self.definitions() if not isinstance(d, Source) and calls(d.query, function))

    # --- changing ---------------------------------------------------------------------------------------------

    def add(self, definition: Definition) -> None:
        """Add a definition, last in the order of creation.

        Raises:
            NameTaken: the name is defined already.
        """
        with self._changing():
            if definition.name in self._entries:
                raise NameTaken(f"'{definition.name}' is defined already", hint="drop it first, or use another name")
            sequence = max((entry.sequence for entry in self._entries.values()), default=0) + 1
            self._write(_Entry(sequence, definition))

    def replace(self, definition: Definition) -> None:
        """Replace a definition, which keeps its place in the order of creation.

        Raises:
            UnknownName: nothing of that name is defined.
        """
        with self._changing():
            self.get(definition.name)
            self._write(_Entry(self._entries[definition.name].sequence, definition))

    def remove(self, name: str) -> tuple[str, ...]:
        """Remove `name` and the queries that insert into it, and return the removed names.

        Raises:
            UnknownName: nothing of that name is defined.
            NameInUse: something else reads it.
        """
        with self._changing():
            self.get(name)
            readers = self.readers(name)
            if readers:
                raise NameInUse(
                    f"'{name}' is read by {', '.join(repr(r) for r in readers)}", hint="drop what reads it first"
                )
            removed = (*(query.name for query in self.insert_queries(name)), name)
            for each in removed:
                self._path(each).unlink()
                del self._entries[each]
            sync_folder(self._lake.catalog)
            return removed

    def put_function(self, function: Function) -> None:
        """Define a function, or change one that nothing calls.

        Raises:
            NameInUse: views or insert queries call the existing one.
        """
        with self._changing():
            self._check_uncalled(function.name)
            path = self._function_path(function.name)
            path.parent.mkdir(exist_ok=True)
            replace(path, to_json(0, function).encode())
            self._functions = self._read_functions()

    def remove_function(self, name: str) -> None:
        """Remove a function.

        Raises:
            UnknownName: there is none of that name.
            NameInUse: views or insert queries call it.
        """
        with self._changing():
            if name not in self._functions:
                raise UnknownName.among("function", name, self._functions)
            self._check_uncalled(name)
            self._function_path(name).unlink()
            sync_folder(self._lake.catalog)
            del self._functions[name]

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with locked(self._lake.catalog):
            self.reload()
            yield

    def _check_uncalled(self, function: str) -> None:
        callers = self.callers(function)
        if callers:
            names = ", ".join(repr(caller) for caller in callers)
            raise NameInUse(f"the function {function} is called by {names}", hint="drop what calls it first")

    def _read_functions(self) -> dict[str, Function]:
        found = {}
        for path in sorted(self._lake.catalog.glob("functions/*.json")):
            _, function = from_json(path.read_text(encoding="utf-8"), where=str(path))
            assert isinstance(function, Function)
            found[function.name] = function
        return found

    def _function_path(self, name: str) -> Path:
        return self._lake.catalog / "functions" / f"{safe_name(name)}.json"

    def _path(self, name: str) -> Path:
        return self._lake.catalog / f"{safe_name(name)}.json"

    def _write(self, entry: _Entry) -> None:
        replace(self._path(entry.definition.name), to_json(entry.sequence, entry.definition).encode())
        self._entries[entry.definition.name] = entry
