"""Partial views over HTTP: rows by key, read-your-writes, what cannot be asked, and what /metrics says."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.server.state.partials import Partials
from strandline.jobs.session.interpreter import Interpreter
from tests.support.served_lake import ServedLake
from tests.support.server_of import server_of
from tests.support.waiting import wait_until

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town WITH (STATE = 'partial') AS
        SELECT town, COUNT(*) AS visits, SUM(n) AS n FROM visits GROUP BY town;
    CREATE TABLE hourly WITH (STATE = 'partial') AS
        SELECT town, WINDOWSTART AS windowstart, WINDOWEND AS windowend, COUNT(*) AS visits
        FROM visits WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY town;
"""
ROME = {"town": "Rome", "visits": 2, "n": 5}


@pytest.fixture
def served(tmp_path_factory: pytest.TempPathFactory) -> ServedLake:
    made = ServedLake(load_settings(lake=tmp_path_factory.mktemp("served") / "lake"), DEFINITIONS)
    towns = ("Rome", "Oslo", "Kyiv", "Rome")
    made.append("visits", [{"id": number, "town": town, "n": number + 1} for number, town in enumerate(towns)])
    return made


@pytest.fixture
def client(served: ServedLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    app = application(served.settings, ServerOptions(tmp_path_factory.mktemp("server"), queries=1))
    with TestClient(app, "http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def partials(client: TestClient) -> Partials:
    return server_of(client).partials


def counts(client: TestClient, view: str) -> dict[str, float]:
    lines = (line for line in client.get("/metrics").text.splitlines() if f'{{view="{view}"}}' in line)
    pairs = (line.split(f'{{view="{view}"}} ') for line in lines if line.startswith("strandline_partial_"))
    return {name.removeprefix("strandline_partial_").removesuffix("_total"): float(value) for name, value in pairs}


def test_rows_by_key_are_computed_then_kept_and_counted(client: TestClient) -> None:
    first = client.get("/v1/views/by_town/rows/Rome")
    assert first.status_code == 200
    assert first.json()["row"] == ROME
    assert first.json()["versions"] == {"visits": 1}
    assert client.get("/v1/views/by_town/rows/Nowhere").status_code == 404
    assert client.get("/v1/views/by_town/rows?key=Rome&key=Oslo&columns=visits").json()["rows"] == [
        {"visits": 2},
        {"visits": 1},
    ]
    posted = client.post("/v1/views/by_town/rows", json={"keys": ["Rome", ["Kyiv"]]}).json()
    assert [row["town"] for row in posted["rows"]] == ["Rome", "Kyiv"]
    found = counts(client, "by_town")
    assert (found["hits"], found["misses"], found["upqueries"], found["kept"]) == (2, 4, 4, 4)
    assert found["bytes"] > 0


def test_the_windows_of_a_key_are_read_by_its_first_column(client: TestClient) -> None:
    (row,) = client.get("/v1/views/hourly/rows?key=Rome").json()["rows"]
    assert row["visits"] == 2
    assert client.get(f"/v1/views/hourly/rows?key=Rome&window_start_from={row['windowend']}").json()["rows"] == []


def test_a_reader_sees_what_was_inserted_before(client: TestClient, served: ServedLake) -> None:
    assert client.get("/v1/views/by_town/rows/Rome").json()["row"] == ROME
    assert client.get("/v1/views/by_town/rows/Rome?at_least=visits@0:5&wait_ms=50").status_code == 503
    served.append("visits", [{"id": 9, "town": "Rome", "n": 10}])
    found = client.get("/v1/views/by_town/rows/Rome?at_least=visits@0:5&wait_ms=600000")
    assert found.json()["row"] == {"town": "Rome", "visits": 3, "n": 15}


def test_a_view_that_is_read_no_more_follows_its_inputs(client: TestClient, served: ServedLake) -> None:
    client.get("/v1/views/by_town/rows/Rome")
    served.append("visits", [{"id": 9, "town": "Rome", "n": 10}])
    wait_until(lambda: counts(client, "by_town")["dropped"] >= 1, lambda: str(counts(client, "by_town")))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/views/by_town/rows", "read by key"),
        ("/v1/views/by_town/rows?from=A&to=Z", "read by key"),
        ("/v1/views/by_town/rows/Rome?at_least=3", "no versions of its own"),
        ("/v1/views/by_town/changes", "no changes to follow"),
    ],
)
def test_what_cannot_be_asked_of_a_partial_view(client: TestClient, path: str, said: str) -> None:
    found = client.get(path)
    assert found.status_code == 400
    assert said in found.json()["message"]
    assert found.json()["hint"]


def test_a_query_reads_the_keys_that_it_names(client: TestClient) -> None:
    found = client.post("/v1/query", json={"sql": "SELECT n FROM by_town WHERE town = 'Rome'"})
    assert found.json()["rows"] == [{"n": 5}]
    refused = client.post("/v1/query", json={"sql": "SELECT SUM(n) FROM by_town"})
    assert (refused.status_code, refused.json()["code"]) == (400, "serve.key_required")


def test_keys_by_or_limit_and_joins(client: TestClient) -> None:
    joined = "visits v JOIN by_town b ON v.town = b.town"
    for sql, towns in (
        ("SELECT town FROM by_town WHERE town = 'Rome' OR town = 'Kyiv' ORDER BY town", ["Kyiv", "Rome"]),
        ("SELECT town FROM by_town WHERE (town = 'Rome' AND n > 9) OR town IN ('Kyiv', 'Nowhere')", ["Kyiv"]),
        ("SELECT town FROM by_town WHERE town IN ('Rome', 'Oslo', 'Kyiv') ORDER BY n DESC LIMIT 1", ["Rome"]),
        (f"SELECT v.town FROM {joined} WHERE b.town = 'Kyiv'", ["Kyiv"]),
        (f"SELECT MAX(b.town) AS town FROM {joined} WHERE b.town IN ('Rome', 'Oslo')", ["Rome"]),
        ("SELECT b.town FROM by_town b LEFT JOIN visits v ON v.n = b.visits WHERE b.town = 'Kyiv'", ["Kyiv"]),
    ):
        found = client.post("/v1/query", json={"sql": sql}).json()
        assert [row["town"] for row in found["rows"]] == towns, (sql, found)
    found = client.post("/v1/query", json={"sql": "SELECT town FROM by_town WHERE town IN ('Rome', 'Kyiv') LIMIT 1"})
    assert len(found.json()["rows"]) == 1


def test_what_names_no_keys_is_refused(client: TestClient) -> None:
    for where in (
        "b.town = 'Rome' OR b.n = 5",
        "NOT b.town = 'Rome'",
        "b.town = 'Rome' OR b.town LIKE 'K%'",
        "b.n = 5",
    ):
        for source in ("by_town b", "by_town b JOIN visits v ON v.town = b.town"):
            refused = client.post("/v1/query", json={"sql": f"SELECT 1 AS one FROM {source} WHERE {where}"})
            assert (refused.status_code, refused.json()["code"]) == (400, "serve.key_required"), (where, source)


@pytest.mark.parametrize("name", ["by_town", "visits"])
def test_a_query_of_a_partial_view_waits_for_a_position(client: TestClient, served: ServedLake, name: str) -> None:
    body = {"sql": "SELECT n FROM by_town WHERE town = 'Rome'", "wait_ms": 10}
    assert client.post("/v1/query", json={**body, "at_least": {name: "visits@0:5"}}).status_code == 503
    served.append("visits", [{"id": 9, "town": "Rome", "n": 10}])
    assert client.post("/v1/query", json={**body, "at_least": {name: "visits@0:5"}}).json()["rows"] == [{"n": 15}]
    refused = client.post("/v1/query", json={**body, "at_least": {"by_town": 1}})
    assert (refused.status_code, "no versions of its own" in refused.json()["message"]) == (400, True)


def test_a_view_that_is_dropped_is_followed_no_more(client: TestClient, served: ServedLake) -> None:
    client.get("/v1/views/by_town/rows/Rome")
    client.get("/v1/views/hourly/rows?key=Rome")
    (followed,) = (each for each in partials(client).all() if each.definition.name == "by_town")
    assert list(Interpreter(served.settings).run("DROP TABLE by_town;"))
    served.append("visits", [{"id": 9, "town": "Rome", "n": 10}])
    wait_until(lambda: followed.ended, "the thread of a dropped view goes on")
    assert [each.definition.name for each in partials(client).all()] == ["hourly"]
    assert client.get("/v1/views/by_town/rows/Rome").status_code == 404


def test_a_view_that_is_made_anew_is_opened_anew(client: TestClient, served: ServedLake) -> None:
    client.get("/v1/views/by_town/rows/Rome")
    (before,) = partials(client).all()
    again = """DROP TABLE by_town; CREATE TABLE by_town WITH (STATE = 'partial') AS
        SELECT town, COUNT(*) + 10 AS visits, SUM(n) AS n FROM visits GROUP BY town;"""
    assert list(Interpreter(served.settings).run(again))
    wait_until(
        lambda: client.get("/v1/views/by_town/rows/Rome").json()["row"] == {**ROME, "visits": 12},
        "the old view is read",
    )
    (after,) = partials(client).all()
    wait_until(lambda: before.ended, "the thread of the old view goes on")
    assert not after.ended


def test_views_and_lineage_say_that_it_is_partial(client: TestClient) -> None:
    listed = {each["name"]: each for each in client.get("/v1/views").json()["views"]}
    assert listed["by_town"]["state"] == "partial"
    nodes = {each["id"]: each for each in client.get("/v1/lineage").json()["nodes"]}
    assert (nodes["by_town"]["state"], nodes["visits"]["state"]) == ("partial", "full")
