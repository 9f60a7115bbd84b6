"""A position: the version of a view's table that its changelog topic holds, as the topic itself says it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Self

from strandline.state_store.commits import TableVersion
from strandline.state_store.digest import Digest
from strandline.state_store.errors import CorruptState

if TYPE_CHECKING:
    from strandline.state_store.commits import Head

_FORMAT = 1


@dataclass(frozen=True)
class Position:
    """What a reader of all committed records has.

    Attributes:
        view: whose topic it is.
        at: the commit of the view's table.
        digest: of the table's rows at that commit: 32 hex digits, a colon, their count.
        generation: of the topic's records: 1, and one more each time the table's versions began anew; 0 of those that
            were published before records said it.
    """

    view: str
    at: TableVersion
    digest: str
    generation: int = 0

    @classmethod
    def of(cls, view: str, head: Head, generation: int) -> Self:
        """The position of a topic that holds what the table has at `head`."""
        return cls(view, head.at, head.record.digest, generation)

    @property
    def version(self) -> int:
        """Delta's number of the commit."""
        return self.at.version

    @property
    def rows(self) -> int:
        """The number of keys that are not deleted."""
        return Digest.parse(self.digest).count

    def to_json(self) -> str:
        """The form in which it is stored."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> Self:
        """The position in that form.

        Args:
            where: it was read, for the error.

        Raises:
            CorruptState: it does not read back.
        """
        try:
            body = json.loads(text)
            if body["format"] != _FORMAT:
                raise ValueError
            at, generation = TableVersion(**body["at"]), int(body.get("generation", 0))
            return cls(str(body["view"]), at, str(body["digest"]), generation)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState(
                "what a changelog topic says of its version does not read back",
                where=where,
                hint="delete the topic; it is published anew",
            ) from error
