"""Replicas whose store fails: they say nothing old, and are made anew; two servers of one lake keep out of each other's
way."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve import watch
from strandline.jobs.serve.catalogued import Catalogued
from strandline.jobs.server.app import application
from strandline.jobs.server.state import replicas as module
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.server.state.replicas import Followed, Replicas
from strandline.state_store import leases
from strandline.state_store.replicas.store import MemoryStore, Store
from tests.support.faulty_store import FAULTS, FaultyStore
from tests.support.on_disk import on_disk
from tests.support.replica_backends import Backend
from tests.support.served_lake import ServedLake
from tests.support.waiting import wait_until

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
"""


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads look often, and wait little after a failure."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(module, "_FIRST_PAUSE_SECONDS", 0.05)


@pytest.fixture
def served(tmp_path: Path) -> ServedLake:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    visit(served)
    return served


def visit(served: ServedLake) -> None:
    served.append("visits", [{"id": 1, "town": "Rome", "n": 1}])
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine)


def begun(served: ServedLake, replicas: Replicas) -> Followed:
    followed = replicas.of(Catalogued(served.lake).relation("by_town"))
    assert followed is not None
    wait_until(lambda: visits(followed) == 1, "the replica does not follow")
    return followed


def visits(followed: Followed) -> int | None:
    """What the replica says; None while it says nothing."""
    found = followed.get(("Rome",))
    return None if found is None or found[1] is None else int(found[1]["visits"])


@pytest.fixture
def stores() -> list[FaultyStore]:
    """Those that were opened, in their order."""
    return []


@pytest.fixture
def replicas(served: ServedLake, backend: Backend, tmp_path: Path, stores: list[FaultyStore]) -> Iterator[Replicas]:
    def opened(folder: Path) -> Store:
        stores.append(FaultyStore(backend.open(folder)))
        if len(stores) > 1 and stores[-2].fault == "full":
            stores[-1].fault = "full"  # another store on the same disk
        return stores[-1]

    found = Replicas(served.lake, tmp_path / "server" / "replicas", lambda _: None, opened)
    yield found
    found.close()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_store_that_fails_says_nothing_old_and_is_made_anew(
    served: ServedLake, replicas: Replicas, stores: list[FaultyStore], fault: str
) -> None:
    followed = begun(served, replicas)
    stores[-1].fail(fault)
    visit(served)
    replicas.told("by_town")
    wait_until(lambda: visits(followed) != 1, "the replica says what it said before the store failed")
    if fault == "full":
        assert (visits(followed), followed.version, followed.phase) == (None, None, "failed")
        wait_until(lambda: len(stores) > 2, "the replica is not made anew")
        for each in stores:
            each.fault = ""
    wait_until(lambda: visits(followed) == 2, "the replica is not made anew")
    assert followed.phase == "live"
    assert followed.made_anew > 0
    visit(served)
    replicas.told("by_town")
    wait_until(lambda: visits(followed) == 3, "the new replica does not follow")


@pytest.mark.parametrize("fault", ["corrupt", "closed"])
def test_a_read_that_fails_is_answered_by_nobody_old(
    served: ServedLake, replicas: Replicas, stores: list[FaultyStore], fault: str
) -> None:
    """No commit comes: the reader alone meets the error."""
    followed = begun(served, replicas)
    stores[-1].fail(fault)
    assert followed.get(("Rome",)) is None
    wait_until(lambda: visits(followed) == 1, "the replica is not made anew")
    assert len(stores) == 2


def test_a_disk_that_was_full_for_a_moment_costs_no_restore(
    served: ServedLake, replicas: Replicas, stores: list[FaultyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 3600.0)  # from the first look on it looks when it is told
    followed = begun(served, replicas)
    stores[-1].fail("full")
    visit(served)
    replicas.told("by_town")
    wait_until(lambda: followed.phase == "failed", "the fault is not met")
    stores[0].fault = ""
    replicas.told("by_town")
    wait_until(lambda: visits(followed) == 2, "the replica does not go on")
    assert (followed.made_anew, len(stores)) == (0, 1)


def test_broken_files_of_rocksdb_are_replaced(served: ServedLake, tmp_path: Path) -> None:
    folder = tmp_path / "replicas"
    first = Replicas(served.lake, folder, lambda _: None)
    begun(served, first)
    first.close()
    broken = [file for file in folder.rglob("*") if file.suffix in (".sst", ".log") or "MANIFEST" in file.name]
    assert any(file.suffix == ".sst" for file in broken)
    for file in broken:
        file.write_bytes(bytes(byte ^ 0xFF for byte in file.read_bytes()))
    again = Replicas(served.lake, folder, lambda _: None)
    followed = begun(served, again)
    assert followed.made_anew == 1
    again.close()


def test_a_hanging_replica_does_not_answer(
    served: ServedLake, replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its thread stands still: a disk that does not answer, a lease that cannot be written."""
    followed = begun(served, replicas)
    followed.close()
    monkeypatch.setattr(module, "_LATE_SECONDS", 0.0)
    assert (followed.get(("Rome",)), followed.version, followed.phase) == (None, None, "late")


def test_two_servers_lease_for_themselves(served: ServedLake, tmp_path: Path) -> None:
    both = [Replicas(served.lake, tmp_path / name / "replicas", lambda _: None) for name in ("one", "two")]
    for each in both:
        begun(served, each)
    folder = on_disk(served.lake.table("by_town")) / leases.FOLDER
    found = {file.name: json.loads(file.read_bytes())["version"] for file in folder.glob("serve-*.json")}
    assert len(found) == 2
    for each in both:
        each.close()
    again = Replicas(served.lake, tmp_path / "one" / "replicas", lambda _: None)
    begun(served, again)
    assert {file.name for file in folder.glob("serve-*.json")} == set(found)
    again.close()


def test_a_server_whose_replica_failed_answers_from_the_table_and_is_not_ready(
    served: ServedLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores: list[FaultyStore] = []

    def opened(_folder: Path) -> Store:
        stores.append(FaultyStore(MemoryStore()))
        stores[-1].fault = stores[0].fault
        return stores[-1]

    monkeypatch.setattr(module, "open_rocksdb", opened)
    app = application(served.settings, ServerOptions(tmp_path / "server", queries=1, wait_seconds=30.0))
    with TestClient(app, "http://127.0.0.1") as client:
        row = "/v1/views/by_town/rows/Rome"

        def asked() -> tuple[int, int]:
            found = client.get(row).json()
            return found["version"], found["row"]["visits"]

        before, _ = asked()
        wait_until(lambda: client.get("/ready").json()["live"] == 1, "there is no replica")
        for each in stores:
            each.fail("full")
        visit(served)
        newer = client.get(row, params={"at_least": before + 1, "wait_ms": 30_000})
        assert (newer.status_code, newer.json()["row"]["visits"]) == (200, 2)
        wait_until(
            lambda: client.get("/ready").status_code == 503, "a server whose replica failed says that it is ready"
        )
        assert asked() == (newer.json()["version"], 2)
        assert 'strandline_replica_failing{view="by_town"} 1.0' in client.get("/metrics").text
