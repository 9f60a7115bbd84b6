"""What a plan says of definitions over a trimmed log is what applying it says, refuses, and does."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.model.errors import EventsGone
from strandline.jobs.session.apply import apply, plan_apply
from strandline.state_store.delta import reader
from tests.support.retained_lake import FOLDS, LOOK_BACK, PIPELINE, RetainedLake
from tests.unit.operate.maintenance.rounds import lake

GONE = "'s' begins after 2024-05-01 00:32:00 UTC: retention has taken 30 events"
KEPT = f"{GONE}, and takes no more: "
COUNTS = "CREATE OR REPLACE TABLE counts AS SELECT k, COUNT(*) AS n FROM s GROUP BY k"
SPREAD = "CREATE MATERIALIZED VIEW {} WITH (STATE = 'shared') AS SELECT n, {} AS x FROM ({}) AS c GROUP BY n"
PER_KEY = "SELECT k, COUNT(*) AS n FROM s GROUP BY k"


def said(made: RetainedLake, folder: Path, *statements: str) -> tuple[dict[str, str], dict[str, str]]:
    """{view: what its plan says of logs}, and the same of the answer when the file is applied."""
    file = _file(folder, *statements)
    planned = [str(step) for step in plan_apply(file, made.settings).steps if step.outcome in ("create", "replace")]
    return _of_logs(planned), _of_logs([str(each) for each in apply(file, made.settings).changes])


def _file(folder: Path, *statements: str) -> Path:
    file = folder / f"{PIPELINE}.sql"
    file.write_text("".join(f"{each};\n" for each in statements))
    return file


def _of_logs(lines: list[str]) -> dict[str, str]:
    """{view: the part of its line that begins with the log's name}."""
    parts = {line.split("'")[1]: [part for part in line.split("; ") if "begins after" in part] for line in lines}
    return {name: "; ".join(found) for name, found in parts.items()}


def test_a_new_view_is_told_where_its_history_begins_and_what_it_keeps(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    views = [FOLDS["everything"], LOOK_BACK["joined"], LOOK_BACK["visits"], LOOK_BACK["anew"], LOOK_BACK["asked"]]
    over = "CREATE MATERIALIZED VIEW over AS SELECT n, COUNT(*) AS keys FROM counts GROUP BY n"
    made.trimmed("s")
    planned, answered = said(made, tmp_path, *views, over)
    assert planned == answered
    assert planned == {
        "everything": GONE,
        "joined": f"{KEPT}its join looks up former events",
        "visits": f"{KEPT}its sessions are cut again from former events",
        "anew": f"{KEPT}REFRESH = 'full': all its rows are computed from every event",
        "asked": f"{KEPT}STATE = 'partial': a key that is asked for is computed from every event",
        "over": "",
    }
    made.refreshed()
    assert made.rows("everything")[0][0] == 10
    head = reader.head(made.lake.table("everything"))
    assert head is not None
    assert GONE in head.record.reason
    made.feed("s", [("a", 5)] * 12)
    made.refreshed()
    assert made.trimmed("s").tables[0].trimmed == 0, "it takes no more"


def test_a_whole_log_is_not_mentioned(tmp_path: Path) -> None:
    planned, answered = said(lake(tmp_path, rounds=1), tmp_path, FOLDS["everything"], LOOK_BACK["joined"])
    assert planned == answered == {"everything": "", "joined": ""}


def test_what_would_lose_rows_is_refused_before_anything_of_the_file_changes(tmp_path: Path) -> None:
    made = lake(tmp_path, FOLDS["counts"])
    made.trimmed("s")
    before, file = made.rows("counts"), _file(tmp_path, FOLDS["everything"], COUNTS)
    told = []
    for attempt in (plan_apply, apply, lambda *_: made.sql(f"{COUNTS};")):
        with pytest.raises(EventsGone) as caught:
            attempt(file, made.settings)
        told.append(str(caught.value))
    assert len(set(told)) == 1, told
    assert "retention has taken 30 events from 's', which begins after 2024-05-01 00:32:00 UTC" in told[0]
    assert made.catalog.find("everything") is None
    assert made.rows("counts") == before


def test_a_view_that_began_after_the_trim_is_replaced_and_told(tmp_path: Path) -> None:
    made = lake(tmp_path)
    made.trimmed("s")
    made.sql(f"{FOLDS['counts']};")
    made.refreshed()
    planned, answered = said(made, tmp_path, COUNTS)
    assert planned == answered == {"counts": GONE}
    assert sum(int(str(row[1])) for row in made.rows("counts")) == 10


def test_a_view_over_a_shared_stage_that_stands_has_what_that_counted(tmp_path: Path) -> None:
    made = lake(tmp_path, SPREAD.format("one", "COUNT(*)", PER_KEY))
    made.trimmed("s")
    planned, answered = said(
        made,
        tmp_path,
        SPREAD.format("two", "SUM(n)", PER_KEY),
        SPREAD.format("other", "SUM(n)", PER_KEY.replace("COUNT(*)", "MAX(v)")),
    )
    assert planned == answered == {"two": "", "other": GONE}
    made.refreshed()
    assert sum(int(str(row[1])) for row in made.rows("two")) == 40


def test_a_log_that_does_not_read_is_not_told_of(tmp_path: Path) -> None:
    """It is no fault of the view: the refresh that needs the log says what is wrong."""
    made = lake(tmp_path, rounds=1)
    made.trimmed("s")
    entries = Path(str(made.lake.table("s"))) / "_delta_log"
    for each in entries.glob("*.json"):
        each.write_text("{")
    made.sql(f"{FOLDS['everything']};")
    assert made.catalog.find("everything") is not None
