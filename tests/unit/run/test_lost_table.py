"""A table that had commits and is not there any more: everybody says so, nobody takes it for an empty one."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from fastapi.testclient import TestClient

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import ViewsStopped
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.rebuild import rebuild
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.delta import heads
from strandline.state_store.errors import TableLost
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk

SHOP = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE prices (item VARCHAR PRIMARY KEY, price INT) WITH (KAFKA_TOPIC = 'prices');
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW most AS SELECT MAX(n) AS m FROM by_shop;
INSERT INTO sales VALUES ('a', 2), ('b', 5), ('a', 1);
INSERT INTO prices VALUES ('x', 1);
"""


@pytest.fixture
def shop(settings: Settings) -> Settings:
    made = settings.model_copy(update={"engine": "duckdb"})
    list(Interpreter(made, "shop").run(SHOP))
    drain(made, "shop", in_driver=True)
    return made


def lose(lake: LakeLayout, table: str) -> None:
    shutil.rmtree(on_disk(lake.table(table)))


def rows(settings: Settings, text: str) -> list[tuple[Any, ...]]:
    (found,) = Interpreter(settings).run(text)
    assert isinstance(found, Rows)
    return [tuple(row) for row in found.rows]


@pytest.mark.parametrize("table", ["sales", "prices", "by_shop", "most"])
def test_a_select_of_a_lost_table_is_an_error(shop: Settings, lake: LakeLayout, table: str) -> None:
    lose(lake, table)
    with pytest.raises(TableLost, match=f"the table of '{table}' is lost"):
        rows(shop, f"SELECT * FROM {table};")
    with pytest.raises(TableLost):
        next(iter(next(iter(Interpreter(shop).run(f"SELECT * FROM {table} EMIT CHANGES;"))).rows))  # type: ignore[union-attr]


def test_status_verify_and_runs_say_so_and_a_rebuild_mends_it(shop: Settings, lake: LakeLayout) -> None:
    before = rows(shop, "SELECT * FROM by_shop;")
    lose(lake, "by_shop")
    (state,) = [row[-1] for row in status(shop).rows if row[1] == "by_shop"]
    assert state == "store.table_lost"
    broken = [each for each in verify(shop) if each.ok is False and each.table == "by_shop"]
    assert [each.check for each in broken] == ["log"]
    assert "strandline rebuild by_shop" in str(broken[0].hint)
    with pytest.raises(ViewsStopped) as stopped:
        drain(shop, "shop", in_driver=True)
    assert isinstance(stopped.value.failures["by_shop"], TableLost)
    rebuild(shop, "by_shop")
    assert rows(shop, "SELECT * FROM by_shop;") == before
    drain(shop, "shop", in_driver=True)
    assert [each for each in verify(shop, deep=True) if each.ok is False] == []


def test_a_lost_event_log_is_not_begun_anew_by_a_run(shop: Settings, lake: LakeLayout) -> None:
    """Its events may be gone from the topic by now: whoever wants it read again says so."""
    lose(lake, "sales")
    with pytest.raises(TableLost):
        drain(shop, "shop", in_driver=True)
    assert not on_disk(lake.table("sales")).exists()


def test_what_was_never_made_is_empty(settings: Settings, lake: LakeLayout) -> None:
    list(Interpreter(settings, "shop").run(SHOP))
    assert rows(settings, "SELECT * FROM by_shop;") == []
    assert "store.table_lost" not in {row[-1] for row in status(settings).rows}


def test_a_dropped_table_is_not_lost(shop: Settings, lake: LakeLayout) -> None:
    lose(lake, "most")
    list(Interpreter(shop).run("DROP VIEW most;"))
    list(Interpreter(shop, "shop").run("CREATE MATERIALIZED VIEW most AS SELECT MAX(n) AS m FROM by_shop;"))
    assert rows(shop, "SELECT * FROM most;") == []
    drain(shop, "shop", in_driver=True)
    assert rows(shop, "SELECT * FROM most;") == [(2,)]
    assert set(heads.marked(lake)) == {"sales", "prices", "prices__log", "by_shop", "most"}


def test_a_lake_that_is_older_than_marks_gets_them(shop: Settings, lake: LakeLayout) -> None:
    shutil.rmtree(on_disk(lake.begun))
    drain(shop, "shop", in_driver=True)
    assert "by_shop" in heads.marked(lake)
    lose(lake, "by_shop")
    with pytest.raises(TableLost):
        rows(shop, "SELECT * FROM by_shop;")


def test_another_table_in_its_place_is_noticed(shop: Settings, lake: LakeLayout) -> None:
    lose(lake, "most")
    heads.forget(lake, "most")
    drain(shop, "shop", in_driver=True)
    assert [each for each in verify(shop) if each.ok is False] == []
    shutil.rmtree(on_disk(lake.table("most")))
    shutil.copytree(on_disk(lake.table("by_shop")), on_disk(lake.table("most")))
    assert "another table" in next(each.what for each in verify(shop) if each.ok is False and each.table == "most")


def test_a_server_is_not_ready(
    shop: Settings, lake: LakeLayout, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.jobs.server.state.server._LOST_SECONDS", 0.0)
    assert Catalog(lake).find("by_shop") is not None
    with TestClient(application(shop, ServerOptions(tmp_path / "server", queries=1)), "http://127.0.0.1") as client:
        assert client.get("/ready").status_code == 200
        lose(lake, "by_shop")
        found = client.get("/ready")
        assert (found.status_code, found.json()["lost"]) == (503, 1)
        asked = client.post("/v1/query", json={"sql": "SELECT * FROM by_shop"})
        assert (asked.status_code, asked.json()["code"]) == (500, "store.table_lost")
