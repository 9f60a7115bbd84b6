"""A catalog that keeps nothing: definitions for tests that make thousands of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.definitions import CatalogEntry
from strandline.state_store.layout import LakeLayout


class MemoryCatalog(Catalog):
    """Definitions in memory; everything else is the catalog's."""

    def __init__(self) -> None:
        super().__init__(LakeLayout(Path("/nowhere")))

    @contextmanager
    def _changing(self) -> Iterator[Callable[[], None]]:
        yield lambda: None

    def _write(self, entry: CatalogEntry, check: Callable[[], None]) -> None:
        self._content = self._content.with_entry(entry)
