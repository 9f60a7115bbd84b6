"""The ways to plant a fault under a drill, each in a lake that is healthy.

The drills are of the view `owned`, which is computed from `pages` and `totals`, and so from the events of `visits`.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import write_deltalake

from strandline.state_store.delta import log
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.paths import files_in
from tests.support.on_disk import on_disk
from tests.unit.operate.verify.damage import data_file, flip, head_of, planted, record_of, said
from tests.unit.operate.verify.lakes import MadeLake


def skipped_version(made: MadeLake) -> None:
    path = made.lake.table("owned")
    on_disk(log.commit_file(path, head_of(path) - 1)).unlink()


def skipped_below_a_checkpoint(made: MadeLake) -> None:
    """The head reads, and all rows with it; the version is missed by whoever reads the feed."""
    path = made.lake.table("owned")
    make_checkpoint(path, head_of(path))
    skipped_version(made)


def first_versions_gone(made: MadeLake) -> None:
    """The log begins right after a checkpoint, of which it has no entry."""
    path = made.lake.table("owned")
    make_checkpoint(path, 1)
    for version in range(2):
        on_disk(log.commit_file(path, version)).unlink()


def newest_version_gone(made: MadeLake) -> None:
    path = made.lake.table("owned")
    on_disk(log.commit_file(path, head_of(path))).unlink()


def corrupted_commit(made: MadeLake) -> None:
    path = made.lake.table("owned")
    flip(log.commit_file(path, head_of(path) - 1))


def corrupted_file(made: MadeLake) -> None:
    flip(data_file(made.lake.table("owned")))


def lost_file(made: MadeLake) -> None:
    data_file(made.lake.table("owned")).unlink()


def row_in_a_file(made: MadeLake) -> None:
    planted(made.lake.table("owned"), "n", 1000)


def row_of_another_tool(made: MadeLake) -> None:
    rows = pa.table({"owner": ["Eve"], "n": pa.array([1], pa.int64())})
    write_deltalake(on_disk(made.lake.table("owned")), rows, mode="append", schema_mode="merge")


def row_committed(made: MadeLake) -> None:
    """The table is whole in itself, and is not what its SQL says."""
    made.refresh("owned", [{"owner": "Eve", "n": 1}], None, ["pages", "totals"])


def other_digest(made: MadeLake) -> None:
    path = made.lake.table("owned")
    digest = record_of(path)["digest"]
    said(path, digest=("1" if digest[0] == "0" else "0") + digest[1:])


def input_skipped_version(made: MadeLake) -> None:
    path = made.lake.table("totals")
    on_disk(log.commit_file(path, head_of(path) - 1)).unlink()


def input_went_back(made: MadeLake) -> None:
    path = made.lake.table("totals")
    on_disk(log.commit_file(path, head_of(path))).unlink()


def input_corrupted_files(made: MadeLake) -> None:
    """The files that a refresh from the middle of the view's history must read."""
    path = made.lake.table("totals")
    commits = [log.read_commit(path, version) for version in range(2, head_of(path) + 1)]
    for file in {Path(str(file.path)) for commit in commits for file in commit.added}:
        flip(file)


def input_row_in_a_file(made: MadeLake) -> None:
    planted(made.lake.table("totals"), "n", 1000)


def input_row_committed(made: MadeLake) -> None:
    made.refresh("totals", [{"page": "b", "n": 1, "seconds": 1.0}], None, ["visits"])


def event_corrupted(made: MadeLake) -> None:
    flip(data_file(made.lake.table("visits")))


def event_altered(made: MadeLake) -> None:
    planted(made.lake.table("visits"), "page", "z")


def event_missing(made: MadeLake) -> None:
    """The record says that an event was read, and neither the log nor the dead letters have it."""
    offsets = record_of(made.lake.table("visits"))["offsets"]
    offsets["clicks"]["0"] += 1
    said(made.lake.table("visits"), offsets=offsets)


def topic_without_its_tail(made: MadeLake) -> None:
    on_disk(files_in(made.lake.topic("clicks"), ".log")[-1]).unlink()


def backup_without_its_last_file(backup: Path) -> None:
    (backup / "latest.json").unlink()


def backup_without_its_manifest(backup: Path) -> None:
    (backup / "manifests" / "000001.json").unlink()


def backup_without_a_file(backup: Path) -> None:
    max(each for each in backup.rglob("*") if each.is_file() and "objects" in each.parts).unlink()


def backup_with_a_flipped_bit(backup: Path) -> None:
    flip(next(each for each in backup.rglob("*.parquet.*")))
