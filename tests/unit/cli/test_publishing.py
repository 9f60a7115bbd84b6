"""`strandline publish`, and `strandline rebuild --from-topic`."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from strandline.jobs.cli.main import app
from strandline.jobs.model.settings import Settings
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.published_lake import VIEWS, PublishedLake


def invoke(*args: str) -> tuple[int, str, str]:
    found = CliRunner().invoke(app, args)
    return found.exit_code, found.stdout, found.stderr


def test_a_view_that_was_not_computed_yet_does_not_keep_the_others(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE", str(settings.lake))
    PublishedLake(settings)
    for arguments in (("publish",), ("publish", "--dry-run")):
        code, out, err = invoke(*arguments)
        assert (code, out) == (0, "")
        assert err.count(" was not computed yet: run '") == len(VIEWS)
    assert invoke("publish", "by_town")[0] == 2


def test_a_lake_without_changelog_topics_is_told_so(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE", str(settings.lake))
    assert invoke("sql", "-e", "CREATE STREAM s (a INT)")[0] == 0
    assert invoke("publish") == (
        0,
        "",
        "no view has a changelog topic: give one … WITH (KAFKA_TOPIC = 'name') AS SELECT …\n",
    )
    code, out, err = invoke("compact")
    assert (code, out, err) == (0, "", "0 tables: nothing to merge or remove\n")


def test_publish_shows_its_plan_and_what_it_did(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE", str(settings.lake))
    made = PublishedLake(settings)
    with DuckDBEngine("500MB", 1) as duckdb_engine:
        made.epoch(duckdb_engine)
    code, out, _ = invoke("publish", "by_town", "--dry-run")
    assert (code, out) == (
        0,
        "'by_town' to topic 'by_town': difference, the topic does not say which version it holds\n",
    )
    code, out, _ = invoke("publish", "--json")
    done = {row["view"]: row for row in map(json.loads, out.splitlines())}
    assert (code, set(done)) == (0, set(VIEWS))
    assert (done["by_town"]["records"], done["by_town"]["version"], done["by_town"]["writes"]) == (3, 1, 1)
    code, _, err = invoke("publish", "visits")
    assert code == 2
    assert "[sql.invalid_query] 'visits' has no changelog topic" in err
    code, _, err = invoke("rebuild", "by_town", "--from-topic")
    assert code == 0
    assert "by_town: 3 rows of version 1 from the topic 'by_town'" in err
    code, out, _ = invoke("status", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    [row] = [row for row in rows if row.get("kind") == "changelog topic" and row["table"] == "by_town"]
    assert (row["version"], row["rows"], row["lag"], row["state"]) == (1, 3, 0, "fresh")
