"""The page in a real browser: what people see and do, by keys alone, under the policy, with and without a token."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.browser import CHROMIUM, Page, browser
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.app import application
from strandline.jobs.server.state.access import ServerOptions, make_token
from tests.support.listening import listening
from tests.support.served_lake import ServedLake
from tests.unit.server.conftest import LIMITS

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: bash infra/browser.sh")

EVIL = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
LARGE = 9_007_199_254_740_993
"""2^53 + 1: the first whole number that JavaScript rounds."""
DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits, MAX(id) AS latest FROM visits GROUP BY town;
    CREATE TABLE by_id AS SELECT id, COUNT(*) AS visits FROM visits GROUP BY id;
"""


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> ServedLake:
    made = ServedLake(load_settings(lake=tmp_path_factory.mktemp("page") / "lake"), DEFINITIONS)
    with made.duckdb_engine() as duckdb_engine:
        made.append("visits", [{"id": 1, "town": "Rome"}, {"id": LARGE, "town": EVIL}])
        made.refresh(duckdb_engine)
    return made


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    with browser(tmp_path_factory.mktemp("chromium")) as found:
        yield found


@pytest.fixture(scope="module")
def address(lake: ServedLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    options = ServerOptions(tmp_path_factory.mktemp("server"), limits=LIMITS, queries=1)
    with listening(application(lake.settings, options)) as found:
        yield found


@pytest.fixture
def opened(page: Page, address: str) -> Iterator[Page]:
    """The page, with its views; in the end no markup came of a value, and the browser had nothing to report."""
    # What the page of another test still had to report is its own matter.
    page.open("about:blank")
    page.problems.clear()
    page.open(address)
    page.until("document.querySelectorAll('#views-rows tr').length === 3")
    yield page
    assert page.value("document.title") == "Strandline"
    assert page.value("document.querySelectorAll('img').length") == 0
    assert page.problems == []


def choose(page: Page, name: str) -> None:
    """Open a view by the keyboard."""
    page.value(f"[...document.querySelectorAll('#views-rows button')].find(b => b.textContent === '{name}').focus()")
    page.press("Enter")
    page.until(f"document.activeElement.textContent === 'Rows and changes of {name}'")


def changed(lake: ServedLake, identity: int) -> None:
    """One more visit, and the views after it."""
    with lake.duckdb_engine() as duckdb_engine:
        lake.append("visits", [{"id": identity, "town": "Rome"}])
        lake.refresh(duckdb_engine)


def ask(page: Page, sql: str) -> None:
    page.value("document.querySelector('#query-text').value = ''; document.querySelector('#query-text').focus()")
    page.type(sql)
    page.press("Enter", ctrl=True)


def test_views_stand_with_version_rows_and_freshness(opened: Page) -> None:
    rows = opened.value("[...document.querySelectorAll('#views-rows tr')].map(row => row.innerText)")
    row = next(each for each in rows if each.startswith("by_town"))
    name, kind, pipeline, version, count, rate, event_time, ago, _ = row.split("\t")
    assert (name, kind, pipeline, count) == ("by_town", "view", "default", "2")
    assert int(version) >= 1
    assert float(rate) >= 0
    assert event_time.startswith("2024-05-01T")
    assert ago.endswith("ago")
    opened.until("document.querySelector('#status').textContent === '3 views'")


def test_a_key_is_found_and_markup_stays_text(opened: Page) -> None:
    choose(opened, "by_town")
    opened.value("document.querySelector('#key-0').focus()")
    opened.type(EVIL)
    opened.press("Enter")
    opened.until("document.querySelector('#search-found table')")
    cells = opened.value("[...document.querySelectorAll('#search-found td')].map(c => c.textContent)")
    assert cells == [EVIL, "1", str(LARGE)]
    assert opened.text("#search-found p").startswith("1 row at version")


def test_changes_arrive_while_they_are_followed(opened: Page, lake: ServedLake) -> None:
    choose(opened, "by_town")
    opened.value("document.querySelector('#follow').focus()")
    opened.press(" ")
    assert opened.value("document.querySelector('#follow').getAttribute('aria-pressed')") == "true"
    changed(lake, 2)
    opened.until("document.querySelectorAll('#changes-rows tr').length === 2")
    rows = opened.value("[...document.querySelectorAll('#changes-rows tr')].map(r => r.innerText)")
    assert sorted(rows) == ["+1\tRome\t2\t2", "−1\tRome\t1\t1"]
    opened.until("/^2 changes, up to version/.test(document.querySelector('#changes-state').textContent)")
    opened.press(" ")
    assert opened.text("#follow") == "Follow"


def test_a_link_opens_a_view_and_the_address_names_the_one_that_is_open(opened: Page, address: str) -> None:
    opened.open(f"{address}/?view=by_id")
    opened.until("document.activeElement.textContent === 'Rows and changes of by_id'")
    choose(opened, "by_town")
    opened.until("location.search === '?view=by_town'")


def test_no_change_is_lost_while_the_server_is_down(page: Page, lake: ServedLake, tmp_path: Path) -> None:
    options = ServerOptions(tmp_path / "server", limits=LIMITS, queries=1)
    with listening(application(lake.settings, options)) as address:
        page.open(address)
        page.until("document.querySelectorAll('#views-rows tr').length === 3")
        choose(page, "by_id")
        page.value("document.querySelector('#follow').click()")
        changed(lake, 10)
        page.until("document.querySelectorAll('#changes-rows tr').length === 1")
    changed(lake, 11)
    page.until("/connection was lost/.test(document.querySelector('#changes-state').textContent)")
    with listening(application(lake.settings, options), int(address.rpartition(":")[2])):
        changed(lake, 12)
        page.until("document.querySelectorAll('#changes-rows tr').length === 3")
        rows = page.value("[...document.querySelectorAll('#changes-rows tr')].map(r => r.innerText)")
        assert rows == ["+1\t12\t1", "+1\t11\t1", "+1\t10\t1"]


def test_a_query_is_answered_explained_and_refused(opened: Page) -> None:
    ask(opened, "SELECT town, visits FROM by_town ORDER BY visits DESC LIMIT 1")
    opened.until("document.querySelector('#query-found td')")
    assert opened.text("#query-found tbody").startswith("Rome")
    assert "by_town@" in opened.text("#query-about")
    opened.value("document.querySelector('#explain').click()")
    opened.until("document.querySelector('#query-found pre')")
    assert "the query, as a view" in opened.text("#query-found pre")


def test_an_error_is_told_in_the_alert(page: Page, address: str) -> None:
    page.open(address)
    page.until("document.querySelectorAll('#views-rows tr').length === 3")
    ask(page, "SELECT * FROM nothing")
    page.until("!document.querySelector('#failure').hidden")
    assert "nothing" in page.text("#failure")


def test_the_lineage_is_drawn_and_opens_a_view(opened: Page) -> None:
    opened.until("document.querySelectorAll('#lineage-graph .node').length === 4")
    assert opened.value("document.querySelectorAll('#lineage-graph .way').length") == 3
    opened.value("[...document.querySelectorAll('.node')].find(n => /by_id/.test(n.textContent)).focus()")
    opened.press("Enter")
    opened.until("document.activeElement.textContent === 'Rows and changes of by_id'")


def test_rows_without_a_key_dead_letters_and_health(opened: Page, lake: ServedLake) -> None:
    choose(opened, "by_town")
    opened.value("document.querySelector('#show-rows').click()")
    opened.until("document.querySelector('#rows-found table')")
    assert opened.text("#rows-about").endswith("rows of by_town")
    opened.until("/^ready|^restoring/.test(document.querySelector('#health').textContent)")
    choose(opened, "visits")
    opened.value("document.querySelector('#show-dead').click()")
    opened.until("document.querySelector('#rows-about').textContent === '0 rows of visits__dead_letters'")


def test_an_event_is_inserted_as_it_was_typed(opened: Page, lake: ServedLake) -> None:
    choose(opened, "by_town")
    assert opened.value("document.querySelector('#insert').checkVisibility()") is False
    choose(opened, "visits")
    opened.value("document.querySelector('#insert-0').focus()")
    opened.type(str(LARGE + 2))
    opened.press("Tab")
    opened.type(EVIL)
    opened.press("Enter")
    opened.until("/^Inserted at visits@0:/.test(document.querySelector('#insert-about').textContent)")
    (events,) = (run.values for run in LocalLog(lake.lake).read("visits", 0, 0, 1))
    assert json.loads(events[0] or b"") == {"town": EVIL}


def test_a_partial_view_says_what_it_is(page: Page, tmp_path: Path) -> None:
    partial = "CREATE TABLE kept WITH (STATE = 'partial') AS SELECT town, COUNT(*) AS n FROM visits GROUP BY town;"
    made = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS.split("CREATE TABLE")[0] + partial)
    made.append("visits", [{"id": 1, "town": "Rome"}])
    with listening(application(made.settings, ServerOptions(tmp_path / "server", limits=LIMITS, queries=1))) as address:
        page.open(address)
        page.until("document.querySelectorAll('#views-rows tr').length === 2")
        choose(page, "kept")
        row = page.value(
            "[...document.querySelectorAll('#views-rows tr')].map(r => r.innerText).find(t => /kept/.test(t))"
        )
        assert row.split("\t")[1:] == ["partial view", "default", *"––––––"]
        assert page.value("document.querySelector('#show-rows').checkVisibility()") is False
        page.value("document.querySelector('#key-0').focus()")
        page.type("Rome")
        page.press("Enter")
        page.until("document.querySelector('#search-found table')")
        assert page.text("#search-found p").startswith("1 row computed from visits@")


def test_the_token_is_asked_for_once_kept_in_the_tab_and_sent(page: Page, lake: ServedLake, tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    token = make_token(file, "reader", ("read:by_*",), None)
    options = ServerOptions(tmp_path / "server", tokens=file, limits=LIMITS, queries=1)
    with listening(application(lake.settings, options)) as address:
        page.open(address)
        page.until("document.querySelector('#token').open")
        assert page.value("document.activeElement.id") == "token-text"
        page.type(token)
        page.press("Enter")
        page.until("document.querySelectorAll('#views-rows tr').length === 2")
        choose(page, "by_town")
        page.value("document.querySelector('#follow').click()")
        changed(lake, 3)
        page.until("document.querySelectorAll('#changes-rows tr').length === 2")
        assert page.value("localStorage.length") == 0
        assert page.value("document.cookie") == ""
        page.value("document.querySelector('#forget').click()")
        page.until("document.querySelector('#token')?.open")
        assert page.value("sessionStorage.length") == 0
        page.value("document.querySelector('#token-cancel').click()")
        page.until("!document.querySelector('#failure').hidden")
        assert "without a token" in page.text("#failure")
