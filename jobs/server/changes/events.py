"""Server-sent events: the changes of a version as the text that goes to every subscriber alike."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.format import json_line, to_json
from strandline.jobs.serve.results import Tombstone, Weighted

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.serve.query_engine import QueryEngine
    from strandline.jobs.serve.subscription import Subscription
    from strandline.state_store.errors import StrandlineError


# A subscriber's place among the changes of a table, and its text: the id of a server-sent event.
#
# 12@t        all of version 12 was sent                12-3@t   of version 12 three changes were sent
# s12-40@t    of the snapshot at 12 forty rows were     @t: the first letters of the table's identity

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


Form = Literal["upserts", "weights", "columns", "arrays"]
"""`upserts`: the new row of a key, or the key that was deleted; rows that no key tells apart as they come and go, each
with its weight. `weights`: every row so. `columns`: ksqlDB's rows, one for each row that changed, and `retracted`: the
row that went, where no key says which. `arrays`: the columns of those alone."""


@dataclass(frozen=True)
class PushedEvent:
    """One event: `change` or `row` of a snapshot, `progress`, `error`."""

    kind: str
    place: Place
    data: str

    @cached_property
    def text(self) -> bytes:
        """As it is sent; made once for all subscribers."""
        return f"event: {self.kind}\nid: {self.place}\ndata: {self.data}\n\n".encode()


def events_of(
    made: Subscription, duck: QueryEngine, changes: pa.Table, form: Form, first: Place
) -> Iterator[PushedEvent]:
    """The events of one version's changes, in an order that is the same at each look.

    Args:
        first: the place before the first of them.
    """
    kind = "row" if first.snapshot else "change"
    for number, data in enumerate(_LINES[form](made, duck, changes), start=1):
        yield PushedEvent(kind, replace(first, sent=number), data)


def progress(place: Place, **about: object) -> PushedEvent:
    """All changes up to a version were sent."""
    return PushedEvent("progress", place, to_json({"version": place.version, **about}))


def failed(place: Place, error: StrandlineError) -> PushedEvent:
    """The end of a subscription, and why."""
    return PushedEvent("error", place, to_json({**error.attrs(), "where": None, "last_event_id": str(place)}))


def _weights(made: Subscription, duck: QueryEngine, changes: pa.Table) -> Iterator[str]:
    for change in made.weighted(duck, changes):
        yield f'{{"weight": {change.weight}, "row": {json_line(made.names, change.row)}}}'


def _upserts(made: Subscription, duck: QueryEngine, changes: pa.Table) -> Iterator[str]:
    for change in made.visible(duck, changes):
        match change:
            case Tombstone(row):
                key = [(n, v) for n, v, of_key in zip(made.names, row, made.of_key, strict=True) if of_key]
                yield f'{{"deleted": {json_line([n for n, _ in key], [v for _, v in key])}}}'
            case Weighted(row, weight):
                what = "row" if weight > 0 else "deleted"
                yield f'{{"{what}": {json_line(made.names, row)}, "weight": {weight}}}'
            case row:
                yield f'{{"row": {json_line(made.names, row)}}}'


def _columns(made: Subscription, duck: QueryEngine, changes: pa.Table) -> Iterator[str]:
    for went, came in made.pairs(duck, changes):
        shown = came if came is not None else made.key_of(went or ())
        tombstone = ', "tombstone": true' if came is None else ""
        retracted = "" if went is None or made.by_key else f', "retracted": {to_json(list(went))}'
        yield f'{{"columns": {to_json(list(shown))}{tombstone}{retracted}}}'


def _arrays(made: Subscription, duck: QueryEngine, changes: pa.Table) -> Iterator[str]:
    for went, came in made.pairs(duck, changes):
        yield to_json(list(came if came is not None else made.key_of(went or ())))


_LINES: Final = {"upserts": _upserts, "weights": _weights, "columns": _columns, "arrays": _arrays}
