"""A server whose definitions get other names while it is at work: routes, places of readers, scopes, PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from fastapi.testclient import TestClient

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions, make_token
from strandline.jobs.session.interpreter import Interpreter
from tests.support.postgres_server import postgres_server
from tests.support.served_lake import ServedLake
from tests.support.waiting import wait_until
from tests.unit.server.conftest import DEFINITIONS, LIMITS
from tests.unit.server.test_changes import events

NAMES = "ALTER TABLE by_town RENAME TO towns; ALTER STREAM visits RENAME TO seen; ALTER STREAM trips RENAME TO tours;"


@pytest.fixture(scope="module")
def renamed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, ServedLake, Path]]:
    folder = tmp_path_factory.mktemp("renamed")
    served = ServedLake(load_settings(lake=folder / "lake"), DEFINITIONS)
    file = folder / "tokens.json"
    make_token(file, "nobody", ("read:nothing",), None)
    options = ServerOptions(folder / "server", tokens=file, limits=LIMITS, queries=1)
    with (
        served.duckdb_engine() as duckdb_engine,
        TestClient(application(served.settings, options), "http://127.0.0.1", raise_server_exceptions=False) as client,
    ):
        served.append("visits", [{"id": 1, "town": "Rome", "n": 1}, {"id": 2, "town": "Oslo", "n": 2}])
        served.refresh(duckdb_engine)
        former = bearer(file, "read:by_town")
        # A replica and a feed that were begun under the former names go on.
        assert client.get("/v1/views/by_town/rows/Rome", headers=former).json()["row"]["visits"] == 1
        before = events(client.get("/v1/views/by_town/changes?limit=2", headers=former).text)
        list(Interpreter(served.settings).run(NAMES))
        served.append("visits", [{"id": 3, "town": "Rome", "n": 5}])
        served.refresh(duckdb_engine)
        client.headers["x-last"] = before[-1][1]
        yield client, served, file


def bearer(file: Path, *scopes: str) -> dict[str, str]:
    return {"authorization": f"Bearer {make_token(file, 'reader', scopes, None)}"}


def test_rows_by_the_new_name(renamed: tuple[TestClient, ServedLake, Path]) -> None:
    client, _, file = renamed
    headers = bearer(file, "read:*")

    def visits(path: str) -> object:
        body = client.get(f"/v1/views/towns/{path}", headers=headers).json()
        return (body["row"] if "row" in body else body["rows"][0])["visits"]

    wait_until(lambda: visits("rows/Rome") == 2, "the replica does not follow the renamed view")
    for path in ("rows/Rome", "rows?key=Rome", "rows?columns=town,visits&key=Rome"):
        assert visits(path) == 2
    gone = client.get("/v1/views/by_town/rows/Rome", headers=headers)
    assert gone.status_code == 404
    assert gone.json()["message"] == "`by_town` is called 'towns' now"
    assert client.get("/v1/views/by_town", headers=headers).json()["hint"] == "write towns"


def test_a_subscriber_goes_on_at_its_place(renamed: tuple[TestClient, ServedLake, Path]) -> None:
    client, _, file = renamed
    headers = {**bearer(file, "read:towns"), "last-event-id": client.headers["x-last"]}
    found = events(client.get("/v1/views/towns/changes?limit=1&where=towns.visits > 1", headers=headers).text)
    assert [row[2]["row"] for row in found if row[0] == "change"] == [{"town": "Rome", "visits": 2, "n": 6}]


def test_queries_and_what_they_reflect(renamed: tuple[TestClient, ServedLake, Path]) -> None:
    client, _, file = renamed
    headers = bearer(file, "read:*")
    asked = {"sql": "SELECT towns.n FROM towns WHERE town = 'Rome'", "at_least": {"towns": 1}}
    answer = client.post("/v1/query", json=asked, headers=headers)
    assert answer.json()["rows"] == [{"n": 6}]
    assert answer.json()["versions"].keys() == {"towns"}
    plan = client.post("/v1/query", json={"sql": "EXPLAIN towns"}, headers=headers).json()["rows"]
    assert {"plan": "'towns' is stored as `by_town`"} in plan
    wrong = client.post("/v1/query", json={"sql": "SELECT nope FROM towns"}, headers=headers).json()
    assert "by_town" not in wrong["message"]
    former = client.post("/v1/query", json={"sql": "SELECT n FROM by_town"}, headers=headers)
    assert (former.status_code, former.json()["hint"]) == (404, "write towns")
    ksql = client.post("/query", json={"ksql": "SELECT TOWN FROM TOWNS WHERE VISITS > 1;"}, headers=headers).json()
    assert ksql[1]["row"]["columns"] == ["Rome"]
    pushed = {
        "ksql": "SELECT * FROM TOWNS EMIT CHANGES LIMIT 2;",
        "streamsProperties": {"auto.offset.reset": "earliest"},
    }
    assert len(client.post("/query", json=pushed, headers=headers).json()) == 4


def test_inserts_by_the_new_name(renamed: tuple[TestClient, ServedLake, Path]) -> None:
    client, _, file = renamed
    headers = bearer(file, "write:tours")
    assert client.post("/v1/streams/tours", json={"rows": [{"id": 1, "town": "Rome"}]}, headers=headers).is_success
    lines = '{"target": "TOURS"}\n{"id": 2, "town": "Oslo"}'
    assert '"ok"' in client.post("/inserts-stream", content=lines, headers=headers).text
    assert client.post("/v1/streams/trips", json={"rows": []}, headers=headers).status_code == 404


def test_what_is_listed(renamed: tuple[TestClient, ServedLake, Path]) -> None:
    client, _, file = renamed
    headers = bearer(file, "read:*")
    listed = [each["name"] for each in client.get("/v1/views", headers=headers).json()["views"]]
    assert listed[:3] == ["seen", "places", "towns"]
    assert client.get("/v1/views/towns", headers=headers).json()["sql"].startswith("CREATE TABLE towns AS SELECT town")
    graph = client.get("/v1/lineage", headers=headers).json()
    assert ["topic/visits", "seen"] in graph["edges"]
    assert ["seen", "towns"] in graph["edges"]
    assert "by_town" not in {node["id"] for node in graph["nodes"]}
    assert "by_town" not in graph["readers"]


@pytest.mark.parametrize(("scope", "status"), [("by_town", 200), ("towns", 200), ("tow*", 200), ("visits", 403)])
def test_a_scope_is_for_a_definition_by_either_name(
    renamed: tuple[TestClient, ServedLake, Path], scope: str, status: int
) -> None:
    client, _, file = renamed
    headers = bearer(file, f"read:{scope}")
    assert client.get("/v1/views/towns/rows/Rome", headers=headers).status_code == status
    assert client.get("/v1/views/towns/rows", headers=headers).status_code == status
    assert client.post("/v1/query", json={"sql": "SELECT * FROM towns"}, headers=headers).status_code == status
    assert client.get("/v1/views/towns/changes?limit=1", headers=headers).status_code == status
    names = [each["name"] for each in client.get("/v1/views", headers=headers).json()["views"]]
    assert names == (["towns"] if status == 200 else ["seen"])


def test_clients_of_postgresql(renamed: tuple[TestClient, ServedLake, Path], tmp_path: Path) -> None:
    _, served, _ = renamed
    options = ServerOptions(tmp_path / "server", limits=LIMITS, queries=1)
    with (
        postgres_server(served.settings, options) as address,
        psycopg.connect(address, autocommit=True) as session,
    ):
        assert _all(session, "SELECT towns.visits FROM towns WHERE town = %s", "Rome") == [(2,)]
        assert ("towns",) in _all(session, "SELECT relname FROM pg_class WHERE relkind = 'm'")
        [(sql,)] = _all(session, "SELECT definition FROM pg_matviews WHERE matviewname = 'towns'")
        assert "FROM seen" in sql
        assert _all(session, "SELECT relname FROM pg_class WHERE oid = 'towns'::regclass") == [("towns",)]
        with session.cursor() as cursor, cursor.copy("COPY towns (town) TO STDOUT") as copy:
            assert sorted(b"".join(bytes(each) for each in copy).split()) == [b"Oslo", b"Rome"]
        with pytest.raises(psycopg.Error, match="`by_town` is called 'towns' now"):
            _all(session, "SELECT * FROM by_town")


def _all(session: psycopg.Connection[Any], text: str, *values: object) -> list[tuple[Any, ...]]:
    return session.execute(text, values or None).fetchall()


# --- names that are swapped under a server -------------------------------------------------------------------------

BLUE_AND_GREEN = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE STREAM trips (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'trips');
    CREATE TABLE blue AS SELECT town, COUNT(*) AS n FROM visits GROUP BY town;
    CREATE TABLE green AS SELECT town, SUM(n) AS n FROM visits GROUP BY town;
"""


def test_names_that_are_swapped_under_a_server(tmp_path: Path) -> None:
    """Every surface answers from the other table, and a scope is for what is called so now: no token reads both."""
    served = ServedLake(load_settings(lake=tmp_path / "lake"), BLUE_AND_GREEN)
    file = tmp_path / "tokens.json"
    options = ServerOptions(tmp_path / "server", tokens=file, limits=LIMITS, queries=1)
    scopes = {"everybody": ("read:*", "write:*"), "blue": ("read:blue", "write:visits")}
    tokens = {name: f"Bearer {make_token(file, name, each, None)}" for name, each in scopes.items()}
    everybody, only_blue = ({"authorization": token} for token in tokens.values())
    with (
        served.duckdb_engine() as duckdb_engine,
        TestClient(application(served.settings, options), "http://127.0.0.1", raise_server_exceptions=False) as client,
    ):
        served.append("visits", [{"id": 1, "town": "Rome", "n": 40}, {"id": 2, "town": "Rome", "n": 2}])
        served.refresh(duckdb_engine)

        def everywhere(view: str) -> set[object]:
            """What each way to read says of Rome."""
            rows = f"/v1/views/{view}/rows"
            texts = (f"SELECT n FROM {view} WHERE town = 'Rome'", f"SELECT MAX(n) AS n FROM {view}")
            queries = [client.post("/v1/query", json={"sql": text}, headers=everybody).json() for text in texts]
            changes = events(client.get(f"/v1/views/{view}/changes?limit=1", headers=everybody).text)
            answers = [
                client.get(f"{rows}/Rome", headers=everybody).json()["row"],
                client.get(rows, headers=everybody).json()["rows"][0],
                *(each["rows"][0] for each in queries),
                changes[-1][2]["row"],
            ]
            return {each["n"] for each in answers}

        def allowed(view: str) -> set[int]:
            """The statuses of what a token for blue alone asks."""
            return {
                client.get(f"/v1/views/{view}/rows/Rome", headers=only_blue).status_code,
                client.get(f"/v1/views/{view}/rows", headers=only_blue).status_code,
                client.get(f"/v1/views/{view}/changes?limit=1", headers=only_blue).status_code,
                *(
                    client.post("/v1/query", json={"sql": sql}, headers=only_blue).status_code
                    for sql in (f"SELECT n FROM {view} WHERE town = 'Rome'", f"SELECT COUNT(*) FROM {view}")
                ),
                client.post("/ksql", json={"ksql": f"DESCRIBE {view};"}, headers=only_blue).status_code,
            }

        assert (everywhere("blue"), everywhere("green")) == ({2}, {42})
        assert (allowed("blue"), allowed("green")) == ({200}, {403})
        list(Interpreter(served.settings).run("ALTER TABLE blue SWAP WITH green; ALTER STREAM visits SWAP WITH trips;"))
        wait_until(lambda: everywhere("blue") == {42}, "the server does not see the swap")
        assert everywhere("green") == {2}
        assert (allowed("blue"), allowed("green")) == ({200}, {403})
        assert [each["name"] for each in client.get("/v1/views", headers=only_blue).json()["views"]] == ["blue"]
        # What was the topic of visits is that of trips now.
        row = {"id": 3, "town": "Rome", "n": 8}
        assert client.post("/v1/streams/trips", json={"rows": [row]}, headers=only_blue).status_code == 403
        assert client.post("/v1/streams/visits", json={"rows": [row]}, headers=only_blue).is_success
        assert client.post("/v1/streams/trips", json={"rows": [row, row]}, headers=everybody).is_success
        ends = {topic: sum(LocalLog(served.lake).end_offsets(topic).values()) for topic in ("visits", "trips")}
        assert ends == {"visits": 2, "trips": 1}
    with (
        postgres_server(served.settings, ServerOptions(tmp_path / "pg", limits=LIMITS, queries=1)) as address,
        psycopg.connect(address, autocommit=True) as session,
    ):
        assert _all(session, "SELECT blue.n, green.n FROM blue JOIN green ON blue.town = green.town") == [(42, 2)]
        assert _all(session, "SELECT n FROM blue WHERE town = %s", "Rome") == [(42,)]
