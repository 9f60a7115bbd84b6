"""The reader of tables without a JVM: heads, rows and changes, each pinned to a version.

`__state` is returned only if it is asked for by name.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from state_store import changelog
from state_store.columns import STATE
from state_store.commits import CommitRecord, Head, TableVersion
from state_store.delta import feed, log
from state_store.delta.snapshot import read_snapshot
from state_store.digest import Digest, digest_of_table
from state_store.errors import CorruptState, StoreError, VersionGone

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa
    from deltalake import DeltaTable


def head(path: Path) -> Head | None:
    """The head of the table at `path`; None when there is no table.

    The record is that of our newest commit: compaction by another tool has none, and changes no row.

    Raises:
        CorruptState: the newest commit is broken, or no commit left in the log is ours.
        ForeignWrite: another tool changed rows since our newest commit.
    """
    newest = log.newest_version(path)
    return None if newest is None else Head(newest, _record_at(path, newest))


def version_at(path: Path, version: int) -> TableVersion:
    """What a vector says of one version of a table.

    Raises:
        TableMissing: there is no table.
        VersionGone: the log no longer holds the version, or does not hold it yet.
        CorruptState, ForeignWrite: as of `head`.
    """
    return Head(version, _record_at(path, version)).at


def record_at(path: Path, version: int) -> CommitRecord:
    """Our newest record at or below a version: what its rows reflect. Raises as `version_at`."""
    return _record_at(path, version)


def standing(path: Path) -> Head | None:
    """The head of a table whoever made its newest commits: our last record, with the digest of the rows as they are.

    What a rebuild starts from; None when there is no table. Raises CorruptState, VersionGone: the rows cannot be read.
    """
    newest = log.newest_version(path)
    if newest is None:
        return None
    record = _record_at(path, newest, ours=False)
    visible, digest = schema(path, newest), Digest()
    for body in read_snapshot(path, newest).files.values():
        file = log.DataFile(log.inside(path, body["path"]), body.get("deletionVector"))
        with _typed(path):
            digest += digest_of_table(feed.rows_of(path, file, visible).to_batches())
    return Head(newest, replace(record, digest=str(digest)))


def _record_at(path: Path, version: int, *, ours: bool = True) -> CommitRecord:
    """Our newest record at or below a version; with `ours`, what stands above it changes no rows."""
    for number in range(version, -1, -1):
        try:
            commit = log.read_commit(path, number)
        except VersionGone:
            if number == version:
                raise
            break
        if commit.record is not None:
            return commit.record
        if ours:
            log.check_ours(path, commit)
    raise CorruptState(
        f"no commit of '{path.name}' says where the table stands", where=str(path), hint="was it made by another tool?"
    )


def schema(path: Path, version: int | None = None) -> pa.Schema:
    """The visible columns in Arrow form.

    Raises:
        TableMissing, VersionGone, CorruptState.
    """
    full = _full_schema(_open(path, version))
    return full.remove(full.get_field_index(STATE)) if STATE in full.names else full


def scan(
    path: Path, version: int | None = None, columns: Sequence[str] | None = None, predicate: str | None = None
) -> pa.RecordBatchReader:
    """The rows of one version, as record record_batches.

    Args:
        version: default: the newest.
        columns: default: the visible ones.
        predicate: a condition in DataFusion's SQL, column names as they are (case matters).

    Raises:
        TableMissing: there is no table.
        VersionGone: the version, or a file of it, is not there (also while rows are read).
        CorruptState: a file is broken (also while rows are read).
    """
    import pyarrow as pa

    table = _open(path, version)
    full = _full_schema(table)
    names = list(columns) if columns is not None else [name for name in full.names if name != STATE]
    target = pa.schema([full.field(name) for name in names])
    with _typed(path):
        record_batches = table.scan(columns=names, predicate=predicate)

    def converted() -> Iterator[pa.RecordBatch]:
        with _typed(path):
            for record_batch in pa.RecordBatchReader.from_stream(record_batches):
                yield record_batch.cast(target)

    return pa.RecordBatchReader.from_batches(target, converted())


def read_rows(
    path: Path, version: int | None = None, columns: Sequence[str] | None = None, predicate: str | None = None
) -> pa.Table:
    """The rows of one version at once; arguments and errors as of `scan`."""
    return scan(path, version, columns, predicate).read_all()


def read_changes(path: Path, after: int | None = None, upto: int | None = None) -> pa.Table:
    """The changes of the visible rows in the versions after `after`, up to and including `upto`.

    Args:
        after: a version; None or −1: from the beginning.
        upto: default: the newest version.

    Returns:
        The visible columns, `_commit_version`, `_commit_timestamp` and `__weight`, consolidated: see `changelog`.

    Raises:
        TableMissing: there is no table.
        VersionGone: the log or the files no longer reach back to `after`. Read the table anew.
        CorruptState: a file is broken.
    """
    import pyarrow as pa

    newest = log.newest_version(path)
    if newest is None:
        raise log.missing(path)
    first, last = (0 if after is None else after + 1), (newest if upto is None else upto)
    if last > newest:
        raise _not_yet(path, last, newest)
    visible = schema(path, last)
    with _typed(path):
        parts = [feed.changes_of(path, commit, visible) for commit in log.read_history(path, first - 1, last)]
    return changelog.consolidate(pa.concat_tables([feed.changelog_schema(visible).empty_table(), *parts]))


def size_bytes(path: Path, version: int | None = None) -> int:
    """The size of the data files of one version.

    Raises:
        TableMissing, VersionGone, CorruptState.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    files = pa.table(_open(path, version).get_add_actions(flatten=True))
    return int(pc.sum(files["size_bytes"]).as_py() or 0)


def _full_schema(table: DeltaTable) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(table.schema())


def _open(path: Path, version: int | None) -> DeltaTable:
    from deltalake import DeltaTable

    newest = log.newest_version(path)
    if newest is None:
        raise log.missing(path)
    if version is not None and version > newest:
        raise _not_yet(path, version, newest)
    with _typed(path):
        return DeltaTable(path, version=version)


def _not_yet(path: Path, version: int, newest: int) -> VersionGone:
    return VersionGone(f"version {version} of '{path.name}' is not there yet; the newest is {newest}", where=str(path))


@contextmanager
def _typed(path: Path) -> Iterator[None]:
    """Turns errors of the Delta reader into ours. Only its messages tell missing files from broken ones."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:  # its errors have no common base narrower than this
        text = str(error).split("\n")[0]
        lower = str(error).lower()
        gone = isinstance(error, FileNotFoundError) or "no such file" in lower or "not found" in lower
        if gone or "logsegment" in lower:
            raise VersionGone(
                f"files of '{path.name}' are gone: {text}", where=str(path), hint="read the table anew, or restore it"
            ) from error
        raise CorruptState(
            f"'{path.name}' does not read back: {text}", where=str(path), hint="restore the table from history"
        ) from error
