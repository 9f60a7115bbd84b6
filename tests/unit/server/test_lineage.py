"""GET /v1/lineage: from topics to views, who reads them, and what a token sees of it."""

from __future__ import annotations

from pathlib import Path

from fastapi.testclient import TestClient

from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions, make_token
from tests.support.served_lake import ServedLake
from tests.support.waiting import wait_until
from tests.unit.server.conftest import LIMITS


def test_rows_go_from_topics_by_event_logs_to_views(client: TestClient) -> None:
    body = client.get("/v1/lineage").json()
    roles = {node["id"]: node["role"] for node in body["nodes"]}
    assert roles["topic/visits"] == roles["topic/places"] == "topic"
    assert roles["visits"] == roles["places__log"] == "event log"
    assert (roles["places"], roles["by_town"]) == ("table", "view")
    assert [e for e in body["edges"] if "place" in e[1]] == [["topic/places", "places__log"], ["places__log", "places"]]
    assert {end for start, end in body["edges"] if start == "visits"} == {"by_town", "by_id", "hourly"}


def test_a_reader_is_named_while_it_holds_a_lease(client: TestClient) -> None:
    assert client.get("/v1/views/by_id/rows?key=1").status_code == 200
    wait_until(lambda: "by_id" in client.get("/v1/lineage").json()["readers"], "no reader is named")


def test_a_token_sees_what_it_may_read(served: ServedLake, client: TestClient, tmp_path: Path) -> None:
    token = make_token(tmp_path / "tokens.json", "towns", ("read:by_*", "read:trips"), None)
    options = ServerOptions(tmp_path / "server", tokens=tmp_path / "tokens.json", limits=LIMITS, queries=1)
    with TestClient(application(served.settings, options), "http://127.0.0.1") as guarded:
        body = guarded.get("/v1/lineage", headers={"authorization": f"Bearer {token}"}).json()
    assert {node["id"] for node in body["nodes"]} == {"by_town", "by_id", "topic/trips", "trips"}
    assert body["edges"] == [["topic/trips", "trips"]]
