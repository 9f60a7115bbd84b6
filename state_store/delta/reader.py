"""Read tables without a JVM: heads, rows and changes, each pinned to a version.

`__state` is returned only if it is asked for by name.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store import changelog
from strandline.state_store.commits import CommitRecord, Head, TableVersion
from strandline.state_store.delta import log
from strandline.state_store.delta.entry import rebuild_hint
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.delta.statistics import row_count
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.layout import table_at
from strandline.state_store.tablespec import STATE
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.state_store.commits import Rekeyed, Statement
    from strandline.state_store.delta.snapshot import Snapshot
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.paths import LakePath


def head(path: LakePath) -> Head | None:
    """The head of the table at `path`; None when there is no table.

    The record is that of our newest commit: compaction by another tool has none, and changes no row.

    Raises:
        CorruptState: the newest commit is broken, or no commit left in the log is ours.
        ForeignWrite: another tool changed rows since our newest commit.
    """
    newest = log.newest_version(path)
    return None if newest is None else Head(newest, *_record_at(path, newest, ours=True))


def version_at(path: LakePath, version: int) -> TableVersion:
    """One version of a table, as a vector names it.

    Raises:
        TableMissing: there is no table.
        VersionGone: the log no longer holds the version, or does not hold it yet.
        CorruptState, ForeignWrite: as of `head`.
    """
    return Head(version, record_at(path, version)).at


def current_head(path: LakePath) -> Head | None:
    """The head of a table whoever made its newest commits: our last record, with the digest of the rows as they are.

    What a rebuild starts from; None when there is no table.

    Raises:
        CorruptState, VersionGone: the rows cannot be read, or are not those that the log says of their files.
    """
    newest = log.newest_version(path)
    if newest is None:
        return None
    snapshot = _open(path, newest)
    digest = digest_of_rows(path, snapshot)
    if snapshot.sums.digest(snapshot.schema_json) not in (None, digest):
        raise CorruptState(f"files of '{path.name}' have not the rows that were written to them", where=str(path))
    return Head(newest, replace(record_at(path, newest, ours=False), digest=str(digest)))


def digest_of_rows(path: LakePath, snapshot: Snapshot) -> Digest:
    """The digest of the visible rows as they are in the files, whatever the record says of them.

    Raises:
        VersionGone, CorruptState: the rows do not read.
    """
    from strandline.state_store.delta.rows import Wanted, rows_of

    stored = _stored(snapshot)
    return digest_of_table(rows_of(path, snapshot, Wanted(stored, tuple(_visible(stored).names), {})))


def record_at(path: LakePath, version: int, *, ours: bool = True) -> CommitRecord:
    """Our newest record at or below a version: what its rows reflect.

    Args:
        ours: another tool's commit above the record must change no rows.

    Raises: as `version_at`; ForeignWrite only with `ours`.
    """
    return _record_at(path, version, ours=ours)[0]


def newest_key(path: LakePath) -> Rekeyed | None:
    """The definition since which the rows of a table have another key; None: they have the first one's. Rows of
    versions whose record says another one were told apart otherwise. Raises as `record_at`."""
    newest = log.newest_version(path)
    return None if newest is None else record_at(path, newest, ours=False).rekeyed


def _record_at(path: LakePath, version: int, *, ours: bool) -> tuple[CommitRecord, Statement | None]:
    """The record, and what the entry of the version itself states."""
    for number in range(version, -1, -1):
        try:
            record, stated = log.read_stated(path, number)
        except VersionGone:
            if number == version:
                raise
            break
        if record is not None:
            return record, stated if number == version else None
        if ours:
            log.check_ours(path, log.read_commit(path, number))
    raise CorruptState(
        sentence("no commit of '{}' says where the table stands", table_at(path)),
        where=str(path),
        hint="was it made by another tool?",
    )


def schema(path: LakePath, version: int | None = None) -> pa.Schema:
    """The visible columns in Arrow form.

    Raises:
        TableMissing, VersionGone, CorruptState.
    """
    return schema_of(_open(path, version))


def schema_of(snapshot: Snapshot) -> pa.Schema:
    """The visible columns in Arrow form, of a snapshot that is at hand."""
    return _visible(_stored(snapshot))


def scan(
    path: LakePath, version: int | None = None, columns: Sequence[str] | None = None, predicate: Predicate | None = None
) -> pa.RecordBatchReader:
    """The rows of one version, as record batches.

    A scan of all visible columns and rows adds up their digest on the way and compares it with the record's at the
    end. Of any other scan, the files are known to be as they were written, and so are log and deletion vectors.

    Args:
        version: default: the newest.
        columns: default: the visible ones. One that the table was given after the version is NULL.
        predicate: {column: the values it may have}, integers or text; a row that is returned meets all of it.

    Raises:
        TableMissing: there is no table.
        VersionGone: the version, or a file of it, is not there (also while rows are read).
        CorruptState: a file is broken (also while rows are read), or the rows are not those that were committed.
    """
    import pyarrow as pa

    from strandline.state_store.delta.rows import Wanted, rows_of

    snapshot = _open(path, version)
    stored = _stored(snapshot)
    visible = _visible(stored).names
    names = visible if columns is None else columns
    stored = _with_later(path, stored, {*names, *(predicate or {})})
    wanted = Wanted(stored, tuple(names), predicate or {})
    batches = rows_of(path, snapshot, wanted)
    if predicate is None and set(visible) <= set(names):
        batches = _compared(path, snapshot.version, batches, visible)
    return pa.RecordBatchReader.from_batches(wanted.target, batches)


def read_rows(
    path: LakePath, version: int | None = None, columns: Sequence[str] | None = None, predicate: Predicate | None = None
) -> pa.Table:
    """The rows of one version at once; arguments and errors as of `scan`."""
    return scan(path, version, columns, predicate).read_all()


def read_changes(path: LakePath, after: int | None = None, upto: int | None = None, *, state: bool = False) -> pa.Table:
    """The changes of the visible rows in the versions after `after`, up to and including `upto`.

    Args:
        after: a version; None or −1: from the beginning.
        upto: default: the newest version.
        state: `__state` is one of the columns, where the table has it: a change of it alone is a change of the row.

    Returns:
        The visible columns, `_commit_version`, `_commit_timestamp` and `__weight`, consolidated: see `changelog`.

    Raises:
        TableMissing: there is no table.
        VersionGone: the log or the files no longer reach back to `after`. Read the table anew.
        CorruptState: a file is broken.
    """
    import pyarrow as pa

    from strandline.state_store.delta import rows

    newest = log.newest_version(path)
    if newest is None:
        raise log.missing(path)
    first, last = (0 if after is None else after + 1), (newest if upto is None else upto)
    if last > newest:
        raise _not_yet(path, last, newest)
    stored = _stored(_open(path, last))
    columns = stored if state else _visible(stored)
    parts = [rows.changes_of(path, commit, columns) for commit in log.read_history(path, first - 1, last)]
    return changelog.consolidate(pa.concat_tables([rows.changelog_schema(columns).empty_table(), *parts]))


def size_bytes(path: LakePath, version: int | None = None) -> int:
    """The size of the data files of one version.

    Raises:
        TableMissing, VersionGone, CorruptState.
    """
    return sum(int(body["size"]) for body in _open(path, version).files.values())


def _open(path: LakePath, version: int | None) -> Snapshot:
    newest = log.newest_version(path)
    if newest is None:
        raise log.missing(path)
    if version is not None and version > newest:
        raise _not_yet(path, version, newest)
    return read_snapshot(path, newest if version is None else version)


def _stored(snapshot: Snapshot) -> pa.Schema:
    from strandline.state_store.tablespec import arrow_schema

    return arrow_schema(snapshot.metadata["schemaString"])


def _with_later(path: LakePath, stored: pa.Schema, names: set[str]) -> pa.Schema:
    """The columns of a version, and those of the newest one that are asked for and came after it."""
    later = names - set(stored.names)
    if not later:
        return stored
    import pyarrow as pa

    return pa.schema([*stored, *(field for field in _stored(_open(path, None)) if field.name in later)])


def _visible(stored: pa.Schema) -> pa.Schema:
    return stored.remove(stored.get_field_index(STATE)) if STATE in stored.names else stored


def _compared(
    path: LakePath, version: int, batches: Iterator[pa.RecordBatch], visible: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The batches; at their end, an error when their digest is not the one that the record of the version states."""
    record = record_at(path, version)
    total = Digest()
    for batch in batches:
        total += digest_of_table([batch.select(visible)])
        yield batch
    if total != Digest.parse(record.digest):
        raise CorruptState(
            sentence("the rows of '{}' are not those that were committed", table_at(path)),
            where=f"{path}, version {version}",
            hint=rebuild_hint(path.name),
        )


def _not_yet(path: LakePath, version: int, newest: int) -> VersionGone:
    return VersionGone(
        sentence("version {} of '{}' is not there yet; the newest is {}", version, table_at(path), newest),
        where=str(path),
    )


# Bounds of a table's times, told from the statistics of its files without reading rows.

_MOST_READ: Final = 8
"""Files that are read for one column; those beyond are taken not to hold what is counted."""


def smallest(path: LakePath, column: str, version: int) -> dt.datetime | None:
    """The smallest time of a TIMESTAMP column, down to the millisecond; None where a file does not say.

    Raises:
        VersionGone, CorruptState: the version cannot be read.
    """
    lows = [_bounds(body, column)[0] for body in read_snapshot(path, version).files.values() if row_count(body)]
    known = [low for low in lows if low is not None]
    return dt.datetime.fromisoformat(min(known)) if known and len(known) == len(lows) else None


def rows_before(path: LakePath, column: str, instant: dt.datetime, version: int) -> int:
    """The number of rows whose TIMESTAMP is before an instant of whole milliseconds, or fewer: at most a few files are
    read, and by their statistics all others are known.

    Raises:
        VersionGone, CorruptState: the version, or a file that is read, cannot be.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from strandline.state_store.delta.rows import Wanted, rows_of
    from strandline.state_store.tablespec import arrow_schema

    snapshot = read_snapshot(path, version)
    before, mixed = 0, dict[str, Mapping[str, Any]]()
    limit = f"{instant.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
    for name, body in snapshot.files.items():
        low, high = _bounds(body, column)
        if low is None or high is None or low >= limit:
            continue
        if high < limit and not body.get("deletionVector"):
            before += row_count(body)
        elif len(mixed) < _MOST_READ:
            mixed[name] = body
    wanted = Wanted(arrow_schema(snapshot.metadata["schemaString"]), (column,), {})
    for batch in rows_of(path, replace(snapshot, files=mixed), wanted):
        before += pc.sum(pc.less(batch.column(0), pa.scalar(instant, batch.column(0).type))).as_py() or 0
    return before


def _bounds(body: Mapping[str, Any], column: str) -> tuple[str | None, str | None]:
    """The smallest and the largest time, as the log has them: text of one form, which compares as times do."""
    stats = json.loads(body.get("stats") or "{}")
    return stats.get("minValues", {}).get(column), stats.get("maxValues", {}).get(column)
