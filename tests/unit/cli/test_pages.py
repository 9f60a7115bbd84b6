"""Commands that the pages print with their answers: typed as printed, they answer so."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.house.plan import ROOT
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.recovery.scenarios import SCENARIOS
from strandline.jobs.run.pipeline import drain
from strandline.state_store.layout import LakeLayout
from tests.support import lake_tables
from tests.support.example_lakes import example_lake
from tests.support.page_blocks import answer, block, missing, typed

PIPELINES = ROOT / "jobs" / "pipelines"
SALES = "CREATE STREAM sales (shop VARCHAR, item VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 2);\n"
FORMER = "CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM sales GROUP BY shop;\n"
READERS = """CREATE TABLE large AS SELECT shop, n FROM by_shop WHERE n > 1;
CREATE MATERIALIZED VIEW busiest AS SELECT MAX(n) AS n FROM by_shop;
"""
EVENTS = [("a", "x", 1), ("a", "y", 3), ("b", "x", 2), ("b", "x", 5)]


@pytest.fixture
def folder(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with nothing in it yet; the commands find the lake by their environment."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("STRANDLINE_LAKE", str(settings.lake))
    monkeypatch.setenv("STRANDLINE_ENGINE", "duckdb")
    monkeypatch.setenv("COLUMNS", "200")
    return folder


def shop(settings: Settings, folder: Path, text: str) -> Path:
    """A pipeline from the file `shop.sql`, with its events in its views."""
    file = folder / "shop.sql"
    file.write_text(text)
    answer("apply", "shop.sql")
    rows = [{"shop": shop, "item": item, "qty": qty} for shop, item, qty in EVENTS]
    lake_tables.events(LakeLayout(settings.lake), "sales", rows)
    drain(settings, "shop")
    return file


def test_the_plan_of_a_replacement(settings: Settings, folder: Path) -> None:
    file = shop(settings, folder, SALES + FORMER + READERS)
    file.write_text(SALES + block("evolution.md", "CREATE OR REPLACE TABLE by_shop", "sql") + READERS)
    plan = answer("apply", "shop.sql", "--dry-run")
    assert plan == block("evolution.md", "replace   table 'by_shop'")
    answer("apply", "shop.sql")
    assert "'by_shop' unchanged" in answer("apply", "shop.sql")


def test_a_stream_is_given_more_rows_and_refuses_fewer(settings: Settings, folder: Path) -> None:
    shop(settings, folder, SALES + "CREATE STREAM sold AS SELECT shop, item, qty FROM sales WHERE qty > 1;\n")
    fewer = "CREATE OR REPLACE STREAM sold AS SELECT shop, item, qty FROM sales WHERE qty > 2;"
    refused = " ".join(block("evolution.md", "keeps its definition").split())
    assert refused in answer("sql", "-e", fewer, code=2).replace("\n  hint:", "")
    answer("sql", "-e", block("evolution.md", "was: qty > 1", "sql"))


def test_a_column_is_added_and_a_view_renamed(settings: Settings, folder: Path) -> None:
    file = shop(settings, folder, SALES + FORMER)
    file.write_text(SALES.replace("qty INT)", "qty INT, coupon VARCHAR)") + FORMER)
    for page in ("+coupon VARCHAR", "is called `sold` from now on"):
        for each in typed(block("evolution.md", page)):
            assert answer(*each.arguments) == "".join(f"{line}\n" for line in each.printed)
    assert "hint: write sold\n" in answer("sql", "-e", "SELECT * FROM by_shop", code=2)


def test_what_operators_type(settings: Settings, folder: Path) -> None:
    for name in ("movie_tickets", "sensor_readings"):
        example_lake(PIPELINES / f"{name}.sql", settings)
    commands = [
        *typed(block("operating.md", "$ strandline status")),
        *typed(block("operating.md", "strandline rebuild")),
    ]
    assert [each.arguments[0] for each in commands] == ["status", "compact", "rebuild"]
    for each in commands:
        assert missing(each.printed, answer(*each.arguments)) == []


def test_the_drills_of_the_page_are_those_that_there_are() -> None:
    names = [each.name for each in SCENARIOS]
    page = (ROOT / "docs" / "operating.md").read_text()
    table = page.partition("| scenario | what is lost")[2].partition("\n\n")[0]
    assert [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")] == names
    header = block("operating.md", "|view ").splitlines()[2]
    assert [each.strip() for each in header.strip("|").split("|")] == ["view", *names]
    assert {each.arguments[0] for each in typed(block("operating.md", "|view "))} == {"drill"}
