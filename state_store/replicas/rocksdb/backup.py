"""Backups of RocksDB: a checkpoint, which shares its files with the store by hard links."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocksdict import Checkpoint

from strandline.state_store.replicas.base.backup import check_backup, copy_files

if TYPE_CHECKING:
    from pathlib import Path

    from rocksdict import Rdict

_NAME = "rocksdb"


def copy_checkpoint(db: Rdict, folder: Path) -> None:
    """Write a checkpoint below the folder."""
    Checkpoint(db).create_checkpoint(str(folder / _NAME))


def take_back(backup: Path, path: Path) -> None:
    """Copy a backup to where a store is to be opened; errors as of `check_backup` and `copy_files`."""
    check_backup(backup)
    copy_files(backup / _NAME, path)
