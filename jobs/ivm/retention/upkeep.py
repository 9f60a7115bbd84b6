"""Retention beside a stream: a run that goes on trims its own event logs, since nobody else may commit to them."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.retention.logs import plan_log_trim, trim_log
from strandline.jobs.model.definitions import Source
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.model.settings import Settings
    from strandline.state_store.commits import Head

log = logging.getLogger("strandline")

EVERY_SECONDS: Final = 60.0
"""Between two looks. A look reads the log's snapshot, some milliseconds; more only where something is due."""


@dataclass
class TrimUpkeep:
    """When a run last looked at the retention of its logs."""

    looked: float = float("-inf")

    def due(self) -> bool:
        """True once a minute."""
        return time.monotonic() - self.looked >= EVERY_SECONDS

    def trim(self, sources: Iterable[Source], settings: Settings) -> None:
        """Trim what is due, between two micro-batches. A failure is logged and nothing else: the log is as it was."""
        self.looked = time.monotonic()
        for source in sources:
            try:
                made = _trimmed(source.name, settings)
                if made is not None:
                    log.info("event log of '%s': %s", source.name, made.record.reason)
            except (OSError, StrandlineError) as error:
                log.warning("the event log of '%s' was not trimmed: %s", source.name, error)


def _trimmed(name: str, settings: Settings) -> Head | None:
    """The trim of one source's log, as its statement says now; None when nothing goes."""
    catalog = Catalog(Lake(settings.lake))
    source = catalog.find(name)
    if not isinstance(source, Source):
        return None
    planned = plan_log_trim(source, settings, catalog, held=False)
    return trim_log(source, settings) if planned is not None and planned.plan.files else None
