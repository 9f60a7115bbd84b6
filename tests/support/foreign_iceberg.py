"""A lake, and an Iceberg table of others beside it, in a catalog of PyIceberg's: what its tests write there and ask."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyiceberg.catalog
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.config import Config

from tests.support.foreign_folder import FolderWorld

NAME = "theirs.shop.orders"


def end_threads() -> None:
    """End the threads with which PyIceberg reads and writes, which it keeps for the process."""
    ExecutorFactory.get_or_create().shutdown()
    ExecutorFactory._instance = None


def catalog_environment(name: str, folder: Path, warehouse: Path) -> dict[str, str]:
    """The environment in which PyIceberg knows a catalog, whose database is a file of the folder."""
    values = {"TYPE": "sql", "URI": f"sqlite:///{folder}/catalog.db", "WAREHOUSE": f"file://{warehouse}"}
    return {f"PYICEBERG_CATALOG__{name.upper()}__{key}": value for key, value in values.items()}


def open_catalog(name: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Catalog:
    """The catalog, known to this process by that environment from now on."""
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    # PyIceberg reads its configuration once a process.
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    return pyiceberg.catalog.load_catalog(name)


class IcebergWorld(FolderWorld):
    """In statements `@` is the table's name. Its catalog is known to this process by its environment.

    Attributes:
        table: the table, as its writers have it.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder)
        self.catalog_environment = catalog_environment("theirs", folder, self.theirs)
        self.catalog = open_catalog("theirs", self.catalog_environment, monkeypatch)
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
