"""A drill that cannot fail proves nothing: drill × planted fault, each red with its reason, or green as it claims."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.drill_history import DrillResult
from strandline.jobs.operate.recovery.scenarios import Drill, run_drill
from tests.support.examples import AT_LENGTH
from tests.unit.operate.recovery.faults import DRILLS, FAULTS, Fault
from tests.unit.operate.verify.lakes import MadeLake

_SLOW: Final = "killed-driver"
"""It starts two processes wherever it comes to its kill: some four seconds."""

_SABOTAGES: Final = {
    "wrong rows": "row in a file, its checksum mended",
    "missing file": "lost file",
    "old version": "newest version of an input gone",
}
"""{kind of sabotage: the fault} of those that every drill sees, and `make test` plants under each of them."""

_QUICK: Final = {
    *_SABOTAGES.values(),
    "skipped version",
    "corrupted file",
    "row committed that is not of the SQL",
    "row in a file of an input, its checksum mended",
    "backup without its last file",
}
"""The faults that `make test` plants: each kind of damage, and all that a drill once took for no fault."""


def _is_quick(fault: Fault, drill: str) -> bool:
    """True for what `make test` plants. A drill that does not read a backup does not mind one."""
    quick = _SABOTAGES.values() if drill == _SLOW else _QUICK
    return fault.name in quick and (fault.spoil is None or drill in fault.red)


CELLS: Final = [(fault, drill) for fault in FAULTS for drill in DRILLS if AT_LENGTH or _is_quick(fault, drill)]


@pytest.mark.parametrize(("fault", "drill"), CELLS, ids=[f"{drill}-{fault.name}" for fault, drill in CELLS])
def test_a_drill_is_red_or_says_what_it_cannot_see(shop: MadeLake, tmp_path: Path, fault: Fault, drill: str) -> None:
    result = _drilled(shop, fault, drill, tmp_path)
    if drill in fault.green:
        assert (result.passed, result.digest_equal) == (True, True), result.why
        return
    assert (result.passed, result.digest_equal) == (False, False), result.why
    assert re.search(fault.red[drill], result.why), result.why


def _drilled(shop: MadeLake, fault: Fault, drill: str, folder: Path) -> DrillResult:
    backup = None
    if fault.spoil is not None:
        backup = _backed_up(shop, folder)
        fault.spoil(backup)
    if fault.plant is not None:
        fault.plant(shop)
    return run_drill(shop.settings, Drill(drill, "owned", 60.0), backup=backup)


def _backed_up(shop: MadeLake, folder: Path) -> Path:
    execute_backup(shop.settings, plan_backup(shop.settings, folder / "backup"))
    return folder / "backup"


def test_the_table_is_whole() -> None:
    """Every drill stands in each row, once, and is red under each kind of sabotage; every fault has its one name."""
    for fault in FAULTS:
        assert sorted([*fault.red, *fault.green]) == sorted(DRILLS), fault.name
    red = {fault.name: fault.red for fault in FAULTS}
    assert {kind: sorted(red[name]) for kind, name in _SABOTAGES.items()} == dict.fromkeys(_SABOTAGES, sorted(DRILLS))
    assert {fault.name for fault in FAULTS} >= _QUICK
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


def test_a_whole_backup_makes_its_drill_green(shop: MadeLake, tmp_path: Path) -> None:
    assert run_drill(shop.settings, Drill("backup", "owned", 60.0), backup=_backed_up(shop, tmp_path)).passed


def test_an_old_backup_says_what_it_would_lose(shop: MadeLake, tmp_path: Path) -> None:
    backup = _backed_up(shop, tmp_path)
    shop.refresh("owned", [{"owner": "Eve", "n": 1}], None, ["pages", "totals"])
    result = run_drill(shop.settings, Drill("backup", "owned", 60.0), backup=backup)
    assert (result.passed, result.rpo_versions, result.rpo_rows) == (True, 1, 1)
