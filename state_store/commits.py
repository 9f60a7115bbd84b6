"""The record that every commit carries in Delta's `userMetadata`, and what its entry states beside it.

The last commit alone says which versions of its inputs (`vector`) and which records of its topics (`offsets`) a table
reflects. Nothing else is needed to resume, so nothing else is trusted.

Beside the record an entry states its own version, and marks of the table after it.

    {"commitInfo": {…, "strandline": {"version": 61, "files": "5f…", "said": "0c…", "table": "9a6b3c1d"}}}

    version   an entry under the name of another version is a copy
    files     sum over the live files: which they are, and the deletion vector of each
    said      sum over the live files: their statistics and tags, by which readers leave files out
    table     its identity, columns and properties

A record's count and digest tell that rows are missing, by what the log says of each file. They do not tell that a
checkpoint has the vector of another file, another's columns, or bounds that leave a file out. The statement does. It
stands outside of the record, where versions of Strandline that do not know it pass over it. After a commit of another
tool nobody knows it until our next one.

What tables reflect beyond the vectors of their last commits, as their pipeline noted it.

    orders@1   orders@2   orders@3   orders@4
    large@7 ── vector: orders@1 ───────────┐
    <lake>/reached/<pipeline>.json:  large@7 reflects orders@4

A change that leaves a table as it is makes no commit of it, so its vector stays behind. The pipeline that found that
out writes it down here, once for all of its tables: a query that joins `large` with `orders` need not go back to
`orders@1`, and a reader who waits for the record behind `orders@4` need not wait for a change of `large`.

It is a note: no row depends on it. One that is lost, or does not read back, leaves the answers as old as the vectors.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
import zlib
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import xxhash

from strandline.state_store import wording
from strandline.state_store.errors import CorruptState, StoreError
from strandline.state_store.files import Unchanged, make_folder
from strandline.state_store.files import replace as replace_file
from strandline.state_store.stored_state import EMPTY, check_format, members_in, sealed_members

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath


MEMBER: Final = "strandline"
"""The member of `commitInfo`; Delta lets writers have their own there."""

_MODULUS: Final = 1 << 64
_VECTOR: Final = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")


@dataclass(frozen=True)
class Marks:
    """Sums over files, in any order, modulo 2^64: of which files they are, and of what the log says of each."""

    files: int = 0
    said: int = 0

    def plus(self, body: Mapping[str, Any], times: int = 1) -> Marks:
        """With one more file, by its `add` action; with `times` −1, without it."""
        return Marks(
            (self.files + times * _file_mark(body)) % _MODULUS, (self.said + times * _said_mark(body)) % _MODULUS
        )


@dataclass(frozen=True)
class Statement:
    """What an entry states of the table after it."""

    version: int
    marks: Marks
    table: str

    def as_json(self) -> dict[str, Any]:
        files, said = f"{self.marks.files:016x}", f"{self.marks.said:016x}"
        return {"version": self.version, "files": files, "said": said, "table": self.table}

    def after(self, actions: Sequence[Mapping[str, Any]]) -> Statement:
        """The statement of the next version, of a commit that only adds files."""
        marks = self.marks
        for action in actions:
            if "add" in action:
                marks = marks.plus(action["add"])
        return Statement(self.version + 1, marks, self.table)


def stated(info: Mapping[str, Any]) -> Statement | None:
    """The statement in a `commitInfo`; None where there is none.

    Raises:
        KeyError, TypeError, ValueError: it does not read back.
    """
    found = info.get(MEMBER)
    if found is None:
        return None
    marks = Marks(int(found["files"], 16), int(found["said"], 16))
    return Statement(int(found["version"]), marks, str(found["table"]))


def table_mark(metadata: Mapping[str, Any]) -> str:
    """The mark of a table by its `metaData` action: identity, columns, properties, however they are written."""
    said = {
        "id": metadata.get("id"),
        "columns": json.loads(metadata.get("schemaString") or "null"),
        "properties": metadata.get("configuration") or {},
        "partitions": metadata.get("partitionColumns") or [],
    }
    return f"{zlib.crc32(json.dumps(said, sort_keys=True).encode()):08x}"


# A table may have ten thousand files, and opening it takes 3 µs of each for these.


def _file_mark(body: Mapping[str, Any]) -> int:
    vector = body.get("deletionVector")
    place = [str(vector.get(name) or 0) for name in _VECTOR] if vector else ()
    return _mark(body["path"], *place)


def _said_mark(body: Mapping[str, Any]) -> int:
    tags = sorted((body.get("tags") or {}).items())
    return _mark(body["path"], body.get("stats") or "", *chain.from_iterable(tags))


def _mark(*parts: str) -> int:
    return xxhash.xxh3_64_intdigest("\0".join(parts).encode())


FORMAT: Final = 2
"""The format that is written and read. Another one is another version's."""

REBUILD: Final = "rebuild"
"""The mode of a commit whose rows were computed anew: whatever was there before, they are right from here on."""

COLUMNS: Final = "columns"
"""The mode of a commit that gives the table further columns: the digests before it are of rows without them."""

TRIM: Final = "trim"
"""The mode of a commit by which retention takes the oldest events out of an event log: no change of any row."""

_MARK: Final = "strandline"
_BEGIN: Final = f'{{"{_MARK}":'

_OPTIONAL: Final = ("late", "leader_epochs", "trimmed", "since", "rekeyed")
"""The fields that the format got later: written only where they say something, so that a reader from before them
still reads every other table."""


@dataclass(frozen=True)
class TableVersion:
    """One commit of one table. A bare version number means another commit after a restore or a lost commit.

    Attributes:
        version: Delta's number of the commit.
        table: the identity that the table was given when it was made.
        nonce: the commit's own mark; empty for one of another tool.
    """

    version: int
    table: str = ""
    nonce: str = ""

    def same(self, other: TableVersion) -> bool:
        """Compare two commits by what both records state; False if they are known to differ."""
        pairs = ((self.table, other.table), (self.nonce, other.nonce))
        return self.version == other.version and all(not a or not b or a == b for a, b in pairs)


@dataclass(frozen=True)
class Trimmed:
    """The events that retention has taken from the beginning of an event log, by all its trims.

    Attributes:
        rows, size: how many, and the bytes of their files.
        begins: {partition: the first offset that may still be there}; events below it are gone.
        until: the largest event time that went, in milliseconds since the epoch.
        digest: of the rows that the last trim took: that of the table before it is this and the one after it.
    """

    rows: int
    size: int
    begins: dict[str, int]
    until: int
    digest: str


@dataclass(frozen=True)
class Rekeyed:
    """The last definition that told the rows of its table apart by another key than the one before it.

    Attributes:
        key: the visible columns that do, in the order of their names; empty where one is hidden.
        epoch: of the commit by which its rows came.
    """

    key: tuple[str, ...]
    epoch: int


@dataclass(frozen=True)
class CommitRecord:
    """One commit of a table.

    Attributes:
        epoch: 0 for the commit that creates the table, then one more for each refresh.
        vector: {input table: its commit} that the rows reflect, after this commit.
        offsets: {topic: {partition: next offset}} the rows reflect, after this commit (event logs only).
        stream_times: {topic: {partition: microseconds}}: the largest event time seen, per partition (event logs only).
        topics: {topic: id of the topic the offsets are of}, where the id is known (event logs only).
        leader_epochs: {topic: {partition: [offset, term]}}: the last record read of each partition, and the term of the
            leader that took it in, where that is known (event logs only).
        fingerprint: hash of the definition that produced the rows.
        writer: the process that wrote it: `pipeline/incarnation`.
        mode: the way it was made: `create`, `ingest`, `delta`, `full`, `advance`, `rebuild`,
            `columns`, `trim`.
        reason: the reason for the mode, in words; a Text where it names tables.
        inserted: rows inserted (a changed row counts here and in `deleted`).
        deleted: rows deleted.
        digest: order-free 128-bit hash of the visible rows after this commit, 32 hex digits, and `:count`.
        late: rows of the inputs, up to `vector`, that came too late for their window and are left out. None: none of
            this table's ever is, or nobody counted them.
        trimmed: what retention has taken from the table so far; None: nothing (event logs only).
        since: {input: the number of its events that were gone when the rows were first computed from it}; an input that
            is not named was whole.
        rekeyed: the definition since which the rows have another key; None: they have the first one's.
        table: the identity of the table, given when it is made.
        nonce: a random mark of this commit alone, given by the store.
    """

    epoch: int
    vector: dict[str, TableVersion] = field(default_factory=dict)
    offsets: dict[str, dict[str, int]] = field(default_factory=dict)
    stream_times: dict[str, dict[str, int]] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    leader_epochs: dict[str, dict[str, list[int]]] = field(default_factory=dict)
    fingerprint: str = ""
    writer: str = ""
    mode: str = "create"
    reason: str = ""
    inserted: int = 0
    deleted: int = 0
    digest: str = ""
    late: int | None = None
    trimmed: Trimmed | None = None
    since: dict[str, int] = field(default_factory=dict)
    rekeyed: Rekeyed | None = None
    table: str = ""
    nonce: str = ""

    @property
    def versions(self) -> dict[str, int]:
        """The vector's version numbers, for people to read."""
        return {name: at.version for name, at in self.vector.items()}

    @property
    def pipeline(self) -> str:
        """The pipeline whose process wrote it; empty where the writer is none of a pipeline."""
        return self.writer.rpartition("/")[0]

    @property
    def rows(self) -> int:
        """The number of visible rows of the table after this commit."""
        return int(self.digest.partition(":")[2] or 0)

    @property
    def gone(self) -> int:
        """The number of events that retention has taken from the table."""
        return self.trimmed.rows if self.trimmed is not None else 0

    def identified(self, table: str) -> CommitRecord:
        """This record for one commit of one table: with that table's identity, and a mark that no other commit has."""
        return replace(self, table=table, nonce=secrets.token_hex(8))

    def to_json(self) -> str:
        """The text for `userMetadata`, with an empty checksum: `delta.entry` fills it in."""
        # `asdict` copies all that is in it, which takes four times as long as to write it.
        body = {name: getattr(self, name) for name in _FIELDS}
        body["vector"] = {name: vars(at) for name, at in self.vector.items()}
        body["reason"] = wording.as_json(self.reason)
        body["trimmed"] = None if self.trimmed is None else vars(self.trimmed)
        body["rekeyed"] = None if self.rekeyed is None else vars(self.rekeyed)
        for name in _OPTIONAL:
            if body[name] in (None, {}):
                del body[name]
        return json.dumps({_MARK: {"crc": EMPTY, "format": FORMAT, **body}}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | None) -> CommitRecord | None:
        """The record in a commit's `userMetadata`; None when the commit is not one of ours.

        Raises:
            FormatNewer: a later version wrote it.
            CorruptState: it is ours, but is broken, or of a format that this version does not read any more.
        """
        if not text:
            return None
        try:
            body: dict[str, Any] = dict(json.loads(text)[_MARK])
        except (ValueError, KeyError, TypeError):
            return None
        check_format("a commit", body.pop("format", None), FORMAT)
        body.pop("crc", None)
        try:
            body["vector"] = {name: TableVersion(**value) for name, value in body["vector"].items()}
            body["reason"] = wording.from_json(body.get("reason", ""))
            body["trimmed"] = Trimmed(**body["trimmed"]) if "trimmed" in body else None
            if "rekeyed" in body:
                body["rekeyed"] = Rekeyed(tuple(body["rekeyed"]["key"]), body["rekeyed"]["epoch"])
            return cls(**body)
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptState("the record of a commit is broken") from error


_FIELDS: Final = tuple(each.name for each in fields(CommitRecord))


def is_record(text: str | None) -> bool:
    """True for a commit's `userMetadata` that is ours; cheaper than to read it."""
    return text is not None and text.startswith(_BEGIN)


@dataclass(frozen=True)
class Head:
    """The head of a table: its newest Delta version, and the newest record at or below it."""

    version: int
    record: CommitRecord
    stated: Statement | None = field(default=None, compare=False, repr=False)
    """What the entry of the version itself states of the table; None: nothing, or nobody has looked."""

    @property
    def at(self) -> TableVersion:
        """This head as a vector names it. The nonce is that of the record: compaction above it changes no rows."""
        return TableVersion(self.version, self.record.table, self.record.nonce)


log = logging.getLogger("strandline")


@dataclass(frozen=True)
class Reached:
    """What the rows of one table reflect.

    Attributes:
        version: of the table, when that was found; merged files make later ones of the same rows.
        table: the identity that the table was given when it was made.
        digest: of its rows.
        fingerprint: of the definition that they are of.
        inputs: {entry of its vector: the version of the input}; entries that are not named are as the vector says.
    """

    version: int
    table: str
    digest: str
    fingerprint: str
    inputs: Mapping[str, TableVersion]

    def of(self, version: int, record: CommitRecord) -> bool:
        """True if it holds of a version of the table with this record, and says more than that."""
        rows = (record.table, record.digest, record.fingerprint)
        same = version >= self.version and rows == (self.table, self.digest, self.fingerprint)
        behind = (record.vector.get(entry) for entry in self.inputs)
        reached = zip(behind, self.inputs.values(), strict=True)
        return same and all(before is not None and before.version <= at.version for before, at in reached)


# Several views mostly stand at the same versions of the same inputs, so what is written names those once:
#
#     {"reached": [{"inputs": {"orders": [4, …]}, "tables": {"large": [7, …], …}}, …]}

_NOTHING: Final[Mapping[str, Reached]] = {}
_KNOWN: Final = Unchanged["Mapping[str, Reached]"](16 << 20)
"""Of a thousand views the note has a tenth of a megabyte."""
_OBJECT_SECONDS: Final = 1.0
"""How old the note of an object store may be: a process that follows many tables asks for it again and again."""
_OBJECTS: Final[dict[LakePath, tuple[float, Mapping[str, Reached]]]] = {}


def read_reached(lake: LakeLayout, pipeline: str) -> Mapping[str, Reached]:
    """What a pipeline noted last, by table; nothing where nothing is noted, or it does not read back.

    The same object as before where nothing was noted since, but for what was noted in the last moments.
    """
    file = lake.reached(pipeline)
    if isinstance(file, Path):
        return _read(file)
    at, known = _OBJECTS.get(file, (-_OBJECT_SECONDS, _NOTHING))
    if time.monotonic() - at >= _OBJECT_SECONDS:
        found = _read(file)
        known = known if found == known else found
        _OBJECTS[file] = (time.monotonic(), known)
    return known


def _read(file: LakePath) -> Mapping[str, Reached]:
    try:
        return _KNOWN.read(file, lambda: _decoded(file.read_bytes()))
    except (OSError, StoreError, ValueError, KeyError, TypeError, AttributeError):
        return _NOTHING


def _decoded(data: bytes) -> Mapping[str, Reached]:
    found: dict[str, Reached] = {}
    for group in members_in(data)["reached"]:
        inputs = {entry: TableVersion(*at) for entry, at in group["inputs"].items()}
        for name, (version, table, digest, fingerprint) in group["tables"].items():
            found[name] = Reached(version, table, digest, fingerprint, inputs)
    return found


def _encoded(reached: Mapping[str, Reached]) -> bytes:
    groups: dict[tuple[tuple[str, TableVersion], ...], dict[str, Any]] = {}
    for name, each in sorted(reached.items()):
        of_inputs = tuple(sorted(each.inputs.items()))
        inputs = {entry: [at.version, at.table, at.nonce] for entry, at in of_inputs}
        group = groups.setdefault(of_inputs, {"inputs": inputs, "tables": {}})
        group["tables"][name] = [each.version, each.table, each.digest, each.fingerprint]
    return sealed_members({"reached": list(groups.values())})


class ReachedNotes:
    """The notes of one pipeline, as its only writer keeps them.

    Args:
        tables: those of the pipeline as it is now; what is noted of others goes.
    """

    def __init__(self, lake: LakeLayout, pipeline: str, tables: Collection[str]) -> None:
        self._lake = lake
        self._pipeline = pipeline
        known = read_reached(lake, pipeline)
        self._known = {name: each for name, each in known.items() if name in tables}

    def note(self, refreshed: Collection[str], reached: Mapping[str, Reached]) -> None:
        """Note what a refresh came to. A note that cannot be written is logged, and the rows are as right without it.

        Args:
            refreshed: tables of which nothing is left to say, unless they are among `reached`.
        """
        now = {name: each for name, each in self._known.items() if name not in refreshed} | dict(reached)
        if now == self._known:
            return
        self._known = now
        file = self._lake.reached(self._pipeline)
        try:
            make_folder(file.parent)
            replace_file(file, _encoded(now), for_good=False)
            _OBJECTS.pop(file, None)  # whoever ran this here reads it at once
        except StoreError as error:
            log.warning("what the views reflect could not be noted, so some answers will be older: %s", error)
