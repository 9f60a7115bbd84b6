"""A view that was replaced a while ago: what operates on its history takes only what its present definition made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.maintenance import execute_maintenance, plan_maintenance
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.scenarios import Drill, run_drill
from strandline.jobs.operate.verify.subjects import opened, subjects
from strandline.jobs.operate.verify.tables import reach
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import RECOVERY_HORIZON_MS
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import NEXT, PIPELINE, events, made
from tests.unit.operate.verify.damage import flip, rewritten


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake in which `by_shop` was replaced; an epoch came before the swap, and two after."""
    settings = load_settings(lake=tmp_path_factory.mktemp("replaced") / "lake")
    lake = made(settings)
    more = [{"shop": shop, "item": "x", "qty": 9} for shop in "abc"]
    for epoch, event in enumerate(more, 1):
        events(lake, [event], first=3 + epoch, epoch=epoch)
        drain(settings, PIPELINE)
        if epoch == 1:
            list(Interpreter(settings, PIPELINE).run(NEXT))
    return Path(str(settings.lake))


@pytest.fixture
def replaced(template: Path, lake: LakeLayout) -> int:
    """The version of the swap, in a copy of the lake."""
    shutil.copytree(template, on_disk(lake.root), dirs_exist_ok=True)
    newest = log.newest_version(lake.table("by_shop"))
    assert newest is not None
    return newest - 2


@pytest.mark.parametrize("scenario", ["changelog", "point-in-time", "feed-gap"])
def test_drills_rehearse_what_the_present_definition_has_made(
    replaced: int, settings: Settings, lake: LakeLayout, tmp_path: Path, scenario: str
) -> None:
    result = run_drill(settings, Drill(scenario, "by_shop", 60.0), scratch=tmp_path)
    assert result.passed, result.why


def test_a_history_that_begins_before_the_swap_is_played_from_the_swap(
    replaced: int, settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    path = lake.table("by_shop")
    make_checkpoint(path, replaced - 1)
    for version in range(replaced - 1):
        on_disk(log.commit_file(path, version)).unlink()
    result = run_drill(settings, Drill("changelog", "by_shop", 60.0), scratch=tmp_path)
    assert result.passed, result.why


@pytest.mark.parametrize("old", [True, False])
def test_listed_changes_that_were_cleaned_up_end_the_history(
    replaced: int, settings: Settings, lake: LakeLayout, old: bool
) -> None:
    path = lake.table("by_shop")
    [file] = log.read_commit(path, replaced).change_files
    on_disk(file.path).unlink()
    made_at = log.now_ms() - (RECOVERY_HORIZON_MS + 1000 if old else 0)

    def dated(actions: list[dict[str, dict[str, object]]]) -> None:
        actions[0]["commitInfo"]["timestamp"] = made_at

    rewritten(path, replaced, dated)
    [subject] = (each for each in subjects((), Catalog(lake), lake) if each.table == "by_shop")
    found = reach(opened(subject))
    assert (found.version, found.fault is None) == ((replaced, True) if old else (-1, False))


def test_a_backup_does_not_copy_a_broken_file_of_listed_changes(
    replaced: int, settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    [file] = log.read_commit(lake.table("by_shop"), replaced).change_files
    assert isinstance(file.path, Path)
    flip(file.path)
    with pytest.raises(CorruptState, match="is not as it was written"):
        execute_backup(settings, plan_backup(settings, tmp_path / "backup"))


def test_a_replacement_between_plan_and_copy_is_not_backed_up_half(
    replaced: int, settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    plan = plan_backup(settings, tmp_path / "backup")
    list(Interpreter(settings, PIPELINE).run(NEXT.replace("qty > 1", "qty > 2")))
    with pytest.raises(VersionGone, match="changed while the lake was copied"):
        execute_backup(settings, plan)


def test_a_clean_up_long_after_the_swap_leaves_a_table_that_verifies(
    replaced: int, settings: Settings, lake: LakeLayout
) -> None:
    later = log.now_ms() + 2 * RECOVERY_HORIZON_MS
    execute_maintenance(settings, plan_maintenance(settings, ["by_shop"], now=later))
    assert [each for each in verify(settings, ["by_shop"], deep=True) if each.ok is False] == []
    drain(settings, PIPELINE)
