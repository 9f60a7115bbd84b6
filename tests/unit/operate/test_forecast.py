"""What a proof and a drill will take: by this view's last, by others of the lake, or not known yet."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.cli.shown import show_drill_plan
from strandline.jobs.model import forecast
from strandline.jobs.model.definitions import View
from strandline.jobs.model.forecast import PROOF, UNKNOWN, Forecast, Forecasts, note_measured, whole
from strandline.jobs.operate.assurance import assurances
from strandline.jobs.operate.recovery.drill_history import record
from strandline.jobs.operate.recovery.scenarios import plan_drills, run_drill, with_forecasts
from strandline.jobs.operate.verify.verify import prove
from strandline.state_store.commits import CommitRecord, TableVersion
from strandline.state_store.delta.log import now_ms
from strandline.state_store.digest import Digest
from strandline.state_store.layout import LakeLayout
from strandline.state_store.stored_state import sealed_members
from tests.support.lakes import below
from tests.unit.operate.conftest import made, template
from tests.unit.operate.verify.lakes import MadeLake

__all__ = ["made", "template"]  # fixtures


class Tables:
    """Tables of which there is nothing but a record: so many rows, of these inputs."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._heads: dict[str, SimpleNamespace] = {}
        monkeypatch.setattr(forecast, "reader", SimpleNamespace(head=lambda path: self._heads.get(path.name)))

    def __call__(self, name: str, rows: int, *inputs: str) -> None:
        vector = {each: TableVersion(0) for each in inputs}
        record = CommitRecord(epoch=1, vector=vector, digest=str(Digest(0, 0, rows)))
        self._heads[name] = SimpleNamespace(record=record)


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Tables:
    return Tables(monkeypatch)


def measured(lake: LakeLayout, view: str, rows: int, seconds: float, kind: str = PROOF) -> None:
    folder = Path(str(lake.measured(kind)))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / lake.proof(view).name).write_bytes(
        sealed_members({"format": 1, "rows": rows, "seconds": seconds}),
    )


def test_nothing_is_known_before_anything_ran(lake: LakeLayout, table: Tables) -> None:
    table("v", 100)
    assert Forecasts(lake).of(PROOF, "v") == UNKNOWN
    assert str(whole([UNKNOWN])) == "not known yet"
    measured(lake, "v", 100, 1.0, "changelog")
    assert Forecasts(lake).of(PROOF, "v") == UNKNOWN, "a drill says nothing of a proof"


def test_a_view_takes_what_it_took_moved_along_the_line_of_the_lake(lake: LakeLayout, table: Tables) -> None:
    """A second for being one, a millisecond a row; this view's own took half a second more."""
    for name, rows in (("a", 1_000), ("b", 5_000), ("c", 9_000)):
        measured(lake, name, rows, 1.0 + rows / 1_000)
    table("log", 3_000)
    table("d", 4_000, "log")
    assert Forecasts(lake).of(PROOF, "d") == Forecast(8.0, "estimated"), "its rows, and those that it reads"
    table("a", 2_000)
    measured(lake, "a", 1_000, 2.5)
    found = Forecasts(lake).of(PROOF, "a")
    assert found.basis == "measured"
    assert found.seconds == pytest.approx(2.5 + 0.9, abs=0.1)


def test_of_one_size_all_of_it_is_the_rows_where_there_are_more_now(lake: LakeLayout, table: Tables) -> None:
    table("v", 200)
    measured(lake, "v", 100, 1.0)
    assert Forecasts(lake).of(PROOF, "v") == Forecast(2.0, "measured")
    measured(lake, "v", 800, 1.0)
    assert Forecasts(lake).of(PROOF, "v") == Forecast(1.0, "measured"), "what fewer rows save is not known"


def test_a_forecast_is_never_below_zero_nor_falls_faster_than_the_rows(lake: LakeLayout, table: Tables) -> None:
    measured(lake, "small", 100, 0.1)
    measured(lake, "large", 1_000, 9.0)
    measured(lake, "v", 1_000, 0.5)
    table("v", 100)
    assert Forecasts(lake).of(PROOF, "v") == Forecast(0.05, "measured")


def test_what_several_will_take_says_how_much_of_it_is_known() -> None:
    known = Forecast(2.0, "measured")
    assert str(whole([known, known])) == "4.0 s"
    found = whole([known, Forecast(1.5, "estimated"), UNKNOWN])
    assert str(found) == "3.5 s (1 of 3 estimated, 1 of 3 not known yet)"
    assert asdict(found) == {"seconds": 3.5, "number": 3, "estimated": 1, "unknown": 1}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1, "rows": 1, "seconds": 9.0}'])
def test_a_measurement_that_does_not_read_is_none_and_the_next_replaces_it(
    lake: LakeLayout, table: Tables, content: bytes
) -> None:
    table("v", 100)
    measured(lake, "v", 100, 1.0)
    (Path(str(lake.measured(PROOF))) / lake.proof("v").name).write_bytes(content)
    assert Forecasts(lake).of(PROOF, "v") == UNKNOWN
    note_measured(lake, PROOF, "v", 0.25)
    assert Forecasts(lake).of(PROOF, "v") == Forecast(0.25, "measured")


def test_a_proof_and_a_drill_are_measured_and_the_plan_and_the_status_say_what_the_next_take(
    made: MadeLake, capsys: pytest.CaptureFixture[str]
) -> None:
    catalog = Catalog(made.lake)
    view = catalog.get("totals")
    assert isinstance(view, View)
    prove(view, made.settings, catalog, made.lake)
    (drill,) = plan_drills(made.settings, ["totals"], ["changelog"])
    done = run_drill(made.settings, drill)
    assert done.seconds is not None
    assert done.rto_seconds is not None
    assert done.seconds > done.rto_seconds, "the copy takes time too"
    record(made.lake, [done])
    assert len(below(made.lake.root / "measured")) == 2
    found = {each.view: each for each in assurances(made.settings, now_ms())}
    assert found["totals"].next_proof.basis == "measured"
    assert found["totals"].next_proof.seconds
    assert found["owned"].next_proof.basis == "estimated"
    drills = found["totals"].next_drills
    assert drills is not None
    assert drills.number == 1
    assert drills.seconds == pytest.approx(done.seconds, abs=0.001)
    planned = with_forecasts(plan_drills(made.settings, ["totals"], ["changelog", "recompute"]), made.lake)
    assert [each.forecast.basis for each in planned] == ["measured", "not known yet"]
    show_drill_plan(planned, json=False)
    out = capsys.readouterr().out
    assert f"all of them will take: {done.seconds:.1f} s (1 of 2 not known yet)" in out
