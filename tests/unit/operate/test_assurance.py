"""What `strandline status` says that one may rely on: each word by what somebody has looked at, and by nothing else."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import View
from strandline.jobs.model.report import RefreshCosts, TableReport
from strandline.jobs.model.settings import BackupSettings
from strandline.jobs.operate import assurance
from strandline.jobs.operate.assurance import Assurance, assurances
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.drill_history import DrillResult, history, record
from strandline.jobs.operate.verify.findings import Proof, last_proof
from strandline.jobs.operate.verify.verify import prove
from strandline.jobs.run.heartbeat import Heartbeat
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import CorruptState
from strandline.state_store.processes import process
from tests.unit.operate.conftest import made, template
from tests.unit.operate.verify.damage import data_file, flip
from tests.unit.operate.verify.lakes import MadeLake

__all__ = ["made", "template"]  # fixtures

DRILL = DrillResult("recompute", "totals", 1_000, 0.5, 0, 0, 3, True, 60.0, True, "all rows are back")


def of(made: MadeLake, view: str = "totals", now: int | None = None) -> Assurance:
    [found] = [each for each in assurances(made.settings, now or now_ms()) if each.view == view]
    return found


def test_what_nobody_has_looked_at_is_not_known(made: MadeLake) -> None:
    found = of(made)
    assert (found.right, found.recoverable, found.backed_up_seconds, found.seconds_a_day) == (None, None, None, None)
    assert found.stale_seconds == 0
    assert found.bytes > 0
    assert found.why == ""


def test_a_view_is_right_by_its_last_proof_and_wrong_by_a_broken_one(made: MadeLake) -> None:
    catalog = Catalog(made.lake)
    view = catalog.get("totals")
    assert isinstance(view, View)
    prove(view, made.settings, catalog, made.lake)
    found = of(made, now=now_ms() + 5_000)
    assert (found.right, found.unproved_versions) == (True, 0)
    assert found.proved_seconds is not None
    assert found.proved_seconds >= 5
    assert of(made, "owned").right is None, "another view's proof says nothing"
    flip(data_file(made.lake.table("totals")), -20)
    prove(view, made.settings, catalog, made.lake)
    found = of(made)
    assert found.right is False
    assert found.why


def test_a_view_is_recoverable_by_the_last_drill_of_each_kind(made: MadeLake) -> None:
    record(made.lake, [replace(DRILL, passed=False, why="the rows differ")])
    assert (of(made).recoverable, of(made).why) == (False, "recompute: the rows differ")
    record(made.lake, [replace(DRILL, at=9_000, rto_seconds=2.0), replace(DRILL, drill="files", at=5_000)])
    record(made.lake, [replace(DRILL, drill="backup", at=9_500, passed=None, rto_seconds=None)])
    found = of(made, now=10_000)
    assert (found.recoverable, found.drilled_seconds, found.rto_seconds) == (True, 5.0, 2.0)


def test_a_backup_counts_for_the_tables_that_it_has(made: MadeLake, tmp_path: Path) -> None:
    settings = made.settings.model_copy(update={"backup": BackupSettings(destination=str(tmp_path / "to"))})
    assert {each.backed_up_seconds for each in assurances(settings, now_ms())} == {None}
    execute_backup(settings, plan_backup(settings, tmp_path / "to"))
    assert all(each.backed_up_seconds is not None for each in assurances(settings, now_ms()))
    (tmp_path / "to" / "latest.json").write_text("{")
    assert {each.backed_up_seconds for each in assurances(settings, now_ms())} == {None}, "it does not read"


def test_what_a_view_costs_a_day_is_of_its_last_continuous_run(made: MadeLake, monkeypatch: pytest.MonkeyPatch) -> None:
    table = TableReport("totals", 1, 1, 1, 1, 1, 0, 3.0, {}, {}, "delta", "", "", costs=RefreshCosts(50, 0.04, 1.0))
    table = replace(table, requests={"get": 100, "put": 50})
    ours = process(os.getpid())
    assert ours is not None
    run = Heartbeat("shop", "continuous", ours, 0, 100_000, None, None, 100, {}, {}, (table,))
    monkeypatch.setattr(assurance, "read_beat", lambda *_: run)
    found = of(made)
    assert found.seconds_a_day == 2592.0
    assert found.requests_a_day == {"get": 86_400.0, "put": 43_200.0}
    assert found.seconds_a_day_at == {"none": 4320.0, "1": 4320.0, "60": 921.6, "600": 869.8, "3600": 865.0}
    assert of(made, "owned").seconds_a_day_at is None, "another view"
    for other in (replace(run, mode="drain"), replace(run, at=50_000)):
        monkeypatch.setattr(assurance, "read_beat", lambda *_, run=other: run)
        assert (of(made).seconds_a_day, of(made).seconds_a_day_at) == (None, None)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "at": 1}', '{"format": 3}'])
def test_a_proof_that_does_not_read_is_said_and_the_next_one_stands_in_its_place(made: MadeLake, text: str) -> None:
    path = Path(str(made.lake.proof("totals")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    with pytest.raises(CorruptState, match="proof does not read back"):
        last_proof(made.lake, "totals")
    found = of(made)
    assert found.right is None
    assert found.why == "its last proof does not read back; type: strandline verify totals --deep"
    proved(made)
    assert (of(made).right, of(made).why) == (True, "")


def test_each_flipped_bit_of_a_proof_is_noticed(made: MadeLake) -> None:
    proved(made)
    path = Path(str(made.lake.proof("totals")))
    whole, proof = path.read_bytes(), last_proof(made.lake, "totals")
    for bit in range(len(whole) * 8):
        path.write_bytes(with_bit(whole, bit))
        with suppress(CorruptState):
            assert last_proof(made.lake, "totals") == proof


def test_a_proof_of_an_earlier_version_has_no_checksum_and_counts(made: MadeLake) -> None:
    path = Path(str(made.lake.proof("totals")))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text('{"format": 1, "at": 1, "version": 2, "ok": true, "why": ""}')
    assert last_proof(made.lake, "totals") == Proof(1, 2, True)


def test_drills_are_kept_with_a_checksum(made: MadeLake) -> None:
    record(made.lake, [DRILL])
    [path] = Path(str(made.lake.drills)).iterdir()
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"rows": 3', b'"rows": 7'))
    with pytest.raises(CorruptState, match="history"):
        history(made.lake)
    path.write_text(json.dumps({"format": 1, "results": [DRILL.as_json()]}))
    assert history(made.lake) == [DRILL], "an earlier version wrote it"


def proved(made: MadeLake) -> None:
    catalog = Catalog(made.lake)
    view = catalog.get("totals")
    assert isinstance(view, View)
    prove(view, made.settings, catalog, made.lake)


def with_bit(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]
