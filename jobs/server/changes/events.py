"""Server-sent events: the changes of a version as the text that goes to every subscriber alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

from jobs.serve.format import json_line, to_json
from jobs.serve.results import Tombstone
from jobs.server.changes.place import Place

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.serve.duck import Duck
    from jobs.serve.subscription import Subscription
    from state_store.errors import StrandlineError

Form = Literal["upserts", "weights", "columns"]
"""`upserts`: the new row, or the key that was deleted; `weights`: rows that come and go; `columns`: as `upserts`, each
row as an array, of a deleted one its key alone."""


@dataclass(frozen=True)
class Event:
    """One event: `change` or `row` of a snapshot, `progress`, `error`. `deleted`: a key is gone."""

    kind: str
    place: Place
    data: str
    deleted: bool = False

    @cached_property
    def text(self) -> bytes:
        """As it is sent; made once for all subscribers."""
        return f"event: {self.kind}\nid: {self.place}\ndata: {self.data}\n\n".encode()


def events_of(made: Subscription, duck: Duck, changes: pa.Table, form: Form, first: Place) -> Iterator[Event]:
    """The events of one version's changes, in an order that is the same at each look.

    Args:
        first: the place before the first of them.
    """
    kind = "row" if first.snapshot else "change"
    lines = _LINES[form](made, duck, changes)
    # Without a key nothing but the rows' own text orders them.
    for number, (data, deleted) in enumerate(lines if made.keys else sorted(lines), start=1):
        yield Event(kind, replace(first, sent=number), data, deleted)


def progress(place: Place, **about: object) -> Event:
    """All changes up to a version were sent."""
    return Event("progress", place, to_json({"version": place.version, **about}))


def failed(place: Place, error: StrandlineError) -> Event:
    """The end of a subscription, and why."""
    return Event("error", place, to_json({**error.attrs(), "where": None, "last_event_id": str(place)}))


def _weights(made: Subscription, duck: Duck, changes: pa.Table) -> Iterator[tuple[str, bool]]:
    for weight, row in made.weighted(duck, changes):
        yield f'{{"weight": {weight}, "row": {json_line(made.names, row)}}}', weight < 0


def _upserts(made: Subscription, duck: Duck, changes: pa.Table) -> Iterator[tuple[str, bool]]:
    for change in made.visible(duck, changes):
        if isinstance(change, Tombstone):
            key = [(n, v) for n, v, of_key in zip(made.names, change.row, made.of_key, strict=True) if of_key]
            yield f'{{"deleted": {json_line([n for n, _ in key], [v for _, v in key])}}}', True
        else:
            yield f'{{"row": {json_line(made.names, change)}}}', False


def _columns(made: Subscription, duck: Duck, changes: pa.Table) -> Iterator[tuple[str, bool]]:
    for change in made.visible(duck, changes):
        deleted = isinstance(change, Tombstone)
        yield to_json(list(change.row if isinstance(change, Tombstone) else change)), deleted


_LINES: Final = {"upserts": _upserts, "weights": _weights, "columns": _columns}
