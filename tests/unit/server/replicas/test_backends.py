"""Every backend of replicas through the server: chosen by a setting, it answers look-ups, follows, and starts again."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import uuid4

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.serve import watch
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.server.state.replicas import store_opener
from strandline.state_store.errors import SettingsError
from strandline.state_store.replicas.dynamodb import DynamoStore
from strandline.state_store.replicas.lmdb import LmdbStore
from strandline.state_store.replicas.rocksdb import RocksStore
from strandline.state_store.replicas.store import MemoryStore
from tests.support.replica_backends import Backend
from tests.support.served_lake import ServedLake
from tests.support.waiting import wait_until

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
"""
STORES = {"rocksdb": RocksStore, "memory": MemoryStore, "lmdb": LmdbStore, "dynamodb": DynamoStore}


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0.05)


@pytest.fixture
def settings(backend: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in (("ACCESS_KEY_ID", "canary"), ("SECRET_ACCESS_KEY", "canary"), ("DEFAULT_REGION", "us-east-1")):
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.setenv("STRANDLINE_SERVER__REPLICA", backend.name)
    if backend.url:
        monkeypatch.setenv("STRANDLINE_SERVER__DYNAMODB_ENDPOINT", backend.url)
    monkeypatch.setenv("STRANDLINE_SERVER__DYNAMODB_TABLE", "through-the-server")
    return load_settings(lake=tmp_path / "lake")


def visit(served: ServedLake) -> None:
    served.append("visits", [{"id": 1, "town": "Rome", "n": 1}])
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine)


@contextmanager
def serving(settings: Settings, folder: Path) -> Iterator[TestClient]:
    with TestClient(application(settings, ServerOptions(folder, queries=1)), "http://127.0.0.1") as client:
        yield client


def wait_for(client: TestClient, visits: int) -> None:
    """Wait until the replica, not the table, has answered the look-up with that."""

    def answered() -> bool:
        before = by_replica(client)
        found = client.get("/v1/views/by_town/rows/Rome").json()
        return found["row"]["visits"] == visits and by_replica(client) > before

    wait_until(answered, f"the replica does not answer {visits}")


def by_replica(client: TestClient) -> float:
    name = 'strandline_lookups_total{by="replica",view="by_town"}'
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_a_server_answers_follows_and_starts_again(settings: Settings, backend: Backend, tmp_path: Path) -> None:
    served = ServedLake(settings, DEFINITIONS)
    visit(served)
    with serving(settings, tmp_path / "server") as client:
        wait_for(client, 1)
        visit(served)
        wait_for(client, 2)
    visit(served)
    with serving(settings, tmp_path / "server") as client:
        wait_for(client, 3)


def test_the_setting_chooses_the_backend(settings: Settings, backend: Backend, tmp_path: Path) -> None:
    with closing(store_opener(settings.server, f"serve-{uuid4().hex}")(tmp_path / "by_town")) as store:
        assert isinstance(store, STORES[backend.name])


def test_dynamodb_without_boto3_names_the_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    settings = load_settings(lake=tmp_path, server={"replica": "dynamodb"})
    with pytest.raises(SettingsError) as refused:
        store_opener(settings.server, "serve-1")
    assert refused.value.hint is not None
    assert "strandline[dynamodb]" in refused.value.hint


def test_dynamodb_without_a_region_is_a_wrong_setting(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    settings = load_settings(lake=tmp_path, server={"replica": "dynamodb"})
    with pytest.raises(SettingsError, match="region"):
        store_opener(settings.server, "serve-1")
