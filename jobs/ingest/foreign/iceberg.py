"""An Iceberg table as a source reads it, by PyIceberg: the snapshots of its main branch, and the files of each.

    version = sequence number of a snapshot     one that no snapshot of the branch has changes nothing
    append               the rows of the added files come
    overwrite, delete    the rows that only the removed or only the added files have go and come (copy on write)
    replace              nothing: the rows are the same in other files

Row-level deletes (merge on read) are refused by name: they say what goes by place or by value, beside the files.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.jobs.ingest.foreign.data_files import Node, columns_in, conformed, open_parquet, without_shared
from strandline.jobs.ingest.foreign.table import Changes, mark_of, rows_from
from strandline.jobs.ingest.formats.coerce import Misfit
from strandline.jobs.model.errors import (
    ForeignChanged,
    ForeignMissing,
    ForeignSchemaChanged,
    ForeignUnsupported,
    ForeignVersionGone,
    SourceUnavailable,
)
from strandline.state_store.errors import SettingsError, StrandlineError
from strandline.state_store.storage import lake_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.jobs.ingest.foreign.table import Kind
    from strandline.state_store.storage import StorageOptions

_HINT_FILE: Final = "version-hint.text"
_NAMED: Final = re.compile(r"[^./\\:]+(\.[^./\\:]+){2,}")
_KEPT: Final = 64
_AGAIN: Final = "DROP the source with its views and CREATE it again, to begin with the table as it is now"
_REWRITE: Final = (
    "let its writer copy on write (write.delete.mode, write.update.mode, write.merge.mode = 'copy-on-write'); "
    "after rewrite_data_files with delete-file-threshold = 1 DROP the source and CREATE it again"
)
_ROW_LEVEL: Final = "has row-level deletes, which are not read here"


def is_named(location: str) -> bool:
    """True for `catalog.namespace.table`, as PyIceberg's configuration knows the catalog; else it is a folder."""
    return _NAMED.fullmatch(location) is not None


def open_iceberg(location: str, options: StorageOptions) -> IcebergTable:
    """The table of a catalog or in a folder; nothing is read yet. Raises ForeignUnsupported: PyIceberg is not there."""
    try:
        import pyiceberg.table  # noqa: F401
    except ImportError as error:
        raise ForeignUnsupported(
            f"to read the Iceberg table '{location}' PyIceberg is needed, and is not installed",
            hint="pip install 'strandline[iceberg]'",
        ) from error
    return IcebergTable(location, options)


class IcebergTable:
    """The versions of an Iceberg table. See `foreign.table`."""

    kind: Kind = "iceberg"

    def __init__(self, location: str, options: StorageOptions) -> None:
        self._location = location
        self._options = options
        self._table: Any = None
        self._read_from = ""
        self._history: dict[int, Any] = {}
        self._cut = False  # the oldest snapshots of the branch were expired
        self._files: OrderedDict[tuple[int, bool], tuple[list[Any], list[Any]]] = OrderedDict()

    def head(self) -> int:
        """The sequence number of the newest snapshot of the main branch; 0 while there is none.

        Raises:
            ForeignChanged: the table was rolled back, and nothing was written since.
        """
        self._refresh()
        return max(self._history, default=0)

    def settled(self) -> int:
        """The newest version: a snapshot is never another one."""
        return self.head()

    def identity(self) -> str:
        return str(self._metadata.table_uuid)

    def had_identity(self, identity: str) -> bool:
        return identity == self.identity()

    @property
    def columns(self) -> tuple[Node, ...]:
        """The columns that the table has now."""
        return columns_in(_arrow_schema(self._metadata.schema()))

    def mark(self, version: int) -> int | None:
        found = self._known.get(version)
        return None if found is None else mark_of(str(found.snapshot_id).encode())

    def known_columns(self) -> frozenset[str]:
        return frozenset(each.name for each in self.columns)

    def lost_columns(self, version: int) -> frozenset[str]:
        """By the numbers of fields, in every schema that the table had since the version before."""
        earlier = [number for number in self._known if number < version]
        if version not in self._known or not earlier:
            return frozenset()
        schemas = self._metadata.schemas
        places = {each.schema_id: place for place, each in enumerate(schemas)}
        first, last = (places.get(self._known[number].schema_id) for number in (max(earlier), version))
        if first is None or last is None or first >= last:  # a slow writer's snapshot has a schema from before
            return frozenset()
        lost: set[str] = set()
        had: dict[str, int] = {}
        for schema in schemas[first : last + 1]:
            now = {name: schema.find_field(name).field_id for name in schema.column_names}
            lost |= {name.partition(".")[0].lower() for name, number in had.items() if now.get(name) != number}
            had |= now
        return frozenset(lost)

    def about(self, version: int) -> str:
        found = self._known.get(version)
        return f"'{self._location}', snapshot {found.snapshot_id}" if found else f"'{self._location}', {version}"

    def time_of(self, version: int) -> int:
        found = self._known.get(version)
        return int(found.timestamp_ms) if found is not None else 0

    def is_whole(self, version: int) -> bool:
        """True if it is a snapshot of the branch: what was read is looked up in its history later."""
        return version in self._known

    def check_after(self, version: int) -> None:
        """Raise ForeignChanged if the branch has left a version that was read: its rows would stay here."""
        known = self._known
        if version == 0 or version in known or (self._cut and version < min(known)):
            return
        raise ForeignChanged(
            f"the main branch of '{self._location}' has no snapshot with the sequence number {version} any more, which "
            "was taken in: the table was rolled back",
            hint=_AGAIN,
        )

    def start_of(self, snapshot: int | None) -> tuple[int, int]:
        """(version, snapshot id) that a source begins with: of a snapshot of the branch, or the newest one.

        Raises:
            ForeignVersionGone: the branch has no such snapshot.
        """
        self._refresh()
        if not snapshot:
            newest = self._history.get(max(self._history, default=0))
            return (0, 0) if newest is None else (int(newest.sequence_number or 0), int(newest.snapshot_id))
        found = next((number for number, each in self._history.items() if each.snapshot_id == snapshot), None)
        if found is None:
            raise ForeignVersionGone(
                f"the main branch of '{self._location}' has no snapshot {snapshot}",
                hint=f"it has {', '.join(str(each.snapshot_id) for each in self._history.values()) or 'none'}",
            )
        return found, snapshot

    def rows(self, version: int, first: int) -> Iterator[pa.Table]:
        """The rows of a snapshot, in the order of its files' paths."""
        added, _ = self._files_of(version, snapshot=True)
        yield from rows_from(
            first, added, lambda file: int(file.record_count), lambda file: self._rows_in(file, version)
        )

    def changes(self, version: int) -> Iterator[Changes]:
        added, removed = self._files_of(version, snapshot=False)
        if not removed:
            for file in added:
                yield from (Changes(rows) for rows in self._rows_in(file, version))
            return
        empty = _empty(self._nodes_at(version))
        sides = [
            pa.concat_tables([empty, *(r for file in side for r in self._rows_in(file, version))])
            for side in (removed, added)
        ]
        gone, came = without_shared(sides[0], sides[1])
        if gone.num_rows:
            yield Changes(gone, gone=True)
        if came.num_rows:
            yield Changes(came)

    def count(self, version: int, *, snapshot: bool) -> int:
        added, removed = self._files_of(version, snapshot=snapshot)
        return sum(int(each.record_count) for each in (*added, *removed))

    def size(self, version: int, *, snapshot: bool) -> int:
        added, removed = self._files_of(version, snapshot=snapshot)
        return sum(int(each.file_size_in_bytes) for each in (*added, *removed))

    def check_files(self, version: int, *, snapshot: bool) -> None:
        added, removed = self._files_of(version, snapshot=snapshot)
        for file in (*added, *removed):
            with _asked(self._location):
                there = self._table.io.new_input(file.file_path).exists()
            if not there:
                raise self._gone(version, f"its file '{file.file_path}' is gone")

    @property
    def _metadata(self) -> Any:
        if self._table is None:
            self._refresh()
        return self._table.metadata

    @property
    def _known(self) -> dict[int, Any]:
        """{version: snapshot} of the main branch, as of the last look."""
        if self._table is None:
            self._refresh()
        return self._history

    def _refresh(self) -> None:
        """Look for new snapshots."""
        with _asked(self._location):
            if self._table is None or not is_named(self._location):
                self._table = _loaded(self._location, self._options, self._table)
            else:
                self._table.refresh()
        if self._table.metadata_location == self._read_from:
            return
        metadata = self._table.metadata
        if metadata.format_version < 2:
            raise ForeignUnsupported(
                f"'{self._location}' has Iceberg's format version 1, whose snapshots have no sequence numbers",
                hint="ALTER TABLE … SET TBLPROPERTIES ('format-version' = '2')",
            )
        from pyiceberg.table.snapshots import ancestors_of

        history = {
            int(each.sequence_number or 0): each
            for each in reversed([*ancestors_of(metadata.current_snapshot(), metadata)])
        }
        newest = max(history, default=0)
        left = [each for entry in metadata.snapshot_log if (each := metadata.snapshot_by_id(entry.snapshot_id))]
        if any((each.sequence_number or 0) > newest for each in left):
            raise ForeignChanged(
                f"'{self._location}' was rolled back to the snapshot {metadata.current_snapshot_id}", hint=_AGAIN
            )
        with _asked(self._location):
            self._cut = bool(history) and self._follows(history[min(history)])
        self._history, self._read_from = history, self._table.metadata_location

    def _follows(self, snapshot: Any) -> bool:
        """True if a snapshot whose parent is not there had one: it was expired. Some writers forget its name then, but
        not the files that were there before."""
        if snapshot.parent_snapshot_id is not None:
            return True
        return any(
            each.added_snapshot_id != snapshot.snapshot_id or each.existing_files_count or each.deleted_files_count
            for each in snapshot.manifests(self._table.io)
        )

    def _files_of(self, version: int, *, snapshot: bool) -> tuple[list[Any], list[Any]]:
        """The data files that a version adds and those that it removes; of a snapshot all that it has.

        Raises:
            ForeignVersionGone: the snapshot was expired.
            ForeignUnsupported: it has row-level deletes.
        """
        known = self._known
        if version not in known and version > max(known, default=0):
            self._refresh()
            known = self._history
        if (version, snapshot) in self._files:
            return self._files[version, snapshot]
        found = known.get(version)
        if found is None:
            if version and (snapshot or (self._cut and version < min(known))):
                raise self._gone(version, "it was expired")
            return [], []
        with _asked(self._location):
            files = self._all_of(found) if snapshot else self._changed_by(found)
        self._files[version, snapshot] = files
        while len(self._files) > _KEPT:
            self._files.popitem(last=False)
        return files

    def _all_of(self, snapshot: Any) -> tuple[list[Any], list[Any]]:
        entries = self._entries(snapshot.manifests(self._table.io), snapshot)
        return sorted((each.data_file for each in entries if not _is_deleted(each)), key=_path), []

    def _changed_by(self, snapshot: Any) -> tuple[list[Any], list[Any]]:
        operation = snapshot.summary.operation.value if snapshot.summary is not None else "overwrite"
        if operation == "replace":
            return [], []
        manifests = [
            each for each in snapshot.manifests(self._table.io) if each.added_snapshot_id == snapshot.snapshot_id
        ]
        ours = [each for each in self._entries(manifests, snapshot) if each.snapshot_id == snapshot.snapshot_id]
        added = sorted((each.data_file for each in ours if _is_added(each)), key=_path)
        return added, sorted((each.data_file for each in ours if _is_deleted(each)), key=_path)

    def _entries(self, manifests: Iterable[Any], snapshot: Any) -> Iterator[Any]:
        """The data files that manifests name, each with what became of it. Raises ForeignUnsupported."""
        from pyiceberg.manifest import ManifestContent

        for manifest in manifests:
            entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=False)
            if manifest.content == ManifestContent.DELETES and any(not _is_deleted(each) for each in entries):
                raise ForeignUnsupported(
                    f"snapshot {snapshot.snapshot_id} of '{self._location}' {_ROW_LEVEL}", hint=_REWRITE
                )
            if manifest.content == ManifestContent.DATA:
                yield from entries

    def _nodes_at(self, version: int) -> list[Node]:
        return [each for each in columns_in(_arrow_schema(self._schema_at(version))) if each.type is not None]

    def _schema_at(self, version: int) -> Any:
        snapshot, metadata = self._known[version], self._metadata
        found = next((each for each in metadata.schemas if each.schema_id == snapshot.schema_id), None)
        return found or metadata.schema()

    def _rows_in(self, file: Any, version: int) -> Iterator[pa.Table]:
        """The rows of a data file, in the columns that the table had at that version and the language has types for."""
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan
        from pyiceberg.table import FileScanTask

        nodes = self._nodes_at(version)
        schema = self._schema_at(version).select(*(each.physical for each in nodes))
        scan = ArrowScan(self._metadata, self._table.io, schema, AlwaysTrue())
        place = 0
        try:
            with _asked(self._location):
                old = self._times_of_twelve_bytes(file, schema, version)
                for batch in scan.to_record_batches([FileScanTask(file)]):
                    columns = {each: batch.column(each) for each in batch.schema.names}
                    for name, times in old.items():
                        part = times.slice(place, batch.num_rows)
                        columns[name] = part.combine_chunks().cast(columns[name].type)
                    place += batch.num_rows
                    yield pa.table({each.name: conformed(columns[each.physical], each) for each in nodes})
        except FileNotFoundError as error:
            raise self._gone(version, f"its file '{file.file_path}' is gone") from error
        except Misfit as error:
            raise ForeignSchemaChanged(f"{self.about(version)}, file '{file.file_path}': {error}") from error

    def _times_of_twelve_bytes(self, file: Any, schema: Any, version: int) -> dict[str, pa.ChunkedArray]:
        """{column: its times} of those that a data file has in twelve bytes (INT96), as files that were imported do.

        PyIceberg reads them in nanoseconds of 64 bits, which end in 2262: a year 9999 would be another one.

        Raises:
            ForeignUnsupported: a column has such times within it.
        """
        from pyiceberg.manifest import FileFormat

        if file.file_format != FileFormat.PARQUET or not any(
            "timestamp" in str(each.field_type) for each in schema.fields
        ):
            return {}
        with self._table.io.new_input(str(file.file_path)).open() as opened, open_parquet(opened) as content:
            stored = [content.schema.column(place) for place in range(len(content.schema))]
            wanted: dict[str, Any] = {}
            for field in content.schema_arrow:
                found = self._field_of(field, schema)
                if found is not None and any(
                    each.physical_type == "INT96" and each.path.split(".")[0] == field.name for each in stored
                ):
                    wanted[field.name] = found
            for name, found in wanted.items():
                if not found.field_type.is_primitive:
                    raise ForeignUnsupported(
                        f"{self.about(version)}, file '{file.file_path}': column '{name}' has times of twelve bytes "
                        "(INT96) within it",
                        hint="rewrite its files: CALL system.rewrite_data_files, in Spark",
                    )
            read = content.read(list(wanted)) if wanted else None
        return {found.name: read[name] for name, found in wanted.items()} if read is not None else {}

    def _field_of(self, stored: pa.Field, schema: Any) -> Any:
        """The column of the table that a column of a file is, by its number or the table's mapping of names."""
        number = (stored.metadata or {}).get(b"PARQUET:field_id")
        if number is None:
            mapping = self._metadata.name_mapping()
            known = (each for each in (mapping.root if mapping is not None else ()) if stored.name in each.names)
            number = next((each.field_id for each in known), None)
        return None if number is None else next((each for each in schema.fields if each.field_id == int(number)), None)

    def _gone(self, version: int, why: str) -> ForeignVersionGone:
        return ForeignVersionGone(
            f"the snapshot with sequence number {version} of '{self._location}' was removed before it was read: {why}",
            hint=f"keep snapshots longer than your longest outage; {_AGAIN}",
        )


@contextmanager
def _asked(location: str) -> Iterator[None]:
    """What PyIceberg and its catalogs raise, as errors of sources; that a file is not there stays what it is."""
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    try:
        yield
    except (StrandlineError, FileNotFoundError, Misfit):
        raise
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise _missing(location, "the catalog has no such table") from error
    except (OSError, pa.ArrowException) as error:
        raise SourceUnavailable(
            f"'{location}' cannot be read: {error}", hint="is its catalog or storage up?"
        ) from error
    except NotImplementedError as error:
        raise ForeignUnsupported(f"'{location}' cannot be read: {error}") from error
    except Exception as error:
        # Of catalogs: each kind of them has a library, and errors, of its own.
        what = f"'{location}' cannot be read: {type(error).__name__}: {error}"
        raise SourceUnavailable(what, hint="is its catalog up, and its configuration right?") from error


def _loaded(location: str, options: StorageOptions, before: Any) -> Any:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.table import StaticTable

    if is_named(location):
        catalog, _, name = location.partition(".")
        try:
            return load_catalog(catalog).load_table(name)
        except (ValueError, KeyError) as error:
            raise _missing(location, str(error)) from error
    newest = _newest_metadata(location, options)
    if before is not None and before.metadata_location == newest:
        return before
    return StaticTable.from_metadata(newest, _properties(options))


def _missing(location: str, why: str) -> ForeignMissing:
    return ForeignMissing(
        f"there is no Iceberg table '{location}': {why}",
        hint="name it as catalog.namespace.table, with the catalog in PyIceberg's configuration "
        "(PYICEBERG_CATALOG__<NAME>__URI, …); or the folder of a table without a catalog",
    )


def _newest_metadata(location: str, options: StorageOptions) -> str:
    """The newest metadata file of a table without a catalog: `v<n>.metadata.json`, where only one writer gets a name.

    Tables of a catalog have files of other names, and only the catalog knows which of them counts.
    """
    try:
        folder = lake_path(location, options) / "metadata"
    except SettingsError as error:
        raise _missing(location, error.message) from error
    try:
        number = int((folder / _HINT_FILE).read_bytes())
    except (FileNotFoundError, ValueError) as error:
        raise _missing(location, f"its folder has no metadata/{_HINT_FILE}") from error
    # The hint is written after the file that it names, or not at all.
    while (folder / f"v{number + 1}.metadata.json").exists():
        number += 1
    if not (folder / f"v{number}.metadata.json").exists():
        raise _missing(location, f"its folder has no metadata/v{number}.metadata.json")
    return f"{location.rstrip('/')}/metadata/v{number}.metadata.json"


def _properties(options: StorageOptions) -> dict[str, str]:
    """The way to an object store in PyIceberg's words."""
    told = options.with_environment()
    found = {
        "s3.endpoint": told.endpoint,
        "s3.region": told.region,
        "s3.access-key-id": told.access_key_id,
        "s3.secret-access-key": told.secret_access_key,
        "s3.session-token": told.session_token,
    }
    return {name: value for name, value in found.items() if value is not None}


def _arrow_schema(schema: Any) -> pa.Schema:
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    return schema_to_pyarrow(schema, include_field_ids=False)


def _empty(nodes: list[Node]) -> pa.Table:
    return pa.schema([(each.name, each.type.arrow()) for each in nodes if each.type is not None]).empty_table()


def _path(file: Any) -> str:
    return str(file.file_path)


def _is_added(entry: Any) -> bool:
    return int(entry.status) == _ADDED


def _is_deleted(entry: Any) -> bool:
    return int(entry.status) == _DELETED


_ADDED: Final = 1
_DELETED: Final = 2
"""The status of an entry of a manifest, by the specification."""
