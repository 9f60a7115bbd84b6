"""Who keeps events of a log: views that read them again, and those that have not taken them in."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.ivm.retention import TrimUpkeep, keepers_of, plan_log_trim, trim_log
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import EventsGone
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.spark import Session
from strandline.jobs.run.stream import PipelineStream
from strandline.jobs.session.apply import apply, plan_apply
from strandline.state_store.delta import reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.leases import ReaderLease
from strandline.state_store.lock import writer_lock
from tests.support.on_disk import on_disk
from tests.support.retained_lake import FOLDS, LOOK_BACK, PIPELINE, RetainedLake
from tests.unit.operate.maintenance.rounds import lake

WHY = {
    "joined": "its join looks up former events",
    "visits": "its sessions are cut again",
    "ranked": "its functions OVER a window",
    "pairs": "its join looks up former events",
    "anew": "REFRESH = 'full'",
    "asked": "STATE = 'partial'",
}


def keepers(made: RetainedLake, name: str = "s") -> dict[str, str]:
    """{who keeps every event: why}."""
    source = made.catalog.get(name)
    assert isinstance(source, Source)
    found = keepers_of(source, made.lake, made.catalog, made.now)
    return {each.who: each.why for each in found if each.upto is None}


@pytest.fixture(scope="module")
def retained(tmp_path_factory: pytest.TempPathFactory) -> RetainedLake:
    settings = load_settings(lake=tmp_path_factory.mktemp("keepers") / "lake")
    made = RetainedLake(settings, [*FOLDS.values(), *LOOK_BACK.values()])
    made.feed("s", [("a", 1), ("b", 4), ("a", 5)])
    made.feed("t", [("a", 1), ("b", 2)])
    made.refreshed()
    return made


def test_who_looks_back_is_named_and_says_why(retained: RetainedLake) -> None:
    found = keepers(retained)
    assert found.keys() == {f"'{name}'" for name in LOOK_BACK}
    assert all(found[f"'{name}'"].startswith(why) for name, why in WHY.items())


def test_a_keyed_source_needs_no_former_event(retained: RetainedLake) -> None:
    assert keepers(retained, "t") == {}


def test_a_view_keeps_what_it_has_not_taken_in(tmp_path: Path) -> None:
    made = RetainedLake(load_settings(lake=tmp_path / "lake"), [FOLDS["counts"]])
    made.feed("s", [("a", 1), ("b", 2)])
    assert keepers(made) == {"'counts'": "it was not computed yet"}
    made.refreshed()
    made.feed("s", [("a", 3)])
    ReaderLease(made.lake.table("s"), "slow").publish(0)
    source = made.catalog.get("s")
    assert isinstance(source, Source)
    found = {each.who: each.upto for each in keepers_of(source, made.lake, made.catalog, made.now)}
    assert found == {"'counts'": {0: 1, 1: 1}, "the lease of 'slow'": {}}


def test_a_stream_that_queries_insert_into_keeps_its_events(tmp_path: Path) -> None:
    made = RetainedLake(load_settings(lake=tmp_path / "lake"), ["CREATE STREAM r (k VARCHAR KEY, v INT)"])
    made.sql("INSERT INTO s SELECT k, v FROM r;")
    assert keepers(made)["'s__insert_1'"].startswith("it inserts into the stream")


def test_a_definition_that_does_not_read_keeps_every_event(tmp_path: Path) -> None:
    made = RetainedLake(load_settings(lake=tmp_path / "lake"), [FOLDS["counts"]])
    made.feed("s", [("a", 1)])
    made.refreshed()
    (file,) = Path(str(made.lake.catalog)).glob("counts.json")
    file.write_text("{")
    assert keepers(made)["'counts'"] == "its definition does not read"
    assert reader.head(made.lake.table("counts")) is not None


# What a plan says of definitions over a trimmed log is what applying it says, refuses, and does.

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


# A run that goes on trims its own logs: nobody else may, and what another process planned is left to it.


@pytest.fixture
def made(tmp_path: Path) -> RetainedLake:
    """A view after two epochs; every event is older than the retention."""
    made = RetainedLake(load_settings(lake=tmp_path / "lake"), [FOLDS["counts"]])
    for number in range(2):
        made.feed("s", [("ab"[each % 2], number + each) for each in range(4)])
        made.refreshed()
    return made


def test_a_run_trims_its_logs_and_goes_on(made: RetainedLake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PipelineStream, "_followed", lambda *_: None)
    lake, settings, catalog, notes = made.lake, made.settings, made.catalog, list[str]()
    definitions = catalog.pipeline(PIPELINE)

    class Looks(Event):
        """Three looks: at the first another process comes with a plan, at the second there are new events."""

        looks = 0

        def wait(self, timeout: float | None = None) -> bool:
            self.looks += 1
            if self.looks == 1:
                notes.extend(each.note for each in made.trimmed("s", now=made.now + 3_600_000).tables)
            if self.looks == 2:
                assert made.gone("s") == 8, "at the first look"
                made.feed("s", [("a", 100)])
                stream.refresh()
            return self.looks == 3

    with writer_lock(on_disk(lake.lock(PIPELINE)), "run/1") as lock, DuckDBEngine("256MB", 1) as duckdb_engine:
        context = RunContext(None, lake, f"{PIPELINE}/1", duckdb_engine=duckdb_engine, engine="duckdb")
        session = Session(settings, lake, lock)
        stream = PipelineStream(
            session, context, settings, PIPELINE, definitions, maintained(definitions, catalog), lock
        )
        stream.follow(Looks())
    assert notes[0].startswith("no trim: ")
    assert notes[0].endswith("and does it as it goes")
    assert made.gone("s") == 8, "once a minute"
    assert [row[1:] for row in made.rows("counts")] == [(5, 106, 0, 100), (4, 10, 1, 4)]


def test_a_log_that_does_not_read_is_left_as_it_is(made: RetainedLake, caplog: pytest.LogCaptureFixture) -> None:
    path = made.lake.table("s")
    (file, *_) = read_snapshot(path, 2).files
    on_disk(path / file).write_bytes(b"not Parquet")
    upkeep = TrimUpkeep()
    assert upkeep.due()
    upkeep.trim([each for each in made.catalog.definitions() if isinstance(each, Source)], made.settings)
    assert not upkeep.due()
    assert "the event log of 's' was not trimmed" in caplog.text
    assert made.gone("s") == 0


def test_a_log_that_somebody_keeps_whole_costs_a_run_no_reading_of_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = RetainedLake(load_settings(lake=tmp_path / "lake"), [FOLDS["counts"], LOOK_BACK["visits"]])
    made.feed("s", [("a", 1), ("b", 2)])
    made.refreshed()
    monkeypatch.setattr("strandline.state_store.delta.trims._aged", lambda *_: pytest.fail("a file was opened"))
    source = made.catalog.find("s")
    assert isinstance(source, Source)
    TrimUpkeep().trim([source], made.settings)
    assert trim_log(source, made.settings) is None
    with pytest.raises(pytest.fail.Exception, match="was opened"):
        plan_log_trim(source, made.settings, made.catalog)
