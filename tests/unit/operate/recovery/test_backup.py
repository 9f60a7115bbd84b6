"""Backups: incremental, whole or refused, resumed after a kill; restored into an empty lake with equal digests."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.topics import open_log, remember
from strandline.jobs.model.errors import TopicsElsewhere
from strandline.jobs.model.settings import KafkaSettings, Settings, load_settings
from strandline.jobs.operate.health_checks import Waiting
from strandline.jobs.operate.recovery.backup import BackupResult, execute_backup, plan_backup
from strandline.jobs.operate.recovery.image import read_latest
from strandline.jobs.operate.recovery.restore import RestoreResult, execute_restore, plan_restore
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.heads import WholeHeads, set_aside
from strandline.state_store.errors import BackupBroken, CorruptState, InputReplaced, LakeNotEmpty
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from tests.support.on_disk import on_disk
from tests.support.operated_lake import epoch
from tests.support.warm_process import exit_code
from tests.unit.operate.verify.damage import flip, head_of
from tests.unit.operate.verify.lakes import MadeLake


def back_up(made: MadeLake, backup: LakePath) -> BackupResult:
    return execute_backup(made.settings, plan_backup(made.settings, backup))


def restore(backup: LakePath, lake: LakePath, number: int | None = None) -> RestoreResult:
    return execute_restore(plan_restore(backup, lake, number))


def test_a_restored_lake_is_the_lake(shop: MadeLake, folder: LakePath, tmp_path: Path) -> None:
    """From a disk to a disk, and by way of an object store."""
    made = back_up(shop, folder / "backup")
    assert made.number == 1
    assert made.written == made.files
    done = restore(folder / "backup", tmp_path / "restored")
    assert done.tables == made.tables
    settings = load_settings(lake=tmp_path / "restored")
    assert [each for each in verify(settings, deep=True) if each.ok is False] == []
    for name in made.tables:
        restored = reader.read_rows(LakeLayout(settings.lake).table(name))
        assert restored == reader.read_rows(shop.lake.table(name))
    assert not (tmp_path / "restored" / "restoring.json").exists()


def test_a_restored_lake_remembers_that_its_topics_are_kafkas(tmp_path: Path) -> None:
    """Else a shell without the brokers' setting would write events into files that no pipeline reads."""
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1")
    settings = load_settings(lake=tmp_path / "lake", kafka=kafka)
    remember(settings, LakeLayout(settings.lake))
    execute_backup(settings, plan_backup(settings, tmp_path / "backup"))
    restore(tmp_path / "backup", tmp_path / "restored")
    with pytest.raises(TopicsElsewhere):
        open_log(load_settings(lake=tmp_path / "restored"), LakeLayout(tmp_path / "restored"))


def test_a_restored_lake_is_not_behind(settings: Settings, tmp_path: Path) -> None:
    """A refresh looked at what changed none of a view's rows, and the note of it is restored with the tables."""
    ours = settings.model_copy(update={"engine": "duckdb"})
    text = """CREATE STREAM s (id INT, paid INT) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1);
    CREATE MATERIALIZED VIEW most AS SELECT MAX(paid) AS most FROM s;
    CREATE MATERIALIZED VIEW large AS SELECT most FROM most WHERE most > 100;"""
    for statement in (text, "INSERT INTO s VALUES (1, 5);", "INSERT INTO s VALUES (2, 6);"):
        list(Interpreter(ours, "p").run(statement))
        drain(ours, "p", in_driver=True)
    execute_backup(ours, plan_backup(ours, tmp_path / "backup"))
    restore(tmp_path / "backup", tmp_path / "restored")
    lake = LakeLayout(tmp_path / "restored")
    topics = open_log(load_settings(lake=lake.root), lake)
    waiting = Waiting(Catalog(lake), WholeHeads(lake), topics)
    assert {name: (waiting.since(name), waiting.versions(name)) for name in ("most", "large")} == {
        "most": (None, 0),
        "large": (None, 0),
    }
    list(Interpreter(load_settings(lake=lake.root), "p").run("INSERT INTO s VALUES (3, 7);"))
    waiting = Waiting(Catalog(lake), WholeHeads(lake), topics)
    assert [waiting.since(name) is None for name in ("most", "large")] == [False, False]


def test_where_a_backup_cannot_be_is_said_with_a_way_out(shop: MadeLake, tmp_path: Path) -> None:
    lake = shop.settings.lake
    with pytest.raises(BackupBroken, match="lies in the lake") as inside:
        plan_backup(shop.settings, lake / "backups")
    assert "elsewhere" in str(inside.value.hint)
    with pytest.raises(BackupBroken, match="something else than a backup") as other:
        plan_backup(shop.settings, lake)
    assert "not there yet" in str(other.value.hint)
    back_up(shop, tmp_path / "backup")
    back_up(shop, tmp_path / "backup")
    with pytest.raises(BackupBroken, match="backup 7 is missing") as missing:
        plan_restore(tmp_path / "backup", tmp_path / "restored", 7)
    assert missing.value.hint == "there are the numbers 1, 2"


def test_only_what_is_new_is_copied(shop: MadeLake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    first = back_up(shop, backup)
    assert back_up(shop, backup).written == 0
    epoch(shop, 4)
    plan = plan_backup(shop.settings, backup)
    assert plan.known
    assert {file.key for file in plan.known}.isdisjoint({(file.table, file.name) for file in plan.copied})
    third = execute_backup(shop.settings, plan)
    assert 0 < third.written < first.written
    older = restore(backup, tmp_path / "older", 1)
    newer = restore(backup, tmp_path / "newer")
    assert older.tables == first.tables
    assert newer.tables == third.tables != first.tables


def test_an_input_that_has_lost_its_newest_commit_is_refused(shop: MadeLake, tmp_path: Path) -> None:
    """What was computed from that commit could not go on from the backup."""
    table = on_disk(shop.lake.table("totals"))
    on_disk(log.commit_file(table, head_of(table))).unlink()
    with pytest.raises(InputReplaced, match="'totals' ends at version 3"):
        plan_backup(shop.settings, tmp_path / "backup")
    shutil.rmtree(table)
    with pytest.raises(InputReplaced, match="'totals' is not there"):
        plan_backup(shop.settings, tmp_path / "backup")


def test_an_input_that_was_made_anew_is_copied_as_it_is(shop: MadeLake, tmp_path: Path) -> None:
    """Its versions begin again: they are not compared with those that a view's vector names."""
    set_aside(shop.lake, "totals")
    shop.refresh("totals", [{"page": "a", "n": 1, "seconds": 1.0}], None, ["visits"])
    assert back_up(shop, tmp_path / "backup").tables["totals"] == 1


def test_a_table_that_was_made_anew_is_copied_anew(shop: MadeLake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    first = back_up(shop, backup)
    set_aside(shop.lake, "owned")
    epoch(shop, 4)
    assert back_up(shop, backup).written > 0
    assert restore(backup, tmp_path / "older", 1).tables == first.tables
    assert restore(backup, tmp_path / "newer").tables["owned"] < first.tables["owned"]


def _killed_backup(lake: Path, backup: Path) -> None:
    settings = load_settings(lake=lake)
    execute_backup(settings, plan_backup(settings, backup))


def _killed_restore(backup: Path, lake: Path) -> None:
    execute_restore(plan_restore(backup, lake))


def test_a_killed_backup_does_not_exist_and_is_resumed(shop: MadeLake, tmp_path: Path) -> None:
    backup, lake = tmp_path / "backup", Path(str(shop.settings.lake))
    for failpoint in ("inside-backup:7", "before-backup-manifest:1"):
        assert exit_code(_killed_backup, lake, backup, failpoint=failpoint) == -signal.SIGKILL
        assert read_latest(backup) is None
        with pytest.raises(BackupBroken, match="there is no backup"):
            plan_restore(backup, tmp_path / "restored")
    done = back_up(shop, backup)
    assert done.written == 0, "all files were there already"
    assert restore(backup, tmp_path / "restored").tables == done.tables


def test_a_killed_restore_goes_on(shop: MadeLake, tmp_path: Path) -> None:
    backup, target = tmp_path / "backup", tmp_path / "restored"
    made = back_up(shop, backup)
    assert exit_code(_killed_restore, backup, target, failpoint="inside-restore:9") == -signal.SIGKILL
    plan = plan_restore(backup, target)
    assert len(plan.missing) == made.files - 9
    assert execute_restore(plan).tables == made.tables


def test_a_restore_never_writes_over_anything(shop: MadeLake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    back_up(shop, backup)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(LakeNotEmpty):
        plan_restore(backup, tmp_path / "full")
    restore(backup, tmp_path / "restored")
    with pytest.raises(LakeNotEmpty):
        plan_restore(backup, tmp_path / "restored")
    other = tmp_path / "other"
    shutil.copytree(backup, other)
    exit_code(_killed_restore, backup, tmp_path / "begun", failpoint="inside-restore:3")
    with pytest.raises(LakeNotEmpty, match="not an unfinished restore of this backup"):
        plan_restore(other, tmp_path / "begun")
    with pytest.raises(BackupBroken, match="something else"):
        plan_backup(shop.settings, tmp_path / "restored")


def test_every_file_that_is_lost_is_noticed_before_anything_is_written(shop: MadeLake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    back_up(shop, backup)
    found = sorted(each for each in backup.rglob("*") if each.is_file())
    for file in [*found[:: len(found) // 7], backup / "latest.json"]:
        kept = file.read_bytes()
        for damage in (None, kept[:-1]):
            file.unlink()
            if damage is not None:
                file.write_bytes(damage)
            with pytest.raises(BackupBroken):
                plan_restore(backup, tmp_path / "restored")
            file.write_bytes(kept)
    assert not (tmp_path / "restored").exists()


def test_a_lost_file_is_copied_again_by_the_next_backup(shop: MadeLake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    back_up(shop, backup)
    next(iter(sorted(backup.rglob("*.parquet.*")))).unlink()
    (backup / "latest.json").unlink()
    with pytest.raises(BackupBroken, match="its last file is lost"):
        read_latest(backup)
    assert back_up(shop, backup).written == 1
    restore(backup, tmp_path / "restored")


def test_a_flipped_bit_is_found_while_it_is_restored(shop: MadeLake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    back_up(shop, backup)
    flip(next(iter(sorted((backup / "objects" / "tables").rglob("*.json.*")))))
    with pytest.raises(BackupBroken, match="not as it was written"):
        restore(backup, tmp_path / "restored")
    assert not (tmp_path / "restored" / "catalog").exists(), "nobody takes it for a lake"


def test_the_next_backup_mends_what_has_rotted(shop: MadeLake, tmp_path: Path) -> None:
    """Each kind of file: data, log entries, definitions, topics; flipped bits and files that are gone."""
    backup = tmp_path / "backup"
    first = back_up(shop, backup)
    files = sorted(file for file in (backup / "objects").rglob("*") if file.is_file())
    before = {file: file.read_bytes() for file in files}
    for number, file in enumerate(files):
        if number % 3 == 0:
            flip(file)
    made = back_up(shop, backup)
    assert made.scrubbed == len(files)
    assert {backup / "objects" / name for name in made.mended} == {file for n, file in enumerate(files) if n % 3 == 0}
    assert made.damaged == {}
    assert {file: file.read_bytes() for file in files} == before
    restore(backup, tmp_path / "restored")
    restore(backup, tmp_path / "first", first.number)
    assert back_up(shop, backup).mended == ()


def test_a_file_that_only_an_older_backup_has_is_named_with_it(shop: MadeLake, tmp_path: Path) -> None:
    backup = tmp_path / "backup"
    back_up(shop, backup)
    set_aside(shop.lake, "owned")
    back_up(shop, backup)
    # The table's files are in the first backup alone.
    rotten = min((backup / "objects" / "tables" / "owned").rglob("*.parquet.*"))
    flip(rotten)
    made = back_up(shop, backup)
    assert made.mended == ()
    assert made.damaged == {str(rotten.relative_to(backup / "objects")): (1,)}
    restore(backup, tmp_path / "restored")
    with pytest.raises(BackupBroken):
        restore(backup, tmp_path / "first", 1)


def test_a_backup_in_the_lake_by_way_of_a_link_is_refused(shop: MadeLake, tmp_path: Path) -> None:
    link = tmp_path / "elsewhere"
    link.symlink_to(on_disk(shop.lake.root))
    with pytest.raises(BackupBroken, match="lies in the lake"):
        plan_backup(shop.settings, link / "backup")


def test_a_broken_lake_is_not_backed_up(shop: MadeLake, tmp_path: Path) -> None:
    back_up(shop, tmp_path / "backup")
    epoch(shop, 4)
    # The newest: what the backup before has is not read again.
    flip(max(Path(str(shop.lake.table("owned"))).glob("epoch-*.parquet")))
    with pytest.raises(CorruptState):
        back_up(shop, tmp_path / "backup")
    assert restore(tmp_path / "backup", tmp_path / "restored").number == 1
