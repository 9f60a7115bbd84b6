"""A span: the versions of one relation that a refresh takes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from strandline.jobs.model.relation import Relation
    from strandline.state_store.commits import Head, TableVersion


@dataclass(frozen=True)
class Span:
    """The versions after `after` (None: everything) up to and with `upto`.

    Attributes:
        entry: the relation's name in the version vector.
        reached: the last version, as the vector will say it.
        head: of the relation's table; at or after `reached`.
    """

    relation: Relation
    entry: str
    after: int | None
    reached: TableVersion
    head: Head

    @property
    def upto(self) -> int:
        """The number of the last version."""
        return self.reached.version

    @property
    def lag(self) -> int:
        """Versions to take in."""
        return self.upto - (self.after if self.after is not None else -1)
