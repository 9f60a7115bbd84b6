"""Pages of others: they reach nothing by another name for this machine, and send nothing by themselves."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from tests.support.served_lake import ServedLake
from tests.unit.server.conftest import LIMITS

ROWS = {"rows": [{"id": 1, "town": "Rome", "n": 1}]}


@pytest.fixture(scope="module")
def named(served: ServedLake, client: TestClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server behind a proxy that calls it `data.example.org`."""
    options = ServerOptions(
        tmp_path_factory.mktemp("named"), limits=LIMITS, queries=1, allowed_hosts=("Data.Example.org",)
    )
    with TestClient(application(served.settings, options), "http://127.0.0.1", raise_server_exceptions=False) as found:
        yield found


@pytest.mark.parametrize("path", ["/v1/views/by_town/rows/Rome", "/v1/views", "/health", "/", "/nothing"])
@pytest.mark.parametrize("host", ["evil.example", "evil.example:8088", "127.0.0.1.evil.example", "", "[", "a b"])
def test_another_name_for_this_machine_reads_nothing(client: TestClient, path: str, host: str) -> None:
    found = client.get(path, headers={"Host": host})
    assert (found.status_code, found.json()["code"]) == (403, "serve.forbidden")


@pytest.mark.parametrize("host", ["127.0.0.1:8088", "[::1]:8088", "localhost", "LOCALHOST:1", "10.1.2.3"])
def test_addresses_and_own_names_are_this_server(client: TestClient, host: str) -> None:
    assert client.get("/v1/views", headers={"Host": host}).status_code == 200
    assert client.get("/v1/views", headers={"Host": socket.gethostname()}).status_code == 200


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1:9999", "http://127.0.0.1.evil.example"]
)
def test_a_page_of_another_host_sends_nothing(client: TestClient, served: ServedLake, origin: str) -> None:
    before = LocalLog(served.lake).end_offsets("visits")
    for path, body in (("/v1/streams/visits", ROWS), ("/v1/query", {"sql": "SELECT 1 AS one"})):
        found = client.post(path, json=body, headers={"Origin": origin})
        assert (found.status_code, found.json()["code"]) == (403, "serve.forbidden")
    found = client.post("/inserts-stream", content='{"target": "VISITS"}\n{"ID": 1}', headers={"Origin": origin})
    assert (found.status_code, found.json()["code"]) == (403, "serve.forbidden")
    assert LocalLog(served.lake).end_offsets("visits") == before


def test_the_servers_own_page_may(client: TestClient) -> None:
    headers = {"Host": "localhost:8088", "Origin": "http://localhost:8088"}
    assert client.post("/v1/query", json={"sql": "SELECT 1 AS one"}, headers=headers).status_code == 200


def test_a_name_that_the_operator_gives_is_the_servers(named: TestClient, client: TestClient) -> None:
    by_name = {"Host": "data.example.org", "Origin": "https://data.example.org"}
    by_proxy = {"Host": "127.0.0.1:8088", "Origin": "https://data.example.org"}
    for headers in (by_name, by_proxy):
        assert named.get("/v1/views", headers=headers).status_code == 200
        assert client.get("/v1/views", headers=headers).status_code == 403


def test_many_hosts_are_not_kept(client: TestClient) -> None:
    for number in range(1100):
        client.get("/health", headers={"Host": f"127.0.0.1:{number}"})
    assert len(client.app.state.origins._good) <= 1024  # type: ignore[attr-defined]


def test_a_host_that_programs_read_differently_is_refused(client: TestClient) -> None:
    twice = client.get("/v1/views", headers=[("Host", "evil.example"), ("Host", "127.0.0.1")])
    assert (twice.status_code, twice.json()["code"]) == (403, "serve.forbidden")
    for host in ("evil.example\\@localhost", "evil.example@localhost"):
        assert client.get("/v1/views", headers={"Host": host}).status_code == 403
