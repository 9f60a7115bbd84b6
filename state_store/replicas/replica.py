"""One replica: a table's rows at one version in a store, and the writes that lead from version to version."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.errors import CorruptState, DuplicateKey, NegativeWeight, ReplicaDiverged, ReplicaNotReady
from strandline.state_store.failpoints import failpoint
from strandline.state_store.replicas.row_bytes import COUNT
from strandline.state_store.replicas.state import Phase, ReplicaReading, ReplicaState, batches, unreached
from strandline.state_store.replicas.store import Write, back_up
from strandline.state_store.tablespec import WEIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    import pyarrow as pa

    from strandline.state_store.commits import TableVersion
    from strandline.state_store.replicas.state import Layout, Row
    from strandline.state_store.replicas.store import Store


# Changes of one version applied to the stored rows; what does not fit is refused.
#
# changes (rows with weights) ──> weight per key and row ──+ what is stored──> what is stored then

Weights = dict[bytes, Counter[bytes]]
"""{key: {the row without its count: the weight}}."""


def weights_of(layout: Layout, changes: pa.Table) -> Weights:
    """The consolidated changes.

    Args:
        changes: the visible columns, and `__weight`; other columns are not looked at.
    """
    found: Weights = {}
    for batch in changes.select([*layout.schema.names, WEIGHT]).combine_chunks().to_batches():
        rows = batch.select(layout.schema.names)
        keys, values = layout.keys.encode(rows), layout.rows.encode(rows)
        for key, value, weight in zip(keys, values, batch.column(WEIGHT).to_pylist(), strict=True):
            found.setdefault(key, Counter())[value[COUNT.size :]] += weight
    return found


def digest_change(layout: Layout, changes: pa.Table) -> Digest:
    """Compute what the changes add to the digest of the rows."""
    total = Digest()
    for sign in (1, -1):
        chosen = changes.filter(pc.equal(changes[WEIGHT], sign)).select(layout.schema.names)
        found = digest_of_table(chosen.to_batches())
        total = total + found if sign == 1 else total - found
    return total


def applied(
    layout: Layout, weights: Weights, stored: Mapping[bytes, bytes | None]
) -> tuple[list[bytes], list[bytes | None]]:
    """The keys whose rows change, and their rows then; None where there is none.

    Args:
        stored: the rows of at least these keys, as they are.

    Raises:
        NegativeWeight: a row is retracted that is not stored.
        DuplicateKey: a key would have two rows.
    """
    keys: list[bytes] = []
    values: list[bytes | None] = []
    for key, changed in weights.items():
        before = stored[key]
        now = Counter(changed)
        if before is not None:
            now[before[COUNT.size :]] += COUNT.unpack_from(before)[0]
        after = _only(layout, now)
        if after != before:
            keys.append(key)
            values.append(after)
    return keys, values


def _only(layout: Layout, rows: Counter[bytes]) -> bytes | None:
    """The one row that is there, with its count."""
    present = [(row, count) for row, count in rows.items() if count]
    if any(count < 0 for _, count in present):
        raise NegativeWeight(f"a row is retracted that is not in the replica, with the key {_named(layout, rows)}")
    if len(present) > 1 or (layout.unique and any(count > 1 for _, count in present)):
        raise DuplicateKey(f"two rows have the key {_named(layout, rows)}", hint="is the key of the view unique?")
    return COUNT.pack(present[0][1]) + present[0][0] if present else None


def _named(layout: Layout, rows: Counter[bytes]) -> dict[str, object]:
    row = layout.rows.decode(COUNT.pack(1) + next(iter(rows)))
    return {name: row[name] for name in layout.key}


_READABLE = (Phase.VERIFIED, Phase.LIVE)


class Replica:
    """A replica in a store. One thread writes; any number read.

    Every method that writes may raise what `Store.write` raises; then nothing has changed here, and `look` tells what
    has changed in the store.

    Args:
        name: for people, in errors.
    """

    def __init__(self, name: str, store: Store, layout: Layout) -> None:
        self.name = name
        self.layout = layout
        self._store = store
        self._stored: tuple[bytes, ReplicaState] = (b"", ReplicaState(layout.fingerprint))
        # The state that the last read by key found, and its version.
        self._answered: tuple[bytes | None, int] = (b"", -1)
        with store.snapshot() as now:
            self._state = self._state_in(now.state())

    @property
    def state(self) -> ReplicaState:
        """The state; LIVE is known to this process only."""
        return self._state

    def look(self) -> None:
        """Read the state from the store: a write that failed, without an answer, may have been done. Errors as of
        `Snapshot`."""
        with self._store.snapshot() as now:
            stored = self._state_in(now.state())
        if stored.to_bytes() != self._state.to_bytes():
            self._state = stored

    def begin(self) -> None:
        """Remove all rows and begin again."""
        state = self._state.entering(Phase.REGISTERED, at=None, digest=Digest(), file="", file_rows=0, rows=0)
        self._store.clear(state.to_bytes())
        self._state = state
        failpoint("after-replica-clear")

    def begin_restore(self, at: TableVersion) -> None:
        """Begin to restore the rows of that version, which `load` adds."""
        self._write(self._state.entering(Phase.RESTORING, at=at))

    def load(self, rows: pa.RecordBatch, file: str) -> None:
        """Add the next rows of a data file of the version that is being restored; the files come in order."""
        keys, values = self.layout.keys.encode(rows), self.layout.rows.encode(rows)
        if not self.layout.unique:
            keys, values = self._counted(keys, values)
        begun = self._state.file_rows if file == self._state.file else 0
        state = self._state.entering(
            Phase.RESTORING, file=file, file_rows=begun + rows.num_rows, rows=self._state.rows + rows.num_rows
        )
        self._write(state, keys, values)
        failpoint("inside-replica-restore")

    def verify(self, expected: Digest) -> None:
        """Read all rows back and compare their digest: the end of a restore.

        Raises:
            ReplicaDiverged: it is another one; the replica stays as it is.
        """
        self._store.settle()
        found = self.digest()
        if found != expected:
            raise ReplicaDiverged(
                f"the rows of replica '{self.name}' are not those of version {self._version()}: "
                f"digest {found}, the table's is {expected}"
            )
        failpoint("before-replica-verified")
        self._write(self._state.entering(Phase.VERIFIED, digest=found, file="", file_rows=0))

    def check_kept(self) -> None:
        """Check the rows that an earlier process has left, where the store itself would not notice that they rot: their
        digest is that of the state, and each is found by its key.

        Raises:
            ReplicaDiverged: it is another one, or one is not found.
            CorruptState: they do not read back.
        """
        if self._store.has_checksums or self._state.phase not in _READABLE:
            return
        found = self.digest()
        if found != self._state.digest:
            raise ReplicaDiverged(
                f"the rows of replica '{self.name}' are not those that were written: digest {found}, its state says "
                f"{self._state.digest}"
            )
        with self._store.snapshot() as now:
            lost = unreached(now)
        if lost:
            raise ReplicaDiverged(f"{lost} of the rows of replica '{self.name}' are not found by their keys")

    def apply(self, changes: pa.Table, at: TableVersion, expected: Digest | None = None) -> None:
        """Apply the changes of the next version, and the version, in one atomic write.

        Args:
            changes: the visible columns and `__weight`.
            expected: the table's digest at that version; None: the commit does not say.

        Raises:
            ReplicaDiverged: the digest would be another one. Nothing was written.
            NegativeWeight, DuplicateKey: the changes do not fit the rows. Nothing was written.
        """
        self._readable(self._state)
        weights = weights_of(self.layout, changes)
        touched = list(weights)
        with self._store.snapshot() as now:
            stored = dict(zip(touched, now.multi_get(touched), strict=True))
        keys, values = applied(self.layout, weights, stored)
        digest = self._state.digest + digest_change(self.layout, changes)
        if expected is not None and digest != expected:
            raise ReplicaDiverged(
                f"version {at.version} would give replica '{self.name}' the digest {digest}, the table's is {expected}"
            )
        failpoint("before-replica-write")
        self._write(self._state.entering(self._state.phase, at=at, digest=digest), keys, values)
        failpoint("after-replica-write")

    def go_live(self) -> None:
        """Mark the rows as those of the table's head."""
        self._state = self._state.entering(Phase.LIVE)

    @contextmanager
    def reading(self) -> Iterator[ReplicaReading]:
        """The replica as it is now, for the duration of the block.

        Raises:
            ReplicaNotReady: its rows are not verified yet.
        """
        with self._store.snapshot() as now:
            state = self._state_in(now.state())
            self._readable(state)
            yield ReplicaReading(now, state, self.layout)

    def get(self, key: Sequence[Any]) -> tuple[int, Row | None]:
        """The version that the rows are of, and the row of a key in it; None without one.

        Half of what `reading` takes. Errors as of `reading`, and KeyRefused: the values do not fit the key's columns.
        """
        data, found = self._store.point(self.layout.keys.of_values(key))
        return self._version_in(data), None if found is None else self.layout.rows.decode(found)

    def multi_get(self, keys: Sequence[Sequence[Any]]) -> tuple[int, list[Row | None]]:
        """The version, and the rows of many keys in it, in the keys' order; as `get`."""
        encode, decode = self.layout.keys.of_values, self.layout.rows.decode
        data, found = self._store.points([encode(key) for key in keys])
        version = self._version_in(data)
        return version, [None if value is None else decode(value) for value in found]

    def digest(self) -> Digest:
        """The digest of the rows as they are stored, read back.

        Raises:
            CorruptState: they do not read back.
        """
        with self._store.snapshot() as now:
            return digest_of_table(batches(now, self.layout))

    def backup(self, folder: Path) -> None:
        """Make a backup of the rows in a folder that is not there yet; a replica that is opened on it is VERIFIED.

        Raises:
            ReplicaNotReady: its rows are not verified yet.
            DiskFailed, CorruptState, FileExistsError: there is no backup.
        """
        self._readable(self._state)
        back_up(self._store, folder, {"replica": self.name, "version": self._version()})

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _write(self, state: ReplicaState, keys: Sequence[bytes] = (), values: Sequence[bytes | None] = ()) -> None:
        self._store.write(Write(state.to_bytes(), keys, values))
        self._state = state

    def _counted(self, keys: list[bytes], values: list[bytes]) -> tuple[list[bytes], list[bytes]]:
        """Each row once, with the number of those that are stored and those that are added."""
        found: dict[bytes, bytes] = {}
        counts: dict[bytes, int] = {}
        for key, value in zip(keys, values, strict=True):
            found[key] = value
            counts[key] = counts.get(key, 0) + 1
        touched = list(found)
        with self._store.snapshot() as now:
            stored = now.multi_get(touched)
        for key, before in zip(touched, stored, strict=True):
            total = counts[key] + (COUNT.unpack_from(before)[0] if before is not None else 0)
            found[key] = COUNT.pack(total) + found[key][COUNT.size :]
        return touched, list(found.values())

    def _version_in(self, data: bytes | None) -> int:
        """The version of a state that is stored. Stores give the same object until they are written again."""
        known, version = self._answered
        if data is not known:
            state = self._state_in(data)
            self._readable(state)
            assert state.at is not None
            version = state.at.version
            self._answered = (data, version)
        return version

    def _state_in(self, data: bytes | None) -> ReplicaState:
        """The state that is stored; REGISTERED if the rows are stored in another way."""
        known, state = self._stored
        if data is None:
            return ReplicaState(self.layout.fingerprint)
        if data != known:
            state = ReplicaState.from_bytes(data)
            if state.layout != self.layout.fingerprint:
                state = ReplicaState(self.layout.fingerprint)
            self._stored = (data, state)
        return state

    def _readable(self, state: ReplicaState) -> None:
        if state.phase not in _READABLE:
            raise ReplicaNotReady(f"replica '{self.name}' is {state.phase}", hint="wait until it is restored")

    def _version(self) -> int:
        if self._state.at is None:
            raise CorruptState(f"replica '{self.name}' has no version")
        return self._state.at.version
