"""`at_least`: what an answer must reflect at the least, so that a client reads its own writes.

12                    a version of a table
visits@0:41,1:17      records of a topic: the position that an insert answered with
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.errors import NotYet, RequestRefused
from strandline.jobs.serve.reflected import settled
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from strandline.jobs.serve.cut import Cut
    from strandline.jobs.serve.reflected import Reflected
    from strandline.state_store.layout import Lake

_POSITION: Final = re.compile(r"(.+)@((?:[0-9]{1,9}:[0-9]{1,18})(?:,[0-9]{1,9}:[0-9]{1,18}){0,999})")


@dataclass(frozen=True)
class Least:
    """The least that an answer must reflect: a version of a table, or records of a topic.

    Attributes:
        topic: empty for a version.
        offsets: {partition: the offset behind the last record}.
    """

    version: int = -1
    topic: str = ""
    offsets: tuple[tuple[int, int], ...] = ()

    @classmethod
    def read(cls, text: str) -> Least:
        """What `at_least` says: a version, or the position that an insert answered with.

        Raises:
            RequestRefused: neither.
        """
        if text.isdecimal() and text.isascii() and len(text) <= 18:
            return cls(int(text))
        found = _POSITION.fullmatch(text)
        if found is None:
            raise RequestRefused("at_least is a version, or the position that an insert answered with")
        pairs = (part.split(":") for part in found[2].split(","))
        return cls(topic=found[1], offsets=tuple((int(partition), int(offset)) for partition, offset in pairs))

    def met_by(self, standing: Reflected | None) -> bool:
        """True if a version of the table itself reflects it."""
        return standing is not None and standing.version >= self.version and self._read_by(standing)

    def met_below(self, standing: Reflected, table: str, lake: Lake) -> bool:
        """True if a version of another table, which reflects `table`, reflects it.

        Versions of `table` that changed no rows count as the one before: a view may never have read them.
        """
        return standing.versions[table] >= settled(lake, table, self.version) and self._read_by(standing)

    def _read_by(self, standing: Reflected) -> bool:
        reached = standing.offsets.get(self.topic, {})
        return all(reached.get(partition, 0) >= offset for partition, offset in self.offsets)


def no_versions(view: str) -> RequestRefused:
    """The error of a version of a partial view."""
    return RequestRefused(
        sentence("'{}' is a partial view and has no versions of its own", Name(view)),
        hint="at_least takes the position that an insert answered with",
    )


def check_cut(cut: Cut, at_least: Mapping[str, Least], lake: Lake, computed: Container[str] = ()) -> None:
    """Check that a cut reflects what is asked for.

    Args:
        at_least: {table of the query, or one below those: the least of it}.
        computed: partial views of the query; the cut is that of the tables below them.

    Raises:
        NotYet: it does not.
        RequestRefused: no table of the query is, or reads, one that is named; or it is a version of a partial view.
    """
    absent = any(standing is None for standing in cut.tables.values())
    for name, least in at_least.items():
        if name in computed:
            if not least.topic:
                raise no_versions(name)
            if not cut.reaches(least.topic, least.offsets):
                raise NotYet.of(name)
            continue
        readers = [each for each in cut.tables.values() if each is not None and name in each.versions]
        if not readers and not absent:
            raise RequestRefused(
                sentence("at_least names '{}', which the query does not read", Name(name)),
                hint="name its tables, or those below them",
            )
        met = (least.met_by(each) if each.table == name else least.met_below(each, name, lake) for each in readers)
        if not readers or (name in cut.tables and cut.tables[name] is None) or not all(met):
            raise NotYet.of(name)
