"""Dagster's own pages in a real browser: what an operator looks at says what is so in the lake.

One webserver and daemon over a lake that the command line made: orders of which a fourth is broken, and fares whose
newest version breaks a blocking expectation. No test needs a JVM.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from infra.browser import CHROMIUM, Page, browser
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.heartbeat import Heartbeat, read_beat
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.apply import apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.live.running_dagster import FORCE_TERMINATE, Dagster, running
from tests.support import checked_pipeline
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: bash infra/browser.sh"),
]

SHOP = """
CREATE STREAM orders (
  id BIGINT KEY,  -- as the till counts them
  town VARCHAR,
  amount INT
) WITH (KAFKA_TOPIC = 'orders', PARTITIONS = 1, OWNER = 'team:shop', TAGS = 'domain=sales');
CREATE STREAM large AS SELECT id, town, amount FROM orders WHERE amount > 100;
CREATE TABLE by_town WITH (
  FRESHNESS = '5 seconds', EXPECT = '[expect_table_row_count_to_be_between: {min_value: 1}]'
) AS
  SELECT town, COUNT(*) AS orders, SUM(amount) AS amount FROM orders GROUP BY town;
"""
BLOCKING = "expect_column_values_to_be_between__fare"
UNEXPECTED = "1 of 2 rows are unexpected: 140"
_TABLES: Final = 12
"""Assets that are materialized: all but the two topics."""
_RELOAD_SECONDS: Final = 2.0
_LOOKED_AT_SECONDS: Final = 15.0
"""A page of Dagster's has loaded after 3 s on a quiet machine."""
_LOADED_AGAIN: Final = 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lake, as the command line leaves it: everything is drained."""
    made = tmp_path_factory.mktemp("pages")
    lake = checked_pipeline.made(made)
    settings = load_settings(lake=made / "lake", engine="duckdb")
    (made / "shop.sql").write_text(SHOP)
    apply(made / "shop.sql", settings)
    order(made, "(1, 'Rome', 150)", "(2, 'Oslo', 20)", "(3, 'Rome', 30)")
    LocalLog(lake).produce("orders", [Record(b"4", b"{broken", 1_700_000_000_000)])
    for pipeline in ("shop", checked_pipeline.PIPELINE):
        drain(settings, pipeline, in_driver=True)
    return made


@pytest.fixture(scope="module")
def dagster(folder: Path) -> Iterator[Dagster]:
    environment = {
        **checked_pipeline.environment(folder),
        "STRANDLINE_ENGINE": "duckdb",
        "STRANDLINE_BACKUP__DESTINATION": str(folder / "backups"),
    }
    with running(folder, environment) as up:
        yield up


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


def order(folder: Path, *rows: str) -> None:
    """Insert orders, as a person types them."""
    statements = "".join(f"INSERT INTO orders VALUES {row};" for row in rows)
    assert list(Interpreter(load_settings(lake=folder / "lake"), "shop").run(statements))


def looked_at(page: Page, dagster: Dagster, path: str, *words: str) -> str:
    """Open a page; its words, as soon as these are among them.

    A page that was opened too early is loaded again: by itself it looks once a minute, or never.
    """
    page.open(f"{dagster.url}/{path}", 1600, 1400)
    for _ in range(_LOADED_AGAIN):
        with suppress(TimeoutError):
            page.shows(*words, seconds=_LOOKED_AT_SECONDS)
            break
        page.call("Page.reload")
    page.shows(*words)
    return str(page.value("document.body.innerText"))


def listed(page: Page) -> str:
    """The words of the catalog, loaded anew: by itself it looks once a minute."""
    page.call("Page.reload")
    page.shows("projections / by_town")
    page.until("!document.body.innerText.includes('Loading')")
    return str(page.value("document.body.innerText"))


def entry(page: Page, label: str) -> str | None:
    """The value beside a label of the open page's metadata."""
    row = f"[...document.querySelectorAll('tr')].find(each => each.cells[0]?.innerText.trim() === '{label}')"
    found: str | None = page.value(f"{row}?.cells[1].innerText")
    return found


def materialized(page: Page, dagster: Dagster, asset: str) -> str:
    """Click *Materialize* on an asset's page, and *View* on what says that a run was launched; the words of its page,
    when it has succeeded."""
    looked_at(page, dagster, f"assets/{asset}", "Row count", "Kinds", "drain_")
    page.click("Materialize")
    page.shows("Launched run")
    page.click("View")
    page.until("location.pathname.startsWith('/runs/')")
    page.shows("Success")
    return str(page.value("document.body.innerText"))


def test_what_the_command_line_did_is_on_every_asset_before_anything_ran(page: Page, dagster: Dagster) -> None:
    page.open(f"{dagster.url}/assets", 1600, 1800)
    page.shows("projections / by_town")
    wait_until(lambda: listed(page).count("Materialized") == _TABLES, lambda: listed(page), _RELOAD_SECONDS)
    shown = listed(page)
    assert "Never materialized" not in shown, "also dead letters of which there are none"
    assert "changelogs / by_town__changelog" in shown
    looked_at(page, dagster, "assets/projections/by_town?view=events", "Read from the commits of the lake")
    page.until("[...document.querySelectorAll('tr')].length > 5")
    assert entry(page, "rows inserted") == "2"


def test_an_asset_says_where_it_lies_whose_it_is_and_what_its_columns_are(page: Page, dagster: Dagster) -> None:
    words = ("as the till counts them", "domain: sales", "/lake/tables/orders", "the offset of the record in its")
    shown = looked_at(page, dagster, "assets/logs/orders__log", *words)
    assert "Spark" not in shown
    looked_at(page, dagster, "assets/projections/by_town", "Row count", "strandline/role: projection", "drain_shop")
    # Its check is the one verdict. Until the page has loaded, the place of a policy stands empty there.
    page.until("!document.body.innerText.includes('Freshness policy')")
    shown = looked_at(page, dagster, "assets/projections/large", "Stream large: events of its inputs")
    assert "projections\nlarge" in shown.replace("\n\n", "\n"), "a derived stream is a projection"
    for check, said in (
        ("recompute", "SQL"),
        ("drill_backup", "won back within"),
        ("late_rows", "came too late for its window"),
    ):
        looked_at(page, dagster, f"assets/projections/by_town?view=checks&checkDetail={check}", said)


def test_the_button_refreshes_and_makes_the_cheap_checks_alone(page: Page, dagster: Dagster) -> None:
    """And it does not warn of what is upstream first: that was materialized, by whomever."""
    shown = materialized(page, dagster, "projections/by_town")
    assert 'Finished execution of run for "Refresh"' in shown
    assert "5 checks" in shown
    page.shows("shop__drain", "shop__health_checks", "shop__expectations")
    shown = str(page.value("document.body.innerText"))
    assert not [word for word in ("drills", "proofs", "Errored (1)") if word in shown]


def test_the_rate_of_dead_letters_is_of_the_records_that_came(page: Page, dagster: Dagster) -> None:
    asset = "assets/projections/by_town?view=checks&checkDetail"
    shown = looked_at(page, dagster, f"{asset}=dead_letters", "1 row kept aside, of 4 that came", "dead-letter rate")
    assert "0.25" in shown
    looked_at(page, dagster, f"{asset}=freshness", "Passed", "of 5 s", "freshness target seconds")


def test_a_view_that_is_held_says_so_and_is_not_materialized(page: Page, dagster: Dagster, folder: Path) -> None:
    checked_pipeline.more(LakeLayout(folder / "lake"))
    # All of the pipeline: Dagster shows the checks of an asset as not evaluated as soon as another run materializes it.
    run = dagster.launch(f"drain_{checked_pipeline.PIPELINE}")
    looked_at(page, dagster, f"runs/{run}", "Failure", "projections/best is held: it waits for 'earned'")
    shown = looked_at(page, dagster, "assets/projections/best?view=events", "did not materialize this asset", "held")
    assert entry(page, "what to do") == (
        "correct what 'earned' is computed from, or the expectation; the next refresh looks again"
    )
    assert shown.count("Observed in run") == 1
    shown = looked_at(page, dagster, "assets/projections/best", "Failed in", "Latest check results")
    assert "Latest materialization" in shown
    looked_at(
        page, dagster, "assets/projections/best?view=checks&checkDetail=state", f"breaks {BLOCKING}", "what to do"
    )
    blocking = f"assets/projections/earned?view=checks&checkDetail={BLOCKING}"
    looked_at(page, dagster, blocking, UNEXPECTED, "Failed", "max_value: 100", "data docs")


def test_an_alert_of_a_failed_check_is_not_over_when_the_check_is_planned_again(page: Page, dagster: Dagster) -> None:
    alert = f"{BLOCKING} of projections/earned"
    shown = looked_at(page, dagster, "locations/strandline/sensors/alerts", alert, "state of projections/best")
    assert "team:fares" in shown, "whose it is"
    planned = dagster.launch("Refresh", "projections/earned")
    dagster.ask(FORCE_TERMINATE, id=planned)  # so it is never evaluated
    looked_at(page, dagster, f"assets/projections/earned?view=checks&checkDetail={BLOCKING}", "Latest execution")
    page.until("/Evaluation result\\s+(Skipped|Not evaluated)/.test(document.body.innerText)")
    page.open(f"{dagster.url}/locations/strandline/sensors/alerts", 1600, 1400)
    page.click("Preview tick result")
    page.click("Continue")
    page.shows("Skip reason")
    reason = str(page.value("document.body.innerText")).partition("Skip reason")[2]
    assert "none of them new" in reason
    assert " is over" not in reason


def test_the_whole_life_of_a_lake_is_among_the_jobs_with_one_sensor_for_all(page: Page, dagster: Dagster) -> None:
    jobs = looked_at(page, dagster, "jobs", "restore", "verify", "stream_shop")
    assert {"backup", "restore", "rebuild", "verify", "backfill", "backfill_days", "replace"} <= set(jobs.split("\n"))
    looked_at(page, dagster, "automation", "alerts", "commits", "keep_streams")
    page.until("document.body.innerText.split('Standard sensor').length > 3")  # each row is asked for by itself
    automation = str(page.value("document.body.innerText")).split("\n")
    assert {"backup_schedule", "compact_schedule", "drills_schedule", "health_checks_schedule"} <= set(automation)
    assert automation.count("Standard sensor") == 3
    looked_at(page, dagster, "locations/strandline/jobs/restore", "A backup, restored into an empty lake")
    looked_at(page, dagster, "locations/strandline/jobs/backup/playground", "Launch Run", "destination")


def test_the_checks_of_a_view_stay_on_its_page_while_a_stream_changes_it(
    page: Page, dagster: Dagster, folder: Path
) -> None:
    """By itself Dagster shows a result only while it is of the newest materialization."""
    lake = LakeLayout(folder / "lake")
    proofs = dagster.launch("proofs")
    dagster.wait_for(proofs, "SUCCESS", "FAILURE")
    run = dagster.launch("stream_shop")
    streaming(lake)
    for number in (100, 101):
        told_of(dagster, folder, f"({number}, 'Bern', 400)")
    checks = "assets/projections/by_town?view=checks&checkDetail"
    looked_at(page, dagster, f"{checks}=digest", "Passed", "not looked at since", "found at")
    looked_at(page, dagster, f"{checks}=state", "Passed", "it goes on")
    looked_at(page, dagster, f"{checks}=freshness", "Passed", "of 5 s", "freshness target seconds")
    looked_at(page, dagster, f"{checks}=expect_table_row_count_to_be_between", "Passed", "data docs")
    page.until("!document.body.innerText.includes('Not evaluated')")
    dagster.ask(FORCE_TERMINATE, id=run)
    ended(lake)


def test_what_was_committed_just_before_a_kill_is_reported_after_it(page: Page, dagster: Dagster, folder: Path) -> None:
    """The stream is killed between a commit and the report of it; last, since it keeps the pipeline."""
    lake = LakeLayout(folder / "lake")
    run = dagster.launch("stream_shop")
    first = streaming(lake)
    dagster.wait_for_message(run, "found|started process")
    before = rows(lake, "orders")
    order(folder, "(4, 'Oslo', 200)", "(5, 'Bern', 300)")
    wait_until(lambda: rows(lake, "orders") == before + 2, "the stream takes in nothing")
    os.kill(first.process.pid, signal.SIGKILL)
    wait_until(lambda: streaming(lake).process != first.process, "the run starts no other", 0.2)
    page.open(f"{dagster.url}/assets/logs/orders__log?view=events", 1600, 1400)
    wait_until(lambda: refreshed(page) == "2", lambda: page.value("document.body.innerText"), _RELOAD_SECONDS)
    dagster.ask(FORCE_TERMINATE, id=run)
    ended(lake)


def told_of(dagster: Dagster, folder: Path, row: str) -> None:
    """Insert an order beside a stream, and wait until Dagster was told of the view over it."""
    before = dagster.materialized("projections/by_town")
    order(folder, row)
    wait_until(lambda: dagster.materialized("projections/by_town") > before, "nothing is told of it", _RELOAD_SECONDS)


def refreshed(page: Page) -> str | None:
    """The rows of the newest event of the open page."""
    page.call("Page.reload")
    page.shows("Told while the stream runs")
    page.until("[...document.querySelectorAll('tr')].length > 5")
    return entry(page, "rows inserted")


def streaming(lake: LakeLayout) -> Heartbeat:
    """The newest heartbeat of the stream, waited for if none is alive."""
    found: list[Heartbeat] = []

    def beats() -> bool:
        beat = read_beat(lake, "shop")
        found.extend([beat] if beat is not None and beat.mode == "continuous" and beat.process.is_alive else [])
        return bool(found)

    wait_until(beats, "no stream", 0.1)
    return found[-1]


def ended(lake: LakeLayout) -> None:
    """Wait until the stream whose run was ended has ended too."""
    beat = read_beat(lake, "shop")
    assert beat is not None
    wait_until(lambda: not beat.process.is_alive, "the stream outlives its run", 0.2)


def rows(lake: LakeLayout, table: str) -> int:
    head = reader.head(lake.table(table))
    return 0 if head is None else head.record.rows
