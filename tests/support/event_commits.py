"""Commits of events to event logs, as ingest makes them: rows that are decoded already, of one partition."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from strandline.jobs.catalog.relations import event_log, relation_of
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta.commit import RowChanges
from strandline.state_store.delta.data_files import stage_rows
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.layout import LakeLayout

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def log_table(lake: LakeLayout, source: Source) -> StoredTable:
    """The event log of a stream or keyed source."""
    log = event_log(source) if source.kind == "table" else relation_of(source)
    return StoredTable(lake.table(log.name), spec_of_input(log))


def commit_events(lake: LakeLayout, source: Source, rows: Sequence[Mapping[str, Any]], topic_id: str = "") -> None:
    """One commit of rows with their meta columns, in the order of their offsets.

    Args:
        topic_id: of the topic that they came from; empty: it is unknown.
    """
    table = log_table(lake, source)
    head = table.ensure(CommitRecord(epoch=0))
    log = event_log(source) if source.kind == "table" else relation_of(source)
    given = pa.Table.from_pylist(list(rows), pa.schema([(name, kind.arrow()) for name, kind in log.columns]))
    latest = max(row["_stream_time"] for row in rows)
    record = CommitRecord(
        epoch=head.record.epoch + 1,
        mode="ingest",
        inserted=len(rows),
        digest=str(Digest.parse(head.record.digest) + digest_of_table(given.to_batches())),
        offsets={source.topic: {"0": rows[-1]["_offset"] + 1}},
        topics={source.topic: topic_id} if topic_id else {},
        stream_times={source.topic: {"0": (latest - _EPOCH) // dt.timedelta(microseconds=1)}},
    )
    table.commit(head, record, RowChanges(stage_rows(given, table.path, record.epoch, table.spec.indexed)))
