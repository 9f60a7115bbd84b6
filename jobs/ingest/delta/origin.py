"""The origin of a source over a Delta table, as the name of a topic: which table, and where the source begins.

    delta:/data/orders@12       the rows of version 12, then the changes of each later commit
    delta:s3://lake/orders>11   the changes of each commit after version 11, without the rows that it has

No topic of Kafka or of the lake has a colon in its name, so the name alone tells which log a source is read from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

PREFIX: Final = "delta:"
_TEXT: Final = re.compile(r"delta:(?P<location>.+)(?P<way>[@>])(?P<version>-?\d+)", re.DOTALL)


@dataclass(frozen=True)
class Origin:
    """A place in the history of a Delta table.

    Attributes:
        location: the table's path or URL.
        version: that the source begins with.
        snapshot: its rows are taken in; else only the changes after it.
    """

    location: str
    version: int
    snapshot: bool = True

    def __str__(self) -> str:
        return f"{PREFIX}{self.location}{'@' if self.snapshot else '>'}{self.version}"

    @property
    def first_version(self) -> int:
        """The first version that is read."""
        return self.version if self.snapshot else self.version + 1


def origin_of(topic: str) -> Origin | None:
    """The origin that a topic's name says; None for a topic of Kafka or of the lake."""
    found = _TEXT.fullmatch(topic)
    return Origin(found["location"], int(found["version"]), found["way"] == "@") if found else None
