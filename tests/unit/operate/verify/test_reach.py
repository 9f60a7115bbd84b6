"""A history whose beginning was cleaned up is verified from the oldest version that is readable in full."""

from __future__ import annotations

from strandline.jobs.operate.verify.findings import Check
from strandline.jobs.operate.verify.verify import verify
from strandline.state_store.delta import log
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.paths import LakePath
from tests.support.lakes import delta_rs
from tests.support.on_disk import on_disk
from tests.unit.operate.verify.damage import data_file, rewritten
from tests.unit.operate.verify.lakes import MadeLake


def checked(made: MadeLake, table: str) -> dict[str, Check]:
    return {check.check: check for check in verify(made.settings, [table], deep=True) if check.table == table}


def _removed_long_ago(path: LakePath, version: int) -> None:
    def change(actions: list[dict[str, dict[str, object]]]) -> None:
        for action in actions:
            if "remove" in action:
                action["remove"]["deletionTimestamp"] = 0

    rewritten(path, version, change)


def test_files_removed_long_ago_may_be_gone(made: MadeLake) -> None:
    path = made.lake.table("totals")
    data_file(path, 1).unlink()
    _removed_long_ago(path, 2)
    found = checked(made, "totals")
    assert {check.ok for check in found.values()} == {True}
    assert found["feed"].what == "3 changes since version 2, the oldest that is readable in full"


def test_compaction_by_another_tool_breaks_nothing(made: MadeLake) -> None:
    table = made.tables["visits"]
    delta_rs(table.path).optimize.compact()
    found = checked(made, "visits")
    assert {name for name, check in found.items() if check.ok is not True} == {"files"}
    assert (found["files"].ok, found["feed"].what) == (None, "6 changes since version 0")
    assert [check for check in verify(made.settings, ["totals"], deep=True) if check.ok is not True] == []


def test_a_log_cleaned_up_below_a_checkpoint_is_whole(made: MadeLake) -> None:
    path = made.lake.table("totals")
    make_checkpoint(path, 1)
    on_disk(log.commit_file(path, 0)).unlink()
    found = checked(made, "totals")
    assert [check.check for check in found.values() if check.ok is False] == []
    assert found["feed"].what == "7 changes since version 1, the oldest that is readable in full"
    assert found["log"].what == "versions 1 to 2, 2 commits"
    assert found["checkpoint"].ok is None
