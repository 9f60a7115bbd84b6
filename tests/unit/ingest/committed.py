"""A source whose tables have one commit, made without Spark: what the tests of a run's start share."""

from __future__ import annotations

import pyarrow as pa
from deltalake import Schema

from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.model import tables
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta.commit import create_table
from strandline.state_store.layout import LakeLayout

EVENTS = Source(
    name="events",
    kind="stream",
    columns=(Column("n", t.INT),),
    topic="events",
    key_format="KAFKA",
    value_format="JSON",
    pipeline="p",
    sql="",
)


def commit(
    lake: LakeLayout,
    offsets: dict[str, int],
    topic_id: str,
    table: str = tables.event_log(EVENTS),
    leader_epochs: dict[str, list[int]] | None = None,
) -> None:
    """Make a table of `EVENTS` whose last commit holds the records of its topic below `offsets`.

    Args:
        leader_epochs: {partition: [offset, term]} of the last records.
    """
    topics = {EVENTS.topic: topic_id} if topic_id else {}
    terms = {EVENTS.topic: leader_epochs} if leader_epochs else {}
    record = CommitRecord(epoch=1, offsets={EVENTS.topic: offsets}, topics=topics, leader_epochs=terms, mode="ingest")
    schema = Schema.from_arrow(pa.schema([("n", pa.int32())])).to_json()
    assert create_table(lake.table(table), schema, log_spec(EVENTS).properties, record.identified("a table"))
