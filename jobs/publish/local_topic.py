"""A changelog topic of the lake's own log: each write is one segment, which is there as a whole or not at all.

The position stands in a header of the last record that a write brings to a partition, with the write's number: of the
partitions' last records, the one with the greatest number says what the topic holds. A segment is appended only where
the topic ends as this publisher knows it, so a second one is found out before it writes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import partition_for
from strandline.jobs.ingest.logs.open import remember
from strandline.jobs.publish.topic import Position, PublisherFenced
from strandline.state_store.errors import CorruptState
from strandline.state_store.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.jobs.ingest.logs.log import Record
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout

POSITION: Final = "strandline.position"


class LocalTopic:
    """See `ChangelogTopic`. The lake's own topics are never compacted: every change stays."""

    def __init__(self, source: Source, settings: Settings, lake: LakeLayout) -> None:
        self.source = source
        self.log = LocalLog(lake)
        self._settings = settings
        self._lake = lake
        self._ends: Mapping[int, int] | None = None
        self._writes = 0

    def position(self) -> Position | None:
        if not self.log.exists(self.source.topic):
            return None
        found = self._last(self.log.end_offsets(self.source.topic))
        return found[1] if found is not None else None

    def begin(self) -> None:
        self.log.ensure_topic(self.source.topic, self.source.partitions)
        remember(self._settings, self._lake)
        self._ends = self.log.end_offsets(self.source.topic)
        found = self._last(self._ends)
        self._writes = found[0] if found is not None else 0

    def write(self, records: Iterable[Record], position: Position) -> int:
        """As the interface says; without a record nothing is written, and the position stays what it was."""
        assert self._ends is not None, "begin comes first"
        listed = list(records)
        if not listed:
            return 0
        failpoint("before-publish")
        marked = self._marked(listed, position, len(self._ends))
        places = self.log.produce_after(self.source.topic, marked, self._ends)
        if places is None:
            raise PublisherFenced(
                f"another process wrote to the topic '{self.source.topic}'",
                where=str(self._lake.topic(self.source.topic)),
                hint="end it, or give the view a topic of its own",
            )
        failpoint("after-publish")
        self._writes += 1
        self._ends = {**self._ends, **{partition: offset + 1 for partition, offset in places}}
        return len(listed)

    def close(self) -> None:
        """Nothing is held."""

    def _marked(self, records: Sequence[Record], position: Position, partitions: int) -> list[Record]:
        """The records with their partitions; the last one of each says the position."""
        placed = [replace(each, partition=partition_for(each.key, partitions, 0)) for each in records]
        last = {each.partition: place for place, each in enumerate(placed)}
        stated = json.dumps({"write": self._writes + 1, "position": position.to_json()}).encode()
        for place in last.values():
            placed[place] = replace(placed[place], headers=(*placed[place].headers, (POSITION, stated)))
        return placed

    def _last(self, ends: Mapping[int, int]) -> tuple[int, Position] | None:
        """The number of the last write, and the position that it led to."""
        found: list[tuple[int, Position]] = []
        for partition, end in ends.items():
            for run in self.log.read(self.source.topic, partition, max(end - 1, 0), end):
                stated = dict(run.headers[-1] or ()).get(POSITION)
                if stated is not None:
                    found.append(self._read(stated))
        return max(found, key=lambda each: each[0], default=None)

    def _read(self, stated: bytes) -> tuple[int, Position]:
        where = str(self._lake.topic(self.source.topic))
        try:
            body = json.loads(stated)
            return int(body["write"]), Position.from_json(body["position"], where)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState("a header of a changelog topic does not read back", where=where) from error
