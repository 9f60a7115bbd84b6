"""One refresh of one stage: from the version vector in its table's last commit to the present head of its input.

    input ──changes(from, to)──> delta    ─┐
                                           ├─ rule (SQL) ──> rows or settled keys ──> one commit with the vector `to`
    table ──read(head)─────────> self_old ─┘

It is a pure function of the stage and the two vectors: it can be repeated, resumed after a kill at any point, or run by
hand. Nothing but the last commit says where it stands.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from jobs.errors import RefreshFailed
from jobs.ivm.engine import NEGATIVE_WEIGHT
from jobs.ivm.rules import maintenance
from jobs.ivm.storage import kind_of, spec_of, spec_of_input
from state_store import reader
from state_store.commits import CommitRecord, Head
from state_store.deltalog import read_commit
from state_store.digest import Digest
from state_store.errors import NegativeWeight
from state_store.failpoints import failpoint
from state_store.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from jobs.ivm.stage import Stage
    from state_store.layout import Lake

# A stage whose input changes without touching it commits nothing, so that it stays idle, but reads all versions since
# its vector each time. Listing and reading that many small commits costs about as much as one commit of its own.
_MAX_LAG = 20

# The keys of so many changes are some ten MB in memory, in each of the refreshes side by side. Beyond, sorting the
# stored rows is worth its time anyway.
_MAX_BROADCAST_CHANGES = 300_000

Mode = Literal["none", "full", "delta", "advance"]


@dataclass(frozen=True)
class StageResult:
    """What a refresh did.

    Attributes:
        from_vector: the vector of the table's last commit before; empty for a table that had none.
        to_vector: the vector that its rows reflect now.
        mode: `none` nothing to do or to say, `full` all rows of the input, `delta` its changes, `advance` only the
            vector moved.
        inserted, deleted: visible rows given and taken away.
        version: of the commit that was made; None when there was none.
    """

    table: str
    from_vector: dict[str, int]
    to_vector: dict[str, int]
    mode: Mode
    reason: str
    inserted: int = 0
    deleted: int = 0
    version: int | None = None


@dataclass(frozen=True)
class _Epoch:
    """A refresh that is to be done."""

    stage: Stage
    head: Head
    since: int | None
    upto: int
    record: CommitRecord

    def done(self, mode: Mode, reason: str, committed: Head | None) -> StageResult:
        before = self.head.record.vector
        record = committed.record if committed else replace(self.record, vector=before)
        version = committed.version if committed else None
        return StageResult(
            self.stage.table, before, record.vector, mode, reason, record.inserted, record.deleted, version
        )


def refresh_stage(
    spark: SparkSession,
    lake: Lake,
    stage: Stage,
    fingerprint: str,
    writer: str,
    *,
    upto: int | None = None,
    vector_key: str | None = None,
) -> StageResult:
    """Bring a stage's table to `upto` (default: the head) of its input, in at most one commit.

    The first refresh computes everything up to that version. An input that has no table yet is nothing to do.
    A global aggregate has its one row from its first refresh on, also over an empty input.

    Args:
        fingerprint: of the definition; the table's last commit must carry the same.
        writer: `pipeline/incarnation`, for the commit's record.
        vector_key: the name of this input in the vector, for one of several queries that feed one stream; the stream
            has a fingerprint of its own then, which is left as it is.

    Raises:
        RefreshFailed: the table was made by another definition.
        NegativeWeight: a row was taken away that is not there; nothing is stored.
        VectorMismatch, CommitConflict: another writer was faster; plan again.
        VersionGone: the input's history no longer reaches back to the recorded version.
    """
    # Temporary views have fixed names: a session of its own keeps refreshes in parallel threads apart.
    session = spark.newSession()
    table = Table(session, lake.table(stage.table), spec_of(stage))
    source = Table(session, lake.table(stage.input.name), spec_of_input(stage.input))
    newest = reader.head(source.path)
    if newest is None:
        return StageResult(stage.table, {}, {}, "none", f"input '{stage.input.name}' has no table yet")
    owner = vector_key is None
    head = table.ensure(CommitRecord(epoch=0, fingerprint=fingerprint if owner else "", writer=writer))
    if owner:
        _check_fingerprint(stage, head, fingerprint)
    key = vector_key or stage.input.name
    since = head.record.vector.get(key)
    target = newest.version if upto is None else upto
    if since is not None and since >= target:
        vector = head.record.vector
        return StageResult(stage.table, vector, vector, "none", f"'{stage.input.name}' is at version {since} still")
    record = replace(
        head.record,
        epoch=head.record.epoch + 1,
        vector={**head.record.vector, key: target},
        fingerprint=fingerprint if owner else head.record.fingerprint,
        writer=writer,
        mode="full" if since is None else "delta",
        reason=_reason(stage, since, target),
    )
    return _run(session, table, source, _Epoch(stage, head, since, target, record))


def _check_fingerprint(stage: Stage, head: Head, fingerprint: str) -> None:
    # Empty: a query that inserts into this stream was first, and left the place free.
    if head.record.fingerprint not in ("", fingerprint):
        raise RefreshFailed(
            f"the rows of '{stage.table}' were made by another definition",
            where=stage.table,
            hint=f"type: DROP it and create it again, so that '{stage.table}' is computed anew",
        )


def _reason(stage: Stage, since: int | None, target: int) -> str:
    if since is None:
        return f"first refresh: all rows of '{stage.input.name}' at version {target}"
    return f"changes of '{stage.input.name}' from version {since} to {target}"


def _run(session: SparkSession, table: Table, source: Table, epoch: _Epoch) -> StageResult:
    """Compute the epoch and commit it; no commit when no row changes and the vector is not far behind."""
    stage, record = epoch.stage, epoch.record
    _delta(source, epoch).createOrReplaceTempView("delta")
    if kind_of(stage) == "keyed":
        _stored_rows(session, table, epoch.head).createOrReplaceTempView("self_old")
    # The rules' hints are meant for few changes against many stored rows.
    session.conf.set("spark.sql.optimizer.disableHints", str(not _few_changes(source, epoch)).lower())
    rows = session.sql(maintenance(stage, "spark"))
    failpoint("inside-refresh")
    try:
        committed = _store(table, rows, epoch)
    except Exception as error:
        if NEGATIVE_WEIGHT not in str(error):
            raise
        raise NegativeWeight(
            f"a row of '{stage.input.name}' was taken away from '{stage.table}' that is not there",
            where=f"{stage.table}, {record.reason}",
            hint=f"verify '{stage.input.name}'; then drop '{stage.table}' and create it again",
        ) from error
    if committed is not None:
        failpoint("after-refresh-commit")
        return epoch.done("full" if epoch.since is None else "delta", record.reason, committed)
    if epoch.since is not None and epoch.upto - epoch.since <= _MAX_LAG:
        return epoch.done("none", f"{record.reason}: no row changes", None)
    reason = f"{record.reason}: no row changes, only the vector moves"
    return epoch.done("advance", reason, table.advance(replace(record, mode="advance", reason=reason)))


def _delta(source: Table, epoch: _Epoch) -> DataFrame:
    """The input's changes as the rules read them: its columns, `__weight`, and for keyed inputs `_commit_version`."""
    return source.changes(epoch.since, epoch.upto)


def _few_changes(source: Table, epoch: _Epoch) -> bool:
    """Whether the commits to take in say that they changed few rows."""
    if epoch.since is None:
        return False
    records = [read_commit(source.path, version).record for version in range(epoch.since + 1, epoch.upto + 1)]
    changed = [record.inserted + record.deleted for record in records if record is not None]
    return len(changed) == len(records) and sum(changed) <= _MAX_BROADCAST_CHANGES


def _stored_rows(session: SparkSession, table: Table, head: Head) -> DataFrame:
    """The rows before the epoch. Those of an empty table are no plan at all: Spark then leaves the joins out."""
    if Digest.parse(head.record.digest).count == 0:
        return session.createDataFrame([], table.spec.ddl)
    return table.read(head.version)


def _store(table: Table, rows: DataFrame, epoch: _Epoch) -> Head | None:
    """One commit, or None when no row changes."""
    if kind_of(epoch.stage) == "keyed":
        return table.apply(rows, epoch.record)
    return table.append_if_any(rows, epoch.record)
