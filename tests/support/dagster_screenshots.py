"""The pictures of docs/dagster.md: `python -m tests.support.dagster_screenshots [FOLDER]`.

They are taken of a real webserver and daemon, over a pipeline whose expectations pass, warn, block and keep a row out:
its checks, the lineage from the topic to the changelogs, a view that is held, the alerts, the plots of a view, and its
checks beside a stream.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from infra.browser import CHROMIUM, Page, browser
from strandline.state_store.layout import LakeLayout
from tests.live.running_dagster import FORCE_TERMINATE, Dagster, entries, running
from tests.support import checked_pipeline
from tests.support.screenshots import FOLDER, taken
from tests.support.waiting import wait_until

_PICTURES: Final = {
    "blocking": ("projections/earned", "expect_column_values_to_be_between__fare", "1 of 2 rows are unexpected: 140"),
    "warning": ("projections/earned", "expect_column_values_to_be_between__rides", "1 of 2 rows are unexpected: 4"),
    "quarantine": ("projections/paid", "expect_column_values_to_not_be_null__fare", "1 row in quarantine"),
}
"""{picture: the asset, the check that is open, and what is read there when it has loaded}."""


TOPIC: Final = "rides.topic"
_LOG: Final = "logs/rides__log"
_DOWNSTREAM: Final = "lineageScope=downstream&lineageDepth=5"
_EPOCHS: Final = 4
"""Points of a plot, beside the first two."""
_HIDE: Final = "[...document.querySelectorAll('div')].filter(each => each.innerText === 'Hide navigation').at(-1)"
_PLOTS: Final = "[...document.querySelectorAll('button')].find(each => each.innerText.trim() === 'Plots')"


def main(folder: Path) -> None:
    """Take the pictures."""
    assert CHROMIUM is not None, "there is no chromium: bash infra/browser.sh"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        lake = checked_pipeline.made(place)
        with running(place, checked_pipeline.environment(place)) as dagster:
            _told(dagster, len(checked_pipeline.FIRST))
            _drained(dagster, "SUCCESS")
            checked_pipeline.more(lake)
            _told(dagster, len(checked_pipeline.FIRST) + len(checked_pipeline.SECOND))
            # The blocking check fails the run; every asset before it is materialized.
            _drained(dagster, "FAILURE")
            with browser(place / "chromium") as page:
                for picture, (table, check, said) in _PICTURES.items():
                    page.open(f"{dagster.url}/assets/{table}?view=checks&checkDetail={check}", 1300, 1200)
                    page.until(f"document.body.innerText.includes({said!r})")
                    _taken(page, folder / f"dagster-{picture}.png")
                page.open(f"{dagster.url}/assets/projections/best?view=events", 1300, 620)
                page.shows("what to do", "did not materialize this asset")
                _taken(page, folder / "dagster-held.png")
                page.open(f"{dagster.url}/locations/strandline/sensors/alerts", 1300, 700)
                page.shows("state of projections/best")
                page.click("View logs")
                page.shows("breaks expect")
                _taken(page, folder / "dagster-alerts.png")
                # With less room for it Dagster draws the assets without their checks.
                page.value(f"{_HIDE}.click()")
                page.open(f"{dagster.url}/assets/topics/{TOPIC}?view=lineage&{_DOWNSTREAM}", 2000, 620)
                page.until("document.body.innerText.includes('Passed')")
                _taken(page, folder / "dagster-lineage.png")
                for each in range(_EPOCHS):
                    checked_pipeline.quiet(lake, each)
                    _drained(dagster, "FAILURE")
                page.open(f"{dagster.url}/assets/projections/earned", 1300, 740)
                page.until(f"{_PLOTS} !== undefined")
                page.value(f"{_PLOTS}.click()")
                page.until("document.querySelectorAll('canvas').length >= 2")
                page.value("document.querySelector('canvas').scrollIntoView()")
                _taken(page, folder / "dagster-plots.png")
                _beside_a_stream(page, dagster, lake, folder / "dagster-stream.png")


def _beside_a_stream(page: Page, dagster: Dagster, lake: LakeLayout, path: Path) -> None:
    """The checks of a view that a stream changes, of which the proofs were made before."""
    dagster.wait_for(dagster.launch("proofs"), "SUCCESS", "FAILURE")
    run = dagster.launch(f"stream_{checked_pipeline.PIPELINE}")
    for number in (_EPOCHS, _EPOCHS + 1):
        _changed(dagster, lake, number)
    page.open(f"{dagster.url}/assets/projections/earned?view=checks&checkDetail=recompute", 1300, 1200)
    page.shows("not looked at since")
    _taken(page, path)
    dagster.ask(FORCE_TERMINATE, id=run)


def _changed(dagster: Dagster, lake: LakeLayout, number: int) -> None:
    """Change the view, and wait until the stream has told of it."""
    before = dagster.materialized("projections/earned")
    checked_pipeline.quiet(lake, number)
    wait_until(lambda: dagster.materialized("projections/earned") > before, "the stream tells nothing", 1.0)


def _taken(page: Page, path: Path) -> None:
    _settled(page)
    taken(page, path)


def _settled(page: Page) -> None:
    """Wait until everything is loaded and stays where it is for a while: graphs and plots are drawn step by step."""
    page.until("!document.body.innerText.includes('Loading')")
    drawn = "[...document.querySelectorAll('canvas, foreignObject, path, td')]"
    before, now = "", "?"
    while before != now:
        time.sleep(1.0)
        before, now = (
            now,
            page.value(f"{drawn}.map(each => Object.values(each.getBoundingClientRect().toJSON())).join()"),
        )


def _told(dagster: Dagster, rides: int) -> None:
    """Wait until Dagster knows of as many rides: what is told after a view that has read it makes the view unsynced."""

    def is_told() -> bool:
        log = dagster.assets()[_LOG]
        return bool(log["assetMaterializations"]) and entries(log)["dagster/row_count"] == rides

    wait_until(is_told, "the sensor tells nothing", 1.0)


def _drained(dagster: Dagster, status: str) -> None:
    dagster.wait_for(dagster.launch(f"drain_{checked_pipeline.PIPELINE}"), status)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
