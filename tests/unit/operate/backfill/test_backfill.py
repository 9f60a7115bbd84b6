"""A backfill mends the rows of its range, in one commit that says the difference, and touches nothing else."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.ivm.refresh import refresh
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.model.errors import RangeInseparable, RefreshFailed
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.backfill import BackfillResult, execute_backfill, period_of, plan_backfill
from strandline.jobs.operate.rebuild import rebuild
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store import changelog
from strandline.state_store.delta import reader
from strandline.state_store.errors import InputReplaced, WriterBusy
from strandline.state_store.files import remove_folder
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import STATE
from tests.support.arrow_table import Row
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.told_steps import ToldSteps
from tests.support.warm_process import exit_code
from tests.unit.operate.backfill.conftest import HOUR_MS, NOON, PIPELINE, clicks, plant
from tests.unit.operate.verify.damage import said

THREE = int(NOON.timestamp() * 1000) + 3 * HOUR_MS


def backfill(
    settings: Settings, view: str, begin: str | None, end: str | None, by: str | None = None
) -> BackfillResult:
    said = ToldSteps()
    done = execute_backfill(settings, plan_backfill(settings, view, period_of(begin, end), by), said)
    last = "nothing differs" if done.version is None else f"version {done.version} has the difference"
    assert said.told[-2:] == ["begin: storing what differs", last]
    return done


def more(row: Row) -> Row:
    return {**row, "n": row["n"] + 5}


def table(lake: LakeLayout, view: str) -> list[Row]:
    names = [name for name in reader.schema(lake.table(view)).names if name != STATE]
    return sorted(reader.read_rows(lake.table(view), columns=names).to_pylist(), key=str)


def proved(settings: Settings, view: str) -> list[str]:
    return [f"{each.check}: {each.what}" for each in verify(settings, [view], deep=True) if each.ok is False]


def in_hour(column: str, at: int) -> Callable[[Row], Row | None]:
    return lambda row: more(row) if row[column] == at else None


def test_the_rows_of_a_window_are_mended_and_the_feed_says_the_difference(settings: Settings, lake: LakeLayout) -> None:
    whole = table(lake, "hourly")
    plant(lake, "hourly", in_hour("windowstart", THREE))
    assert proved(settings, "hourly")
    before = reader.head(lake.table("hourly"))
    done = backfill(settings, "hourly", "2026-11-01T15:00", "2026-11-01T16:00")
    after = reader.head(lake.table("hourly"))
    assert before is not None
    assert after is not None
    assert (done.computed, done.inserted, done.deleted, done.version) == (2, 2, 2, before.version + 1)
    assert (after.version, after.record.epoch) == (done.version, before.record.epoch + 1)
    assert (after.record.mode, after.record.vector) == ("rebuild", before.record.vector)
    assert after.record.reason.startswith("backfilled: the rows whose windowstart is from 2026-11-01 15:00:00")
    assert table(lake, "hourly") == whole
    feed = reader.read_changes(lake.table("hourly"), after=before.version)
    assert sorted(row["n"] for row in feed.to_pylist()) == [1, 2, 6, 7]
    assert proved(settings, "hourly") == []


def test_what_reads_the_view_follows_by_the_difference(settings: Settings, lake: LakeLayout) -> None:
    plant(lake, "hourly", in_hour("windowstart", THREE))
    drain(settings, PIPELINE)
    assert {row["n"] for row in table(lake, "busiest")} == {7, 6}
    plan = plan_backfill(settings, "hourly", period_of("2026-11-01T15:00", None))
    assert plan.followers == ("busiest",)
    execute_backfill(settings, plan, ToldSteps())
    drain(settings, PIPELINE)
    assert_correct(lake, PIPELINE)


def test_rows_outside_of_the_range_are_left_alone(settings: Settings, lake: LakeLayout) -> None:
    """Also those that are wrong: whoever asks for a range gets that range."""
    plant(lake, "hourly", lambda row: more(row) if row["windowstart"] in (THREE, THREE + 4 * HOUR_MS) else None)
    done = backfill(settings, "hourly", None, "2026-11-01T19:00")
    assert (done.computed, done.inserted, done.deleted) == (14, 2, 2)
    assert "6" in str(proved(settings, "hourly"))
    assert backfill(settings, "hourly", None, "2026-11-01T19:00").version is None
    assert backfill(settings, "hourly", "2026-11-01T19:00", "2026-11-01T20:00").inserted == 2
    assert proved(settings, "hourly") == []


def test_a_row_that_is_missing_comes_back_and_one_too_many_goes(settings: Settings, lake: LakeLayout) -> None:
    whole = table(lake, "daily")
    day = NOON.date()
    plant(lake, "daily", lambda row: {**row, "page": "z"} if (row["page"], row["day"]) == ("b", day) else None)
    assert backfill(settings, "daily", "2026-11-01", "2026-11-02").inserted == 1
    assert table(lake, "daily") == whole
    assert proved(settings, "daily") == []


def test_sessions_are_told_by_their_begin_under_whatever_name_it_is_shown(settings: Settings, lake: LakeLayout) -> None:
    plant(lake, "visits", in_hour("begun", THREE))
    plan = plan_backfill(settings, "visits", period_of("2026-11-01T15:00:00", "2026-11-01T15:00:01"))
    assert plan.column.name == "begun"
    assert execute_backfill(settings, plan, ToldSteps()).inserted == 1
    assert proved(settings, "visits") == []


def test_events_that_came_meanwhile_are_the_next_refreshs(settings: Settings, lake: LakeLayout) -> None:
    plant(lake, "hourly", in_hour("windowstart", THREE))
    clicks(lake, range(3, 5), 42)
    done = backfill(settings, "hourly", "2026-11-01T15:00", "2026-11-01T16:00")
    assert done.computed == 2
    assert {row["n"] for row in table(lake, "hourly")} == {1, 2}
    drain(settings, PIPELINE)
    assert {row["n"] for row in table(lake, "hourly")} == {1, 2, 4}
    assert_correct(lake, PIPELINE)


@pytest.mark.parametrize(
    ("view", "by", "said", "hint"),
    [
        ("clicks", None, "nothing to be computed anew", "a view"),
        ("slow", None, "events, which are only ever added", "strandline rebuild slow"),
        ("per_page", None, "no column of 'per_page' separates", "strandline rebuild per_page"),
        ("per_page", "last", "the column 'last' of 'per_page' does not separate", "strandline rebuild per_page"),
        ("both_ends", None, "several columns", "--by day, same"),
        ("hourly", "n", "the column 'n'", "--by windowstart, windowend"),
    ],
)
def test_a_range_that_cannot_be_separated_is_refused(
    settings: Settings, view: str, by: str | None, said: str, hint: str
) -> None:
    with pytest.raises(RangeInseparable, match=said) as caught:
        plan_backfill(settings, view, period_of("2026-11-01", None), by)
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [(None, None, "is a rebuild"), ("2026-11-02", "2026-11-02", "nothing lies"), ("today", None, "is no moment")],
)
def test_a_range_that_is_none_is_refused(begin: str | None, end: str | None, said: str) -> None:
    with pytest.raises(RangeInseparable, match=said):
        period_of(begin, end)


def test_a_view_over_one_that_was_begun_anew_is_rebuilt_first(settings: Settings, lake: LakeLayout) -> None:
    text = "CREATE MATERIALIZED VIEW later AS SELECT page, windowstart, n FROM hourly;"
    list(Interpreter(settings, "other").run(text))
    clicks(lake, range(14, 15), first=42)
    drain(settings, PIPELINE)
    drain(settings, "other")
    remove_folder(lake.table("hourly"))
    rebuild(settings, "hourly")
    with pytest.raises(InputReplaced, match="another history of 'hourly'") as refused:
        plan_backfill(settings, "later", period_of("2026-11-01T15:00", None), "windowstart")
    assert refused.value.hint == "type: strandline rebuild later"
    rebuild(settings, "later")
    assert plan_backfill(settings, "later", period_of("2026-11-01T15:00", None), "windowstart").rows == 30


def test_a_day_is_not_cut(settings: Settings) -> None:
    with pytest.raises(RangeInseparable, match="holds days"):
        plan_backfill(settings, "daily", period_of("2026-11-01T15:00", None))


def test_rows_that_do_not_prove_right_are_not_stored(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule is what is wrong, and the proof does not use it."""
    head = reader.head(lake.table("hourly"))
    wrong = plan_backfill(settings, "hourly", period_of("2026-11-01T15:00", None))

    def wrongly(*given: Any) -> str:
        return f"SELECT * REPLACE (n + 1 AS n) FROM ({maintenance(*given)})"

    with monkeypatch.context() as patch:
        patch.setattr(refresh, "maintenance", wrongly)
        with pytest.raises(RefreshFailed, match="do not prove right"):
            execute_backfill(settings, wrong, ToldSteps())
    assert reader.head(lake.table("hourly")) == head


def test_rows_that_nobody_committed_are_not_hidden_by_it(settings: Settings, lake: LakeLayout) -> None:
    said(lake.table("hourly"), digest="0" * 32 + ":28")
    with pytest.raises(RefreshFailed, match="the record says") as caught:
        backfill(settings, "hourly", "2026-11-01", None)
    assert "strandline rebuild hourly" in str(caught.value.hint)


def test_a_running_pipeline_is_not_disturbed(settings: Settings, lake: LakeLayout) -> None:
    with sole_writer(lake, PIPELINE, "a run"), pytest.raises(WriterBusy):
        backfill(settings, "hourly", "2026-11-01", None)


def _backfilled(folder: Path) -> None:
    backfill(load_settings(lake=folder), "hourly", "2026-11-01T15:00", "2026-11-01T16:00")


def test_one_that_is_killed_leaves_the_view_as_it_was_and_is_said_again(lake: LakeLayout) -> None:
    plant(lake, "hourly", in_hour("windowstart", THREE))
    before = table(lake, "hourly")
    folder = on_disk(lake.root)
    assert exit_code(_backfilled, folder, failpoint="before-log-entry:1") == -signal.SIGKILL
    assert table(lake, "hourly") == before
    assert exit_code(_backfilled, folder) == 0
    assert proved(load_settings(lake=folder), "hourly") == []
    rows = changelog.fold(reader.read_changes(lake.table("hourly"), after=-1), ["page", "windowstart", "n"])
    assert len(rows) == 28
