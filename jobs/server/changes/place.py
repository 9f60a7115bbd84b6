"""A subscriber's place among the changes of a table, and its text: the id of a server-sent event.

12@t        all of version 12 was sent                12-3@t   of version 12 three changes were sent
s12-40@t    of the snapshot at 12 forty rows were     @t: the first letters of the table's identity
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from strandline.jobs.serve.errors import RequestRefused

_TEXT = re.compile(r"(s?)([0-9]{1,18})(?:-([0-9]{1,18}))?(?:@([0-9a-f]{0,8}))?")
IDENTITY_LETTERS = 8
"""Of a table's identity: enough to tell a table from the one that was made anew in its place; an id stays short."""


@dataclass(frozen=True)
class Place:
    """A place among the changes.

    Attributes:
        sent: changes of the version, or rows of its snapshot, that were sent; None: all of them.
        snapshot: true inside the snapshot at the version.
        table: the first letters of the table's identity; empty where it is not known.
    """

    version: int
    sent: int | None = None
    snapshot: bool = False
    table: str = ""

    def __str__(self) -> str:
        sent = "" if self.sent is None else f"-{self.sent}"
        return f"{'s' if self.snapshot else ''}{self.version}{sent}@{self.table}"

    @classmethod
    def read(cls, text: str) -> Place:
        """The place that a text names.

        Raises:
            RequestRefused: it is none.
        """
        found = _TEXT.fullmatch(text)
        if found is None or (found[1] and found[3] is None):
            raise RequestRefused("the Last-Event-ID is not one of ours", hint="send back the id of the last event")
        return cls(int(found[2]), int(found[3]) if found[3] else None, bool(found[1]), found[4] or "")
