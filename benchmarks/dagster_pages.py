"""What Dagster's pages take in a browser, for a lake of 200 views in ten pipelines.

    python -m benchmarks.dagster_pages [--pipelines 10] [--views 20] [--times 5] [--home FOLDER]

With `--home`, over the lake and the storage that `benchmarks.dagster_day --keep FOLDER` has left: a day's events. Else
everything that the commits say is told first, as the sensor tells it. Then a webserver is started, and a headless
Chromium opens each page so many times: the first time with an empty cache of the browser's.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

import dagster as dg

import strandline.orchestration.definitions
from benchmarks.dagster_day import Daemon, define, epoch
from infra.browser import CHROMIUM, Page, browser
from infra.ports import free_port
from strandline.jobs.model.settings import load_settings

_START_SECONDS: Final = 180.0
_LOADED: Final = "document.body && !document.body.innerText.includes('Loading')"
_WORDS: Final = "document.body.innerText"
PAGES: Final = {
    "asset catalog": ("assets", f"({_WORDS}.match(/Materialized/g) ?? []).length > 8"),
    "lineage of everything": ("asset-groups", "document.querySelectorAll('foreignObject').length >= {groups}"),
    "lineage of a pipeline": (
        "locations/strandline/asset-groups/p0/lineage",
        "document.querySelectorAll('foreignObject').length > 6",
    ),
    "page of a view": ("assets/projections/v0_0", "{words}.includes('delta version') && {words}.includes('Row count')"),
    "its checks": ("assets/projections/v0_0?view=checks", "{words}.includes('drill_backup')"),
    "jobs": ("jobs", "{words}.includes('stream_p0')"),
    "runs": ("runs", "{words}.includes('Launched by') || {words}.includes('No runs')"),
}
"""{what: the path, and what holds as soon as its content is there}. A graph has only what the window shows drawn."""


def main() -> None:
    """Measure, and print a line for each page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pipelines", type=int, default=10)
    parser.add_argument("--views", type=int, default=20)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--home", type=Path, help="the folder of a day that was simulated")
    asked = parser.parse_args()
    if CHROMIUM is None:
        sys.exit("there is no chromium: bash infra/browser.sh")
    with tempfile.TemporaryDirectory() as folder:
        made = asked.home or Path(folder)
        lake, home = made / "lake", made / "dagster"
        if asked.home is None:
            told_once(lake, home, asked.pipelines, asked.views)
        with webserver(lake, home) as url, browser(Path(folder) / "chromium") as page:
            for what, (path, condition) in PAGES.items():
                there = (
                    condition.replace("{groups}", str(asked.pipelines))
                    .replace("{views}", str(asked.views))
                    .replace("{words}", _WORDS)
                )
                seconds = [opened(page, f"{url}/{path}", there) for _ in range(asked.times)]
                print(f"{what}: first {seconds[0]:.2f} s, then median {median(seconds[1:]):.2f} s", flush=True)


def told_once(lake: Path, home: Path, pipelines: int, views: int) -> None:
    """Make the lake, and tell Dagster of each of its assets once."""
    home.mkdir()
    (home / "dagster.yaml").write_text("nux: {enabled: false}")
    settings = load_settings(lake=lake, engine="duckdb")
    define(settings, pipelines, views)
    epoch(settings, pipelines)
    with dg.DagsterInstance.local_temp(str(home)) as instance:
        daemon, told = Daemon(settings, instance), 0
        while events := daemon.tick("commits")[1]:
            told += events
    print(f"events told: {told}")


def opened(page: Page, url: str, condition: str) -> float:
    """The seconds from the address to the content."""
    page.open("about:blank")
    began = time.monotonic()
    page.open(url, 1600, 1000)
    page.until(f"{_LOADED} && {condition}")
    return time.monotonic() - began


@contextmanager
def webserver(lake: Path, home: Path) -> Iterator[str]:
    """Dagster's webserver over the lake, alone."""
    url = f"http://127.0.0.1:{free_port()}"
    workspace = str(Path(strandline.orchestration.definitions.__file__).with_name("workspace.yaml"))
    command = [sys.executable, "-m", "dagster_webserver", "-p", url.rpartition(":")[2], "-w", workspace]
    environment = {**os.environ, "STRANDLINE_LAKE": str(lake), "DAGSTER_HOME": str(home)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=home
    ) as process:
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not answers(url):
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit("the webserver did not come up")
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    """True as soon as the webserver is there."""
    try:
        with urllib.request.urlopen(f"{url}/server_info", timeout=5):
            return True
    except (urllib.error.URLError, TimeoutError):
        return False


if __name__ == "__main__":
    main()
