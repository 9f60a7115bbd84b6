"""What a run shows to Prometheus and to probes, and that a run goes on when it cannot show it."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from obstore.store import MemoryStore
from prometheus_client import generate_latest

from infra.ports import free_port
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.errors import ViewsStopped
from strandline.jobs.model.report import MicroBatch
from strandline.jobs.model.settings import MetricsSettings, Settings
from strandline.jobs.run.heartbeat import read_beat
from strandline.jobs.run.metrics import SHARED_BY, PipelineMetrics, answering
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import ObjectMissing
from strandline.state_store.layout import LakeLayout
from strandline.state_store.storage_objects import ObjectStorage
from strandline.state_store.storage_verbs import REQUESTS
from tests.support.scraped import Scrape, parsed, scrape, value

SHOP = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW shops AS
    SELECT COUNT(*) AS shops FROM (SELECT shop FROM sales GROUP BY shop HAVING COUNT(*) > 1) AS s;
"""


def shown(settings: Settings) -> Settings:
    return settings.model_copy(update={"metrics": MetricsSettings(port=free_port())})


def drained(settings: Settings, pipeline: str = "shop") -> list[Scrape]:
    """The scrapes of a drain, after each micro-batch."""
    found: list[Scrape] = []

    def look(_batch: MicroBatch) -> None:
        assert settings.metrics.port is not None
        found.append(scrape(settings.metrics.port))

    drain(settings, pipeline, watch=look, in_driver=True)
    return found


def test_a_run_shows_its_epochs_rows_and_steps(settings: Settings, lake: LakeLayout) -> None:
    settings = shown(settings)
    list(Interpreter(settings, "shop").run(SHOP + "INSERT INTO sales VALUES ('a', 2), ('b', 5), ('a', 1);"))
    [found] = drained(settings)
    assert value(found, "strandline_active", pipeline="shop") == 1
    assert value(found, "strandline_rows_inserted_total", table="sales") == 3
    assert value(found, "strandline_rows_inserted_total", table="by_shop") == 2
    assert value(found, "strandline_epochs_total", table="sales", mode="ingest") == 1
    assert value(found, "strandline_epochs_total", table="by_shop", mode="full") == 1
    assert value(found, "strandline_micro_batch_seconds_count") == 1
    assert value(found, "strandline_step_seconds_count", step="ingest") == 1
    plans, maintained = (value(found, "strandline_step_seconds_count", step=step) for step in ("plan", "maintain"))
    assert plans == maintained > 2
    # The steps are parts of the round, side by side on up to four threads.
    spent = sum(value(found, "strandline_step_seconds_sum", step=step) for step in ("ingest", "plan", "maintain"))
    assert 0 < spent <= 4 * value(found, "strandline_micro_batch_seconds_sum")
    assert value(found, "strandline_lag_records", topic="sales") == 3, "as of the first heartbeat"
    assert value(found, "strandline_lag_seconds", topic="sales") > 0

    list(Interpreter(settings, "shop").run("INSERT INTO sales VALUES ('b', 5);"))
    [found] = drained(settings)
    assert value(found, "strandline_table_rows", table="by_shop") == 2, "counters begin anew, gauges do not"
    assert value(found, "strandline_table_bytes", table="by_shop", kind="table") > 0
    assert value(found, "strandline_table_bytes", table="shops__stage_1", kind="stage") > 0
    assert value(found, "strandline_rows_deleted_total", table="by_shop") == 1
    assert value(found, "strandline_table_stopped", table="by_shop") == 0


def test_records_that_do_not_decode_are_counted(settings: Settings, lake: LakeLayout) -> None:
    settings = shown(settings)
    list(Interpreter(settings, "shop").run(SHOP))
    open_log(settings, lake).produce("sales", [Record(None, b"{", 0), Record(None, b'{"shop": "a"}', 0)])
    [found] = drained(settings)
    assert value(found, "strandline_dead_letters_total", table="sales") == 1


def test_a_view_that_stops_is_shown(settings: Settings, lake: LakeLayout) -> None:
    view = "CREATE TABLE t WITH (ERRORS = 'stop') AS SELECT shop, SUM(CAST(shop AS INT)) AS n FROM sales GROUP BY shop;"
    list(Interpreter(settings, "shop").run(SHOP + view + "INSERT INTO sales VALUES ('a', 2);"))
    with pytest.raises(ViewsStopped):
        drain(settings, "shop", in_driver=True)
    beat = read_beat(lake, "shop")
    assert beat is not None
    metrics = PipelineMetrics("shop")
    metrics.beat(beat)
    found = parsed(generate_latest(metrics.registry).decode())
    assert value(found, "strandline_table_stopped", table="t") == 1
    assert value(found, "strandline_table_stopped", table="by_shop") == 0
    assert value(found, "strandline_active") == 0


def test_a_probe_is_told_whether_the_run_is_ready(settings: Settings) -> None:
    metrics = PipelineMetrics("shop")
    with answering(MetricsSettings(port=0), metrics) as port:
        assert _get(port, "/health") == (200, "up\n")
        assert _get(port, "/ready") == (200, "standby\n")
        assert _get(port, "/else")[0] == 404
        stream: Any = type("Stream", (), {"settings": settings, "lake": LakeLayout(settings.lake), "refreshed": None})()
        metrics.begun(stream)
        assert _get(port, "/ready") == (503, "starting\n")
        stream.refreshed = (1, 2)
        assert _get(port, "/ready?x=1") == (200, "ready\n")
        metrics._beat_at = -1e9
        assert _get(port, "/health") == (503, "no heartbeat\n")


def _get(port: int | None, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_second_run_answers_on_the_next_port_that_is_free(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "strandline")
    shared = MetricsSettings(port=free_port())
    with answering(shared, PipelineMetrics("one")) as one, answering(shared, PipelineMetrics("two")) as two:
        assert one is not None
        assert two is not None
        assert one < two < one + SHARED_BY
        for port, pipeline in ((one, "one"), (two, "two")):
            assert f'strandline_active{{pipeline="{pipeline}"}} 0.0' in _get(port, "/metrics")[1]
    assert f"metrics: http://127.0.0.1:{two}/metrics" in caplog.text


def test_a_port_that_cannot_be_had_ends_no_run(
    settings: Settings, lake: LakeLayout, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.jobs.run.metrics.SHARED_BY", 1)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = settings.model_copy(update={"metrics": MetricsSettings(port=taken.getsockname()[1])})
        list(Interpreter(settings, "shop").run(SHOP + "INSERT INTO sales VALUES ('a', 2);"))
        assert drain(settings, "shop", in_driver=True).epochs == 1
    assert "STRANDLINE_METRICS__PORT" in caplog.text


def test_an_observer_that_fails_ends_no_run(
    settings: Settings, lake: LakeLayout, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fault(*_: object) -> None:
        raise ZeroDivisionError("planted")

    for told in ("begun", "round", "beat", "ended"):
        monkeypatch.setattr(PipelineMetrics, told, fault)
    settings = shown(settings)
    list(Interpreter(settings, "shop").run(SHOP + "INSERT INTO sales VALUES ('a', 2);"))
    assert drain(settings, "shop", in_driver=True).epochs == 1
    assert "PipelineMetrics could not be told: planted" in caplog.text


def test_requests_are_counted_by_verb_and_outcome() -> None:
    before = REQUESTS.so_far()
    storage = ObjectStorage(MemoryStore(), "s3://bucket/lake")  # type: ignore[arg-type]
    assert storage.create("a", b"1")
    assert storage.get("a") == b"1"
    with pytest.raises(ObjectMissing):
        storage.get("b")
    assert list(storage.list("")) == ["a"]
    assert not storage.exists("c")
    assert REQUESTS.since(before) == {
        ("put", "ok"): 1,
        ("get", "ok"): 1,
        ("get", "store.object_missing"): 1,
        ("list", "ok"): 1,
        ("head", "store.object_missing"): 1,
    }


def test_a_run_loads_only_what_is_asked_for(tmp_path: Path) -> None:
    code = (
        "import sys, strandline.jobs.run.pipeline, strandline.jobs.run.stream;"
        "from strandline.jobs.model.settings import load_settings;"
        "from strandline.jobs.run.pipeline import observers;"
        f"opened = observers(load_settings(lake={str(tmp_path)!r}), 'shop');"
        "opened.__enter__();"
        "print({'prometheus_client', 'opentelemetry.sdk', 'openlineage', 'http.server'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
