"""Retention by the command: said in SQL, planned, done, shown; and what would lose rows is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.jobs.cli import main as cli
from strandline.jobs.model.settings import Settings
from tests.support.retained_lake import FOLDS, LOOK_BACK, RetainedLake


@pytest.fixture
def made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> RetainedLake:
    """A view that only folds, after three epochs; every event is older than the retention."""
    monkeypatch.setenv("STRANDLINE_LAKE", str(settings.lake))
    monkeypatch.setenv("COLUMNS", "200")
    made = RetainedLake(settings, [FOLDS["counts"], FOLDS["hours"]])
    for number in range(3):
        made.feed("s", [("ab"[each % 2], number + each) for each in range(4)])
        made.refreshed()
    return made


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, [*arguments], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def test_retention_from_the_statement_to_the_refusals(made: RetainedLake, tmp_path: Path) -> None:
    before = made.rows("counts")
    out = invoke("compact", "s", "--dry-run")[1]
    assert "  trim 12 events up to 2024-05-01 00:12:00 UTC: 3 files; it begins with offset 6 of partition 0" in out
    (planned,) = [json.loads(line) for line in invoke("compact", "s", "--dry-run", "--json")[1].splitlines()]
    assert (planned["trim"]["rows"], planned["trim"]["begins"]) == (12, {"0": 6, "1": 6})
    assert (planned["trim"]["retention_ms"], planned["trim"]["kept_for"]) == (600_000, [])
    code, out, _ = invoke("compact")
    assert (code, made.gone("s"), "12 events trimmed" in out) == (0, 12, True)
    logs = [json.loads(line) for line in invoke("status", "--json")[1].splitlines()]
    assert {each["log"]: (each["rows"], each["gone"]) for each in logs if "log" in each}["s"] == (0, 12)
    assert made.rows("counts") == before
    made.feed("s", [("a", 100)])
    made.refreshed()
    before = made.rows("counts")
    assert [row[-1] for row in before] == [100, 5]
    assert invoke("verify", "--deep")[0] == 0
    code, out, _ = invoke("verify", "counts", "--deep", "--json")
    checks = {each["check"]: each for each in map(json.loads, out.splitlines())}
    assert (checks["recompute"]["ok"], checks["feed"]["ok"], checks["digest"]["ok"]) == (None, True, True)
    replacing = "CREATE OR REPLACE TABLE counts AS SELECT k, COUNT(*) AS n FROM s GROUP BY k;"
    file = tmp_path / "shop.sql"
    file.write_text(replacing)
    for refused in (
        ("rebuild", "counts"),
        ("backfill", "hours", "--from", "2024-05-01"),
        ("sql", "-e", replacing),
        ("apply", str(file)),
        ("apply", str(file), "--dry-run"),
    ):
        code, _, err = invoke(*refused)
        assert (code, "[pipeline.events_gone]" in err) == (2, True), (refused, err)
        assert "retention has taken 12 events from 's', which begins after 2024-05-01 00:12:00 UTC" in err
    assert made.rows("counts") == before


def test_the_plan_names_who_keeps_what(made: RetainedLake) -> None:
    assert invoke("sql", "-e", f"{LOOK_BACK['joined']};")[0] == 0
    out = invoke("compact", "s", "--dry-run")[1]
    assert "  keep 12 events beyond its retention for 'joined': its join looks up former events" in out
    assert "  keep all rows, since somebody needs those beyond its retention: 12 rows" in out
    invoke("compact")
    assert made.gone("s") == 0


def test_a_statement_changes_it_beside_a_running_pipeline(made: RetainedLake) -> None:
    columns = "(k VARCHAR KEY, v INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 2"
    code, _, err = invoke("sql", "-e", f"CREATE OR REPLACE STREAM s {columns}, RETENTION_MS = -1);")
    assert (code, "stream 's' replaced" in err) == (0, True)
    assert "keep all rows" in invoke("compact", "s", "--dry-run")[1]
    assert "trim" not in invoke("compact", "s", "--dry-run")[1]
    assert invoke("sql", "-e", f"CREATE STREAM s {columns}, RETENTION_MS = 1);")[0] == 0, "no row depends on it"
    assert "trim 12 events" in invoke("compact", "s", "--dry-run")[1]
