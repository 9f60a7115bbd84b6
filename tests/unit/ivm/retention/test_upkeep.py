"""A run that goes on trims its own logs: nobody else may, and what another process planned is left to it."""

from __future__ import annotations

from pathlib import Path
from threading import Event

import pytest

from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.ivm.retention.logs import plan_log_trim, trim_log
from strandline.jobs.ivm.retention.upkeep import TrimUpkeep
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.session import Session
from strandline.jobs.run.stream import PipelineStream
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.lock import writer_lock
from tests.support.on_disk import on_disk
from tests.support.retained_lake import FOLDS, LOOK_BACK, PIPELINE, RetainedLake


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
