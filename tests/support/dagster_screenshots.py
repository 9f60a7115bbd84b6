"""The pictures of docs/dagster.md: `python -m tests.support.dagster_screenshots [FOLDER]`.

They are taken of a real webserver and daemon, over a pipeline whose expectations pass, warn, block and keep a row out.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.live.running_dagster import Dagster, running
from tests.support import checked_pipeline
from tests.support.browser import CHROMIUM, browser
from tests.support.screenshots import FOLDER, taken

_PICTURES: Final = {
    "blocking": ("projections/earned", "expect_column_values_to_be_between__fare", "1 of 2 rows are unexpected: 140"),
    "warning": ("projections/earned", "expect_column_values_to_be_between__rides", "1 of 2 rows are unexpected: 4"),
    "quarantine": ("logs/paid__log", "expect_column_values_to_not_be_null__fare", "1 row in quarantine"),
}
"""{picture: the asset, the check that is open, and what is read there when it has loaded}."""


def main(folder: Path) -> None:
    """Take the pictures."""
    assert CHROMIUM is not None, "there is no chromium: apt-get install chromium"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        lake = checked_pipeline.made(place)
        with running(place, checked_pipeline.environment(place)) as dagster:
            _drained(dagster, "SUCCESS")
            checked_pipeline.more(lake)
            # The blocking check fails the run; every asset before it is materialized.
            _drained(dagster, "FAILURE")
            with browser(place / "chromium") as page:
                for picture, (table, check, said) in _PICTURES.items():
                    page.open(f"{dagster.url}/assets/{table}?view=checks&checkDetail={check}", 1300, 1200)
                    page.until(f"document.body.innerText.includes({said!r})")
                    taken(page, folder / f"dagster-{picture}.png")


def _drained(dagster: Dagster, status: str) -> None:
    dagster.wait_for(dagster.launch(f"drain_{checked_pipeline.PIPELINE}"), status)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
