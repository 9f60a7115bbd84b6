"""What can be told of a view from commits, offsets and heartbeats: staleness, dead letters, late rows."""

from __future__ import annotations

import json
import os

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.expect.expectations import Verdict
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.definitions import View
from strandline.jobs.operate import health_checks
from strandline.jobs.operate.health_checks import HealthChecks, Waiting
from strandline.jobs.run.heartbeat import Heartbeat, read_beat
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log as delta_log
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.layout import LakeLayout
from strandline.state_store.processes import process
from tests.support.on_disk import on_disk
from tests.unit.operate.verify.lakes import MadeLake

HOUR = 3_600_000


def waiting(made: MadeLake) -> Waiting:
    return Waiting(Catalog(made.lake), WholeHeads(made.lake), made.log)


def check(made: MadeLake, view: str, name: str, now_ms: int = 0) -> Verdict:
    catalog = Catalog(made.lake)
    found = catalog.get(view)
    assert isinstance(found, View)
    return HealthChecks(catalog, made.lake, waiting(made), now_ms).check(found, name)


def beat(made: MadeLake, refreshed: int, failures: dict[str, str] | None = None, settled: int | None = None) -> None:
    """The heartbeat of a run that refreshed all views then.

    Args:
        settled: when that refresh had ended.
    """
    me = process(os.getpid())
    assert me is not None
    path = on_disk(made.lake.run("shop"))
    path.parent.mkdir(exist_ok=True)
    moments = {"started": 0, "at": refreshed, "refreshed": refreshed, "busy_since": None, "micro_batches": 1}
    moments |= {"settled": settled}
    rest = {"pipeline": "shop", "mode": "drain", "lag": {}, "failures": failures or {}, "tables": []}
    path.write_text(json.dumps({"format": 1, "process": me.as_json(), **moments, **rest}))


def test_a_view_at_the_heads_of_its_inputs_is_fresh_whenever_that_was(made: MadeLake) -> None:
    assert {
        name: waiting(made).since(name) for name in ("totals", "owned", "spread", "pages", "visits")
    } == dict.fromkeys(("totals", "owned", "spread", "pages", "visits"))


def test_an_event_that_waits_makes_stale_all_that_stands_above_it_and_nothing_else(made: MadeLake) -> None:
    made.log.produce("clicks", [Record(None, b"{}", 7 * HOUR, partition=0), Record(None, b"{}", 5 * HOUR, partition=1)])
    found = waiting(made)
    assert found.since("visits") == 5 * HOUR
    assert (found.since("totals"), found.since("owned"), found.since("spread")) == (5 * HOUR,) * 3
    assert found.since("pages") is None
    assert found.seconds("owned", 6 * HOUR) == 3600


def test_a_commit_of_an_input_waits_until_a_refresh_looked_at_it(made: MadeLake) -> None:
    """A refresh that changes no row makes no commit: the heartbeat says that it was there."""
    made.visits([(0, "a", 1.0)], {0: 4, 1: 4})
    path = made.lake.table("visits")
    newest = delta_log.newest_version(path)
    assert newest is not None
    committed = delta_log.read_commit(path, newest).timestamp
    assert waiting(made).since("totals") == committed
    assert waiting(made).since("spread") == committed, "through its inner stage"
    beat(made, committed - 1)
    assert waiting(made).since("totals") == committed
    beat(made, committed + 1)
    assert waiting(made).since("totals") is None
    beat(made, committed + 1, {"totals": "it stopped"})
    assert waiting(made).since("totals") == committed
    assert waiting(made).since("owned") == committed, "what reads a stopped view is as stale as that"


def test_a_heartbeat_is_read_once_for_all_views_of_a_pipeline(made: MadeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a report of each of their tables: to read it for each view is quadratic."""
    made.visits([(0, "a", 1.0)], {0: 4, 1: 4})
    beat(made, 1)
    read: list[str] = []

    def counted(lake: LakeLayout, pipeline: str) -> Heartbeat | None:
        read.append(pipeline)
        return read_beat(lake, pipeline)

    monkeypatch.setattr(health_checks, "read_beat", counted)
    found = waiting(made)
    assert [found.versions(name) for name in ("totals", "spread", "totals")] == [1, 1, 1]
    assert found.since("totals") is not None
    assert read == ["shop"]


def test_what_the_pipeline_commits_during_a_refresh_is_looked_at_before_its_end(made: MadeLake) -> None:
    """Else a view that a change of another one leaves as it is would be stale until the next event, alert and all."""
    made.visits([(0, "a", 1.0)], {0: 4, 1: 4})
    path = made.lake.table("visits")
    committed = delta_log.read_commit(path, delta_log.newest_version(path) or 0).timestamp
    beat(made, committed - 1, settled=committed - 1)
    assert (waiting(made).since("totals"), waiting(made).versions("totals")) == (committed, 1)
    beat(made, committed - 1, settled=committed + 1)
    assert (waiting(made).since("totals"), waiting(made).versions("totals")) == (None, 0)


def test_a_commit_that_changes_no_row_is_waited_for_by_nobody(made: MadeLake) -> None:
    list(Interpreter(made.settings, "shop").run("ALTER STREAM visits ADD COLUMN coupon VARCHAR;"))
    found = waiting(made)
    assert (found.since("totals"), found.versions("totals"), found.versions("spread")) == (None, 0, 0)


def test_freshness_fails_only_over_the_views_own_target(made: MadeLake) -> None:
    made.log.produce("clicks", [Record(None, b"{}", HOUR, partition=0)])
    without = check(made, "totals", "freshness", HOUR + 9000)
    assert (without.ok, without.numbers) == (True, {"stale seconds": 9.0})
    text = DEFINITION.format("FRESHNESS = '10 seconds'")
    assert list(Interpreter(made.settings, "shop").run(text))
    assert check(made, "totals", "freshness", HOUR + 9000).ok is True
    late = check(made, "totals", "freshness", HOUR + 11_000)
    assert (late.ok, late.severity, late.what) == (False, "error", "stale for 11 s of 10 s")


DEFINITION = """CREATE TABLE totals WITH ({}) AS
  SELECT page, COUNT(*) AS n, SUM(seconds) AS seconds FROM visits GROUP BY page;"""


def test_one_broken_record_in_seven_is_too_many_and_one_in_two_hundred_is_not(made: MadeLake) -> None:
    verdict = check(made, "totals", "dead_letters")
    assert (verdict.ok, verdict.severity) == (False, "warn")
    assert verdict.numbers["dead letters"] == 1
    made.visits([(0, "a", 0.0)] * 200, {0: 203, 1: 4})
    assert check(made, "totals", "dead_letters").ok is True


def test_the_rate_of_dead_letters_is_of_what_came_and_not_of_what_came_of_it(made: MadeLake) -> None:
    """The rows of the view are made of the same events: they are not counted beside them."""
    visits = reader.head(made.lake.table("visits"))
    assert visits is not None
    numbers = check(made, "totals", "dead_letters").numbers
    assert numbers["dead-letter rate"] == 1 / (visits.record.rows + 1)


def test_a_view_without_windows_has_no_late_rows(made: MadeLake) -> None:
    assert check(made, "totals", "late_rows").ok is True


def test_a_broken_table_keeps_a_check_from_being_made_and_is_named(made: MadeLake) -> None:
    log = made.lake.table("visits") / "_delta_log"
    for file in log.iterdir():  # type: ignore[union-attr]
        file.write_text("{")
    verdict = check(made, "totals", "freshness")
    assert verdict.ok is None
    assert "could not be made" in verdict.what


@pytest.mark.parametrize("view", ["totals", "owned", "spread"])
def test_every_vital_sign_is_made_of_every_view(view: str, made: MadeLake) -> None:
    assert check(made, view, "freshness").ok is True
    assert check(made, view, "late_rows").ok is True
