"""Where a pipeline stands: what its tables have not taken in yet."""

from __future__ import annotations

from typing import cast

import pyarrow as pa

from strandline.jobs.expect.expectations import Approval, write_approval
from strandline.jobs.model.settings import KafkaSettings, Settings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.define.source import source_of
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.jobs.sql.statements import CreateSource, parse_one
from strandline.state_store.commits import CommitRecord, TableVersion
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import TableSpec
from tests.support.arrow_table import ArrowTable
from tests.support.lake_tables import events
from tests.unit.session.statements import STREAM, VIEW, run


def test_status_counts_what_is_not_in_yet(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    run(session, STREAM + VIEW + "INSERT INTO s (id) VALUES (1), (2);")

    def lags() -> dict[object, tuple[object, ...]]:
        return {row[1]: (row[3], row[5], row[6], row[7], row[9]) for row in status(settings).rows}

    assert lags() == {"s": (None, None, 2, "events", "never run"), "v": (None, None, 0, "versions", "never run")}
    events(lake, "s", [{"id": 1}, {"id": 2}])
    assert lags() == {"s": (0, 2, 2, "events", "behind"), "v": (None, None, 1, "versions", "never run")}


def test_a_view_whose_events_wait_in_their_topic_is_not_fresh(session: Interpreter, settings: Settings) -> None:
    """With a pipeline that is dead its lag stays 0: nothing has come into its inputs."""
    run(session, STREAM + VIEW + "INSERT INTO s (id) VALUES (1), (2);")
    plain = settings.model_copy(update={"engine": "duckdb"})
    pipeline = session.catalog.get("v").pipeline

    def states() -> list[tuple[object, object, object]]:
        return [(row[1], row[6], row[9]) for row in status(plain).rows]

    drain(plain, pipeline, in_driver=True)
    assert states() == [("s", 0, "fresh"), ("v", 0, "fresh")]
    run(session, "INSERT INTO s (id) VALUES (3);")
    assert states() == [("s", 1, "behind"), ("v", 0, "behind")]
    drain(plain, pipeline, in_driver=True)
    assert states() == [("s", 0, "fresh"), ("v", 0, "fresh")]


def test_status_says_of_a_view_that_it_is_held_and_of_what_reads_that_too(
    session: Interpreter, settings: Settings, lake: LakeLayout
) -> None:
    blocking = "WITH (EXPECT = '[{expect_table_row_count_to_be_between: {max_value: 1}, blocking: true}]')"
    run(session, f"{STREAM}CREATE TABLE a {blocking} AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;")
    run(session, "CREATE TABLE b AS SELECT id, n FROM a; CREATE TABLE c AS SELECT id, n FROM b;")
    for table in ("a", "b", "c"):
        _table(lake, table, late=None)

    def states() -> list[object]:
        return [next(row[9] for row in status(settings).rows if row[1] == name) for name in ("a", "b", "c")]

    assert not {"held", "stopped"} & set(states())
    head = reader.head(lake.table("a"))
    assert head is not None
    write_approval(lake, "a", Approval("asked").refusing(head, "asked", "2 rows", 0))
    assert states()[1:] == ["held", "held"]
    assert states()[0] != "held", "it is as fresh as it was"


def test_a_broker_that_is_not_there_is_asked_once(lake: LakeLayout) -> None:
    settings = load_settings(lake=lake.root, kafka=KafkaSettings(bootstrap_servers="127.0.0.1:1"))
    session = Interpreter(settings)
    for name in ("a", "b", "c"):
        session.catalog.add(source_of(cast(CreateSource, parse_one(f"CREATE STREAM {name} (id INT)")), "p"))
    rows = [tuple(row) for row in status(settings).rows]
    assert [(row[6], row[9]) for row in rows] == [(None, "source.unavailable")] * 3


def test_status_sums_the_late_rows_of_all_stages_of_a_view(
    session: Interpreter, settings: Settings, lake: LakeLayout
) -> None:
    windows = "WINDOW TUMBLING (SIZE 1 HOURS, GRACE PERIOD 1 MINUTES) GROUP BY id EMIT FINAL"
    run(session, f"{STREAM}CREATE TABLE w AS SELECT id, COUNT(*) AS n FROM s {windows};")

    def late() -> dict[object, object]:
        return {row[1]: row[8] for row in status(settings).rows}

    _table(lake, "w__stage_1", late=3)
    assert late() == {"s": None, "w": None}, "none of its rows stands in it yet"
    _table(lake, "w", late=None, reads="w__stage_1")
    assert late() == {"s": None, "w": 3}


def _table(lake: LakeLayout, name: str, late: int | None, reads: str = "s") -> None:
    """An empty table whose record says how many rows came too late."""
    schema = pa.schema([pa.field("id", pa.int64())])
    ArrowTable(lake.table(name), schema, TableSpec(name, (("id", "BIGINT"),), "append")).create(
        CommitRecord(0, vector={reads: TableVersion(0)}, late=late)
    )
