"""The ticks of a lake's clock: the time, written as a record of its topic by the run of its pipeline.

A tick that is lost, or written twice, says nothing wrong: the next one has the time that it is then. Between two ticks
nothing happens, so an idle pipeline commits once a tick at most.
"""

from __future__ import annotations

import datetime as dt
import time
from typing import TYPE_CHECKING

from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model.options import TICK
from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout

_ROW = 0
"""The key of a clock's one row."""


def utc_now() -> dt.datetime:
    """The time of this machine."""
    return dt.datetime.now(dt.UTC)


class Ticks:
    """The clocks among the sources of one run."""

    def __init__(self) -> None:
        self._next: dict[str, float] = {}

    def tick(self, sources: Sequence[Source], settings: Settings, lake: LakeLayout) -> bool:
        """Write the time to each clock that is due; the first time all are. True if any was.

        Raises:
            SourceUnavailable: the broker does not answer.
        """
        due = [each for each in sources if TICK in each.options and time.monotonic() >= self._next.get(each.name, 0)]
        for source in due:
            self._next[source.name] = time.monotonic() + int(source.options[TICK]) / 1000
            column = next(each.name for each in source.columns if each.type.base is BaseType.TIMESTAMP)
            # A record's times are whole milliseconds.
            now = utc_now()
            now = now.replace(microsecond=now.microsecond // 1000 * 1000)
            insert_rows(source, [{source.key[0]: _ROW, column: now}], settings, lake)
        return bool(due)
