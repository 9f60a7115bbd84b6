"""Tokens: every route asks for one, with the scope that it needs."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from strandline.jobs.expect.expectations import write_docs
from strandline.jobs.serve.errors import Unauthenticated
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions, Tokens, make_token, revoke_token
from strandline.state_store.errors import CorruptState, SettingsError
from strandline.state_store.stored_state import members_in, sealed_members
from tests.support.served_lake import ServedLake
from tests.unit.server.conftest import LIMITS

OPEN = {"/health", "/ready", "/healthcheck", "/", "/page/{name}"}
"""Load balancers ask the first three, a browser the page before it has a token; they say nothing of the lake."""
NO_QUERY = "query_of_nobody"
"""Whoever may ask is told that there is none: 400."""
REQUESTS = [
    ("GET", "/v1/views", "read:*", {}),
    ("GET", "/v1/lineage", "read:*", {}),
    ("GET", "/v1/views/by_town", "read:by_*", {}),
    ("GET", "/v1/views/by_town/data-docs", "read:by_town", {}),
    ("GET", "/v1/views/by_town/rows/Rome", "read:by_town", {}),
    ("GET", "/v1/views/by_town/rows", "read:by_town", {}),
    ("POST", "/v1/views/by_town/rows", "read:by_town", {"keys": [["Rome"]]}),
    ("GET", "/v1/views/by_town/changes?limit=1", "read:by_town", {}),
    ("POST", "/v1/query", "read:by_town", {"sql": "SELECT * FROM by_town"}),
    ("POST", "/v1/query", "read:by_town", {"sql": "SELECT * FROM by_town", "at_least": {"by_town": 0}}),
    ("POST", "/v1/query", "read:by_town", {"sql": "EXPLAIN by_town"}),
    ("POST", "/v1/cuts", "read:by_town", {"seconds": 60}),
    ("POST", "/v1/streams/visits", "write:visits", {"rows": [{"id": 1, "town": "Rome", "n": 1}]}),
    ("POST", "/query", "read:by_town", {"ksql": "SELECT * FROM by_town;"}),
    ("POST", "/query", "read:by_town", {"ksql": "SELECT * FROM by_town EMIT CHANGES LIMIT 0;"}),
    ("POST", "/query-stream", "read:by_town", {"sql": "SELECT * FROM by_town;"}),
    ("POST", "/ksql", "read:by_town", {"ksql": "DESCRIBE by_town;"}),
    ("GET", "/info", "read:*", {}),
    ("GET", "/v1/metadata", "read:*", {}),
    ("GET", "/v1/metadata/id", "read:*", {}),
    ("GET", "/clusterStatus", "read:*", {}),
    ("GET", "/is_valid_property/auto.offset.reset", "read:*", {}),
    ("POST", "/close-query", "read:*", {"queryId": NO_QUERY}),
    ("POST", "/inserts-stream", "write:visits", {"target": "VISITS"}),
    ("POST", "/v1/query", "read:visits", {"sql": "EXPLAIN SELECT id, COUNT(*) FROM visits GROUP BY id"}),
    ("GET", "/metrics", "operate:*", {}),
    ("GET", "/v1/openapi.json", "read:*", {}),
]
OTHER = {"read": "write:*", "write": "read:*", "operate": "read:*"}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tokens") / "tokens.json"


@pytest.fixture(scope="module")
def guarded(
    served: ServedLake, client: TestClient, file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[TestClient]:
    make_token(file, "nobody", ("read:nothing",), None)
    write_docs(served.lake, "by_town", 1, [])
    options = ServerOptions(tmp_path_factory.mktemp("guarded"), tokens=file, limits=LIMITS, queries=1)
    with TestClient(application(served.settings, options), "http://127.0.0.1", raise_server_exceptions=False) as found:
        yield found


def status(client: TestClient, method: str, path: str, body: object, token: str | None) -> int:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return client.request(method, path, json=body if method == "POST" else None, headers=headers).status_code


def test_every_route_is_asked_here(guarded: TestClient) -> None:
    asked = {(method, path.partition("?")[0]) for method, path, _, _ in REQUESTS}
    for route in _routes(guarded):
        if route.path not in OPEN:
            matched = [m for m, path in asked if m in (route.methods or ()) and route.path_regex.match(path)]
            assert matched, route.path


def _routes(client: TestClient) -> list[APIRoute]:
    from strandline.jobs.server.app import ROUTERS

    return [route for router in ROUTERS for route in router.routes if isinstance(route, APIRoute)]


@pytest.mark.parametrize(("method", "path", "scope", "body"), REQUESTS, ids=[f"{m} {p}" for m, p, _, _ in REQUESTS])
def test_no_bad_expired_and_other_tokens_are_refused(
    guarded: TestClient, file: Path, method: str, path: str, scope: str, body: object
) -> None:
    good = make_token(file, "good", (scope,), None)
    other = make_token(file, "other", (OTHER[scope.partition(":")[0]],), None)
    expired = make_token(file, "expired", (scope,), 1)
    entries = members_in(file.read_bytes())
    for entry in entries["tokens"]:
        if entry["name"] == "expired":
            entry["expires"] = int(time.time()) - 1
    file.write_bytes(sealed_members(entries))
    assert status(guarded, method, path, body, good) == (400 if path == "/close-query" else 200)
    for token in (None, "", "sl_good_" + "x" * 43, good + "x", good.replace("sl_good", "sl_other"), expired):
        assert status(guarded, method, path, body, token) == 401
    assert status(guarded, method, path, body, other) == 403
    make_token(file, "good", ("read:nothing",), None)
    assert status(guarded, method, path, body, good) == 401


@pytest.mark.parametrize(
    "sql",
    [
        "WITH by_id AS (SELECT id FROM by_id) SELECT id FROM by_id",
        "WITH a AS (SELECT id FROM by_id), by_id AS (SELECT town FROM by_town) SELECT id FROM a",
        "SELECT y.id FROM (WITH by_id AS (SELECT town FROM by_town) SELECT town FROM by_id) x CROSS JOIN by_id y",
    ],
)
def test_a_subquery_with_the_name_of_a_view_does_not_open_it(guarded: TestClient, file: Path, sql: str) -> None:
    token = make_token(file, "narrow", ("read:by_town",), None)
    for path, body in (
        ("/v1/query", {"sql": sql}),
        ("/v1/query", {"sql": f"EXPLAIN {sql}"}),
        ("/query", {"ksql": sql}),
    ):
        assert status(guarded, "POST", path, body, token) == 403


def test_a_subquery_with_a_name_of_its_own_needs_no_scope(guarded: TestClient, file: Path) -> None:
    token = make_token(file, "narrow", ("read:by_town",), None)
    sql = "WITH a AS (SELECT town FROM by_town) SELECT town FROM a"
    assert status(guarded, "POST", "/v1/query", {"sql": sql}, token) == 200


def test_open_routes_say_nothing_of_the_lake(guarded: TestClient) -> None:
    for path in OPEN:
        found = guarded.get(path.replace("{name}", "page.js"))
        assert found.status_code in (200, 503)
        assert "by_town" not in found.text


def test_the_file_holds_no_token(file: Path) -> None:
    text = make_token(file, "secret", ("read:*",), 3)
    assert text not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7", "::", "example.org"])
def test_an_address_that_others_reach_needs_tokens_and_tls(tmp_path: Path, host: str) -> None:
    with pytest.raises(SettingsError, match="--tokens and --certificate and --key"):
        ServerOptions(tmp_path, host=host).check()
    ServerOptions(tmp_path, host="127.0.0.1").check()
    ServerOptions(tmp_path, host="::1").check()


@pytest.mark.parametrize(("name", "scope"), [("A b", "read:*"), ("a", "read"), ("a", "drop:*")])
def test_a_name_or_scope_that_is_none_is_refused(tmp_path: Path, name: str, scope: str) -> None:
    with pytest.raises(SettingsError):
        make_token(tmp_path / "tokens.json", name, (scope,), None)


def test_a_flipped_bit_of_the_file_opens_nothing(tmp_path: Path) -> None:
    """Each bit: the file says what it said, or that it is damaged; never another token, scope or date."""
    file = tmp_path / "tokens.json"
    token = make_token(file, "reader", ("read:by_*",), 30)
    before, written = Tokens(file).find(f"Bearer {token}"), file.read_bytes()
    hints = []
    for place in range(len(written)):
        for bit in range(8):
            file.write_bytes(written[:place] + bytes([written[place] ^ (1 << bit)]) + written[place + 1 :])
            try:
                assert Tokens(file).find(f"Bearer {token}") == before
            except CorruptState as error:
                hints.append(error.hint)
    assert len(hints) > 7 * len(written)
    assert all("strandline token" in str(hint) for hint in hints)


def test_a_revoked_token_ends(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    tokens = {name: make_token(file, name, ("read:*",), None) for name in ("one", "other")}
    known = Tokens(file)
    revoke_token(file, "one")
    with pytest.raises(Unauthenticated):
        known.find(f"Bearer {tokens['one']}")
    assert known.find(f"Bearer {tokens['other']}").name == "other"
    with pytest.raises(SettingsError, match="has no token 'one'"):
        revoke_token(file, "one")
