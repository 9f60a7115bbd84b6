"""Whatever a client sends: an answer with a status below 500, or 503 with Retry-After; and nothing outside the lake."""

from __future__ import annotations

import json
import string
from typing import Any
from urllib.parse import quote

import hypothesis.strategies as st
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings

from tests.support.examples import AT_LENGTH

EXAMPLES = 7_000 if AT_LENGTH else 60
"""Four tests: some 28,000 at length."""
SECRET = "root:x:0:0"
"""Of /etc/passwd."""

PIECES = st.sampled_from(
    (
        *("/etc/passwd", "../../../etc/passwd", "%2e%2e%2f", "\0", "'", '"', "`", ";", "--", "1e999", "-1", "9" * 30),
        *("NaN", "NULL", "read_csv('/etc/passwd')", "by_town", "town", "SELECT", "ü"),
    )
)
TEXT = st.one_of(PIECES, st.text(max_size=20), st.lists(PIECES, max_size=3).map("".join))
NAMES = st.one_of(
    st.sampled_from(
        ["key", "from", "to", "columns", "limit", "at_least", "window_start_from", "where", "as_of", "form"]
    ),
    st.text(string.ascii_lowercase, max_size=6),
)
MEMBERS = {
    "/v1/streams/visits": "rows",
    "/v1/views/by_id/rows": "keys",
    "/v1/query": "sql",
    "/query": "ksql",
    "/query-stream": "sql",
    "/ksql": "ksql",
    "/close-query": "queryId",
    "/inserts-stream": "target",
}
"""{route: the member of its body that is not what it should be}."""
VALUES: Any = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
quietly = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def check(found: Any) -> None:
    assert found.status_code < 500 or (found.status_code == 503 and "retry-after" in found.headers), found.text
    assert SECRET not in found.text


@quietly
@given(
    st.lists(TEXT, max_size=3),
    st.lists(st.tuples(NAMES, TEXT), max_size=4),
    st.sampled_from(["by_town", "by_id", "places", None]),
)
def test_paths_and_query_strings(
    client: TestClient, parts: list[str], query: list[tuple[str, str]], view: str | None
) -> None:
    name = view if view is not None else (parts[0] if parts else "x")
    tail = "/".join(quote(part, safe="", errors="surrogatepass") for part in parts)
    asked = "&".join(f"{quote(n)}={quote(v, errors='surrogatepass')}" for n, v in query)
    path = quote(name, safe="", errors="surrogatepass")
    check(client.get(f"/v1/views/{path}/rows?{asked}&wait_ms=1"))
    check(client.get(f"/v1/views/{path}/rows/{tail}"))
    check(client.get(f"/v1/views/{path}/changes?limit=0&up_to=0&{asked}&snapshot=false&as_of=0"))


@quietly
@given(VALUES, st.sampled_from(sorted(MEMBERS)), st.booleans())
def test_bodies(client: TestClient, value: Any, path: str, wrapped: bool) -> None:
    body = json.dumps({MEMBERS[path]: value} if wrapped else value)
    check(client.post(path, content=body.encode(errors="surrogatepass")))


@quietly
@given(VALUES, VALUES)
def test_what_a_query_shall_reflect(client: TestClient, least: Any, wait: Any) -> None:
    for members in ({"at_least": {"by_town": least}}, {"at_least": least}, {"wait_ms": wait}):
        body = json.dumps({"sql": "SELECT town FROM by_town", "wait_ms": 1, **members})
        check(client.post("/v1/query", content=body.encode(errors="surrogatepass")))


@quietly
@given(
    st.lists(
        st.one_of(PIECES, st.sampled_from(["FROM", "WHERE", "*", "(", ")", ",", "=", "n", "visits", "LIMIT"])),
        max_size=9,
    )
)
def test_statements(client: TestClient, words: list[str]) -> None:
    check(client.post("/v1/query", json={"sql": " ".join(["SELECT", *words])}))
