"""A table whose newest commits are lost: its log looks as it did before them, and only its readers tell.

Every surface says so instead of giving the rows of before; what the error names mends it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from typer.testing import CliRunner

from strandline.jobs.cli import main as cli
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.assurance import assurances
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.delta import log
from strandline.state_store.delta.heads import newest_version
from strandline.state_store.errors import CommitsLost
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk

SHOP = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW most AS SELECT MAX(n) AS m FROM by_shop;
CREATE MATERIALIZED VIEW wide WITH (STATE = 'partial') AS SELECT n, COUNT(*) AS shops FROM by_shop GROUP BY n;
"""


@pytest.fixture
def shop(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    made = settings.model_copy(update={"engine": "duckdb"})
    monkeypatch.setenv("STRANDLINE_LAKE", str(made.lake))
    monkeypatch.setenv("STRANDLINE_ENGINE", "duckdb")
    list(Interpreter(made, "shop").run(SHOP))
    for values in ("('a', 2), ('b', 5)", "('a', 1)"):
        list(Interpreter(made, "shop").run(f"INSERT INTO sales VALUES {values};"))
        drain(made, "shop", in_driver=True)
    return made


def lose(lake: LakeLayout, table: str) -> None:
    """The newest commit, as a disk does that had not kept what it said."""
    path = lake.table(table)
    on_disk(log.commit_file(path, log.versions(path)[-1])).unlink()


def rows(settings: Settings, text: str) -> list[tuple[Any, ...]]:
    (found,) = Interpreter(settings).run(text)
    assert isinstance(found, Rows)
    return [tuple(row) for row in found.rows]


ASKED: dict[str, Callable[[Settings], Any]] = {
    "select": lambda s: rows(s, "SELECT * FROM by_shop;"),
    "by key": lambda s: rows(s, "SELECT * FROM by_shop WHERE shop = 'a';"),
    "partial": lambda s: rows(s, "SELECT * FROM wide WHERE n = 1;"),
    "push": lambda s: next(iter(next(iter(Interpreter(s).run("SELECT * FROM by_shop EMIT CHANGES;"))).rows)),  # type: ignore[union-attr]
}


@pytest.mark.parametrize("asked", list(ASKED))
def test_a_select_is_an_error(shop: Settings, lake: LakeLayout, asked: str) -> None:
    assert ASKED[asked](shop)
    lose(lake, "by_shop")
    with pytest.raises(CommitsLost, match="'by_shop' are lost: it is at version 1, and 'most' was computed from its"):
        ASKED[asked](shop)


@pytest.mark.parametrize("table", ["sales", "by_shop"])
def test_what_the_error_names_mends_it(shop: Settings, lake: LakeLayout, table: str) -> None:
    before = rows(shop, "SELECT * FROM by_shop;"), rows(shop, "SELECT * FROM most;")
    lose(lake, table)
    with pytest.raises(CommitsLost) as lost:
        rows(shop, f"SELECT * FROM {table};")
    typed = str(lost.value.hint).rpartition("strandline ")[2].split()
    done = CliRunner().invoke(cli.app, typed, catch_exceptions=False)
    assert done.exit_code == 0, done.stderr
    assert (rows(shop, "SELECT * FROM by_shop;"), rows(shop, "SELECT * FROM most;")) == before
    drain(shop, "shop", in_driver=True)
    assert [each for each in verify(shop, deep=True) if each.ok is False] == []


def test_the_surfaces_of_a_server_say_so(shop: Settings, lake: LakeLayout, tmp_path: Path) -> None:
    surfaces: dict[str, Callable[[TestClient], Any]] = {
        "sql": lambda client: client.post("/v1/query", json={"sql": "SELECT * FROM by_shop"}),
        "key": lambda client: client.get("/v1/views/by_shop/rows/a"),
        "rows": lambda client: client.get("/v1/views/by_shop/rows"),
        "changes": lambda client: client.get("/v1/views/by_shop/changes", params={"limit": 1}),
    }
    options = ServerOptions(tmp_path / "server", queries=1)
    with TestClient(application(shop, options), "http://127.0.0.1") as client:
        assert {name: asked(client).status_code for name, asked in surfaces.items()} == dict.fromkeys(surfaces, 200)
    lose(lake, "by_shop")
    # Its replica, which has the lost version, and one that is restored from the table as it is.
    for folder in (options.folder, tmp_path / "another"):
        with TestClient(application(shop, ServerOptions(folder, queries=1)), "http://127.0.0.1") as client:
            found = {name: asked(client) for name, asked in surfaces.items()}
            assert {name: answer.status_code for name, answer in found.items()} == dict.fromkeys(surfaces, 500)
            assert {answer.json()["code"] for answer in found.values()} == {"store.commits_lost"}


def test_what_tells_of_a_view_says_so(shop: Settings, lake: LakeLayout) -> None:
    """None of them goes by the log alone: the view is not fresh, is not right, and what stops it is said."""
    lose(lake, "by_shop")
    assert [row[-1] for row in status(shop).rows if row[1] == "by_shop"] == [CommitsLost.code]
    broken = [each.check for each in verify(shop, ["by_shop"]) if each.ok is False]
    assert broken == ["log"]
    found = next(each for each in assurances(shop, 0) if each.view == "by_shop")
    assert found.stale_seconds is None
    assert found.why.startswith("damaged: the newest commits of 'by_shop' are lost")


def test_of_a_lost_table_nothing_is_said_to_be_fresh(shop: Settings, lake: LakeLayout) -> None:
    shutil.rmtree(on_disk(lake.table("by_shop")))
    found = {each.view: each for each in assurances(shop, 0)}
    assert found["by_shop"].stale_seconds is None
    assert found["by_shop"].why.startswith("damaged: the table of 'by_shop' is lost")
    assert found["most"].why.startswith("held: it waits for 'by_shop', which is damaged")


def test_another_table_of_the_name_has_lost_nothing(shop: Settings, lake: LakeLayout) -> None:
    """It is begun anew with fewer versions than its reader, which a run tells of."""
    list(Interpreter(shop).run("DROP VIEW wide; DROP VIEW most; DROP TABLE by_shop;"))
    list(Interpreter(shop, "shop").run("CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;"))
    drain(shop, "shop", in_driver=True)
    assert newest_version(lake, "by_shop") == 1


def test_a_commit_that_comes_while_it_is_looked_for_is_not_lost(
    shop: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = log.newest_version
    first = [True]

    def seen(path: Any) -> int | None:
        found = newest(path)
        if path.name == "by_shop" and first and found is not None:
            first.pop()
            return found - 1
        return found

    monkeypatch.setattr(log, "newest_version", seen)
    assert newest_version(lake, "by_shop") == 1
    assert newest_version(lake, "by_shop") == 2
