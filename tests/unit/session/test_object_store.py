"""A lake on an object store by the words that users type: all but taking in events, without a JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from pydantic import SecretStr

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings, StorageSettings, load_settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import LiveRows, Rows
from strandline.jobs.session.apply import apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store import lock as lease_module
from strandline.state_store.delta import log
from strandline.state_store.errors import LockLost, SettingsError, WriterBusy
from strandline.state_store.layout import LakeLayout
from strandline.state_store.lock import LEASE_SECONDS, WriterLease, lease, read_lease
from strandline.state_store.paths import Location
from tests.support.lakes import below, overwrite, s3_environment, s3_folder
from tests.support.s3_server import S3Server
from tests.support.waiting import PATIENCE_SECONDS
from tests.unit.operate.verify.lakes import DEFINITIONS, MadeLake, healthy

_ROOT = Path(__file__).parents[3]


def on_s3(server: S3Server) -> Settings:
    """The settings of a lake of its own."""
    options = server.options()
    assert options.secret_access_key is not None
    storage = StorageSettings(
        endpoint=options.endpoint,
        region=options.region,
        access_key_id=options.access_key_id,
        secret_access_key=SecretStr(options.secret_access_key),
        allow_http=True,
    )
    return load_settings(lake=str(s3_folder(server)), storage=storage)


@pytest.fixture
def settings(s3_server: S3Server) -> Settings:
    return on_s3(s3_server)


@pytest.fixture(scope="module")
def made(s3_server: S3Server) -> MadeLake:
    """A lake as its pipeline leaves it; its tests change nothing."""
    return healthy(on_s3(s3_server))


def rows(settings: Settings, text: str) -> list[tuple[object, ...]]:
    (found,) = Interpreter(settings).run(text)
    assert isinstance(found, Rows)
    return [tuple(row) for row in found.rows]


def environment(server: S3Server, settings: Settings, **more: str) -> dict[str, str]:
    return {**os.environ, **s3_environment(server, settings.lake), "PYTHONPATH": str(_ROOT), **more}


def test_a_source_gets_a_column(settings: Settings) -> None:
    healthy(settings)
    list(Interpreter(settings).run("ALTER STREAM visits ADD note VARCHAR; ALTER TABLE pages ADD note VARCHAR"))
    assert set(rows(settings, "SELECT note FROM visits")) == set(rows(settings, "SELECT note FROM pages")) == {(None,)}
    assert [each for each in verify(settings, [], deep=True) if each.ok is False] == []


def test_a_file_is_applied_and_applied_again(settings: Settings, tmp_path: Path) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(DEFINITIONS)
    assert {change.outcome for change in apply(file, settings).changes} == {"created"}
    assert {change.outcome for change in apply(file, settings).changes} == {"unchanged"}
    file.write_text(f"{DEFINITIONS} CREATE STREAM visits (page INT) WITH (KAFKA_TOPIC = 'other');")
    before = below(settings.lake)
    with pytest.raises(Exception, match="visits"):
        apply(file, settings)
    assert below(settings.lake) == before


def test_inserted_rows_are_in_the_topic(settings: Settings) -> None:
    list(Interpreter(settings).run(DEFINITIONS))
    list(Interpreter(settings).run("INSERT INTO visits (page, seconds) VALUES ('a', 1.5), ('b', 2.5);"))
    assert sorted(rows(settings, "SHOW TOPICS;")) == [("clicks", 2, 2), ("pages", 1, 0)]
    lags = {row[1]: row[6] for row in status(settings).rows}
    assert (lags["visits"], lags["totals"]) == (2, 0)
    assert rows(settings, "SELECT * FROM totals;") == []


def test_tables_are_pulled_pushed_and_described(made: MadeLake) -> None:
    assert rows(made.settings, "SELECT owner, n FROM owned;") == [("Ann", 5)]
    assert rows(made.settings, "SELECT n FROM totals WHERE page = 'a';") == [(3,)]
    (live,) = Interpreter(made.settings).run("SELECT page, n FROM totals EMIT CHANGES LIMIT 3;")
    assert isinstance(live, LiveRows)
    assert sorted(str(row) for row in live.rows) == ["('a', 3)", "('b', 2)", "('d', 1)"]
    (described,) = Interpreter(made.settings).run("DESCRIBE totals EXTENDED;")
    assert f"{made.lake.root}/tables/totals" in str(described)


def test_a_healthy_lake_is_verified_and_a_damaged_object_is_named(made: MadeLake) -> None:
    assert [check for check in verify(made.settings, deep=True) if check.ok is not True] == []
    file = log.commit_file(made.lake.table("totals"), 1)
    whole = file.read_bytes()
    overwrite(file, whole.replace(b"WRITE", b"WRITF", 1))
    try:
        failed = {check.table: check.where for check in verify(made.settings) if check.ok is False}
    finally:
        overwrite(file, whole)
    assert failed["totals"] == str(file)


def end_soon(location: Location) -> None:
    """Make the lease of a holder that is dead one of a moment: a short one might be lost by a holder that lives."""
    found = read_lease(location)
    assert found is not None
    assert location.update(replace(found[0], seconds=0.2).to_bytes(), found[1])


def test_a_drop_that_is_killed_is_ended_by_the_next_change(s3_server: S3Server) -> None:
    settings = on_s3(s3_server)
    made = healthy(settings)
    command = [sys.executable, "-m", "strandline.jobs.cli.main", "sql", "-e", "DROP TABLE spread;"]
    stop = environment(s3_server, settings, STRANDLINE_FAILPOINT="inside-removal:3")
    ended = subprocess.run(command, env=stop, cwd=_ROOT, check=False, timeout=PATIENCE_SECONDS)
    assert ended.returncode == -signal.SIGKILL
    catalog = Catalog(made.lake)
    assert catalog.find("spread") is None
    assert any(name.startswith("tables/spread") for name in below(made.lake.root))
    assert isinstance(made.lake.catalog, Location)
    end_soon(made.lake.catalog / "catalog.lease")
    # It is waited for all the same.
    assert catalog.finish_drops() == ("spread",)
    assert not any("spread" in name for name in below(made.lake.root) if name.startswith(("tables", "catalog")))
    assert rows(settings, "SELECT owner FROM owned;") == [("Ann",)]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is renewed, and looked at by who waits for it, every tenth of a second."""
    for name in ("_RENEWALS", "_LOOKS"):
        monkeypatch.setattr(lease_module, name, 10 * LEASE_SECONDS)


@pytest.mark.usefixtures("often")
def test_changes_of_the_catalog_wait_for_one_another(settings: Settings) -> None:
    lake = LakeLayout(settings.lake)
    assert isinstance(lake.catalog, Location)
    began, done = threading.Event(), threading.Event()

    def change() -> None:
        began.set()
        list(Interpreter(settings).run("CREATE STREAM s (id INT) WITH (KAFKA_TOPIC = 's');"))
        done.set()

    with lease(lake.catalog / "catalog.lease", "another change"):
        other = threading.Thread(target=change)
        other.start()
        began.wait()
        assert not done.wait(1.0)
    other.join()
    assert Catalog(lake).names() == ("s",)


def test_a_change_that_stood_still_for_too_long_writes_nothing(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another has taken the lease meanwhile, and may have changed what this one looked at."""
    monkeypatch.setattr("strandline.jobs.catalog.manifest.lease", partial(lease, seconds=0.5))
    monkeypatch.setattr(WriterLease, "keep", lambda self: None)  # nothing renews it, as in a process that is stopped
    catalog = Catalog(LakeLayout(settings.lake))
    reload = Catalog.reload

    def stand_still(self: Catalog) -> None:
        reload(self)
        time.sleep(0.6)

    monkeypatch.setattr(Catalog, "reload", stand_still)
    with pytest.raises(LockLost, match="'catalog' is no longer held"):
        catalog.add(Source("s", "stream", (), "s", "KAFKA", "JSON", "p", "…"))
    assert [name for name in below(settings.lake) if name.endswith(".json")] == []


@pytest.mark.usefixtures("often")
def test_a_pipeline_has_one_writer(settings: Settings) -> None:
    lake = LakeLayout(settings.lake)
    with sole_writer(lake, "shop", "run shop.sql") as held:
        assert isinstance(held, WriterLease)
        held.check()
        with pytest.raises(WriterBusy, match="'shop' is being written by process"), sole_writer(lake, "shop", "other"):
            pass


def test_views_are_refreshed_by_duckdb_and_events_wait_for_the_jars(
    s3_server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in the event log already needs no JVM; what the driver may not take in needs one, and none is started."""
    monkeypatch.setattr("strandline.jobs.run.spark._S3_JARS", tmp_path)
    settings = on_s3(s3_server)
    made = MadeLake(settings)
    made.visits([(0, "a", 1.0), (1, "a", 2.0), (1, "e", 2.0)], {0: 1, 1: 2})
    made.pages([("a", "Ann"), ("e", "Eve")], 2)
    report = drain(settings, "shop")
    assert {each.name: each.inserted for each in report.tables}["totals"] == 2
    assert sorted(rows(settings, "SELECT owner, n FROM owned;")) == [("Ann", 2), ("Eve", 1)]
    assert [check for check in verify(settings, deep=True) if check.ok is not True] == []
    list(Interpreter(settings).run("INSERT INTO visits (page, seconds) VALUES ('a', 1.5);"))
    by_spark = settings.model_copy(update={"ingest": settings.ingest.model_copy(update={"driver_rows": 0})})
    with pytest.raises(SettingsError, match=r"jars by which Spark reaches S3 are missing(?s:.*)strandline setup --s3"):
        drain(by_spark, "shop")
    assert rows(settings, "SELECT n FROM totals WHERE page = 'a';") == [(2,)]


def test_a_view_that_a_change_leaves_as_it_is_reflects_it(settings: Settings) -> None:
    session = Interpreter(settings)
    list(
        session.run(
            "CREATE TABLE item (id INT PRIMARY KEY, n INT) WITH (KAFKA_TOPIC = 'item', PARTITIONS = 1); "
            "CREATE MATERIALIZED VIEW large AS SELECT id, n FROM item WHERE n > 7"
        )
    )
    for number, n in ((1, 9), (2, 1), (3, 2)):
        list(session.run(f"INSERT INTO item VALUES ({number}, {n})"))
        drain(settings, "default")
    text = "SELECT i.id, l.n FROM item i LEFT JOIN large l ON i.id = l.id ORDER BY i.id"
    assert rows(settings, text) == [(1, 9), (2, None), (3, None)]
