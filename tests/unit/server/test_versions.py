"""Expressions of subscribers run where they can be ended: they take neither the server's memory nor its time."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.serve.errors import Busy, TimeLimit, TooLarge
from strandline.jobs.serve.subscription import subscription
from strandline.jobs.serve.terms import QueryLimits
from strandline.jobs.server.app import application
from strandline.jobs.server.state import events as versions
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.server.state.events import Place
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS
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
    own = versions.VersionProcesses.events

    def noted(process: versions.VersionProcesses, each: versions.VersionAsked) -> object:
        asked.append(each.made.text)
        return own(process, each)

    monkeypatch.setattr(versions.VersionProcesses, "events", noted)
    for query in ("limit=1", "limit=1&columns=town"):
        assert client.get(f"/v1/views/by_town/changes?{query}").status_code == 200
    assert asked == []
    client.get("/v1/views/by_town/changes", params={"limit": 1, "where": "visits > 1"})
    assert len(asked) >= 1


def asked(served: ServedLake, condition: str, place: Place | None = None) -> versions.VersionAsked:
    made = subscription(
        select(f"SELECT * FROM by_town WHERE {condition} EMIT CHANGES;"), Catalog(served.lake), served.lake
    )
    return versions.VersionAsked(made, "upserts", place or Place(0), "")


def test_one_that_computes_for_long_delays_nobody_by_more_than_a_moment(served: ServedLake) -> None:
    """Whether it comes first or again: others have their version within a second."""
    limits = QueryLimits(seconds=2.0, memory_bytes=1 << 30)
    processes = versions.VersionProcesses(served.settings, limits)
    try:
        processes.events(asked(served, "visits > 0"))  # the process is there
        with ThreadPoolExecutor(4) as pool:
            for _ in range(2):
                slow = [pool.submit(processes.events, asked(served, f"{HOSTILE} OR visits > {n}")) for n in range(2)]
                time.sleep(0.02)
                waited = []
                for _ in range(4):
                    begun = time.monotonic()
                    processes.events(asked(served, "visits > 0"))
                    waited.append(time.monotonic() - begun)
                assert not all(each.done() for each in slow), "they were at work meanwhile"
                assert sorted(waited)[-2] < 1.0, waited
                for each in slow:
                    with pytest.raises((TimeLimit, TooLarge)):
                        each.result()
    finally:
        processes.close()


def test_whoever_was_quick_comes_before_those_of_whom_nothing_is_known() -> None:
    turns, order, pool = versions.Turns(), list[str](), ThreadPoolExecutor(8)

    def take(name: str) -> None:
        with turns.one(first=name.startswith("first"), patience=PATIENCE_SECONDS):
            order.append(name)

    with turns.one(first=False, patience=1):
        waiting = [pool.submit(take, f"other {number}") for number in range(3)]
        time.sleep(0.05)
        waiting += [pool.submit(take, f"first {number}") for number in range(2)]
        time.sleep(0.05)
        with pytest.raises(Busy), turns.one(first=True, patience=0.01):
            pass
    for each in waiting:
        each.result()
    assert [name[:5] for name in order] == ["first"] * 2 + ["other"] * 3
