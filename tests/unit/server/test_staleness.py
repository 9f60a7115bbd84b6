"""How far answers are behind their topics: a quiet source is not stale, and a dead pipeline is."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient
from psycopg import errors

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.consistent_snapshot import Reach
from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.watch import Lag, Topics, staleness
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.files import remove_folder
from tests.support.postgres_server import postgres_server
from tests.support.served_lake import ServedLake
from tests.support.waiting import wait_until

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits', PARTITIONS = 1);
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
    CREATE TABLE crowds AS SELECT town, COUNT(*) AS visits FROM visits WHERE n > 100 GROUP BY town;
    CREATE TABLE counted WITH (STATE = 'partial') AS SELECT visits, COUNT(*) AS towns FROM crowds GROUP BY visits;
"""
ROW = "/v1/views/by_town/rows/Rome"
KEY = "SELECT visits FROM by_town WHERE town = 'Rome'"
SUM = "SELECT SUM(visits) AS visits FROM by_town"


@pytest.fixture
def served(tmp_path: Path) -> ServedLake:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    insert(served)
    run(served)
    return served


def insert(served: ServedLake, n: int = 1) -> None:
    assert list(Interpreter(served.settings).run(f"INSERT INTO visits VALUES (1, 'Rome', {n});"))


def run(served: ServedLake) -> None:
    served.ingest("visits")
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine)


@pytest.fixture
def client(served: ServedLake, tmp_path: Path) -> Iterator[TestClient]:
    app = application(served.settings, ServerOptions(tmp_path / "server", queries=1))
    with TestClient(app, "http://127.0.0.1") as client:
        client.get(ROW)
        wait_until(lambda: client.get("/ready").json()["live"] == 1, "the replica does not follow")
        yield client


def asked(client: TestClient, sql: str, allowed: str) -> Any:
    return client.post("/v1/query", json={"sql": sql, "max_staleness": allowed, "wait_ms": 0})


def refused(client: TestClient, allowed: str) -> list[Any]:
    """The answers that are too old: by key, of a scan, and of one row."""
    row = client.get(ROW, params={"max_staleness": allowed, "wait_ms": 0})
    answers = [asked(client, KEY, allowed), asked(client, SUM, allowed), row]
    for answer in answers:
        assert (answer.status_code, answer.json()["code"]) == (503, "serve.too_stale")
    return answers


def test_a_quiet_source_is_not_stale(client: TestClient) -> None:
    wait_until(lambda: client.get(ROW).json()["staleness_ms"] is not None, "the topic is not looked at")
    found = client.get(ROW)
    assert (found.json()["behind_records"], found.headers["Strandline-Behind-Records"]) == (0, "0")
    assert found.json()["staleness_ms"] <= found.json()["freshness_ms"] + 60_000
    for sql in (KEY, SUM):
        answer = asked(client, sql, "30s")
        assert answer.status_code == 200, answer.text
        assert answer.json()["behind_records"] == 0
    assert client.get(ROW, params={"max_staleness": "30s"}).status_code == 200


def test_a_dead_pipeline_is(client: TestClient, served: ServedLake) -> None:
    insert(served)
    insert(served)
    wait_until(lambda: client.get(ROW).json()["behind_records"] == 2, "the topic is not looked at")
    for answer in refused(client, "1ms"):
        assert answer.headers["Retry-After"]
    run(served)
    found = client.get(ROW, params={"max_staleness": "30s"}).json()
    assert (found["row"]["visits"], found["behind_records"]) == (3, 0)


QUIET = (
    "SELECT visits FROM crowds WHERE town = 'Rome'",
    "SELECT SUM(visits) AS visits FROM crowds",
    "SELECT towns FROM counted WHERE visits = 1",
)


def test_a_view_that_changes_leave_as_it_is_is_not_stale(client: TestClient, served: ServedLake) -> None:
    """Nor does a client wait there for the records that it wrote."""
    row = "/v1/views/crowds/rows/Rome"
    insert(served, 1000)
    run(served)
    wait_until(lambda: client.get(row).json().get("behind_records") == 0, "the view is behind")
    version = client.get(row).json()["version"]
    for _ in range(2):
        insert(served)
        insert(served)
        run(served)
    end = served_end(served)
    for sql in QUIET:
        name = "counted" if "counted" in sql else "crowds"
        body = {"sql": sql, "max_staleness": "30s", "at_least": {name: f"visits@0:{end}"}, "wait_ms": 30_000}
        found = client.post("/v1/query", json=body)
        assert found.status_code == 200, (sql, found.text)
        assert [*found.json()["rows"][0].values(), found.json()["behind_records"]] == [1, 0]
    found = client.get(row, params={"at_least": f"visits@0:{end}", "max_staleness": "30s", "wait_ms": 30_000})
    assert (found.status_code, found.json()["version"], found.json()["behind_records"]) == (200, version, 0)
    late = client.get(
        "/v1/views/crowds/changes", params={"as_of": 0, "up_to": version, "max_staleness": "30s", "wait_ms": 0}
    )
    assert (late.status_code, late.headers["Strandline-Behind-Records"]) == (200, "0"), late.text
    insert(served)
    assert client.get(row, params={"at_least": f"visits@0:{end + 1}", "wait_ms": 0}).status_code == 503


def served_end(served: ServedLake) -> int:
    """The offset behind the last record of the topic."""
    return LocalLog(served.lake).end_offsets("visits")[0]


def test_lists_and_descriptions_say_it(client: TestClient, served: ServedLake) -> None:
    def told() -> list[Any]:
        (listed,) = [each for each in client.get("/v1/views").json()["views"] if each["name"] == "by_town"]
        described = client.get("/v1/views/by_town").json()
        return [listed["behind_records"], described["behind_records"]]

    wait_until(lambda: told() == [0, 0], "the topic is not looked at")
    insert(served)
    wait_until(lambda: told() == [1, 1], "the topic is not looked at")


PUSHED = "/v1/views/by_town/changes"


def progress(text: str) -> list[dict[str, Any]]:
    """What each progress event says."""
    blocks = [block.split("\ndata: ") for block in text.strip().split("\n\n") if block.startswith("event: progress")]
    return [json.loads(data) for _, data in blocks]


def test_subscribers_are_told_with_each_version(client: TestClient, served: ServedLake) -> None:
    wait_until(lambda: client.get(ROW).json()["staleness_ms"] is not None, "the topic is not looked at")
    found = client.get(PUSHED, params={"as_of": 0, "up_to": 1, "max_staleness": "30s"})
    assert found.headers["Strandline-Behind-Records"] == "0"
    (about,) = progress(found.text)
    assert (about["version"], about["behind_records"]) == (1, 0)
    assert 0 <= about["staleness_ms"] < 30_000
    assert about["freshness_ms"] > 0
    assert about["event_time"].startswith("2024-05-01T00:00:00")
    insert(served)
    wait_until(lambda: client.get(ROW).json()["behind_records"] == 1, "the topic is not looked at")
    late = client.get(PUSHED, params={"as_of": 0, "up_to": 1})
    assert (progress(late.text)[0]["behind_records"], late.headers["Strandline-Behind-Records"]) == (1, "1")


def test_a_subscription_is_refused_or_ends_where_it_is_too_far_behind(
    client: TestClient, served: ServedLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.jobs.server.state.hub._ALLOWED_SECONDS", 0.0)
    with client.stream("GET", PUSHED, params={"max_staleness": "300ms"}) as found:
        assert found.status_code == 200
        lines = found.iter_lines()
        next(line for line in lines if line == "event: progress")
        insert(served)
        quiet = [line for line in lines if line.startswith("event: ")]
    assert quiet[-1] == "event: error"
    assert set(quiet[:-1]) <= {"event: progress"}
    refused = client.get(PUSHED, params={"max_staleness": "300ms", "wait_ms": 0})
    assert (refused.status_code, refused.json()["code"]) == (503, "serve.too_stale")
    run(served)
    caught_up = client.get(PUSHED, params={"max_staleness": "30s", "as_of": 0, "up_to": 1})
    assert caught_up.status_code == 200
    assert progress(caught_up.text)[0]["version"] == 1


@pytest.mark.parametrize(
    ("path", "text", "given"), [("/query", "ksql", "streamsProperties"), ("/query-stream", "sql", "properties")]
)
def test_ksqldbs_clients_ask_by_a_property(
    client: TestClient, served: ServedLake, monkeypatch: pytest.MonkeyPatch, path: str, text: str, given: str
) -> None:
    monkeypatch.setattr("strandline.jobs.server.http.ksql.WAIT_SECONDS", 0.0)

    def sent(sql: str, allowed: str) -> Any:
        return client.post(path, json={text: f"{sql};", given: {"strandline.max_staleness": allowed}})

    push = "SELECT * FROM by_town EMIT CHANGES LIMIT 0"
    wait_until(lambda: client.get(ROW).json()["staleness_ms"] is not None, "the topic is not looked at")
    for sql in (KEY, SUM, push):
        found = sent(sql, "30s")
        assert (found.status_code, found.headers["Strandline-Behind-Records"]) == (200, "0"), found.text
    insert(served)
    for sql in (KEY, SUM, push):
        refused = sent(sql, "1ms")
        assert (refused.status_code, refused.json()["error_code"]) == (503, 50300), sql
        assert "behind its topics" in refused.json()["message"]
    assert sent(KEY, "soon").status_code == 400


def test_sessions_ask_by_a_setting(served: ServedLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.jobs.server.postgres.asking._STALE_SECONDS", 0.0)
    options = ServerOptions(tmp_path / "postgres", queries=1)
    with (
        postgres_server(served.settings, options) as address,
        psycopg.connect(address, autocommit=True) as session,
    ):
        session.execute("SET strandline.max_staleness = '30s'")
        assert session.execute(SUM).fetchall() == [(1,)]
        assert session.execute("SHOW strandline.behind_records").fetchall() == [("0",)]
        insert(served)
        session.execute("SET strandline.max_staleness = '1ms'")
        for sql in (SUM, KEY):
            with pytest.raises(errors.ObjectNotInPrerequisiteState, match="behind its topics"):
                session.execute(sql)
        session.execute("RESET strandline.max_staleness")
        assert session.execute(SUM).fetchall() == [(1,)]
        with pytest.raises(errors.InvalidParameterValue):
            session.execute("SET strandline.max_staleness = 'soon'")


def test_a_topic_that_was_made_again_is_reflected_by_no_answer(client: TestClient, served: ServedLake) -> None:
    """It has as many records as the former one had, so its offsets look as if all were there."""
    wait_until(lambda: client.get(ROW).json()["behind_records"] == 0, "the topic is not looked at")
    topic = served.lake.topic("visits")
    assert isinstance(topic, Path)
    remove_folder(topic)
    log = LocalLog(served.lake)
    log.ensure_topic("visits", 1)
    log.produce("visits", [Record(None, b"{}", 1)])
    wait_until(lambda: client.get(ROW).json()["behind_records"] == 1, "the topic is taken for the former one")
    for answer in refused(client, "30s"):
        assert "topic 'visits' was deleted and made again" in answer.json()["message"]
    assert client.get(ROW).status_code == 200, "who does not ask is answered"


def test_what_was_never_seen_is_not_known(served: ServedLake) -> None:
    topics = Topics(served.settings, served.lake)
    try:
        assert topics.lag(None) is None
        assert topics.lag({"visits": Reach({0: 1})}) is None
        assert topics.lag({}) == Lag(0, 0, True)
        topics.look(["visits"])
        behind, met = topics.lag({"visits": Reach({})}), topics.lag({"visits": Reach({0: 1})})
        assert behind is not None
        assert met is not None
        assert (behind.records, behind.known) == (1, False)
        assert (met.records, met.known) == (0, True)
    finally:
        topics.close()


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("2s", 2.0), ("1 min", 60.0), (None, None)])
def test_durations(text: str | None, seconds: float | None) -> None:
    assert staleness(text) == seconds


@pytest.mark.parametrize("text", ["2", "-1s", "s", 2, "2 h", True])
def test_what_is_no_duration_is_refused(text: object) -> None:
    with pytest.raises(RequestRefused):
        staleness(text)
