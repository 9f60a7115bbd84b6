"""Whether the events that a view was computed from are still there: retention may have taken the first of them.

    log        e0 e1 e2 │ e3 e4 e5 …        what is left of it at the view's vector
    totals     since e0                     its SQL over what is left lacks e0 to e2: nothing can be said by it
    newcomer   since e3                     its SQL over what is left is what it must equal

The rest of what is proved of a view (its feed, its digest, its files) needs no event; `kept_rows` has those rows that
need only what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ivm.refresh.begun_logs import moment
from strandline.state_store.delta import reader
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from strandline.state_store.commits import TableVersion, Trimmed
    from strandline.state_store.layout import Lake


class BegunLater(Exception):
    """An input no longer has all events that the rows were computed from: its history begins later than theirs.

    Attributes:
        log: the input.
        trimmed: what retention has taken of it.
    """

    def __init__(self, log: str, trimmed: Trimmed) -> None:
        super().__init__(
            sentence(
                "the history of '{}' begins after {}: retention has taken {} events, and the rows hold what was "
                "computed from them",
                Name(log),
                moment(trimmed.until),
                f"{trimmed.rows:,}",
            )
        )
        self.log, self.trimmed = log, trimmed


def check_begun(
    since: Mapping[str, int], vector: Mapping[str, TableVersion], at: Mapping[str, int], lake: Lake
) -> None:
    """Check that every input still has the events that the rows were computed from.

    Args:
        since: {table of the vector: how many of its events were gone when the rows were computed from it}.
        vector: of the rows: {table: its commit}.
        at: {input: the version of it that the rows reflect}, inner stages standing for what they read.

    Raises:
        BegunLater: one has not.
        VersionGone, CorruptState: a record does not read.
    """
    begun: dict[str, int] = {}
    for name, gone in _begun(since, vector, at, lake):
        begun[name] = min(gone, begun.get(name, gone))
    for name, version in at.items():
        trimmed = reader.record_at(lake.table(name), version).trimmed
        if trimmed is not None and trimmed.rows > begun.get(name, 0):
            raise BegunLater(name, trimmed)


def _begun(
    since: Mapping[str, int], vector: Mapping[str, TableVersion], names: Collection[str], lake: Lake
) -> Iterator[tuple[str, int]]:
    """(input, how many of its events were gone when the rows were computed from it), also by way of inner stages."""
    for name, at in vector.items():
        if name in names:
            yield name, since.get(name, 0)
        else:
            inner = reader.record_at(lake.table(name), at.version)
            yield from _begun(inner.since, inner.vector, names, lake)
