"""Look-ups over HTTP: by key, list, range and window, from the table and then from the replica, with equal answers."""

from __future__ import annotations

import pyarrow as pa
import pytest
from fastapi.testclient import TestClient

from strandline.jobs.server.http.answers import ARROW
from tests.support.served_lake import ServedLake
from tests.support.waiting import wait_until

ROME = {"town": "Rome", "visits": 2, "n": 5}


@pytest.fixture(params=["table", "replica"])
def by(request: pytest.FixtureRequest, client: TestClient) -> str:
    """What answers. The first look-up of a view makes its replica, which answers from then on."""
    if request.param == "replica":
        for view in ("by_town", "by_id", "hourly", "places"):
            client.get(f"/v1/views/{view}/rows?limit=0")
        ready = {"status": "ready", "live": 4, "failing": 0, "replicas": 4, "lost": 0}
        wait_until(lambda: client.get("/ready").json() == ready, lambda: client.get("/ready").json())
    return str(request.param)


def test_a_row_by_its_key_with_what_it_reflects(client: TestClient, served: ServedLake, by: str) -> None:
    found = client.get("/v1/views/by_town/rows/Rome")
    assert found.status_code == 200
    body = found.json()
    assert body["row"] == ROME
    assert found.headers["strandline-version"] == str(body["version"])
    assert body["event_time"].startswith("2024-05-01T00:00:0")
    assert body["freshness_ms"] >= 0


def test_a_key_that_is_not_there_is_404_with_the_version(client: TestClient, by: str) -> None:
    found = client.get("/v1/views/by_town/rows/Nowhere")
    assert (found.status_code, found.json()["row"]) == (404, None)
    assert "strandline-version" in found.headers


def test_a_slash_in_a_value_is_written_as_percent_2f(client: TestClient, by: str) -> None:
    assert client.get("/v1/views/by_town/rows/a%2Fb%20%C3%BC").json()["row"]["visits"] == 1


def test_each_column_of_a_key_is_a_segment(client: TestClient, by: str) -> None:
    assert client.get("/v1/views/by_id/rows/0/Rome").json()["row"] == {"id": 0, "town": "Rome", "visits": 1}
    assert client.get("/v1/views/by_id/rows/0").status_code == 400


def test_lists_ranges_columns_and_limits(client: TestClient, by: str) -> None:
    def towns(query: str) -> list[str]:
        return sorted(row["town"] for row in client.get(f"/v1/views/by_town/rows?{query}").json()["rows"])

    assert towns("key=Rome&key=Oslo&key=Nowhere") == ["Oslo", "Rome"]
    assert towns("from=Oslo&to=Rome&columns=town") == ["Oslo", "Rome"]
    assert towns("from=P") == ["Rome", "a/b ü"]
    assert len(towns("limit=1")) == 1
    assert client.get("/v1/views/by_id/rows?key=0").json()["rows"] == [{"id": 0, "town": "Rome", "visits": 1}]
    found = client.post("/v1/views/by_id/rows", json={"keys": [[3, "Rome"], [1]]}).json()["rows"]
    assert sorted(row["id"] for row in found) == [1, 3]


def test_bounds_of_windows(client: TestClient, by: str) -> None:
    (row,) = client.get("/v1/views/hourly/rows?key=Rome").json()["rows"]
    start = row["windowstart"]
    assert client.get(f"/v1/views/hourly/rows?key=Rome&window_start_from={start}").json()["rows"] == [row]
    assert client.get(f"/v1/views/hourly/rows?key=Rome&window_start_from={start + 1}").json()["rows"] == []
    assert client.get("/v1/views/by_town/rows?window_start_from=1").status_code == 400


def test_values_are_shown_as_on_the_command_line(client: TestClient, by: str) -> None:
    shown = client.get("/v1/views/places/rows/Rome").json()["row"]
    assert shown == {"name": "Rome", "tags": {"hot": 1}, "opens": "09:35:00.250"}


def test_arrow_has_the_types_of_the_view(client: TestClient, by: str) -> None:
    found = client.get("/v1/views/by_town/rows?key=Rome", headers={"accept": ARROW})
    table = pa.ipc.open_stream(found.content).read_all()
    assert table.to_pylist() == [ROME]
    assert table.schema.field("visits").type == pa.int64()


def test_arrow_has_a_map_as_pairs_and_a_time_as_it_is_stored(client: TestClient, by: str) -> None:
    found = client.get("/v1/views/places/rows?key=Rome&columns=opens,tags", headers={"accept": ARROW})
    table = pa.ipc.open_stream(found.content).read_all()
    assert table.to_pylist() == [{"opens": 34_500_250, "tags": [("hot", 1)]}]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/views/nothing/rows/1", 404, "sql.unknown_name"),
        ("/v1/views/by_id/rows/x/Rome", 400, "serve.request_refused"),
        ("/v1/views/by_town/rows?columns=no", 400, "serve.request_refused"),
        ("/v1/views/by_town/rows?limit=-1", 400, "serve.request_refused"),
        ("/v1/views/by_town/rows?at_least=soon", 400, "serve.request_refused"),
        ("/v1/views/by_town/rows?at_least=999&wait_ms=20", 503, "serve.not_yet"),
        ("/v1/views/visits/rows?key=1", 400, "serve.request_refused"),
    ],
)
def test_what_cannot_be_answered_says_why(client: TestClient, path: str, status: int, code: str) -> None:
    found = client.get(path)
    assert (found.status_code, found.json()["code"]) == (status, code)
    assert ("retry-after" in found.headers) is (status == 503)


def test_what_was_inserted_is_read_at_its_position_and_versions_never_go_back(
    client: TestClient, served: ServedLake
) -> None:
    versions = []
    with served.duckdb_engine() as duckdb_engine:
        for count in range(1, 4):
            position = client.post("/v1/streams/trips", json={"rows": [{"id": 9, "town": "Lima"}]}).json()
            behind = f"/v1/views/trips_to/rows/Lima?at_least={position['position']}"
            assert client.get(f"{behind}&wait_ms=10").status_code == 503
            served.ingest("trips")
            served.refresh(duckdb_engine)
            found = client.get(behind)
            assert found.json()["row"]["trips"] == count
            versions.append(found.json()["version"])
    assert versions == sorted(versions)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/views/by_town/rows?version=3", "known: at_least"),
        ("/v1/views/by_town/rows/Rome?versions=3", "known: at_least, columns, cut, max_staleness, wait_ms"),
        ("/v1/views/by_town/rows?colums=town", "did you mean 'columns'?"),
        ("/v1/views/by_town/changes?from=3", "did you mean 'form'?"),
        ("/v1/views?limit=3", "it takes no parameter"),
        ("/v1/openapi.json?x", "it takes no parameter"),
    ],
)
def test_a_parameter_that_a_route_does_not_know_is_refused(client: TestClient, path: str, said: str) -> None:
    found = client.get(path)
    assert (found.status_code, found.json()["code"]) == (400, "serve.request_refused")
    assert said in found.json()["hint"]


def test_a_member_of_a_body_that_is_not_known_is_refused(client: TestClient) -> None:
    for path, body in (
        ("/v1/query", {"sql": "SELECT 1", "at_most": {}}),
        ("/v1/views/by_town/rows", {"keys": [["Rome"]], "column": "town"}),
        ("/v1/streams/visits", {"rows": [{"id": 1}], "row": []}),
    ):
        found = client.post(path, json=body)
        assert (found.status_code, "unknown member" in found.json()["message"]) == (400, True), found.text


def test_the_description_has_the_parameters(client: TestClient) -> None:
    told = client.get("/v1/openapi.json").json()["paths"]["/v1/views/{view}/changes"]["get"]["parameters"]
    assert {"form", "where", "as_of"} <= {each["name"] for each in told}
