"""The rows of one version of a table, loaded into a replica piece by piece, and verified.

    files of the snapshot at V, in the order of their names ──> pieces ──> one write each: rows and how far they reach

So a restore that is killed goes on with the next piece: the files of a version, and the rows that are live in them,
are the same at every look.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.state_store.delta import reader
from strandline.state_store.delta.rows import Wanted, rows_of
from strandline.state_store.delta.schema import arrow_schema
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.hashing.digest import Digest
from strandline.state_store.replicas.progress import Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.paths import LakePath
    from strandline.state_store.replicas.progress import Report
    from strandline.state_store.replicas.replica import Replica

PIECE_ROWS: Final = 1 << 16
"""Rows in one write: what a kill costs, some 0.2 s of work, and what a restore holds in memory."""


def restore(table: LakePath, replica: Replica, report: Report) -> None:
    """Load what is missing of the version that the replica is RESTORING from, and verify it.

    Raises:
        VersionGone: the version, or a file of it, is gone.
        CorruptState: a file of the table is broken.
        ReplicaDiverged: the rows that were stored are not those of the table.
    """
    assert replica.state.at is not None
    version = replica.state.at.version
    snapshot = read_snapshot(table, version)
    expected = _expected(table, snapshot)
    clock = Clock(version, expected.count, replica.state.rows)
    report(clock.progress(replica.state.rows))
    for file in sorted(snapshot.files):
        if file < replica.state.file:
            continue
        skipped = replica.state.file_rows if file == replica.state.file else 0
        for piece in _pieces(table, snapshot, file, replica.layout.schema, skipped):
            replica.load(piece, file)
            report(clock.progress(replica.state.rows))
    replica.verify(expected)


def _expected(table: LakePath, snapshot: Snapshot) -> Digest:
    """The digest that the table's record states; of a record without one, that of its rows."""
    stated = reader.record_at(table, snapshot.version).digest
    return Digest.parse(stated) if stated else reader.digest_of_rows(table, snapshot)


def _pieces(
    table: LakePath, snapshot: Snapshot, file: str, visible: pa.Schema, skipped: int
) -> Iterator[pa.RecordBatch]:
    """The live rows of one file but for the first ones."""
    alone = replace(snapshot, files={file: snapshot.files[file]})
    wanted = Wanted(arrow_schema(snapshot.metadata["schemaString"]), tuple(visible.names), {})
    for batch in rows_of(table, alone, wanted):
        if skipped >= batch.num_rows:
            skipped -= batch.num_rows
            continue
        for start in range(skipped, batch.num_rows, PIECE_ROWS):
            yield batch.slice(start, PIECE_ROWS)
        skipped = 0
