"""A foreign Delta table: its versions, what each commit says, its schema and its live files. Only read.

    _delta_log/<version>.json                                   a commit
    _delta_log/<version>.checkpoint[.<part>.<parts>].parquet    everything up to a version, whole or in parts
    _delta_log/<version>.checkpoint.<uuid>.{json,parquet}       the same (v2), which names its `_sidecars/`

Our own tables are read by `state_store.delta`, which proves every commit by its record. A foreign commit has none: what
it says is taken as it stands, whichever writer made it, and what is not known is refused by name (`_check_protocol`).

The columns of a foreign Delta table in the types of the language, and where they lie in its data files.

| Delta | here |
| --- | --- |
| byte, short, integer | INT |
| float, double | DOUBLE |
| timestamp, timestamp_ntz | TIMESTAMP: a time without zone is taken as UTC |
| variant, interval, geometry, geography, void | none: a source that declares such a column is refused |

Names are in lower case, as unquoted names are everywhere in the language; Delta has no two that differ only in case.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.ingest.foreign.data_files import Node
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import DeltaMissing, DeltaUnsupported, DeltaVersionGone
from strandline.jobs.model.types import SqlType
from strandline.state_store.delta.log import LOG, commit_file, last_commit_from, listed_commits
from strandline.state_store.files import place_of
from strandline.state_store.paths import file_names, open_file, side_by_side

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.state_store.files import Place
    from strandline.state_store.paths import LakePath


Action = dict[str, Any]

_READ: Final = frozenset(
    {
        *("appendOnly", "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"),
        *("typeWidening", "typeWidening-preview"),
        # Columns of these types are refused where a source declares them; others of the table can be read.
        *("variantType", "variantType-preview", "variantShredding", "variantShredding-preview"),
        *("geospatial", "geospatial-preview"),
    }
)
"""The features of a reader that are known here."""
_HINTS: Final[Mapping[str, str]] = {
    "catalogManaged": "its newest commits are known to its catalog alone; read a copy of the table",
    "catalogOwned-preview": "its newest commits are known to its catalog alone; read a copy of the table",
}
_COORDINATED: Final = ("delta.coordinatedCommits.commitCoordinator", "delta.managedCommits.commitOwner")
"""Properties of a table whose commits are not all in its log, though only writers are told so by a feature."""
_NEWEST_PROTOCOL: Final = 3
_CHECKPOINT: Final = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)")
_KEPT: Final = 64
"""Commits that are kept as they were read: a micro-batch is planned, cut and read from the same ones."""
_AGAIN: Final = "put its files back; or DROP the source and CREATE it again, to begin with the table as it is now"


@dataclass(frozen=True)
class Schema:
    """What a version says of the table as a whole."""

    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The table's identity."""
        return str(self.metadata["id"])

    @property
    def mapping(self) -> str:
        """How columns are found in data files: `none`, `name` or `id`."""
        return str(self.configuration.get("delta.columnMapping.mode", "none"))

    @property
    def configuration(self) -> Mapping[str, str]:
        """The table's properties."""
        return self.metadata.get("configuration") or {}

    @cached_property
    def columns(self) -> tuple[Node, ...]:
        """All columns, in order."""
        return _columns_of(str(self.metadata["schemaString"]), self.mapping)

    @cached_property
    def partitions(self) -> frozenset[str]:
        """The columns whose values are in the log, in lower case."""
        return frozenset(str(name).lower() for name in self.metadata.get("partitionColumns") or ())


@dataclass(frozen=True)
class Commit:
    """The actions of one commit.

    Attributes:
        adds, removes: of files whose rows come or go; not those of compaction, which changes no row.
        changes: files that list the changes, if the commit has any: then nothing else says them.
        size: bytes of the files to be read.
    """

    version: int
    adds: tuple[Action, ...]
    removes: tuple[Action, ...]
    changes: tuple[Action, ...]
    metadata: Mapping[str, Any] | None
    protocol: Mapping[str, Any] | None
    info: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Bytes of the files that hold its changes."""
        return sum(int(each.get("size") or 0) for each in (self.changes or (*self.adds, *self.removes)))

    @property
    def rows(self) -> int:
        """About how many rows come and go: fewer come of it where a file was rewritten."""
        if self.changes:
            return max(self.size // _BYTES_A_ROW, 1)
        return sum(live_rows(each) or 0 for each in (*self.adds, *self.removes))


_BYTES_A_ROW: Final = 64
"""Where a file does not say how many rows it has: only for shares and bounds, never for what is read."""


def live_rows(body: Action) -> int | None:
    """The rows of a file that its deletion vector leaves, by its statistics; None where it has none."""
    stats = json.loads(body.get("stats") or "{}")
    if "numRecords" not in stats:
        return None
    gone = (body.get("deletionVector") or {}).get("cardinality", 0)
    return int(stats["numRecords"]) - int(gone)


class ForeignDelta:
    """A table at a path. Not safe for two threads.

    Raises (all methods):
        DeltaMissing: there is no table.
        DeltaVersionGone: the log does not reach back that far any more.
        DeltaUnsupported: a version has a feature that is not read.
        StorageUnavailable, StorageDenied: of an object store.
    """

    def __init__(self, path: LakePath) -> None:
        self.path = path
        self._head: int | None = None
        self._mark: Place | None = None
        self._commits: OrderedDict[int, Commit] = OrderedDict()
        self._schemas: dict[int, Schema] = {}
        self._files: tuple[int, list[Action]] | None = None
        self._ids: tuple[set[str], int] = set(), -1

    def head(self) -> int:
        """The newest version."""
        if self._head is not None and self._mark != self._place(self._head):
            self._forget()  # the commit that stood there is another one: the table was made anew, or went back
        found = self._newest() if self._head is None else last_commit_from(self.path, self._head)
        if found is None:
            found = self._newest()
        if found is None:
            raise DeltaMissing(
                f"there is no Delta table at '{self.path}'",
                hint="name the folder that holds _delta_log: a path, s3://, gs:// or az://",
            )
        if found != self._head:
            self._head, self._mark = found, self._place(found)
        return found

    def commit(self, version: int) -> Commit:
        """What a commit says."""
        if version not in self._commits:
            self._commits[version] = _commit(version, self._actions(version))
            while len(self._commits) > _KEPT:
                self._commits.popitem(last=False)
        return self._commits[version]

    def content(self, version: int) -> bytes | None:
        """The bytes of a commit; None where it is not in the log any more."""
        try:
            return commit_file(self.path, version).read_bytes()
        except FileNotFoundError:
            return None

    def timestamp(self, version: int) -> int:
        """When a version was committed, in milliseconds since the epoch, as the commit itself says."""
        commit = self.commit(version)
        exact = self.schema(version).configuration.get("delta.enableInCommitTimestamps", "false").lower() == "true"
        if exact and "inCommitTimestamp" in commit.info:
            return int(commit.info["inCommitTimestamp"])
        if "timestamp" in commit.info:
            return int(commit.info["timestamp"])
        return max((int(each.get("modificationTime") or 0) for each in commit.adds), default=0)

    def schema(self, version: int) -> Schema:
        """Schema, properties and protocol at a version, which are known here."""
        if version not in self._schemas:
            before = max((each for each in self._schemas if each < version), default=None)
            if before is None:
                metadata, protocol, after = self._first_schema(version)
            else:
                known = self._schemas[before]
                metadata, protocol, after = known.metadata, known.protocol, before
            for commit in side_by_side(self.commit, range(after + 1, version + 1), self.path):
                metadata = commit.metadata or metadata
                protocol = commit.protocol or protocol
            if not metadata or not protocol:
                raise self.gone(version, "the log does not say what its columns are")
            found = Schema(metadata, protocol)
            newest = self._schemas.get(max(self._schemas, default=-1))
            # Most versions say nothing new: they share one, and its columns.
            self._schemas[version] = newest if newest is not None and newest == found else found
            _check_protocol(self.path, version, found)
            if len(self._schemas) > _KEPT:
                del self._schemas[min(self._schemas)]
        return self._schemas[version]

    def ids(self) -> frozenset[str]:
        """The ids that the table had at the versions which its log still has, its present one among them."""
        head = self.head()
        known, after = self._ids
        if after < 0:
            after = min(listed_commits(self.path), default=head) - 1
            metadata, _, _ = self._first_schema(after + 1)
            known = {str(metadata["id"])} if metadata else set()
        commits = side_by_side(self.commit, range(after + 1, head + 1), self.path)
        known = known | {str(each.metadata["id"]) for each in commits if each.metadata is not None}
        self._ids = known, head
        return frozenset(known)

    def files(self, version: int) -> list[Action]:
        """The `add` actions of a version, in the order of their paths."""
        if self._files is not None and self._files[0] == version:
            return self._files[1]
        self.schema(version)
        checkpoint = self._checkpoint(version)
        after = -1 if checkpoint is None else checkpoint.version
        bodies = checkpoint.bodies(self.path, "add") if checkpoint is not None else []
        live: dict[str, Action] = {str(body["path"]): body for body in bodies}
        for actions in side_by_side(self._actions, range(after + 1, version + 1), self.path):
            # A file whose deletion vector changes is removed and added by one commit, in whatever order.
            for body in (each["remove"] for each in actions if "remove" in each):
                live.pop(str(body["path"]), None)
            live |= {str(each["add"]["path"]): each["add"] for each in actions if "add" in each}
        self._files = version, [live[name] for name in sorted(live)]
        return self._files[1]

    def gone(self, version: int, why: str) -> DeltaVersionGone:
        """The error for a version that cannot be read any more."""
        return DeltaVersionGone(
            f"version {version} of '{self.path}' was removed before it was read: {why}", hint=_AGAIN
        )

    def _actions(self, version: int) -> list[Action]:
        try:
            data = commit_file(self.path, version).read_bytes()
        except FileNotFoundError as error:
            raise self.gone(version, "its commit is not in the log") from error
        return [json.loads(line) for line in data.splitlines() if line.strip()]

    def _first_schema(self, version: int) -> tuple[Mapping[str, Any], Mapping[str, Any], int]:
        checkpoint = self._checkpoint(version)
        if checkpoint is None:
            return {}, {}, -1
        (metadata,) = checkpoint.bodies(self.path, "metaData") or [{}]
        (protocol,) = checkpoint.bodies(self.path, "protocol") or [{}]
        return metadata, protocol, checkpoint.version

    def _checkpoint(self, version: int) -> _Checkpoint | None:
        """The newest whole checkpoint at or before a version."""
        found: dict[tuple[int, str], list[str]] = {}
        try:
            names = file_names(self.path / LOG)
        except FileNotFoundError:
            return None
        for name in names:
            match = _CHECKPOINT.fullmatch(name)
            if match is not None and int(match[1]) <= version:
                # The parts of one are of one number; any other file is a checkpoint by itself.
                found.setdefault((int(match[1]), match[3] or name), []).append(name)
        whole = [
            _Checkpoint(number, sorted(files))
            for (number, parts), files in found.items()
            if not parts.isdigit() or len(files) == int(parts)
        ]
        return max(whole, key=lambda each: each.version, default=None)

    def _newest(self) -> int | None:
        try:
            hint = json.loads((self.path / LOG / "_last_checkpoint").read_bytes())
            found = last_commit_from(self.path, int(hint["version"]))
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            found = None
        return max(listed_commits(self.path), default=None) if found is None else found

    def _place(self, version: int) -> Place | None:
        """What tells a commit's file from another one under its name; None on an object store."""
        file = commit_file(self.path, version)
        try:
            return place_of(file.stat()) if isinstance(file, Path) else None
        except FileNotFoundError:
            return None

    def _forget(self) -> None:
        self._head = self._mark = self._files = None
        self._ids = set(), -1
        self._commits.clear()
        self._schemas.clear()


@dataclass(frozen=True)
class _Checkpoint:
    version: int
    files: Sequence[str] = field(default_factory=tuple)

    def bodies(self, path: LakePath, name: str) -> list[Action]:
        """The actions of one name, from all parts and sidecars."""
        found: list[Action] = []
        sidecars: list[str] = []
        for file in self.files:
            place = path / LOG / file
            if file.endswith(".json"):
                actions = [json.loads(line) for line in place.read_bytes().splitlines() if line.strip()]
                found += [each[name] for each in actions if name in each]
                sidecars += [each["sidecar"]["path"] for each in actions if "sidecar" in each]
            else:
                found += _bodies(place, name)
                sidecars += [each["path"] for each in _bodies(place, "sidecar")] if name == "add" else []
        for sidecar in sidecars if name == "add" else ():
            found += _bodies(path / LOG / "_sidecars" / sidecar, name)
        return found


def _bodies(file: LakePath, name: str) -> list[Action]:
    """The actions of one name in a checkpoint's Parquet file, of which only their column is read."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    with open_file(file) as opened:
        content = pq.ParquetFile(opened)
        if name not in content.schema_arrow.names:
            return []
        column = content.read([name], use_threads=False)[name]
    return [_plain(each) for each in column.filter(pc.is_valid(column)).to_pylist(maps_as_pydicts="lossy")]


def _plain(value: Any) -> Any:
    """The members of an action without those that are absent; a partition value that is absent is NULL."""
    if isinstance(value, dict):
        return {
            name: inner if name == "partitionValues" else _plain(inner)
            for name, inner in value.items()
            if inner is not None
        }
    return value


def _path(body: Action) -> str:
    return str(body["path"])


def _commit(version: int, actions: Iterable[Action]) -> Commit:
    bodies: dict[str, list[Action]] = {}
    for action in actions:
        for name, body in action.items():
            bodies.setdefault(name, []).append(body)

    def data(name: str) -> Iterator[Action]:
        return (each for each in bodies.get(name, ()) if each.get("dataChange", True))

    return Commit(
        version,
        tuple(sorted(data("add"), key=_path)),
        tuple(sorted(data("remove"), key=_path)),
        tuple(sorted(bodies.get("cdc", ()), key=_path)),
        next(iter(bodies.get("metaData", ())), None),
        next(iter(bodies.get("protocol", ())), None),
        next(iter(bodies.get("commitInfo", ())), {}),
    )


def _check_protocol(path: LakePath, version: int, schema: Schema) -> None:
    """Raise DeltaUnsupported if a version needs a reader that knows more."""
    reader = int(schema.protocol.get("minReaderVersion", 1))
    if reader > _NEWEST_PROTOCOL:
        raise DeltaUnsupported(
            f"version {version} of '{path}' has reader version {reader}, {_NEWEST_PROTOCOL} is known"
        )
    features = schema.protocol.get("readerFeatures") or () if reader == _NEWEST_PROTOCOL else ()
    unknown = sorted(set(features) - _READ)
    if unknown:
        raise DeltaUnsupported(
            f"version {version} of '{path}' has the feature '{unknown[0]}', which is not read here",
            hint=_HINTS.get(unknown[0], f"ALTER TABLE … DROP FEATURE {unknown[0]}, or read a copy of the table"),
        )
    coordinator = next((name for name in schema.configuration if name.startswith(_COORDINATED)), None)
    if coordinator is not None:
        raise DeltaUnsupported(
            f"version {version} of '{path}' has the property '{coordinator}': another service coordinates its commits, "
            "which is not asked here",
            hint=_HINTS["catalogManaged"],
        )
    if str(schema.metadata.get("format", {}).get("provider", "parquet")) != "parquet":
        raise DeltaUnsupported(f"version {version} of '{path}' has data files that are not Parquet")


_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_PLAIN: Final[Mapping[str, SqlType]] = {
    "boolean": t.BOOLEAN,
    "byte": t.INT,
    "short": t.INT,
    "integer": t.INT,
    "long": t.BIGINT,
    "float": t.DOUBLE,
    "double": t.DOUBLE,
    "string": t.VARCHAR,
    "binary": t.BYTES,
    "date": t.DATE,
    "timestamp": t.TIMESTAMP,
    "timestamp_ntz": t.TIMESTAMP,
}
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_ID: Final = "delta.columnMapping.id"


def _columns_of(schema: str, mode: str) -> tuple[Node, ...]:
    """The columns of a `schemaString`.

    Args:
        mode: of column mapping: `none`, `name` or `id`.
    """
    return _fields(json.loads(schema)["fields"], mode)


def _fields(fields: Iterable[Mapping[str, Any]], mode: str) -> tuple[Node, ...]:
    return tuple(_field(each, mode) for each in fields)


def _field(found: Mapping[str, Any], mode: str) -> Node:
    about = found.get("metadata") or {}
    name = str(found["name"])
    physical = str(about.get(_PHYSICAL, name)) if mode != "none" else name
    number = int(about[_ID]) if mode == "id" and _ID in about else None
    return _node(name.lower(), found["type"], physical, number, mode)


def _node(name: str, found: Any, physical: str, number: int | None, mode: str) -> Node:
    if isinstance(found, str):
        decimal = _DECIMAL.fullmatch(found)
        known = t.decimal(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN.get(found)
        return Node(name, known, found, physical, number)
    match found.get("type"):
        case "struct":
            inner = _fields(found["fields"], mode)
            types = [(each.name, each.type) for each in inner if each.type is not None]
            made = t.struct(*types) if types and len(types) == len(inner) else None
            return Node(name, made, "struct", physical, number, inner)
        case "array":
            element = _node("element", found["elementType"], "element", None, mode)
            made = t.array(element.type) if element.type is not None else None
            return Node(name, made, "array", physical, number, (element,))
        case "map":
            key = _node("key", found["keyType"], "key", None, mode)
            value = _node("value", found["valueType"], "value", None, mode)
            plain = key.type is not None and not key.type.is_nested
            made = t.map_of(key.type, value.type) if plain and key.type and value.type else None
            return Node(name, made, "map", physical, number, (key, value))
        case other:
            return Node(name, None, str(other), physical, number)
