"""Backups of a store in DynamoDB: a dump."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.state_store.replicas.base.backup import check_backup
from strandline.state_store.replicas.base.dump import dump, load

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.state_store.replicas.base.store import Snapshot, Store


def copy_rows(snapshot: Snapshot, folder: Path) -> None:
    """Write the rows and the state to files in the folder."""
    dump(snapshot, folder)


def take_back(backup: Path, store: Store, unfinished: bytes) -> None:
    """Put the rows of a backup into a store; errors as of `check_backup` and `load`."""
    check_backup(backup)
    load(backup, store, unfinished)
