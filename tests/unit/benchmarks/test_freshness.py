"""What the benchmarks of freshness and the soak read off: when an event was visible, processor time, the verdict."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from benchmarks.clicks.five_views import VIEWS
from benchmarks.clicks.visibility import EVENT_LOG, Visibility
from benchmarks.measuring.process_tree import processor_seconds
from benchmarks.measuring.time_chart import Panel, svg
from benchmarks.soak import CLICKS, Soak, main, slower
from strandline.jobs.model.settings import Settings
from strandline.state_store.delta import log
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import LakeLayout


def test_a_click_is_visible_when_the_last_view_reflects_it(settings: Settings, lake: LakeLayout) -> None:
    """Through a view over a view too; and those of the epoch after are later."""
    with DuckDBEngine("256MB", 1) as duckdb_engine:
        soak = Soak(settings, duckdb_engine)
        soak.live(1)
        between = time.time()
        time.sleep(0.02)
        soak.live(1)
    visibility = Visibility(lake)
    assert {view: visibility.reflected(view) for view in VIEWS} == dict.fromkeys(VIEWS, 2 * CLICKS)
    found = visibility.clicks(VIEWS)
    assert len(found.due) == 2 * CLICKS
    assert (np.diff(found.due) >= 0).all()
    first, second = found.visible[:CLICKS], found.visible[CLICKS:]
    assert (found.taken <= found.visible).all()
    assert first.max() < between < second.min()
    newest = max(log.commit_file(lake.table(view), _newest(lake, view)).stat().st_ctime for view in VIEWS)  # type: ignore[union-attr]
    assert second.max() == newest


def test_a_click_that_a_view_lacks_is_not_visible(settings: Settings, lake: LakeLayout) -> None:
    with DuckDBEngine("256MB", 1) as duckdb_engine:
        soak = Soak(settings, duckdb_engine)
        soak.live(1)
        soak._append(EVENT_LOG, [{"id": 99, "visitor": 1, "page": 1, "seconds": 1}])
    assert len(Visibility(lake).clicks(VIEWS).due) == CLICKS


def test_the_time_of_a_tree_counts_children_alive_and_ended() -> None:
    burn = "import time; e = time.process_time() + 0.3\nwhile time.process_time() < e: pass"
    parent = f"import os, subprocess, sys, time; subprocess.run([sys.executable, '-c', {burn!r}])"
    parent += "; print(sum(os.times()[:4]), flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        own = float(process.stdout.readline())
        found = processor_seconds(process.pid)
        process.kill()
    assert own >= 0.3
    assert found == pytest.approx(own, rel=0.5)


@pytest.mark.parametrize(("last", "faults"), [(1.25, 0), (1.35, 1)])
def test_the_verdict_compares_the_last_part_with_the_second(last: float, faults: int) -> None:
    assert len(slower([5.0] * 10 + [1.0] * 80 + [last] * 10)) == faults


def test_a_short_soak_holds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its verdict on time needs a quiet machine; the rows and feeds do not."""
    monkeypatch.setattr("benchmarks.soak.SLOWER", 100.0)
    assert main(["--epochs", "11"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "held"


def test_a_chart_has_a_line_for_each_name(tmp_path: Path) -> None:
    panels = [Panel("latency < 1 s", {"p50": [(0, 0.5), (1, 0.4)], "p99": [(0, 1.0), (1, 0.9)]}), Panel("none", {})]
    root = ElementTree.fromstring(svg(panels))
    lines = root.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 2
    assert all(len(str(line.get("points")).split()) == 2 for line in lines)


def _newest(lake: LakeLayout, view: str) -> int:
    newest = log.newest_version(lake.table(view))
    assert newest is not None
    return newest
