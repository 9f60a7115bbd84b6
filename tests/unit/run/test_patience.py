"""FRESHNESS drives: what may wait is refreshed once for many epochs, and never later than its target says."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator

import pytest

from benchmarks.patience import Clock
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.errors import OptionRefused
from strandline.jobs.model.report import CostFit
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.health_checks import Hindrances, Waiting
from strandline.jobs.run.heartbeat import heartbeat
from strandline.jobs.run.pipeline import drain, opened
from strandline.jobs.run.schedule import maintained, patience, without
from strandline.jobs.run.stream import PipelineStream
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StoreError
from strandline.state_store.layout import LakeLayout
from tests.support import lake_tables
from tests.support.altered_lake import rows
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.unit.operate.verify.damage import flip, head_of

PIPELINE = "shop"
SHOP = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop WITH (FRESHNESS = '1 hour') AS SELECT shop, SUM(qty) AS q FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW most WITH (FRESHNESS = '10 minutes') AS SELECT MAX(q) AS q FROM by_shop;
CREATE TABLE page AS SELECT q + 1 AS q FROM most;
CREATE MATERIALIZED VIEW counted AS SELECT COUNT(*) AS n FROM sales;
CREATE TABLE quiet WITH (FRESHNESS = 'downstream') AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop;
"""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("strandline.jobs.run.stream.time", made)
    return made


@pytest.fixture
def stream(settings: Settings, lake: LakeLayout, clock: Clock) -> Iterator[PipelineStream]:
    """A run that goes on, with a first event in every view."""
    list(Interpreter(settings, PIPELINE).run(SHOP))
    lake_tables.events(lake, "sales", [{"shop": "a", "qty": 1}])
    with opened(settings, PIPELINE, None, in_driver=True) as (made, _):
        made.refresh()
        yield made


def lose(lake: LakeLayout, table: str) -> None:
    shutil.rmtree(on_disk(lake.table(table)))


def break_head(lake: LakeLayout, table: str) -> None:
    path = lake.table(table)
    flip(log.commit_file(path, head_of(path)))


def _patience(settings: Settings, lake: LakeLayout, statements: str) -> dict[str, float]:
    list(Interpreter(settings, PIPELINE).run(statements))
    catalog = Catalog(lake)
    return patience(maintained(catalog.pipeline(PIPELINE), catalog))


def test_the_most_impatient_target_above_a_view_is_its_own(settings: Settings, lake: LakeLayout) -> None:
    assert _patience(settings, lake, SHOP) == {"by_shop": 600.0, "most": 600.0, "quiet": math.inf}


def test_a_view_without_a_target_passes_on_what_is_asked_of_it(settings: Settings, lake: LakeLayout) -> None:
    found = _patience(
        settings,
        lake,
        "CREATE STREAM s (a INT); CREATE TABLE base WITH (FRESHNESS = 'downstream') AS SELECT a, COUNT(*) AS n FROM s"
        " GROUP BY a; CREATE TABLE middle AS SELECT a, n FROM base;"
        " CREATE MATERIALIZED VIEW top WITH (FRESHNESS = '5 seconds') AS SELECT MAX(n) AS n FROM middle;",
    )
    assert found == {"base": 5.0, "top": 5.0}


def test_a_shared_stage_is_as_impatient_as_the_views_that_read_it(settings: Settings, lake: LakeLayout) -> None:
    both = (
        "CREATE STREAM s (a INT, b INT); CREATE TABLE t (a INT PRIMARY KEY, c INT);"
        " CREATE TABLE one WITH (STATE = 'shared', FRESHNESS = '1 hour') AS"
        " SELECT c, COUNT(*) AS n FROM s JOIN t ON s.a = t.a GROUP BY c;"
        " CREATE TABLE two WITH (STATE = 'shared'{}) AS SELECT c, SUM(b) AS n FROM s JOIN t ON s.a = t.a GROUP BY c;"
    )
    patient = _patience(settings, lake, both.format(", FRESHNESS = '1 minute'"))
    [shared] = [name for name in patient if name not in ("one", "two")]
    assert patient == {"one": 3600.0, "two": 60.0, shared: 60.0}
    impatient = _patience(settings, lake, "DROP TABLE two;" + both.format("").rpartition("; ")[2])
    assert impatient == {"one": 3600.0}


def test_what_may_wait_is_refreshed_when_its_time_is_up(stream: PipelineStream, lake: LakeLayout, clock: Clock) -> None:
    assert rows(lake, "page") == [(2,)]
    for count in (2, 3, 4):
        lake_tables.events(lake, "sales", [{"shop": "a", "qty": 1}])
        stream.refresh(everything=False)
        assert rows(lake, "counted") == [(count,)], "what has no target is refreshed with each epoch"
        assert (rows(lake, "by_shop"), rows(lake, "page")) == ([("a", 1)], [(2,)])
        clock.ahead += 100
        assert not stream._is_due()
    clock.ahead += 298
    assert stream._is_due(), "two seconds before the first of them has waited for ten minutes"
    stream.refresh(everything=False)
    assert rows(lake, "by_shop") == [("a", 4)]
    # The head of by_shop moved while others of its round were at work: what reads it follows within its own target.
    clock.ahead += 600
    stream.refresh(everything=False)
    assert rows(lake, "page") == [(5,)]
    assert rows(lake, "quiet") == [("a", 1)], "nobody reads it"
    assert_correct(lake, PIPELINE)


def test_nothing_is_due_where_nothing_has_come(stream: PipelineStream, clock: Clock) -> None:
    stream.refresh(everything=False)
    clock.ahead += 1e6
    assert not stream._is_due()
    assert stream.waiting.keys() == {"by_shop", "most", "quiet"}


def test_a_view_is_stale_since_its_first_event_and_no_alarm_before(
    stream: PipelineStream, settings: Settings, lake: LakeLayout
) -> None:
    """The heartbeat's "everything before this moment is reflected" does not hold for what waits."""
    lake_tables.events(lake, "sales", [{"shop": "a", "qty": 1}])
    stream.refresh(everything=False)
    with heartbeat(stream, "continuous", lambda: ()):
        waiting = Waiting(Catalog(lake), WholeHeads(lake), open_log(settings, lake))
        assert waiting.since("counted") is None
        since = waiting.since("quiet")
        assert since is not None
        assert since <= now_ms()
        assert waiting.versions("quiet") == 1


def test_a_run_reports_what_refreshes_cost_that_took_in_changes(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first load does not count, nor a view that computes all of its few rows."""
    list(Interpreter(settings, PIPELINE).run(SHOP + "INSERT INTO sales VALUES ('a', 1);"))
    assert {each.costs for each in drain(settings, PIPELINE, in_driver=True).tables} == {None}
    taken: list[int] = []
    add = CostFit.add

    def noted(fit: CostFit, rows: int, seconds: float) -> None:
        taken.append(rows)
        add(fit, rows, seconds)

    monkeypatch.setattr(CostFit, "add", noted)
    list(Interpreter(settings, PIPELINE).run("INSERT INTO sales VALUES ('a', 2), ('b', 3), ('b', 4);"))
    costs = {each.name: each.costs for each in drain(settings, PIPELINE, in_driver=True).tables}
    assert (costs["sales"], costs["most"]) == (None, None)
    for view in ("by_shop", "counted", "quiet"):
        found = costs[view]
        assert found is not None
        assert found.refreshes == 1
        assert found.fixed_seconds > 0
    assert sorted(taken) == [2, 3, 3, 3], "`page` takes in the row of `most` that goes and the one that comes"


def test_a_drain_ends_with_every_view_refreshed(settings: Settings, lake: LakeLayout) -> None:
    interpreter = Interpreter(settings, PIPELINE)
    list(interpreter.run(SHOP))
    for count in (1, 2):
        list(interpreter.run("INSERT INTO sales VALUES ('a', 1);"))
        drain(settings, PIPELINE, in_driver=True)
        assert rows(lake, "quiet") == [("a", count)]
        assert rows(lake, "page") == [(count + 1,)]


def test_a_restart_refreshes_what_waited(stream: PipelineStream, settings: Settings, lake: LakeLayout) -> None:
    lake_tables.events(lake, "sales", [{"shop": "a", "qty": 1}])
    stream.refresh(everything=False)
    assert rows(lake, "quiet") == [("a", 1)]
    again = PipelineStream(
        stream.session, stream.context, settings, PIPELINE, stream.definitions, stream.levels, stream.lock
    )
    again.refresh(everything=False)
    assert rows(lake, "quiet") == [("a", 2)]


@pytest.mark.parametrize("damage", [lose, break_head])
def test_an_input_that_does_not_read_is_noticed_at_once(
    stream: PipelineStream, lake: LakeLayout, damage: Callable[[LakeLayout, str], None]
) -> None:
    """By those that wait as by those that do not: `most` reads `by_shop`, and neither is due."""
    stream.refresh(everything=False)
    assert stream.waiting.keys() == {"by_shop", "most", "quiet"}
    damage(lake, "by_shop")
    stream.refresh(everything=False)
    assert isinstance(stream.failures["most"], StoreError)
    assert stream.failures.keys() == {"most"}
    with heartbeat(stream, "continuous", lambda: ()):
        hindrances = Hindrances(Catalog(lake).definitions(), WholeHeads(lake))
        states = {name: found.state for name in ("by_shop", "most", "page") if (found := hindrances.of(name))}
    assert states == {"by_shop": "damaged", "most": "stopped", "page": "held"}
    assert hindrances.of("quiet") is None


@pytest.mark.parametrize("damage", [lose, break_head])
def test_a_log_that_does_not_read_stops_who_waits_for_it_and_who_does_not(
    stream: PipelineStream, lake: LakeLayout, damage: Callable[[LakeLayout, str], None]
) -> None:
    stream.refresh(everything=False)
    damage(lake, "sales")
    stream.refresh(everything=False)
    assert stream.failures.keys() == {"by_shop", "counted", "quiet"}


def test_levels_without_what_waits_keep_their_order(stream: PipelineStream) -> None:
    left = without(stream.levels, {"by_shop", "quiet"})
    assert [[item.name for item in level] for level in left] == [["counted"], ["most"], ["page"]]


def test_downstream_is_the_only_word(settings: Settings) -> None:
    with pytest.raises(OptionRefused, match="is no length of time") as refused:
        list(Interpreter(settings, PIPELINE).run("CREATE STREAM s (a INT) WITH (FRESHNESS = 'upstream');"))
    assert "'downstream'" in (refused.value.hint or "")
