"""Inserts by HTTP: once for each idempotency key, also when the server is killed in between."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.catalogued import Catalogued
from strandline.jobs.server.http import requests
from strandline.jobs.server.state import inserts as inserts_module
from strandline.jobs.server.state.inserts import Inserts
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout
from tests.support.served_lake import ServedLake
from tests.support.waiting import PATIENCE_SECONDS, wait_until

STREAM = "CREATE STREAM orders (id BIGINT KEY, n BIGINT) WITH (KAFKA_TOPIC = 'orders');"
ROWS = [{"id": number, "n": number * 2} for number in range(5)]


def test_a_request_that_comes_again_has_the_same_answer_and_adds_nothing(
    client: TestClient, served: ServedLake
) -> None:
    def ask(key: str, n: int) -> tuple[int, object]:
        rows = [{"id": 1, "town": "Rome", "n": n}]
        found = client.post("/v1/streams/visits", json={"rows": rows}, headers={"Idempotency-Key": key})
        return found.status_code, found.json()

    before = LocalLog(served.lake).end_offsets("visits")[0] if LocalLog(served.lake).exists("visits") else 0
    first = ask("k1", 1)
    assert first[0] == 200
    assert ask("k1", 1) == first
    assert ask("k2", 1)[1] != first[1]
    assert ask("k1", 2)[0] == 422
    assert LocalLog(served.lake).end_offsets("visits") == {0: before + 2}


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("visits", {"rows": [{"id": "x"}]}, 400, "source.encode_failed"),
        ("visits", {"rows": [{"no": 1}]}, 400, "source.encode_failed"),
        ("visits", {"rows": []}, 400, "serve.request_refused"),
        ("visits", {"rows": [1]}, 400, "serve.request_refused"),
        ("by_town", {"rows": [{"town": "a"}]}, 404, "sql.unknown_name"),
        ("nothing", {"rows": [{"town": "a"}]}, 404, "sql.unknown_name"),
    ],
)
def test_what_cannot_be_inserted_says_why(client: TestClient, path: str, body: object, status: int, code: str) -> None:
    found = client.post(f"/v1/streams/{path}", json=body)
    assert (found.status_code, found.json()["code"]) == (status, code)


@pytest.mark.parametrize(
    "declared", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
def test_a_write_that_any_page_could_send_is_refused(client: TestClient, served: ServedLake, declared: str) -> None:
    before = LocalLog(served.lake).end_offsets("visits")
    headers = {"Content-Type": declared}
    found = client.post("/v1/streams/visits", content=b'{"rows": [{"id": 1}]}', headers=headers)
    assert (found.status_code, found.json()["code"]) == (415, "serve.media_type_refused")
    assert LocalLog(served.lake).end_offsets("visits") == before


def test_a_flipped_bit_of_a_kept_key_answers_the_same_or_says_so(tmp_path: Path) -> None:
    """Never another position, and never rows that come twice."""
    served = ServedLake(load_settings(lake=tmp_path / "lake"), STREAM)
    once = insert(served.lake.root, tmp_path / "keys")
    (file,) = (tmp_path / "keys").glob("*.json")
    written = file.read_bytes()
    hints = set()
    for place in range(0, len(written), 3):
        file.write_bytes(written[:place] + bytes([written[place] ^ (1 << place % 8)]) + written[place + 1 :])
        try:
            assert insert(served.lake.root, tmp_path / "keys") == once
        except CorruptState as error:
            hints.add(error.hint)
    (hint,) = hints
    assert "remove the file" in str(hint)
    assert LocalLog(served.lake).end_offsets("orders") == {0: len(ROWS)}


@pytest.mark.parametrize("place", ["after-insert-intent", "after-segment", "after-insert-records"])
def test_after_a_kill_the_same_request_adds_what_is_missing_and_no_more(tmp_path: Path, place: str) -> None:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), STREAM)
    command = [sys.executable, "-m", "tests.unit.server.test_inserts", str(served.lake.root), str(tmp_path / "keys")]
    ended = subprocess.run(
        command, env=os.environ | {"STRANDLINE_FAILPOINT": f"{place}:1"}, check=False, timeout=PATIENCE_SECONDS
    )
    assert ended.returncode == -signal.SIGKILL
    once = insert(served.lake.root, tmp_path / "keys")
    assert insert(served.lake.root, tmp_path / "keys") == once
    log = LocalLog(served.lake)
    (run,) = log.read("orders", 0, 0, log.end_offsets("orders")[0])
    assert len(run) == len(ROWS)
    assert once == "orders@0:5"


def test_a_server_that_runs_for_long_keeps_no_old_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour later, at the next request with a key."""
    served = ServedLake(load_settings(lake=tmp_path / "lake"), STREAM)
    inserts = Inserts(served.settings, served.lake, tmp_path / "keys")
    source = Catalogued(served.lake).source("orders")
    inserts.insert(source, ROWS, "first")
    (old,) = (tmp_path / "keys").glob("*.json")
    os.utime(old, (0, 0))
    inserts.insert(source, ROWS, "second")
    assert old.exists(), "a look at each key is not for each request"
    later = time.monotonic() + 3601
    monkeypatch.setattr(inserts_module, "time", SimpleNamespace(monotonic=lambda: later, time=time.time))
    inserts.insert(source, ROWS, "third")
    wait_until(lambda: not old.exists(), "it is kept")
    assert len(list((tmp_path / "keys").glob("*.json"))) == 2


def insert(root: object, folder: Path) -> str:
    settings = load_settings(lake=root)
    lake = LakeLayout(settings.lake)
    return Inserts(settings, lake, folder).insert(Catalogued(lake).source("orders"), ROWS, "key").position


if __name__ == "__main__":
    insert(Path(sys.argv[1]), Path(sys.argv[2]))


def test_bodies_that_have_not_ended_are_bounded_together(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "BODIES_BYTES", 1_000)
    row = {"rows": [{"id": 1, "town": "x" * 2_000, "n": 1}]}
    refused = client.post("/v1/streams/visits", json=row)
    assert (refused.status_code, refused.json()["code"]) == (429, "serve.busy")
    assert client.post("/v1/query", content=b"{" * 2_000).status_code == 429
    for _ in range(3):
        assert client.post("/v1/query", json={"sql": "SELECT town FROM by_town"}).status_code == 200
