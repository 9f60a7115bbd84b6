"""A lake, and an Iceberg table of others beside it, in a catalog of PyIceberg's: what its tests write there and ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.config import Config

from tests.support.foreign_folder import FolderWorld

NAME = "theirs.shop.orders"


def end_threads() -> None:
    """End the threads with which PyIceberg reads and writes, which it keeps for the process."""
    ExecutorFactory.get_or_create().shutdown()
    ExecutorFactory._instance = None


class IcebergWorld(FolderWorld):
    """In statements `@` is the table's name. Its catalog is known to this process by its environment.

    Attributes:
        table: the table, as its writers have it.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.catalog_environment = {
            "PYICEBERG_CATALOG__THEIRS__TYPE": "sql",
            "PYICEBERG_CATALOG__THEIRS__URI": f"sqlite:///{folder}/catalog.db",
            "PYICEBERG_CATALOG__THEIRS__WAREHOUSE": f"file://{self.theirs}",
        }
        for name, value in self.catalog_environment.items():
            monkeypatch.setenv(name, value)
        # PyIceberg reads its configuration once a process.
        monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
        self.catalog = SqlCatalog("theirs", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{self.theirs}")
        self.catalog.create_namespace("shop")

    def begin(self, rows: Any, **more: Any) -> None:
        """Make the table, empty, with the columns of some rows."""
        self.table = self.catalog.create_table("shop.orders", schema=rows.schema, **more)

    def snapshots(self) -> list[int]:
        """The ids of all snapshots, the oldest first."""
        found = self.catalog.load_table("shop.orders").metadata.snapshots
        return [each.snapshot_id for each in sorted(found, key=lambda each: each.sequence_number or 0)]

    def run(self, text: str) -> list[Any]:
        return super().run(text.replace("@", NAME))
