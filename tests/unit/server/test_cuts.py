"""Pinned cuts: several requests, and the queries of a transaction, read the same versions, which are kept for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient
from psycopg import errors

from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.consistent_snapshot import Pinned, pin
from strandline.jobs.serve.errors import NoConsistentSnapshot, RequestRefused, SnapshotExpired
from strandline.jobs.server.app import application
from strandline.jobs.server.postgres import asking
from strandline.jobs.server.state.access import ServerOptions
from strandline.state_store import leases
from strandline.state_store.delta.heads import set_aside
from tests.support.on_disk import on_disk
from tests.support.postgres_server import postgres_server
from tests.support.served_lake import ServedLake
from tests.support.server_of import server_of

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
    CREATE TABLE totals AS SELECT n, COUNT(*) AS visits FROM visits GROUP BY n;
"""
BOTH = ("SELECT SUM(visits) AS n FROM by_town", "SELECT SUM(visits) AS n FROM totals")


@pytest.fixture
def served(tmp_path: Path) -> ServedLake:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    visit(served)
    return served


def visit(served: ServedLake, *views: str) -> None:
    served.append("visits", [{"id": 1, "town": "Rome", "n": 1}])
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine, views or None)


@pytest.fixture
def client(served: ServedLake, tmp_path: Path) -> Iterator[TestClient]:
    app = application(served.settings, ServerOptions(tmp_path / "server", queries=1))
    with TestClient(app, "http://127.0.0.1") as client:
        yield client


@pytest.fixture
def postgres(served: ServedLake, tmp_path: Path) -> Iterator[str]:
    with postgres_server(served.settings, ServerOptions(tmp_path / "postgres", queries=1)) as address:
        yield address


@pytest.fixture
def session(postgres: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(postgres, autocommit=True) as connection:
        yield connection


def sums(client: TestClient, cut: str) -> list[int]:
    found = [client.post("/v1/query", json={"sql": text, "cut": cut}).json() for text in BOTH]
    return [each["rows"][0]["n"] for each in found]


def pinned(client: TestClient, **body: object) -> dict[str, Any]:
    answer = client.post("/v1/cuts", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def test_requests_of_one_cut_read_one_moment(client: TestClient, served: ServedLake) -> None:
    before = pinned(client)
    visit(served, "by_town")
    visit(served)
    assert sums(client, before["cut"]) == [1, 1]
    assert sums(client, pinned(client)["cut"]) == [3, 3]
    row = client.get("/v1/views/by_town/rows/Rome", params={"cut": before["cut"]}).json()
    assert (row["row"]["visits"], row["version"]) == (1, before["versions"]["by_town"])
    key = {"sql": "SELECT visits FROM by_town WHERE town = 'Rome'", "cut": before["cut"]}
    assert client.post("/v1/query", json=key).json()["rows"] == [{"visits": 1}]


def test_changes_begin_with_the_rows_of_a_cut(client: TestClient, served: ServedLake) -> None:
    before = pinned(client)
    visit(served)
    upto = before["versions"]["by_town"] + 1
    with client.stream("GET", f"/v1/views/by_town/changes?cut={before['cut']}&up_to={upto}") as answer:
        data = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: ")]
    assert [each["row"]["visits"] for each in data if "row" in each] == [1, 2]


def test_a_table_that_stands_far_behind_is_left_out(served: ServedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would drag the others back to where it stands."""
    visit(served, "by_town")
    monkeypatch.setattr("strandline.jobs.serve.consistent_snapshot._DRAG_MS", 0)
    with_all = pin(["by_town", "totals", "visits"], served.lake, 60, ["by_town"])
    assert set(with_all.tables) == {"by_town", "visits"}
    with pytest.raises(NoConsistentSnapshot, match="'totals' is not in the pinned cut"):
        with_all.cut(["totals"], served.lake)


def test_what_has_expired_says_so(served: ServedLake, client: TestClient) -> None:
    late = pin(["by_town"], served.lake, -1)
    answer = client.post("/v1/query", json={"sql": BOTH[0], "cut": late.text()})
    assert (answer.status_code, answer.json()["code"]) == (410, "serve.cut_expired")
    kept = pin(["by_town"], served.lake, 60)
    set_aside(served.lake, "by_town")
    visit(served)
    with pytest.raises(SnapshotExpired):
        kept.cut(["by_town"], served.lake)


@pytest.mark.parametrize("text", ["", "x", "eJw", "é", "AAAA" * 1000])
def test_what_is_no_cut_is_refused(text: str) -> None:
    with pytest.raises(RequestRefused):
        Pinned.read(text)


def test_a_token_is_the_cut_that_it_stands_for(served: ServedLake) -> None:
    found = pin(["by_town", "totals"], served.lake, 60)
    assert Pinned.read(found.text()) == found


def test_leases_hold_the_versions_until_the_cut_is_given_back(client: TestClient, served: ServedLake) -> None:
    cuts = server_of(client).cuts
    folder = on_disk(served.lake.table("by_town")) / leases.FOLDER

    def leased() -> list[int]:
        return [json.loads(file.read_bytes())["version"] for file in folder.glob("serve-*-cuts.json")]

    first = cuts.pin(60)
    visit(served)
    second = cuts.pin(60)
    assert leased() == [first.versions["by_town"]]
    cuts.release(first)
    cuts.sweep()
    assert leased() == [second.versions["by_town"]]
    cuts.release(second)
    cuts.sweep()
    assert leased() == []


def test_a_transaction_reads_one_cut(session: psycopg.Connection[Any], served: ServedLake) -> None:
    for level in ("REPEATABLE READ", "SERIALIZABLE"):
        session.execute(f"BEGIN ISOLATION LEVEL {level}, READ ONLY")
        assert session.execute("SHOW transaction_isolation").fetchall() == [(level.lower(),)]
        [[first]] = session.execute(BOTH[0]).fetchall()
        visit(served, "by_town")
        visit(served)
        assert session.execute(BOTH[1]).fetchone() == session.execute(BOTH[0]).fetchone() == (first,)
        key = session.execute("SELECT visits FROM by_town WHERE town = 'Rome'").fetchone()
        assert key == (first,)
        session.execute("COMMIT")
        assert session.execute(BOTH[1]).fetchone() == (first + 2,)


def test_other_transactions_read_the_newest_cut(session: psycopg.Connection[Any], served: ServedLake) -> None:
    session.execute("BEGIN")
    assert session.execute(BOTH[0]).fetchone() == (1,)
    visit(served)
    assert session.execute(BOTH[0]).fetchone() == (2,)
    session.execute("COMMIT")


def test_a_session_may_pin_every_transaction(session: psycopg.Connection[Any], served: ServedLake) -> None:
    session.execute("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    session.execute("BEGIN")
    assert session.execute(BOTH[0]).fetchone() == (1,)
    visit(served)
    assert session.execute(BOTH[0]).fetchone() == (1,)
    with pytest.raises(errors.ActiveSqlTransaction):
        session.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    session.execute("ROLLBACK")
    session.execute("BEGIN")
    session.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
    assert session.execute(BOTH[0]).fetchone() == (2,)
    session.execute("COMMIT")


@pytest.mark.parametrize(
    "options",
    [
        r"-c default_transaction_isolation=repeatable\ read",
        "-cdefault_transaction_isolation=SERIALIZABLE -c statement_timeout=5s",
        "--default-transaction-isolation=serializable",
    ],
)
def test_what_options_of_the_connection_say_counts(postgres: str, served: ServedLake, options: str) -> None:
    with psycopg.connect(postgres, options=options) as session:
        assert session.execute(BOTH[0]).fetchone() == (1,)
        visit(served)
        assert session.execute(BOTH[1]).fetchone() == (1,)


@pytest.mark.parametrize("options", ["-c", "-c x", "-B 12", "statement_timeout=5", "-c =1", "--"])
def test_options_that_are_no_settings_are_refused(postgres: str, options: str) -> None:
    with pytest.raises(psycopg.OperationalError, match="is not taken"):
        psycopg.connect(postgres, options=options)


def test_a_transaction_that_lasts_too_long_is_told(
    session: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "_CUT_SECONDS", -1.0)
    session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    with pytest.raises(psycopg.DatabaseError) as refused:
        session.execute(BOTH[0])
    assert refused.value.sqlstate == "72000"
    session.execute("ROLLBACK")


def test_tables_as_they_were(client: TestClient, served: ServedLake) -> None:
    visit(served)
    text = "SELECT visits FROM by_town VERSION AS OF 1 WHERE town = 'Rome'"
    found = client.post("/v1/query", json={"sql": text}).json()
    assert (found["rows"], found["versions"]) == ([{"visits": 1}], {"by_town": 1})
    changes = {"sql": "SELECT visits, _change_type FROM table_changes('by_town', 2) ORDER BY visits"}
    assert client.post("/v1/query", json=changes).json()["rows"] == [
        {"visits": 1, "_change_type": "update_preimage"},
        {"visits": 2, "_change_type": "update_postimage"},
    ]
    late = client.post("/v1/query", json={"sql": "SELECT * FROM by_town VERSION AS OF 9"})
    assert (late.status_code, late.json()["code"]) == (410, "serve.version_not_kept")


def test_sessions_read_tables_as_they_were(session: psycopg.Connection[Any], served: ServedLake) -> None:
    visit(served)
    text = "SELECT visits FROM public.by_town AS OF VERSION 1 WHERE town = %s"
    assert session.execute(text, ("Rome",), prepare=True).fetchall() == [(1,)]
    with pytest.raises(psycopg.DatabaseError) as refused:
        session.execute("SELECT * FROM by_town VERSION AS OF 9")
    assert refused.value.sqlstate == "72000"
