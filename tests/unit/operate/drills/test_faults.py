"""A drill that cannot fail proves nothing: each scenario is red when its fault is really there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.operate.backup.execute import execute_backup
from jobs.operate.backup.plan import plan_backup
from jobs.operate.drills.plan import Drill
from jobs.operate.drills.run import run_drill
from jobs.operate.drills.scenarios import SCENARIOS
from state_store.delta import log
from tests.unit.operate.verify.damage import data_file, flip, head_of, record_of, said
from tests.unit.operate.verify.lakes import MadeLake


def _skipped_version(made: MadeLake) -> None:
    path = made.lake.table("owned")
    log.commit_file(path, head_of(path) - 1).unlink()


def _corrupted_file(made: MadeLake) -> None:
    flip(data_file(made.lake.table("owned")))


def _wrong_row(made: MadeLake) -> None:
    """The table is whole in itself, and is not what its SQL says."""
    made.refresh("owned", [{"owner": "Eve", "n": 1}], None, ["pages", "totals"])


def _wrong_input_row(made: MadeLake) -> None:
    made.refresh("totals", [{"page": "z", "n": 1, "seconds": 1.0}], None, ["visits"])


def _corrupted_changes(made: MadeLake) -> None:
    """The files that the missed epochs must read."""
    path = made.lake.table("totals")
    commits = [log.read_commit(path, version) for version in range(2, head_of(path) + 1)]
    for file in {Path(str(file.path)) for commit in commits for file in commit.added}:
        flip(file)


def _skipped_input_version(made: MadeLake) -> None:
    path = made.lake.table("totals")
    log.commit_file(path, head_of(path) - 1).unlink()


def _other_digest(made: MadeLake) -> None:
    path = made.lake.table("owned")
    digest = record_of(path)["digest"]
    said(path, digest=("1" if digest[0] == "0" else "0") + digest[1:])


def _event_missing(made: MadeLake) -> None:
    """The record says that an event was read, and neither the log nor the dead letters have it."""
    offsets = record_of(made.lake.table("visits"))["offsets"]
    offsets["clicks"]["0"] += 1
    said(made.lake.table("visits"), offsets=offsets)


FAULTS: list[tuple[str, Callable[[MadeLake], None]]] = [
    ("changelog", _skipped_version),
    ("changelog", _corrupted_file),
    ("changelog", _other_digest),
    ("recompute", _wrong_row),
    ("recompute", _wrong_input_row),
    ("recompute", _corrupted_file),
    ("local-state", _corrupted_file),
    ("local-state", _other_digest),
    ("killed-driver", _corrupted_changes),
    ("point-in-time", _corrupted_changes),
    ("point-in-time", _skipped_input_version),
    ("feed-gap", _corrupted_file),
    ("feed-gap", _other_digest),
    ("backup", _corrupted_file),
    ("backup", _other_digest),
    ("short-topic", _event_missing),
    ("short-topic", _wrong_row),
]


@pytest.mark.parametrize(("scenario", "fault"), FAULTS, ids=[f"{name}{fault.__name__}" for name, fault in FAULTS])
def test_a_fault_makes_the_drill_red(shop: MadeLake, scenario: str, fault: Callable[[MadeLake], None]) -> None:
    fault(shop)
    result = run_drill(shop.settings, Drill(scenario, "owned", 60.0))
    assert result.passed is False, result.why
    assert result.digest_equal is False


def _without_the_last_file(backup: Path) -> None:
    (backup / "latest.json").unlink()


def _without_its_manifest(backup: Path) -> None:
    (backup / "manifests" / "000001.json").unlink()


def _without_a_file(backup: Path) -> None:
    max(each for each in backup.rglob("*") if each.is_file() and "objects" in each.parts).unlink()


def _with_a_flipped_bit(backup: Path) -> None:
    flip(next(each for each in backup.rglob("*.parquet.*")))


@pytest.mark.parametrize("fault", [_without_the_last_file, _without_its_manifest, _without_a_file, _with_a_flipped_bit])
def test_a_broken_backup_makes_its_drill_red(shop: MadeLake, tmp_path: Path, fault: Callable[[Path], None]) -> None:
    backup = tmp_path / "backup"
    execute_backup(shop.settings, plan_backup(shop.settings, backup))
    drill = Drill("backup", "owned", 60.0)
    assert run_drill(shop.settings, drill, backup=backup).passed
    fault(backup)
    result = run_drill(shop.settings, drill, backup=backup)
    assert result.passed is False
    assert "store.backup_broken" in result.why


def test_every_scenario_has_a_fault() -> None:
    assert {name for name, _ in FAULTS} == {each.name for each in SCENARIOS}


def test_an_old_backup_says_what_it_would_lose(shop: MadeLake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    execute_backup(shop.settings, plan_backup(shop.settings, backup))
    shop.refresh("owned", [{"owner": "Eve", "n": 1}], None, ["pages", "totals"])
    result = run_drill(shop.settings, Drill("backup", "owned", 60.0), backup=backup)
    assert (result.passed, result.rpo_versions, result.rpo_rows) == (True, 1, 1)
