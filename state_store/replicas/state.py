"""State of a replica, stored beside its rows and changed in the same write as they are; and reads as of one version.

| phase | the rows are | legal before |
| --- | --- | --- |
| REGISTERED | about to be removed | any: whatever is wrong with a replica, it can begin anew |
| RESTORING | some of those of one version | REGISTERED, RESTORING |
| VERIFIED | those of a version: the digest was compared | RESTORING, VERIFIED, LIVE |
| LIVE | those of the table's head, not long ago | VERIFIED, LIVE |

LIVE is never stored: how fresh the rows are is not known to a process that has just opened them.

Every read names the version that its rows are of.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.commits import TableVersion
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState, ReplicaCorrupt
from strandline.state_store.replicas.row_bytes import COUNT, ROWS, ROWS_END, KeyCodec, KeyRange, RowCodec

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.state_store.replicas.store import StoreSnapshot


# Layout of the rows of one table: by its unique key, or by all visible columns with a count.

CODEC_FORMAT = 1
"""Of the bytes of keys and rows. A replica of another one is restored anew."""


class Layout:
    """The codecs of a table's visible rows.

    Args:
        schema: the visible columns.
        key: the columns of its unique key, which may be none (a single row); None: without a unique key.

    Raises:
        CorruptState: a column has a type that our tables do not have.
    """

    def __init__(self, schema: pa.Schema, key: tuple[str, ...] | None) -> None:
        self.schema = schema
        self.unique = key is not None
        self.key = tuple(schema.names) if key is None else key
        self.rows = RowCodec(schema)
        self.keys = KeyCodec(schema, self.key)

    @property
    def fingerprint(self) -> str:
        """The same for replicas whose rows have the same bytes."""
        columns = [(field.name, str(field.type)) for field in self.schema]
        text = json.dumps([CODEC_FORMAT, columns, self.unique, self.key])
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


NO_ROWS: Final = Digest()
_FORMAT: Final = 1


class Phase(StrEnum):
    """How far a replica has come."""

    REGISTERED = "registered"
    RESTORING = "restoring"
    VERIFIED = "verified"
    LIVE = "live"


PREDECESSORS: Final[Mapping[Phase, frozenset[Phase]]] = {
    Phase.REGISTERED: frozenset(Phase),
    Phase.RESTORING: frozenset({Phase.REGISTERED, Phase.RESTORING}),
    Phase.VERIFIED: frozenset({Phase.RESTORING, Phase.VERIFIED, Phase.LIVE}),
    Phase.LIVE: frozenset({Phase.VERIFIED, Phase.LIVE}),
}
"""{phase: the phases that it may follow}."""


@dataclass(frozen=True)
class ReplicaState:
    """One state of a replica.

    Attributes:
        layout: fingerprint of the columns and the key that the rows are stored by.
        at: the table's commit that the rows are of, or are being restored from; None while REGISTERED.
        digest: of the rows once VERIFIED; before, nothing.
        file: while RESTORING: the data file that is being loaded; those that sort before it are done.
        file_rows: the rows of it that are loaded.
        rows: rows loaded of all files.
    """

    layout: str
    phase: Phase = Phase.REGISTERED
    at: TableVersion | None = None
    digest: Digest = NO_ROWS
    file: str = ""
    file_rows: int = 0
    rows: int = 0

    def entering(self, phase: Phase, **changes: Any) -> ReplicaState:
        """The next state.

        Raises:
            ValueError: the phase may not follow this one; a fault of the program.
        """
        if self.phase not in PREDECESSORS[phase]:
            raise ValueError(f"a replica that is {self.phase} cannot become {phase}")
        return replace(self, phase=phase, **changes)

    def to_bytes(self) -> bytes:
        """The stored form, with its checksum."""
        stored = self.entering(Phase.VERIFIED) if self.phase is Phase.LIVE else self
        body = json.dumps({"format": _FORMAT, **asdict(stored)}, sort_keys=True).encode()
        return f"{zlib.crc32(body):08x}".encode() + body

    @classmethod
    def from_bytes(cls, data: bytes) -> ReplicaState:
        """The state out of its stored form.

        Raises:
            ReplicaCorrupt: it is broken, or of a format that is not read here.
        """
        try:
            body = json.loads(data[8:])
            if int(data[:8], 16) != zlib.crc32(data[8:]) or body.pop("format") != _FORMAT:
                raise ValueError
            at = body.pop("at")
            digest, phase = Digest(**body.pop("digest")), Phase(body.pop("phase"))
            return cls(at=TableVersion(**at) if at else None, digest=digest, phase=phase, **body)
        except (ValueError, KeyError, TypeError) as error:
            raise ReplicaCorrupt("the state of a replica does not read back") from error


Row = dict[str, Any]

# 64 k rows of some 100 bytes: as much at once as stays in a processor's cache.
_ROWS_PER_BATCH: Final = 1 << 16


class ReplicaReading:
    """A replica at one version. Rows have the values that Arrow's `to_pylist` gives.

    Each method may raise CorruptState (bytes of the store are broken) and StorageUnavailable.

    Attributes:
        state: with the version in `at`.
    """

    def __init__(self, snapshot: StoreSnapshot, state: ReplicaState, layout: Layout) -> None:
        self.state = state
        self._snapshot = snapshot
        self._layout = layout

    @property
    def version(self) -> int:
        """The table's version that the rows are of."""
        assert self.state.at is not None
        return self.state.at.version

    def get(self, key: Sequence[Any]) -> Row | None:
        """The row of a key; None without one.

        Raises:
            KeyRefused: the values do not fit the key's columns.
        """
        found = self._snapshot.get(self._layout.keys.of_values(key))
        return None if found is None else self._layout.rows.decode(found)

    def multi_get(self, keys: Sequence[Sequence[Any]]) -> list[Row | None]:
        """The rows of many keys, in the keys' order; errors as of `get`."""
        found = self._snapshot.multi_get([self._layout.keys.of_values(key) for key in keys])
        return [None if value is None else self._layout.rows.decode(value) for value in found]

    def count_of(self, key: Sequence[Any]) -> int:
        """How often the row of a key is there; errors as of `get`."""
        found = self._snapshot.get(self._layout.keys.of_values(key))
        return 0 if found is None else int(COUNT.unpack_from(found)[0])

    def range(self, wanted: KeyRange, limit: int | None = None) -> Iterator[Row]:
        """The rows of a range in the order of their keys, each as often as it is there.

        Raises:
            KeyRefused: a bound does not fit the key's columns, or is too long.
        """
        low, high = self._layout.keys.bounds(wanted)
        return islice(self._rows(low, high), limit)

    def scan(self) -> Iterator[pa.RecordBatch]:
        """All rows in the order of their keys.

        Raises:
            CorruptState: there are not as many as were verified.
        """
        rows = 0
        for batch in batches(self._snapshot, self._layout):
            rows += batch.num_rows
            yield batch
        if rows != self.state.digest.count:
            raise CorruptState(
                f"the replica has {rows} rows, not {self.state.digest.count}",
                hint="remove its folder; it is restored from the table",
            )

    def _rows(self, low: bytes, high: bytes) -> Iterator[Row]:
        for _, value in self._snapshot.range(low, high):
            row = self._layout.rows.decode(value)
            yield row
            for _ in range(COUNT.unpack_from(value)[0] - 1):
                yield dict(row)


def batches(snapshot: StoreSnapshot, layout: Layout) -> Iterator[pa.RecordBatch]:
    """All rows as columns, in the order of their keys, without a look at their number."""
    values = snapshot.values()
    while chunk := list(islice(values, _ROWS_PER_BATCH)):
        yield layout.rows.decode_all(chunk)


def unreached(snapshot: StoreSnapshot) -> int:
    """How many rows are read one after the other and not found by their keys: what leads to them is broken."""
    keys = (key for key, _ in snapshot.range(ROWS, ROWS_END))
    lost = 0
    while chunk := list(islice(keys, _ROWS_PER_BATCH)):
        lost += snapshot.multi_get(chunk).count(None)
    return lost
