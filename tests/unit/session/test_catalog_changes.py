"""CREATE, INSERT INTO … SELECT and DROP against the catalog, the log and the lake."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.intents import table_paths
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.errors import NameInUse, NameTaken, NotSupported, SqlError, UnknownName
from strandline.jobs.model.settings import Settings
from strandline.jobs.serve.results import Message
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import WriterBusy
from strandline.state_store.layout import LakeLayout
from strandline.state_store.lock import writer_lock
from tests.support.lake_tables import append, events
from tests.support.on_disk import on_disk
from tests.unit.session.statements import STREAM, VIEW, message, rows, run


def test_a_stream_is_registered_with_its_topic(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    assert message(session, STREAM) == "stream 's' created (pipeline 'default')"
    assert open_log(settings, lake).end_offsets("t") == {0: 0, 1: 0, 2: 0}


def test_saying_the_same_again_changes_nothing(session: Interpreter) -> None:
    run(session, STREAM + VIEW)
    before = session.catalog.definitions()
    again = STREAM.replace("(id BIGINT KEY, ", "( id   bigint KEY,\n") + VIEW.lower()
    assert [str(result) for result in session.run(again)] == [
        str(Message("stream 's' unchanged (pipeline 'default')")),
        str(Message("table 'v' unchanged (pipeline 'default')")),
    ]
    assert session.catalog.definitions() == before


def test_another_definition_of_a_name_needs_or_replace(session: Interpreter, lake: LakeLayout) -> None:
    run(session, STREAM)
    other = STREAM.replace("name VARCHAR", "name INT")
    with pytest.raises(NameTaken):
        run(session, other)
    assert "replaced" in message(session, other.replace("CREATE", "CREATE OR REPLACE"))
    events(lake, "s", [{"id": 1, "name": 1}])
    with pytest.raises(NotSupported, match="has rows in the lake"):
        run(session, STREAM.replace("CREATE", "CREATE OR REPLACE"))


def test_dropping_takes_the_table_away_and_leaves_the_topic(
    session: Interpreter, settings: Settings, lake: LakeLayout
) -> None:
    run(session, STREAM + VIEW + "INSERT INTO s (id) VALUES (1);")
    append(lake, "v", [{"id": 1, "n": 1}])
    with pytest.raises(NameInUse):
        run(session, "DROP STREAM s")
    with pytest.raises(NotSupported, match="is no stream"):
        run(session, "DROP STREAM v")
    run(session, "DROP TABLE v; DROP STREAM s;")
    assert session.catalog.names() == ()
    assert list(on_disk(lake.table("v").parent).iterdir()) == []
    assert sum(open_log(settings, lake).end_offsets("t").values()) == 1
    with pytest.raises(UnknownName):
        run(session, "DROP TABLE v")
    assert "is not there" in message(session, "DROP TABLE IF EXISTS v")


def test_what_a_running_pipeline_writes_is_not_dropped(session: Interpreter, lake: LakeLayout) -> None:
    run(session, STREAM)
    with writer_lock(on_disk(lake.lock("default")), "run"), pytest.raises(WriterBusy):
        run(session, "DROP STREAM s")
    assert session.catalog.names() == ("s",)


def test_a_query_into_a_stream_is_registered_once(session: Interpreter) -> None:
    run(session, STREAM + STREAM.replace("STREAM s", "STREAM s2").replace("'t'", "'t2'"))
    text = "INSERT INTO s2 SELECT id, name, d FROM s WHERE id > 3"
    assert "created" in message(session, text)
    assert "unchanged" in message(session, text)
    assert [row["writes"] for row in rows(session, "SHOW QUERIES")] == ["s2"]


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("TIMESTAMP = 'at', TIMESTAMP_FORMAT = 'yyyy-QQ'", "TIMESTAMP_FORMAT"),
        ("TIMESTAMP = 'gone'", "gone"),
        ("TIMESTAMP = 'id', TIMESTAMP_FORMAT = 'yyyy-MM-dd'", "VARCHAR"),
    ],
)
def test_an_event_time_that_cannot_be_read_is_refused_at_create(options: str, fault: str, settings: Settings) -> None:
    """Found at CREATE, not when the first record comes; the catalog stays as it was."""
    interpreter = Interpreter(settings)
    with pytest.raises(SqlError, match=fault):
        list(interpreter.run(f"CREATE STREAM late (id BIGINT, at VARCHAR) WITH ({options});"))
    assert interpreter.catalog.find("late") is None


def test_rows_are_dropped_before_the_log_that_they_reflect(session: Interpreter, lake: LakeLayout) -> None:
    """After a kill in between, a table that was left behind would seem to be ahead of a log that began anew."""
    run(session, "CREATE TABLE info (k INT PRIMARY KEY, a INT);")
    for name in ("info", "info__log", "info__dead_letters", "info__logs", "info2"):
        on_disk(lake.table(name)).mkdir(parents=True)
    dropped = [path.name for path in table_paths("info", lake)]
    assert dropped == ["info", "info__log", "info__dead_letters"]


def test_a_source_has_no_inner_stages_to_drop(session: Interpreter, lake: LakeLayout) -> None:
    """A stream may be called almost as the stage of a view would be; it is not the other stream's."""
    run(session, STREAM + "CREATE STREAM s__stage_one (id INT);")
    append(lake, "s__stage_one", [{"id": 1}])
    run(session, "DROP STREAM s")
    assert [path.name for path in on_disk(lake.tables).iterdir()] == ["s__stage_one"]
