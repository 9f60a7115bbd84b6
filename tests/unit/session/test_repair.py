"""A definition whose file is broken: seen as broken, registered again as it was, or dropped with its tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.settings import FunctionSettings, Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.schedule import maintained
from strandline.jobs.session.apply import apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.errors import CorruptState, WriterBusy
from strandline.state_store.layout import LakeLayout
from strandline.state_store.lock import writer_lock
from tests.support.lake_tables import append, events
from tests.support.on_disk import on_disk
from tests.support.python_function_stage import MODULE
from tests.unit.session.statements import STREAM, VIEW, message, rows, run

OTHER = "CREATE STREAM free (id BIGINT KEY) WITH (KAFKA_TOPIC = 'free');"
QUERY = "INSERT INTO s SELECT id, CAST(NULL AS VARCHAR) AS name, CAST(NULL AS DECIMAL(6, 2)) AS d FROM r;"
SECOND = QUERY.replace("SELECT id,", "SELECT id + 1 AS id,")
FED = STREAM.replace("STREAM s", "STREAM r").replace("'t'", "'r'") + STREAM + QUERY


def spoil(lake: LakeLayout, name: str) -> None:
    path = on_disk(lake.catalog / f"{name}.json")
    data = path.read_bytes()
    path.write_bytes(data.replace(b'"crc": ', b'"crc": 1', 1))


@pytest.fixture
def shop(tmp_path: Path, settings: Settings, lake: LakeLayout) -> Path:
    """The pipeline `shop`, applied; the pipeline `default` beside it."""
    file = tmp_path / "shop.sql"
    file.write_text(STREAM + VIEW)
    apply(file, settings)
    run(Interpreter(settings), OTHER)
    return file


def test_a_broken_definition_is_listed_as_broken_and_the_rest_goes_on(
    shop: Path, settings: Settings, lake: LakeLayout
) -> None:
    events(lake, "s", [{"id": 1}])
    append(lake, "v", [{"id": 1, "n": 1}])
    spoil(lake, "s")
    session = Interpreter(settings)
    listed = {row["name"]: (row["kind"], row["pipeline"]) for row in rows(session, "SHOW STREAMS")}
    assert listed == {"free": ("source", "default"), "s": ("broken", "shop")}
    assert ("shop", "s", "broken") in [row[:3] for row in status(settings).rows]
    assert rows(session, "SELECT * FROM v") == [{"id": 1, "n": 1}]
    assert rows(session, "SELECT * FROM free") == []
    run(
        session,
        "INSERT INTO free (id) VALUES (1); CREATE TABLE free_count AS SELECT id, COUNT(*) AS n FROM free GROUP BY id;",
    )
    maintained(session.catalog.pipeline("default"), session.catalog)


@pytest.mark.parametrize(
    "text",
    [
        "DESCRIBE s",
        "EXPLAIN v",
        "SELECT * FROM s",
        "SELECT * FROM s__dead_letters",
        "INSERT INTO s (id) VALUES (1)",
        "CREATE TABLE w AS SELECT id, COUNT(*) AS n FROM s GROUP BY id",
    ],
)
def test_what_needs_a_broken_definition_says_which_file_and_what_to_type(
    shop: Path, settings: Settings, lake: LakeLayout, text: str
) -> None:
    spoil(lake, "s")
    with pytest.raises(CorruptState, match="'s' is broken") as caught:
        run(Interpreter(settings), text)
    assert "strandline apply" in str(caught.value.hint)
    with pytest.raises(CorruptState, match="'s' is broken"):
        drain(settings, "shop")


def test_applying_the_file_again_mends_the_catalog(shop: Path, settings: Settings, lake: LakeLayout) -> None:
    events(lake, "s", [{"id": 1}])
    before = Interpreter(settings).catalog.definitions()
    for name in ("s", "v"):
        spoil(lake, name)
    assert [change.outcome for change in apply(shop, settings).changes] == ["repaired", "repaired"]
    after = Interpreter(settings).catalog
    assert sorted(after.definitions(), key=lambda d: d.name) == sorted(before, key=lambda d: d.name)
    assert after.names().index("s") < after.names().index("v")


def test_a_single_statement_mends_it_in_its_own_pipeline(shop: Path, settings: Settings, lake: LakeLayout) -> None:
    spoil(lake, "s")
    assert message(Interpreter(settings), STREAM) == "stream 's' repaired (pipeline 'shop')"


def test_another_definition_than_its_readers_were_made_with_is_refused(
    shop: Path, settings: Settings, lake: LakeLayout
) -> None:
    spoil(lake, "s")
    with pytest.raises(NotSupported, match="'v' was made with another definition of 's'"):
        run(Interpreter(settings), STREAM.replace("id BIGINT", "id INT"))


@pytest.mark.parametrize("change", [("name VARCHAR", "name INT"), ("'t'", "'elsewhere'"), ("name VARCHAR, ", "")])
def test_another_definition_than_its_rows_were_made_with_is_refused(
    settings: Settings, lake: LakeLayout, change: tuple[str, str]
) -> None:
    session = Interpreter(settings)
    run(session, STREAM)
    events(lake, "s", [{"id": 1}])
    append(lake, "s", [], epoch=1, offsets={"t": {"0": 1}})
    spoil(lake, "s")
    session.catalog.reload()
    with pytest.raises(NotSupported, match="rows of 's'"):
        run(session, STREAM.replace(*change))
    assert "repaired" in message(session, STREAM)


def test_a_query_into_a_stream_gets_its_number_back(settings: Settings, lake: LakeLayout) -> None:
    session = Interpreter(settings)
    run(session, FED + SECOND)
    before = session.catalog.insert_queries("s")
    spoil(lake, "s__insert_1")
    session.catalog.reload()
    assert [row["query"] for row in rows(session, "SHOW QUERIES") if row["name"] == "s__insert_1"] == ["broken"]
    with pytest.raises(CorruptState):
        run(session, QUERY.replace("SELECT id,", "SELECT id + 2 AS id,"))
    assert "unchanged" in message(session, SECOND)
    assert "repaired" in message(session, QUERY)
    assert session.catalog.insert_queries("s") == before


def test_dropping_a_broken_definition_takes_all_its_tables_away(settings: Settings, lake: LakeLayout) -> None:
    session = Interpreter(settings)
    run(session, STREAM + VIEW)
    for table in ("v", "v__stage_1", "v__stage_1__dead_letters", "v__log", "v__stage_one", "v2"):
        on_disk(lake.table(table)).mkdir(parents=True)
    spoil(lake, "v")
    session.catalog.reload()
    with pytest.raises(CorruptState, match="'v' is broken"):
        run(session, "DROP STREAM s")
    with writer_lock(on_disk(lake.lock("default")), "run"), pytest.raises(WriterBusy):
        run(session, "DROP TABLE v")
    assert message(session, "DROP TABLE v") == "'v' dropped"
    assert sorted(path.name for path in on_disk(lake.tables).iterdir()) == ["v2", "v__stage_one"]
    run(session, "DROP STREAM s")


def test_a_broken_function_stops_its_callers_and_is_mended_or_dropped(settings: Settings, lake: LakeLayout) -> None:
    session = Interpreter(settings.model_copy(update={"functions": FunctionSettings(modules=(MODULE,))}))
    spread = f"CREATE FUNCTION spread(low BIGINT, high BIGINT) RETURNS DOUBLE LANGUAGE PYTHON AS '{MODULE}:spread';"
    run(session, spread + "CREATE STREAM n (a BIGINT); CREATE STREAM w AS SELECT spread(a, a) AS x FROM n;" + OTHER)
    spoil(lake, "functions/SPREAD")
    session.catalog.reload()
    assert {"name": "SPREAD", "kind": "broken"} in rows(session, "SHOW FUNCTIONS")
    for text in ("DESCRIBE FUNCTION spread", "SELECT spread(1, 2) AS x FROM n", "EXPLAIN w"):
        with pytest.raises(CorruptState, match="'SPREAD' is broken"):
            run(session, text)
    assert rows(session, "SELECT * FROM free") == []
    with pytest.raises(NotSupported, match="'w' was made with another"):
        run(session, spread.replace("BIGINT", "INT"))
    assert "repaired" in message(session, spread)
    run(session, "DROP STREAM w")
    spoil(lake, "functions/SPREAD")
    session.catalog.reload()
    run(session, "DROP FUNCTION spread")
    assert not session.catalog.broken_functions
