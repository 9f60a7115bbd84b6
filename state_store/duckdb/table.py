"""A table of the lake in DuckDB: its rows at a version, its changes between versions, one commit per epoch."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from itertools import chain, islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from strandline.state_store.delta.commit import Instead, RowChanges, commit
from strandline.state_store.delta.data_files import StagedParts, stage_files
from strandline.state_store.delta.rows import CHANGE_TYPE
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.digest import Digest, digest_of_table, digests_by
from strandline.state_store.duckdb.rows import TableRows, quoted
from strandline.state_store.duckdb.statements import MOST_ROWS, error_of
from strandline.state_store.errors import CorruptState, NegativeWeight
from strandline.state_store.paths import within
from strandline.state_store.tablespec import EXISTS, FILE, OLD, POSITION, WEIGHT, arrow_schema, schema_json
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.delta.data_files import Staged
    from strandline.state_store.duckdb.engine import Kept
    from strandline.state_store.duckdb.rows import Computed, Keys, Part, PlacedRows
    from strandline.state_store.duckdb.statements import Held
    from strandline.state_store.paths import LakePath
    from strandline.state_store.tablespec import TableSpec


BATCH_ROWS: Final = 122_880
"""Rows that are taken from DuckDB at a time, and become a row group: DuckDB's own size of one."""
_GROUPS_PER_FILE: Final = 500_000 // BATCH_ROWS
"""Row groups of a data file: it has half a million rows at most, as one that Spark writes."""


class DuckDBTable(StoredTable):
    """One Delta table on a connection of DuckDB; see `StoredTable`.

    Args:
        connection: on which what it reads is named.
        kept: what DuckDB keeps of tables.
        name: what relations of it on the connection are named by: `<name>_…`.
    """

    def __init__(
        self, connection: duckdb.DuckDBPyConnection, kept: Kept, path: LakePath, spec: TableSpec, name: str
    ) -> None:
        super().__init__(path, spec, kept.snapshots, kept.merges)
        self.connection = connection
        self._recent = kept.recent
        self._files = kept.files
        self._gathered = kept.gathered
        self._rows = TableRows(connection, kept.local, path, self._schema, name, kept.arrangements)

    def read(self, version: int | None, keys: Sequence[Keys] = (), part: Part | None = None) -> PlacedRows:
        """The rows at `version` with their places; none without a version.

        Args:
            keys, part: as of `TableRows.at`.

        Raises:
            VersionGone: the version is not there, or is older than the table's retention.
            CorruptState: a file of it is broken.
        """
        return self._rows.none() if version is None else self._rows.at(self._snapshot(version), keys, part)

    def held(self, version: int | None, *, shared: bool = False) -> tuple[PlacedRows, pa.Table] | None:
        """The rows at `version`, none without one, in memory with their places; None where they are many, or have other
        columns.

        Args:
            shared: others ask for them too: this epoch's new rows are the old ones of the next, and of other views.

        Raises: as `read`.
        """
        if version is None:
            return self._rows.none_held()
        snapshot = self._snapshot(version)
        if not self._rows.are_few(snapshot):
            return None
        return self._rows.held(snapshot, self._files, self._gathered if shared else None)

    def held_changes(self, after: int, upto: int) -> pa.Table | None:
        """The changes as of `changes`, in memory; None where some are not there, or have other columns.

        Raises: as `changes`.
        """
        self.check_version(upto)
        return self._rows.held_changes(self.commits(after, upto), self._recent)

    def suits_lookup(self, version: int | None, keys: int) -> bool:
        """True if looking up the rows of so many keys may cost less than a scan. Raises as `read`."""
        return version is not None and self._rows.suits_lookup(self._snapshot(version), keys)

    def changes(self, after: int | None, upto: int) -> str:
        """SELECT of the changes in the versions after `after`, up to and including `upto`.

        Stored columns, `__weight` BIGINT and `_commit_version` BIGINT. Without `after`, the rows at `upto`, each with
        weight 1. The changes of several commits are not consolidated: a row may have +1 and −1.

        Raises:
            VersionGone: the log or a file no longer reaches back to `after`, or `upto` is not there yet.
            CorruptState: a file is broken, or rows were deleted from an append table.
        """
        self.check_version(upto)
        if after is None:
            return self._rows.as_changes(self._snapshot(upto))
        return self._rows.changes(self.commits(after, upto), self._recent)

    def append(self, rows: pa.Table, record: CommitRecord) -> Head:
        """Insert rows (the stored columns, in any order), in one commit.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
        """
        head = self.next(record)
        tally = Tally()
        # Rows may come in many pieces, and each batch becomes a row group.
        batches = rows.combine_chunks().to_batches(BATCH_ROWS)
        return self._add(head, record, self._staged(self._counted(batches, tally), record), tally)

    def append_written(self, parts: Sequence[WrittenRows], record: CommitRecord) -> Head:
        """Insert rows that are in their files already, in one commit. Raises as `append`."""
        head = self.next(record)
        came = sum((part.digest for part in parts), Digest())
        counted = replace(record, inserted=came.count, deleted=0, digest=str(Digest.parse(head.record.digest) + came))
        return self.commit(head, counted, RowChanges(StagedParts(tuple(part.staged for part in parts))))

    def append_if_any(self, text: str, record: CommitRecord, held: Held | Computed | None = None) -> Head | None:
        """Insert the rows that a SELECT gives, in one commit; without rows no commit is made: None.

        Args:
            held: what the text reads, where it is held in memory.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            CommitConflict: another writer committed first.
            duckdb.Error: the text fails.
        """
        head = self.next(record)
        tally = Tally()
        if held is None:
            rows = self._given(text, tally)
        else:
            found = held.run(text)
            if not found.num_rows:
                return None
            rows = self._counted(found.combine_chunks().to_batches(BATCH_ROWS), tally)
        staged = self._staged(rows, record)
        if tally.inserted == 0:
            staged.discard()
            return None
        return self._add(head, record, staged, tally)

    def apply(
        self,
        text: str,
        stored: PlacedRows,
        record: CommitRecord,
        after: Head | None = None,
        held: Held | Computed | None = None,
    ) -> Head | None:
        """Commit the upserts of the touched keys; None, and no commit, when no row changes.

        Args:
            text: a SELECT that gives upserts, see `Upserts`.
            stored: the rows before, as the text read them.
            after: as of `advance`.
            held: as of `append_if_any`.

        Raises:
            VectorMismatch: the head is not the epoch before `record`'s.
            NegativeWeight: more rows would be deleted than there are.
            CommitConflict: another writer committed first.
            CorruptState: a row stored before is not where the relation says.
            duckdb.Error: the text fails.
        """
        head = after or self.next(record)
        upserts = Upserts(self.connection, text, self.spec, self._schema, held)
        if not upserts.count:
            return None
        tally = Tally()
        upserts.count_old_rows(tally, stored)
        rows = upserts.new_rows(tally)
        first = next(rows, None)
        if first is None and not tally.retracted:
            return None
        staged = None if first is None else self._staged(chain([first], rows), record)
        return self._add(head, record, staged, tally)

    def replace_all(self, rows: str, changes: str, record: CommitRecord, head: Head) -> Head:
        """Put other rows, of the columns of this `spec`, in the place of all that are stored, in one commit.

        The table stays the same one, and its change feed says the difference only.

        Args:
            rows: a SELECT of all stored columns.
            changes: a SELECT of the stored columns and `__weight`, +1 or −1: what differs from the rows before, which
                have NULL in a column that they did not have.
            head: the table as the two were planned from.

        Raises:
            CommitConflict: another writer committed first.
            CorruptState: the rows are not those of `record.digest`, where it states one.
            duckdb.Error: a text fails.
        """
        tally = Tally()
        staged = self._staged(self._given(rows, tally), record)
        said, listed = record.digest, ChangeCounts()
        try:
            if said and Digest.parse(said) != tally.digest:
                raise CorruptState(
                    sentence("the rows for '{}' have the digest {}, not {}", Name(self.spec.name), tally.digest, said)
                )
            differing = self._listed(changes, listed, record)
        except BaseException:
            staged.discard()
            raise
        instead = Instead(schema_json(self.spec.stored), differing)
        counted = replace(record, inserted=listed.inserted, deleted=listed.deleted, digest=str(tally.digest))
        return self.commit(head, counted, RowChanges(self._tagged(staged, tally), instead=instead))

    def _given(self, text: str, tally: Tally) -> Iterator[pa.Table]:
        return self._counted(streamed(self.connection, text), tally)

    def _counted(self, batches: Iterable[pa.RecordBatch], tally: Tally) -> Iterator[pa.Table]:
        return tally.inserting(batches, self._schema, self.spec.visible)

    def _listed(self, changes: str, counts: ChangeCounts, record: CommitRecord) -> Staged:
        """Files that list the changes of a SELECT, counted on the way; one without rows where there are none."""
        feed = change_schema(self._schema)
        files = _by_file(listed_changes(batch, feed, counts) for batch in streamed(self.connection, changes))
        first: Iterator[pa.Table] = next(files, iter(()))
        return stage_files(chain([first], files), feed, self.path, record.epoch)

    def _staged(self, rows: Iterator[pa.Table], record: CommitRecord) -> Staged:
        return stage_files(_by_file(rows), self._schema, self.path, record.epoch, self.spec.indexed)

    def _tagged(self, staged: Staged, tally: Tally) -> Staged:
        return staged.tagged(tally.by_file(_GROUPS_PER_FILE), schema_json(self.spec.stored))

    def _add(self, head: Head, record: CommitRecord, staged: Staged | None, tally: Tally) -> Head:
        try:
            digest = Digest.parse(head.record.digest) + tally.digest
            if digest.count < 0:
                raise NegativeWeight(
                    sentence("'{}' would have {} rows", Name(self.spec.name), digest.count), where=str(self.path)
                )
        except BaseException:
            if staged is not None:
                staged.discard()
            raise
        counted = replace(record, inserted=tally.inserted, deleted=tally.deleted, digest=str(digest))
        staged = None if staged is None else self._tagged(staged, tally)
        made = commit(self.path, head, counted, RowChanges(staged, tally.retracted, tally.taken), self._snapshots)
        changes = tally.changes()
        if changes is not None:
            self._note(self._recent.put(self.path, made.record.nonce, changes), tally, staged)
        return self.maintained(made)

    def _note(self, changes: pa.Table, tally: Tally, staged: Staged | None) -> None:
        """Keep the rows of a small file as well, which are those that came, in their order."""
        files = [] if staged is None else staged.files
        came = changes.slice(tally.retracted_rows)
        if len(files) == 1 and came.num_rows <= MOST_ROWS:
            name = quote(within(files[0], self.path))
            self._files.put(self.path, name, came.drop_columns([WEIGHT]), copied=True)

    @cached_property
    def _schema(self) -> pa.Schema:
        return arrow_schema(schema_json(self.spec.stored))


@dataclass(frozen=True)
class WrittenRows:
    """Rows that stand in files which no commit names yet, and their digest, which counts them too."""

    staged: Staged
    digest: Digest


def write_rows(groups: Iterable[pa.RecordBatch], spec: TableSpec, path: LakePath, epoch: int) -> WrittenRows | None:
    """Write rows to be appended to a table, which must be there; None, and no file, when there are none.

    Args:
        groups: the stored columns, in any order; each becomes a row group.
        epoch: of the commit that is to name the files.
    """
    tally = Tally()
    stored = schema_json(spec.stored)
    schema = arrow_schema(stored)
    rows = tally.inserting(groups, schema, spec.visible)
    staged = stage_files(_by_file(rows), schema, path, epoch, spec.indexed)
    if not tally.digest.count:
        staged.discard()
        return None
    return WrittenRows(staged.tagged(tally.by_file(_GROUPS_PER_FILE), stored), tally.digest)


def _by_file(groups: Iterator[pa.Table]) -> Iterator[Iterator[pa.Table]]:
    """Row groups by data file; each file's are taken before the next one's."""
    for first in groups:
        yield chain([first], islice(groups, _GROUPS_PER_FILE - 1))


_UPSERTS: Final = "__upserts"
_SAME: Final = "__same"


class Upserts:
    """The upserts of an epoch: one row for each touched key that changes, computed once and kept: in the connection, or
    in memory, where what they are computed of is held there.

    A row has the stored columns of the new row, `__exists` (false: the key is deleted, and the other columns hold only
    the key), and `__old`: the row stored before as a struct with its place (NULL: the key was absent). Rows that are as
    they were are left out at once: to name each column once more in a text takes DuckDB a twentieth of a millisecond.

    Args:
        text: a SELECT that gives them, with or without the rows that are as they were.
        schema: the stored columns.
        held: as of `DuckDBTable.append_if_any`.

    Attributes:
        count: of these rows.

    Raises:
        duckdb.Error: the text fails, as a text or over the rows.
    """

    def __init__(
        self,
        connection: duckdb.DuckDBPyConnection,
        text: str,
        spec: TableSpec,
        schema: pa.Schema,
        held: Held | Computed | None = None,
    ) -> None:
        self._connection = connection
        self._spec = spec
        self._schema = schema
        changed = changed_upserts(text, spec)
        self._held = None if held is None else held.run(changed).combine_chunks()
        if self._held is not None:
            self.count = self._held.num_rows
            return
        [(count,)] = connection.execute(f"CREATE OR REPLACE TEMP TABLE {_UPSERTS} AS {changed}").fetchall()
        self.count = int(count)

    def count_old_rows(self, tally: Tally, stored: PlacedRows) -> None:
        """Count the stored rows that go, or are replaced.

        Args:
            stored: the rows before, as the text read them.

        Raises:
            CorruptState: a stored row is replaced twice, or its place is not known; the rule is wrong.
        """
        unseen = 0
        for batch in self._gone():
            for name, positions in stored.positions(batch[FILE], batch[POSITION]).items():
                tally.retracted.setdefault(name, BitMap64()).update(positions)
            tally.retract(conformed(batch, self._schema), self._spec.visible, stored.files, batch[FILE])
            unseen += batch[_SAME].true_count
        if sum(map(len, tally.retracted.values())) != tally.deleted:
            raise CorruptState(
                f"rows of '{self._spec.name}' cannot be told apart: a key has two upserts, or a row has no place"
            )
        # Only what is kept beside them changes.
        tally.inserted -= unseen
        tally.deleted -= unseen

    def new_rows(self, tally: Tally) -> Iterator[pa.Table]:
        """The rows to store, in batches, counted on the way."""
        if self._held is None:
            listed = ", ".join(map(quoted, self._schema.names))
            batches = streamed(self._connection, f"SELECT {listed} FROM {_UPSERTS} WHERE {EXISTS}")
        else:
            come = _where(self._held, self._held[EXISTS].combine_chunks())
            batches = iter(come.select(self._schema.names).to_batches(BATCH_ROWS))
        return tally.inserting(batches, self._schema, self._spec.visible)

    def _gone(self) -> Iterator[pa.RecordBatch]:
        """The stored rows that go, with their places and whether only what is kept beside them changes."""
        if self._held is None:
            gone = f"SELECT unnest({OLD}), {_SAME} FROM {_UPSERTS} WHERE {OLD} IS NOT NULL"
            yield from streamed(self._connection, gone)
            return
        found = _where(self._held, self._held[OLD].combine_chunks().is_valid())
        for batch in found.to_batches(BATCH_ROWS):
            old = batch[OLD]
            names = [old.type.field(place).name for place in range(old.type.num_fields)]
            yield pa.RecordBatch.from_arrays([*old.flatten(), batch[_SAME]], names=[*names, _SAME])


def changed_upserts(text: str, spec: TableSpec) -> str:
    """The SELECT of those upserts that change a row, each with whether only what is kept beside its visible columns
    changes."""
    visible, beside = _unchanged(spec.stored, spec.visible)
    # What is kept beside the visible columns changes without them; not they without it.
    same = f"CASE WHEN {EXISTS} AND {OLD} IS NOT NULL THEN {visible} ELSE FALSE END AS {_SAME}"
    return f"SELECT * FROM (SELECT *, {same} FROM ({text})) WHERE NOT ({_SAME} AND {beside})"


@lru_cache(maxsize=1 << 12)
def _unchanged(stored: tuple[tuple[str, str], ...], visible: tuple[str, ...]) -> tuple[str, str]:
    """The conditions that the visible columns, and those kept beside them, are as they were."""
    schema = arrow_schema(schema_json(stored))
    beside = [name for name in schema.names if name not in visible]
    return _equal(schema, visible), _equal(schema, beside)


def _equal(schema: pa.Schema, names: Sequence[str]) -> str:
    terms = []
    for name in names:
        found = schema.field(name).type
        now, before = (_orderable(value, found) for value in (quoted(name), f"({OLD}).{quoted(name)}"))
        terms.append(f"{now} IS NOT DISTINCT FROM {before}")
    return " AND ".join(terms) or "TRUE"


def _where(rows: pa.Table, wanted: pa.BooleanArray) -> pa.Table:
    """The wanted ones of rows that are in one piece: mostly all of them."""
    return rows if wanted.true_count == rows.num_rows else rows.filter(wanted).combine_chunks()


def conformed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the stored columns, in order and of the stored types."""
    found = rows.select(schema.names)
    return found if found.schema.equals(schema) else found.cast(schema)


def _orderable(value: str, found: pa.DataType, depth: int = 0) -> str:
    """The value with its maps, which DuckDB compares in the order they happen to be in, as entries sorted by key."""
    if not _has_map(found):
        return value
    item = f"__e{depth}"
    if pa.types.is_map(found):
        inner = f"struct_pack(k := {item}.key, v := {_orderable(f'{item}.value', found.item_type, depth + 1)})"
        return f"list_sort([{inner} FOR {item} IN map_entries({value})])"
    if pa.types.is_list(found):
        return f"[{_orderable(item, found.value_type, depth + 1)} FOR {item} IN {value}]"
    members = (found.field(place) for place in range(found.num_fields))
    packed = ", ".join(
        f"{quoted(each.name)} := {_orderable(f'({value}).{quoted(each.name)}', each.type, depth)}" for each in members
    )
    return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({packed}) END"


def _has_map(found: pa.DataType) -> bool:
    if pa.types.is_list(found):
        return _has_map(found.value_type)
    if pa.types.is_struct(found):
        return any(_has_map(found.field(place).type) for place in range(found.num_fields))
    return bool(pa.types.is_map(found))


# What is counted while the rows of an epoch pass by: how many come and go, their digest, the places of those that go.
#
# Many rows are hashed by a thread beside, while whoever counts them writes them to their file: both leave Python's
# lock.

_FEW: Final = 200_000
"""Changes that are kept for whoever reads them next: some tens of MB."""
_MANY: Final = 16_384
"""Rows from which on a thread is worth its start, a tenth of a millisecond: hashing them takes three."""
_AHEAD: Final = 4
"""Batches that may wait for the thread. Long texts take longer to hash than to write: in the end all rows of a table
that is computed anew would wait in memory."""


@dataclass
class Tally:
    """Counts and digests of the rows that passed by.

    Attributes:
        inserted, deleted: visible rows inserted and deleted.
        retracted: {data file: positions of the stored rows that go}.
        taken: {data file: the digest of these rows}.
    """

    inserted: int = 0
    deleted: int = 0
    retracted: dict[str, BitMap64] = field(default_factory=dict)
    taken: dict[str, Digest] = field(default_factory=dict)
    _kept: list[pa.Table] | None = field(default_factory=list)
    _digest: Digest = field(default_factory=Digest)
    _batches: list[Digest] = field(default_factory=list)
    """Of each `insert`, in order."""
    _beside: ThreadPoolExecutor | None = None
    _awaited: list[Future[Digest]] = field(default_factory=list)

    @property
    def retracted_rows(self) -> int:
        """The rows at the begin of `changes` that go."""
        return sum(map(len, self.retracted.values()))

    def insert(self, rows: pa.Table, visible: Sequence[str]) -> None:
        """Count rows that come. Raises as `digest`."""
        self.inserted += rows.num_rows
        batches = rows.select(visible).to_batches()
        if rows.num_rows < _MANY and not self._awaited:
            self._counted(digest_of_table(batches))
        else:
            self._beside = self._beside or ThreadPoolExecutor(1, thread_name_prefix="digest")
            self._awaited.append(self._beside.submit(digest_of_table, batches))
            self._add_hashed(leaving=_AHEAD)
        self._keep(rows, 1)

    def inserting(
        self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, visible: Sequence[str]
    ) -> Iterator[pa.Table]:
        """The batches as rows to be stored, each counted as it is taken."""
        for batch in batches:
            rows = pa.Table.from_batches([conformed(batch, schema)])
            self.insert(rows, visible)
            yield rows

    def retract(self, rows: pa.RecordBatch, visible: Sequence[str], files: Sequence[str], numbers: pa.Array) -> None:
        """Count rows that go.

        Args:
            files: the data files, and `numbers` says of each row in which of them it stands.
        """
        self.deleted += rows.num_rows
        for number, digest in digests_by(rows.select(visible), np.asarray(numbers).astype(np.int64)).items():
            self._digest -= digest
            self.taken[files[number]] = self.taken.get(files[number], Digest()) + digest
        self._keep(pa.Table.from_batches([rows]), -1)

    @property
    def digest(self) -> Digest:
        """What to add to the table's digest, once all rows are counted.

        Raises:
            CorruptState: a column has a type that has no digest.
        """
        self._add_hashed(leaving=0)
        self._end()
        return self._digest

    def by_file(self, batches: int) -> list[Digest]:
        """The digest of each file of rows that came, once all are counted.

        Args:
            batches: that a file has at most; each `insert` was one.
        """
        self._add_hashed(leaving=0)
        parts = (self._batches[first : first + batches] for first in range(0, len(self._batches), batches))
        return [sum(part, Digest()) for part in parts]

    def changes(self) -> pa.Table | None:
        """All that was counted, stored columns and `__weight`; None when it was too much to be kept."""
        return pa.concat_tables(self._kept) if self._kept else None

    def _keep(self, rows: pa.Table, weight: int) -> None:
        if self._kept is not None and self.inserted + self.deleted <= _FEW:
            marks = pa.repeat(pa.scalar(weight, pa.int64()), rows.num_rows)
            self._kept.append(rows.append_column(WEIGHT, marks))
        else:
            self._kept = None

    def _add_hashed(self, *, leaving: int) -> None:
        """Add what the thread has hashed, and wait until it is no further behind; what fails in it ends it."""
        try:
            while len(self._awaited) > leaving:
                self._counted(self._awaited[0].result())
                del self._awaited[0]
        except BaseException:
            self._end()
            raise

    def _counted(self, batch: Digest) -> None:
        self._digest += batch
        self._batches.append(batch)

    def _end(self) -> None:
        if self._beside is not None:
            self._beside.shutdown(wait=False)
            self._beside = None


# Rows that DuckDB computes while they are taken, in Arrow batches. What goes wrong on the way is an error of
# DuckDB's, as it would be at the start: Arrow's reader calls everything an OSError, and whoever writes the rows would
# blame the disk.


def streamed(connection: duckdb.DuckDBPyConnection, text: str) -> Generator[pa.RecordBatch]:
    """The rows of a SELECT, none of the batches empty. Until the last is taken the connection can do nothing else.

    Raises:
        duckdb.Error: the text fails, as a text or over the rows.
    """
    with connection.sql(text).to_arrow_reader(BATCH_ROWS) as reader:
        while True:
            try:
                batch = reader.read_next_batch()
            except StopIteration:
                return
            except (OSError, pa.ArrowException) as error:
                raise error_of(str(error)) from error
            if batch.num_rows:
                yield batch


# Changes as a file lists them: rows of Delta's change data feed, made of rows with weights.


@dataclass
class ChangeCounts:
    """The rows that came and went in all batches so far."""

    inserted: int = 0
    deleted: int = 0


def change_schema(stored: pa.Schema) -> pa.Schema:
    """The columns of a file that lists changes: the stored ones, and whether the row came or went."""
    return stored.append(pa.field(CHANGE_TYPE, pa.string()))


def listed_changes(batch: pa.RecordBatch, schema: pa.Schema, counts: ChangeCounts) -> pa.Table:
    """Bring a batch into that schema, and count its rows.

    Args:
        batch: the stored columns and `__weight`.
    """
    came = pc.greater(batch[WEIGHT], 0)
    inserted = pc.sum(came.cast(pa.int64())).as_py() or 0
    counts.inserted += inserted
    counts.deleted += batch.num_rows - inserted
    stored = conformed(batch, pa.schema(list(schema)[:-1]))
    return pa.Table.from_batches([stored]).append_column(
        schema.field(CHANGE_TYPE), pc.if_else(came, "insert", "delete")
    )
