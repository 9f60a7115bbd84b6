"""The pace of a table: rows at its head, and rows changed per second of the last ten."""

from __future__ import annotations

from pathlib import Path

from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.http.views import MOST_COMMITS, WINDOW_SECONDS, TablePace, pace
from strandline.state_store.delta import log
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
"""


def test_a_changed_row_counts_twice_and_only_in_the_last_seconds(tmp_path: Path) -> None:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    view = served.lake.table("by_town")
    assert pace(view, log.now_ms()) is None
    with served.duckdb_engine() as duckdb_engine:
        for _ in range(2):
            served.append("visits", [{"id": 1, "town": "Rome"}, {"id": 2, "town": "Oslo"}])
            served.refresh(duckdb_engine)
    newest = log.newest_version(view)
    assert newest is not None
    now = log.read_commit(view, newest).timestamp
    # Two rows inserted, then both changed: six.
    assert pace(view, now) == TablePace(rows=2, rows_per_second=6 / WINDOW_SECONDS)
    assert pace(view, now + WINDOW_SECONDS * 1000) == TablePace(rows=2, rows_per_second=0.0)


def test_a_table_with_very_many_commits_is_measured_over_the_last_of_them(tmp_path: Path) -> None:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    for number in range(MOST_COMMITS + 5):
        served.append("visits", [{"id": number, "town": "Rome"}])
    stream = served.lake.table("visits")
    newest = log.newest_version(stream)
    assert newest is not None
    now, since = (log.read_commit(stream, version).timestamp for version in (newest, newest - MOST_COMMITS))
    # Among them are compactions, which change no row.
    history = log.read_history(stream, newest - MOST_COMMITS, newest)
    changed = sum(commit.record.inserted for commit in history if commit.record and commit.changes_rows)
    found = pace(stream, now)
    assert found == TablePace(MOST_COMMITS + 5, round(changed * 1000 / max(now - since, 1), 1))
