"""Expressions of subscribers run where they can be ended: they take neither the server's memory nor its time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.serve.subscription import subscription
from strandline.jobs.serve.terms import QueryLimits
from strandline.jobs.server.access.options import ServerOptions
from strandline.jobs.server.app import application
from strandline.jobs.server.changes import versions
from tests.support.served_lake import ServedLake
from tests.unit.server.test_changes import events, select

HOSTILE = "LEN(" + " || ".join(["LPAD(town, 16000000, 'x')"] * 8) + ") > 0"
"""Takes many seconds and gigabytes where nothing ends it: one LPAD is bounded, eight of them are not."""


@pytest.fixture(scope="module")
def strict(served: ServedLake, client: TestClient, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server whose queries have two seconds."""
    limits = QueryLimits(seconds=2.0, memory_bytes=64 << 20, rows=5_000, answer_bytes=4 << 20)
    options = ServerOptions(tmp_path_factory.mktemp("strict"), limits=limits, queries=1)
    with TestClient(application(served.settings, options), "http://127.0.0.1", raise_server_exceptions=False) as found:
        yield found


QUERY = {
    "ksql": f"SELECT * FROM BY_TOWN WHERE {HOSTILE} EMIT CHANGES;",
    "streamsProperties": {"auto.offset.reset": "earliest"},
}


@pytest.mark.parametrize(
    "asked",
    [("GET", "/v1/views/by_town/changes", {"where": HOSTILE}, None), ("POST", "/query", {}, QUERY)],
    ids=["changes", "query"],
)
def test_a_hostile_condition_ends_alone(strict: TestClient, asked: tuple[str, str, dict[str, str], object]) -> None:
    method, path, parameters, body = asked
    before = _resident()
    with ThreadPoolExecutor(1) as pool:
        found = pool.submit(strict.request, method, path, params=parameters, json=body)
        looked = 0
        while not found.done() or not looked:
            assert strict.get("/v1/views/by_town/rows/Rome").status_code == 200
            looked += 1
            assert _resident() - before < 512 << 20
    assert "serve.time_limit" in found.result().text or "serve.too_large" in found.result().text
    # The process that was ended has a successor.
    again = strict.get("/v1/views/by_town/changes", params={"where": "visits > 1", "limit": 1})
    assert [kind for kind, _, _ in events(again.text)] == ["row"]


def _resident() -> int:
    """Bytes of this process, in which the server runs."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("text", "computes"),
    [
        ("SELECT * FROM by_town EMIT CHANGES;", False),
        ("SELECT visits, town AS t FROM by_town EMIT CHANGES;", False),
        ("SELECT * FROM by_town WHERE visits > 1 EMIT CHANGES;", True),
        ("SELECT town, visits + 1 AS n FROM by_town EMIT CHANGES;", True),
        ("SELECT town, 'x' AS x FROM by_town EMIT CHANGES;", True),
    ],
)
def test_what_computes_is_told(served: ServedLake, text: str, computes: bool) -> None:
    assert subscription(select(text), Catalog(served.lake), served.lake).computes is computes


def test_columns_alone_take_no_process(served: ServedLake, client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    own = versions.VersionProcess.events

    def noted(process: versions.VersionProcess, each: versions.VersionAsked) -> object:
        asked.append(each.made.text)
        return own(process, each)

    monkeypatch.setattr(versions.VersionProcess, "events", noted)
    for query in ("limit=1", "limit=1&columns=town"):
        assert client.get(f"/v1/views/by_town/changes?{query}").status_code == 200
    assert asked == []
    client.get("/v1/views/by_town/changes", params={"limit": 1, "where": "visits > 1"})
    assert len(asked) >= 1
