"""Repairs that need each other: what foreign hands broke is rebuilt together, in the order of what reads what."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
from typer.testing import CliRunner

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.cli import main as cli
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.errors import TopicMissing, TopicReplaced, ViewsStopped
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.health_checks import Waiting
from strandline.jobs.operate.rebuild import plan_rebuild, plan_rebuilds, rebuild
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import WholeHeads, set_aside
from strandline.state_store.errors import ForeignWrite, StrandlineError
from strandline.state_store.layout import LakeLayout
from tests.support.lakes import delta_rs
from tests.support.on_disk import on_disk

SHOP = """
CREATE STREAM sales (item VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE prices (item VARCHAR PRIMARY KEY, price INT) WITH (KAFKA_TOPIC = 'prices');
CREATE STREAM visits (page VARCHAR) WITH (KAFKA_TOPIC = 'visits', PARTITIONS = 1);
CREATE MATERIALIZED VIEW paid AS SELECT s.item, s.qty * p.price AS paid FROM sales s JOIN prices p ON s.item = p.item;
CREATE MATERIALIZED VIEW total AS SELECT SUM(paid) AS paid FROM paid;
CREATE MATERIALIZED VIEW beside AS SELECT page, COUNT(*) AS n FROM visits GROUP BY page;
CREATE MATERIALIZED VIEW named AS SELECT item AS name FROM sales UNION SELECT page AS name FROM visits;
CREATE MATERIALIZED VIEW names AS SELECT COUNT(*) AS n FROM named;
INSERT INTO prices VALUES ('a', 10), ('b', 20);
INSERT INTO sales VALUES ('a', 2), ('b', 5), ('a', 1);
INSERT INTO visits VALUES ('x');
"""

MORE = "INSERT INTO sales VALUES ('b', 1); INSERT INTO prices VALUES ('a', 11); INSERT INTO visits VALUES ('y');"
TABLES = ("prices", "paid", "total", "beside", "named", "names")


@pytest.fixture
def shop(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Settings:
    made = settings.model_copy(update={"engine": "duckdb"})
    monkeypatch.setenv("STRANDLINE_LAKE", str(made.lake))
    monkeypatch.setenv("STRANDLINE_ENGINE", "duckdb")
    list(Interpreter(made, "shop").run(SHOP))
    drain(made, "shop", in_driver=True)
    list(Interpreter(made, "shop").run(MORE))
    drain(made, "shop", in_driver=True)
    return made


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, [*arguments], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def restored_by_hand(lake: LakeLayout, *tables: str) -> None:
    for table in tables:
        delta_rs(lake.table(table)).restore(1)


def rows(settings: Settings, name: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in reader.read_rows(LakeLayout(settings.lake).table(name)).to_pylist())


def all_rows(settings: Settings) -> list[Any]:
    return [rows(settings, name) for name in TABLES]


def broken(settings: Settings) -> list[str]:
    return [f"{each.table}: {each.what}" for each in verify(settings, deep=True) if each.ok is False]


def test_two_sources_are_rebuilt_together(shop: Settings, lake: LakeLayout, caplog: pytest.LogCaptureFixture) -> None:
    before = all_rows(shop)
    restored_by_hand(lake, "sales", "prices__log")
    with pytest.raises(StrandlineError):
        drain(shop, "shop", in_driver=True)
    plan = plan_rebuild(shop, "sales", "prices")
    assert plan.topics == {"sales": ("sales", 4), "prices": ("prices", 3)}
    assert [each.table for each in plan.computed] == ["prices", "named", "paid"]
    assert (set(plan.follow), plan.waiting) == ({"total", "names"}, {})
    caplog.clear()
    code, _, err = invoke("rebuild", "sales", "prices")
    assert code == 0, err
    assert [each for each in caplog.messages if "stopped" in each] == []  # of what it is about to compute
    assert any(each.startswith(f"what 'sales' held is kept in {lake.aside}") for each in caplog.messages)
    assert all_rows(shop) == before
    assert broken(shop) == []
    drain(shop, "shop", in_driver=True)


@pytest.mark.parametrize(("first", "second"), [("sales", "visits"), ("visits", "sales")])
def test_one_after_the_other_what_reads_both_waits(shop: Settings, lake: LakeLayout, first: str, second: str) -> None:
    before = all_rows(shop)
    restored_by_hand(lake, first, second)
    assert plan_rebuild(shop, first).waiting == {"named": (second,)}
    code, _, err = invoke("rebuild", first)
    assert code == 1, err
    assert f"'named' waits for '{second}', broken too: strandline rebuild {second}" in err
    code, _, err = invoke("rebuild", second)
    assert code == 0, err
    assert all_rows(shop) == before
    assert broken(shop) == []


def test_all_that_is_broken_is_found_and_rebuilt(shop: Settings, lake: LakeLayout) -> None:
    before = all_rows(shop)
    restored_by_hand(lake, "sales", "prices__log", "beside")
    (planned,) = map(json.loads, invoke("rebuild", "--all-broken", "--dry-run", "--json")[1].splitlines())
    assert sorted(planned["names"]) == ["beside", "prices", "sales"]
    assert invoke("rebuild", "--all-broken")[0] == 0
    assert all_rows(shop) == before
    assert broken(shop) == []
    code, _, err = invoke("rebuild", "--all-broken")
    assert (code, "nothing is broken" in err) == (0, True)


def test_a_broken_view_beside_it_is_left_alone(shop: Settings, lake: LakeLayout) -> None:
    restored_by_hand(lake, "sales", "beside")
    code, _, err = invoke("rebuild", "sales")
    assert code == 0, err
    assert {each.partition(":")[0] for each in broken(shop)} == {"beside"}
    with pytest.raises(ViewsStopped) as stopped:
        drain(shop, "shop", in_driver=True)
    assert set(stopped.value.failures) == {"beside"}


@pytest.mark.parametrize("table", ["sales", "prices__log", "prices", "paid", "total"])
def test_what_the_error_of_a_table_names_is_what_mends_it(shop: Settings, lake: LakeLayout, table: str) -> None:
    """As typed, also where it is the name of a table below a definition."""
    before = all_rows(shop)
    restored_by_hand(lake, table)
    with pytest.raises((ViewsStopped, ForeignWrite)) as stopped:
        drain(shop, "shop", in_driver=True)
    error = stopped.value
    wrong = next(iter(error.failures.values())) if isinstance(error, ViewsStopped) else error
    typed = str(wrong.hint).rpartition("strandline ")[2].split()
    assert typed[0] == "rebuild"
    code, _, err = invoke(*typed)
    assert code == 0, err
    drain(shop, "shop", in_driver=True)
    assert all_rows(shop) == before
    assert broken(shop) == []


def test_pipelines_are_rebuilt_in_the_order_of_what_reads_what(shop: Settings, lake: LakeLayout) -> None:
    list(Interpreter(shop, "above").run("CREATE MATERIALIZED VIEW above AS SELECT paid + 1 AS more FROM total;"))
    drain(shop, "above", in_driver=True)
    before = all_rows(shop), rows(shop, "above")
    restored_by_hand(lake, "sales", "total")
    delta_rs(lake.table("above")).delete()
    assert [each.pipeline for each in plan_rebuilds(shop, ["total", "sales"])] == ["shop"]
    code, _, err = invoke("rebuild", "above", "total", "sales")
    assert code == 0, err
    assert (all_rows(shop), rows(shop, "above")) == before
    assert broken(shop) == []


@pytest.mark.parametrize("gone", [("sales",), ("sales", "prices__log", "prices"), ("prices__log", "paid")])
def test_a_rebuild_that_was_killed_is_said_again(shop: Settings, lake: LakeLayout, gone: tuple[str, ...]) -> None:
    """Some tables were set aside, and nothing was read again; or one of the views was made anew since."""
    before = all_rows(shop)
    for table in gone:
        set_aside(lake, table)
    code, _, err = invoke("rebuild", "sales", "prices")
    assert code == 0, err
    assert all_rows(shop) == before
    assert broken(shop) == []


def test_a_view_needs_what_it_reads(shop: Settings, lake: LakeLayout) -> None:
    restored_by_hand(lake, "sales", "paid")
    with pytest.raises(ForeignWrite, match="'sales' is not ours"):
        rebuild(shop, "paid")
    rebuild(shop, "paid", "sales")
    assert broken(shop) == []


def test_views_follow_a_topic_that_was_made_anew_and_is_empty_still(shop: Settings, lake: LakeLayout) -> None:
    text = """CREATE STREAM lone (n INT) WITH (KAFKA_TOPIC = 'lone', PARTITIONS = 1);
    CREATE MATERIALIZED VIEW of_lone AS SELECT n, COUNT(*) AS times FROM lone GROUP BY n;
    INSERT INTO lone VALUES (1), (2);"""
    list(Interpreter(shop, "shop").run(text))
    drain(shop, "shop", in_driver=True)
    assert len(rows(shop, "of_lone")) == 2
    shutil.rmtree(on_disk(lake.topic("lone")))
    open_log(shop, lake).ensure_topic("lone", 1)
    rebuild(shop, "lone")
    assert rows(shop, "of_lone") == []
    assert broken(shop) == []


def test_an_insert_into_a_topic_that_is_gone_says_what_to_type(shop: Settings, lake: LakeLayout) -> None:
    create = "CREATE STREAM lone (n INT) WITH (KAFKA_TOPIC = 'lone', PARTITIONS = 1);"
    view = "CREATE MATERIALIZED VIEW of_lone AS SELECT n FROM lone;"
    insert = "INSERT INTO lone VALUES (3);"
    list(Interpreter(shop, "shop").run(f"{create} {view} INSERT INTO lone VALUES (1), (2);"))
    drain(shop, "shop", in_driver=True)
    shutil.rmtree(on_disk(lake.topic("lone")))
    with pytest.raises(TopicMissing, match="it was deleted"):
        list(Interpreter(shop, "shop").run(insert))
    list(Interpreter(shop, "shop").run(create))
    with pytest.raises(TopicReplaced) as replaced:
        list(Interpreter(shop, "shop").run(insert))
    assert "strandline rebuild lone" in (replaced.value.hint or "")
    code, _, err = invoke("rebuild", "lone")
    assert code == 0, err
    list(Interpreter(shop, "shop").run(insert))
    drain(shop, "shop", in_driver=True)
    assert [3 in row for row in rows(shop, "of_lone")] == [True]
    assert broken(shop) == []


def test_after_a_rebuild_in_a_restored_lake_no_view_is_behind(shop: Settings) -> None:
    """No heartbeat says there that a refresh looked at a change which changes none of a view's rows; the notes do."""
    lake = LakeLayout(shop.lake)
    list(Interpreter(shop, "shop").run("CREATE MATERIALIZED VIEW most AS SELECT MAX(paid) AS most FROM paid;"))
    drain(shop, "shop", in_driver=True)
    list(Interpreter(shop, "shop").run("INSERT INTO sales VALUES ('b', 1);"))
    drain(shop, "shop", in_driver=True)
    on_disk(lake.run("shop")).unlink()
    rebuild(shop, "sales")
    waiting = Waiting(Catalog(lake), WholeHeads(lake), open_log(shop, lake))
    names = (*TABLES, "most")
    assert {name: (waiting.since(name), waiting.versions(name)) for name in names} == dict.fromkeys(names, (None, 0))
