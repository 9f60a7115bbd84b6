"""A consistent cut: one version of each table of a query, such that all reflect the same of what lies below them.

    heads   orders@12   by_customer@7 (orders@12)   by_town@5 (orders@9)
    cut     orders@9    by_customer@4 (orders@9)    by_town@5 (orders@9)

From the heads, each table that is ahead of another over a common input goes back until it is not. No consistent cut
lies between, so what is left in the end is the newest one. A table that is not there yet holds nobody back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.serve.errors import NoConsistentCut
from strandline.jobs.serve.reflected import Reflected, reflected, settled
from strandline.state_store.delta.heads import newest_version
from strandline.state_store.errors import VersionGone
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.state_store.layout import Lake

_NOTHING = -1
"""The version of an input that a table does not reflect at all yet, as just after it was made."""


@dataclass(frozen=True)
class Cut:
    """One version of each table; None for a table that is not there, or was not at that moment: it has no rows."""

    tables: Mapping[str, Reflected | None]

    def version(self, table: str) -> int | None:
        """The version of a table; None: it has no rows."""
        found = self.tables[table]
        return None if found is None else found.version

    @property
    def versions(self) -> dict[str, int]:
        """{table: version} of those that have one."""
        return {name: found.version for name, found in self.tables.items() if found is not None}

    @property
    def committed(self) -> int | None:
        """When the oldest of the versions was committed, milliseconds since the epoch."""
        return min((found.committed for found in self.tables.values() if found is not None), default=None)

    @property
    def event_time(self) -> int | None:
        """The smallest of the tables' event times, microseconds since the epoch."""
        times = (found.event_time for found in self.tables.values() if found is not None)
        return min((time for time in times if time is not None), default=None)

    @property
    def offsets(self) -> dict[str, dict[int, int]] | None:
        """{topic: {partition: the offset behind the last record}} that every table of it reflects, of those that are
        made of the topic; None: a table is not there, and reflects nothing."""
        found: dict[str, dict[int, int]] = {}
        for each in self.tables.values():
            if each is None:
                return None
            for topic, partitions in each.offsets.items():
                known = found.get(topic)
                if known is None:
                    found[topic] = dict(partitions)
                else:
                    least = {number: min(end, partitions.get(number, 0)) for number, end in known.items()}
                    found[topic] = {**dict.fromkeys(partitions, 0), **least}
        return found

    def reaches(self, topic: str, offsets: Iterable[tuple[int, int]]) -> bool:
        """True if every table that is made of a topic reflects its records up to these offsets, and one is.

        Args:
            offsets: (partition, the offset behind the last record).
        """
        made = [found.offsets[topic] for found in self.tables.values() if found is not None and topic in found.offsets]
        return bool(made) and all(each.get(partition, 0) >= offset for each in made for partition, offset in offsets)


def newest_cut(tables: Iterable[str], lake: Lake) -> Cut:
    """The newest consistent cut of these tables.

    Raises:
        NoConsistentCut: it needs a version that is not kept any more.
        TableLost: one was made, and is not there any more.
        CorruptState, ForeignWrite: a table below cannot be read.
    """
    heads = {name: newest_version(lake, name) for name in sorted(set(tables))}
    found: dict[str, Reflected | None] = {
        name: None if version is None else reflected(lake, name, version) for name, version in heads.items()
    }
    known = {name: frozenset(each.versions) for name, each in found.items() if each is not None}
    while ahead := _ahead(found, known, lake):
        for name, common in ahead.items():
            found[name] = _before(found[name], common, lake)
    return Cut(found)


def _ahead(found: Mapping[str, Reflected | None], known: Mapping[str, frozenset[str]], lake: Lake) -> dict[str, str]:
    """{table that reflects more of a common input than another does: that input}."""
    standing = {name: each for name, each in found.items() if each is not None}
    ahead: dict[str, str] = {}
    for common in sorted({name for each in standing for name in known[each]}):
        raw = {name: each.versions.get(common, _NOTHING) for name, each in standing.items() if common in known[name]}
        if len(set(raw.values())) > 1:
            versions = {name: settled(lake, common, version) for name, version in raw.items()}
            least = min(versions.values())
            ahead |= {name: common for name, version in versions.items() if version > least}
    return ahead


def _before(table: Reflected | None, common: str, lake: Lake) -> Reflected | None:
    """The version before; None before the first, when there was no table."""
    assert table is not None
    if table.version == 0:
        return None
    try:
        return reflected(lake, table.table, table.version - 1)
    except VersionGone as error:
        raise NoConsistentCut(
            sentence(
                "'{}' is ahead of the other tables of the query over '{}', and the version that fits them is not "
                "kept any more",
                Name(table.table),
                Name(common),
            ),
            hint="ask again when they have caught up: `strandline status` shows which is behind",
        ) from error
