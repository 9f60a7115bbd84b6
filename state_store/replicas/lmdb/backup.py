"""Backups of LMDB: a copy of the tree without its free pages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.state_store.replicas.base.backup import check_backup, copy_files

if TYPE_CHECKING:
    from pathlib import Path

    import lmdb


def copy_environment(environment: lmdb.Environment, folder: Path) -> None:
    """Write a copy to the folder; writers are not held up."""
    environment.copy(str(folder), compact=True)


def take_back(backup: Path, path: Path) -> None:
    """Copy a backup to where a store is to be opened; errors as of `check_backup` and `copy_files`."""
    check_backup(backup)
    copy_files(backup, path)
