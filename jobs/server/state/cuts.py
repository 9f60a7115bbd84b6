"""The cuts that a server has pinned for its clients: leases keep their versions until they are given back, or expire.

pin ──> lease of each table at its smallest pinned version ──> given back, or expired ──> at the next version needed
"""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.definitions import Source, View
from strandline.jobs.serve.consistent_snapshot import pin
from strandline.jobs.serve.poller import Poller
from strandline.state_store.delta import log as delta_log
from strandline.state_store.errors import StoreError, TableMissing
from strandline.state_store.leases import ReaderLease

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.serve.consistent_snapshot import Pinned
    from strandline.jobs.server.state.catalogued import Catalogued
    from strandline.state_store.layout import Lake

log = logging.getLogger("strandline.server")

_SWEEP_SECONDS: Final = 30.0
"""A lease is moved on so often at the most: each time is a flushed file, and transactions come by the thousand."""
MOST_CUTS: Final = 10_000
"""That are held at once; each names all tables. Beyond that the oldest ones are kept by retention's horizon alone."""


class Cuts(Poller):
    """The pinned cuts of a server. Any thread may ask.

    Args:
        reader_name: of the leases.
    """

    def __init__(self, lake: Lake, catalogued: Catalogued, reader_name: str) -> None:
        self._lake = lake
        self._catalogued = catalogued
        self._reader_name = reader_name
        self._lock = Lock()
        self._held: dict[str, Pinned] = {}
        self._leases: dict[str, tuple[ReaderLease, int]] = {}
        self._swept = time.monotonic()
        super().__init__("pinned cuts")
        self.begin()

    def pin(self, seconds: float, first: Sequence[str] = ()) -> Pinned:
        """Pin the newest consistent cut, and hold it.

        Args:
            first: the tables for whose sake others are left out.

        Raises: as `jobs.serve.consistent_snapshot.pin`; DiskFailed: its versions cannot be leased.
        """
        definitions = self._catalogued.catalog.definitions()
        stored = [
            each.name
            for each in definitions
            if isinstance(each, Source) or (isinstance(each, View) and not each.partial)
        ]
        found = pin(stored, self._lake, seconds, first)
        with self._lock:
            self._held[found.text()] = found
            while len(self._held) > MOST_CUTS:
                del self._held[next(iter(self._held))]
            for table, version in found.versions.items():
                known = self._leases.get(table)
                if known is None or known[1] > version:
                    self._lease(table, version)
        return found

    def release(self, pinned: Pinned) -> None:
        """Hold a cut no more."""
        with self._lock:
            self._held.pop(pinned.text(), None)

    def look(self) -> bool:
        if time.monotonic() - self._swept > _SWEEP_SECONDS:
            self.sweep()
        return True

    def sweep(self) -> None:
        """Let go of what has expired, and move the leases on."""
        self._swept = time.monotonic()
        with self._lock:
            now = delta_log.now_ms()
            self._held = {text: each for text, each in self._held.items() if each.until > now}
            needed: dict[str, int] = {}
            for each in self._held.values():
                for table, version in each.versions.items():
                    needed[table] = min(version, needed.get(table, version))
            for table, (lease, version) in list(self._leases.items()):
                try:
                    if table not in needed:
                        lease.withdraw()
                        del self._leases[table]
                    elif needed[table] > version:
                        self._lease(table, needed[table])
                except StoreError as error:
                    log.warning("a lease stays where it is", extra={"view": table, "error": error.attrs()})

    def close(self) -> None:
        super().close()
        for lease, _ in self._leases.values():
            with suppress(StoreError):
                lease.withdraw()

    def _lease(self, table: str, version: int) -> None:
        lease, _ = self._leases.get(table) or (ReaderLease(self._lake.table(table), self._reader_name), version)
        with suppress(TableMissing):  # dropped a moment ago: whoever reads it is told
            lease.publish(version)
            self._leases[table] = (lease, version)
