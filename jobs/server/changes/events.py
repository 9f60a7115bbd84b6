"""Server-sent events: the changes of a version as the text that goes to every subscriber alike."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from jobs.serve.format import json_line, to_json
from jobs.serve.results import Tombstone
from jobs.server.changes.place import Place

if TYPE_CHECKING:
    import pyarrow as pa

    from jobs.serve.duck import Duck
    from jobs.serve.subscription import Subscription
    from state_store.errors import StrandlineError

Form = Literal["upserts", "weights"]


@dataclass(frozen=True)
class Event:
    """One event: `change` or `row` of a snapshot, `progress`, `error`."""

    kind: str
    place: Place
    data: str

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
    lines = _weights(made, duck, changes) if form == "weights" else _upserts(made, duck, changes)
    # Without a key nothing but the rows' own text orders them.
    for number, data in enumerate(lines if made.keys else sorted(lines), start=1):
        yield Event(kind, replace(first, sent=number), data)


def progress(place: Place, **about: object) -> Event:
    """All changes up to a version were sent."""
    return Event("progress", place, to_json({"version": place.version, **about}))


def failed(place: Place, error: StrandlineError) -> Event:
    """The end of a subscription, and why."""
    return Event("error", place, to_json({**error.attrs(), "where": None, "last_event_id": str(place)}))


def _weights(made: Subscription, duck: Duck, changes: pa.Table) -> Iterator[str]:
    for weight, row in made.weighted(duck, changes):
        yield f'{{"weight": {weight}, "row": {json_line(made.names, row)}}}'


def _upserts(made: Subscription, duck: Duck, changes: pa.Table) -> Iterator[str]:
    for change in made.visible(duck, changes):
        if isinstance(change, Tombstone):
            key = [(n, v) for n, v, of_key in zip(made.names, change.row, made.of_key, strict=True) if of_key]
            yield f'{{"deleted": {json_line([n for n, _ in key], [v for _, v in key])}}}'
        else:
            yield f'{{"row": {json_line(made.names, change)}}}'
