"""A stream and a table on the local log, and events for the stream."""

from __future__ import annotations

from dataclasses import replace

from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.settings import Settings
from strandline.state_store.layout import LakeLayout

EVENTS = Source(
    name="events",
    kind="stream",
    columns=(Column("id", t.BIGINT, key=True), Column("name", t.VARCHAR), Column("price", t.decimal(9, 2))),
    topic="events",
    key_format="KAFKA",
    value_format="JSON",
    pipeline="test",
    sql="",
    partitions=2,
)
USERS = replace(
    EVENTS,
    name="users",
    kind="table",
    columns=(Column("id", t.BIGINT, key=True), Column("city", t.VARCHAR)),
    topic="users",
)


def fill(settings: Settings, lake: LakeLayout, count: int, first: int = 0) -> None:
    rows = [{"id": n, "name": f"n{n}", "price": f"{n}.5", "rowtime": 1000 + n} for n in range(first, first + count)]
    insert_rows(EVENTS, rows, settings, lake)
