"""The origin of a source over a table of others, as the name of a topic: which table, and where the source begins.

    delta:/data/orders@12            the rows of version 12, then the changes of each later commit
    delta:s3://lake/orders>11        the changes of each commit after version 11, without the rows that it has
    iceberg:prod.shop.orders@7       the same of an Iceberg table: its versions are the snapshots' sequence numbers
    parquet:/data/landing@3f0c9d…    the files of a folder, in the order of the lake's record of that name

No topic of Kafka or of the lake has a colon in its name, so the name alone tells which log a source is read from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, cast

Kind = Literal["delta", "iceberg", "parquet"]

_TEXT: Final = re.compile(
    r"(?P<kind>delta|iceberg):(?P<location>.+)(?P<way>[@>])(?P<version>-?\d+)"
    r"|parquet:(?P<folder>.+)@(?P<record>[0-9a-f]{32})",
    re.DOTALL,
)


@dataclass(frozen=True)
class Origin:
    """A place in the history of a table.

    Attributes:
        location: the table's path, URL or name.
        version: that the source begins with.
        snapshot: its rows are taken in; else only the changes after it.
        record: of a folder, the name of the record that says which files were seen: one for each source that is made.
    """

    location: str
    version: int
    snapshot: bool = True
    kind: Kind = "delta"
    record: str = ""

    def __str__(self) -> str:
        if self.kind == "parquet":
            return f"{self.kind}:{self.location}@{self.record}"
        return f"{self.kind}:{self.location}{'@' if self.snapshot else '>'}{self.version}"

    @property
    def first_version(self) -> int:
        """The first version that is read."""
        return self.version if self.snapshot else self.version + 1


def of_folder(location: str, record: str) -> Origin:
    """The origin of a source over a folder: it begins with the first file, number 0."""
    return Origin(location, -1, snapshot=False, kind="parquet", record=record)


def origin_of(topic: str) -> Origin | None:
    """The origin that a topic's name says; None for a topic of Kafka or of the lake."""
    found = _TEXT.fullmatch(topic)
    if found is None:
        return None
    if found["record"] is not None:
        return of_folder(found["folder"], found["record"])
    return Origin(found["location"], int(found["version"]), found["way"] == "@", cast("Kind", found["kind"]))
