"""ksqlDB's queries over a web socket: the columns, a message for each row, and a reason in the end."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fastapi.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from strandline.jobs.server.app import application
from strandline.jobs.server.state import hub
from strandline.jobs.server.state.access import ServerOptions, make_token, revoke_token
from tests.support.served_lake import ServedLake
from tests.support.waiting import wait_until
from tests.unit.server.conftest import LIMITS

SOCKET = "ws://127.0.0.1/ws/query"
EARLIEST = {"auto.offset.reset": "earliest"}
COLUMNS = [
    {"name": "TOWN", "schema": {"type": "STRING", "fields": None, "memberSchema": None}},
    {"name": "VISITS", "schema": {"type": "BIGINT", "fields": None, "memberSchema": None}},
]


def path(ksql: str, properties: object = None) -> str:
    return f"{SOCKET}?request=" + quote(json.dumps({"ksql": ksql, "streamsProperties": properties or {}}))


def answered(client: TestClient, address: str, **headers: str) -> tuple[list[Any], int, str]:
    """The messages, and why it was closed."""
    found: list[Any] = []
    with client.websocket_connect(address, headers=headers) as socket:
        while True:
            said = socket.receive()
            if said["type"] == "websocket.close":
                return found, said["code"], said["reason"]
            found.append(json.loads(said["text"]))


def server_in(client: TestClient) -> Any:
    return client.app.state.server  # type: ignore[attr-defined]


@pytest.mark.parametrize("where", ["TOWN = 'Rome'", "VISITS > 1"])
def test_a_pull_query(client: TestClient, where: str) -> None:
    found, code, reason = answered(client, path(f"SELECT TOWN, VISITS FROM BY_TOWN WHERE {where};"))
    assert found == [COLUMNS, {"row": {"columns": ["Rome", 2]}}]
    assert (code, reason) == (1000, "done")


def test_a_push_query_with_an_end(client: TestClient) -> None:
    found, code, _ = answered(client, path("SELECT TOWN, VISITS FROM BY_TOWN EMIT CHANGES LIMIT 3;", EARLIEST))
    assert found[0] == COLUMNS
    assert sorted(each["row"]["columns"] for each in found[1:]) == [["Oslo", 1], ["Rome", 2], ["a/b ü", 1]]
    assert code == 1000


def test_a_client_that_goes_is_forgotten(client: TestClient) -> None:
    with client.websocket_connect(path("SELECT * FROM BY_TOWN EMIT CHANGES;")) as socket:
        socket.receive_text()
        server = server_in(client)
        assert len(server.push_queries) == 1
        socket.send_text("nothing that means anything")
    wait_until(lambda: not server.push_queries and not server.hub.subscribers, "it is still followed")


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ("nonsense", "not JSON"),
        ('{"ksql": 1}', "'ksql' is a text"),
        ('{"ksql": "SELECT * FROM NOPE;"}', "[sql.unknown_name]"),
        ('{"ksql": "SELECT * FROM BY_TOWN JOIN BY_ID ON TRUE EMIT CHANGES;"}', "["),
        ('{"ksql": "DROP TABLE BY_TOWN;"}', "not one SELECT"),
        (json.dumps({"ksql": f"SELECT {'(' * 3_000}1{')' * 3_000} FROM BY_TOWN;"}), "nested too deeply"),
    ],
)
def test_what_is_refused_is_said_in_the_end(client: TestClient, request_: str, said: str) -> None:
    found, code, reason = answered(client, f"{SOCKET}?request={quote(request_)}")
    assert (found, code) == ([], 1003)
    assert said in reason


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}])
def test_pages_of_others_open_none(client: TestClient, headers: dict[str, str]) -> None:
    with pytest.raises(WebSocketDisconnect):
        answered(client, path("SELECT * FROM BY_TOWN;"), **headers)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


@pytest.fixture
def guarded(client: TestClient, served: ServedLake, file: Path, tmp_path: Path) -> Iterator[TestClient]:
    del client  # the lake has its rows
    make_token(file, "nobody", ("read:nothing",), None)
    options = ServerOptions(tmp_path / "server", tokens=file, limits=LIMITS, queries=1)
    with TestClient(application(served.settings, options), "http://127.0.0.1") as found:
        yield found


def test_tokens_as_of_other_routes(guarded: TestClient, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_ALLOWED_SECONDS", 0.0)
    monkeypatch.setattr(hub, "_KEEP_ALIVE_SECONDS", 0.2)
    with pytest.raises(WebSocketDisconnect):
        answered(guarded, path("SELECT * FROM BY_TOWN;"))
    other = make_token(file, "other", ("read:hourly",), None)
    for emit in ("", " EMIT CHANGES"):
        _, code, reason = answered(guarded, path(f"SELECT * FROM BY_TOWN{emit};"), Authorization=f"Bearer {other}")
        assert (code, "serve.forbidden" in reason) == (1003, True)
    reader = make_token(file, "reader", ("read:by_town",), None)
    headers = {"Authorization": f"Bearer {reader}"}
    with guarded.websocket_connect(path("SELECT * FROM BY_TOWN EMIT CHANGES;"), headers=headers) as socket:
        socket.receive_text()
        revoke_token(file, "reader")
        assert socket.receive()["code"] == 1003
