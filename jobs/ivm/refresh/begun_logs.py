"""Event logs that retention has trimmed, as a stage finds them: what it may still compute, and what would lose rows.

    log        e0 e1 e2 │ e3 e4 e5       trimmed: 3 are gone
    totals     computed from e0 on       since 0: only e3, e4 … are left to compute it again, so that is refused
    newcomer   computed from e3 on       since 3: it may be computed again, for as long as no more goes

Changes are taken in as ever. What is refused is reading the log's rows again: its rows would be those of the events
that are left, and whatever was counted of the others would be gone without a word.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from strandline.jobs.ivm.rules.maintenance import looks_back
from strandline.jobs.model.errors import EventsGone
from strandline.jobs.model.stage import inputs_of
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError
from strandline.state_store.wording import Name, Text, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.jobs.ivm.refresh.context import Heads, Owner
    from strandline.jobs.ivm.refresh.runtime import Span
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import CommitRecord, Trimmed
    from strandline.state_store.layout import LakeLayout


def since(lake: LakeLayout, record: CommitRecord, spans: Sequence[Span]) -> dict[str, int]:
    """What a record says of the logs that its rows are computed from as a whole: the events that were gone by then.

    Args:
        record: of the table before; what it says of other inputs stays.
    """
    others = {entry: gone for entry, gone in record.since.items() if entry not in {span.entry for span in spans}}
    found = {span.entry: _gone_at(lake, span) for span in spans}
    return others | {entry: gone for entry, gone in found.items() if gone}


def said(spans: Iterable[Span]) -> Text:
    """Where the history of a first refresh begins, for the reason of its commit; empty: with the first events."""
    logs = ((span.relation.name, span.head.record.trimmed) for span in spans)
    return joined("", (sentence("; {}", begins(name, trimmed)) for name, trimmed in logs if trimmed is not None))


def begins(log: str, trimmed: Trimmed) -> Text:
    """Where the history of a trimmed log begins, in words."""
    return sentence(
        "'{}' begins after {}: retention has taken {} events", Name(log), moment(trimmed.until), f"{trimmed.rows:,}"
    )


def shortened(record: CommitRecord, spans: Iterable[Span]) -> list[Span]:
    """The spans of logs that begin later than they did when the table was computed from them.

    Args:
        record: of the stage's table.
    """
    return [span for span in spans if span.head.record.gone > record.since.get(span.entry, 0)]


def check_changes(stage: Stage, record: CommitRecord, spans: Sequence[Span]) -> None:
    """Raise EventsGone if the stage cannot take in changes without events that are gone."""
    short = shortened(record, spans)
    again = looks_back(stage) if short else frozenset()
    for span in short:
        if span.relation.name in again:
            raise _gone(stage.table, span.relation.name, span.head.record.trimmed, "its rule reads former events again")


def check_whole(stage: Stage, record: CommitRecord, spans: Sequence[Span]) -> None:
    """Raise EventsGone if the stage's rows, computed anew, would lack those of events that are gone."""
    for span in shortened(record, spans):
        raise _gone(stage.table, span.relation.name, span.head.record.trimmed, "its rows were computed from more")


def check_stage(lake: LakeLayout, heads: Heads, stage: Stage, owner: Owner) -> None:
    """The same as `check_whole`, of a stage as it stands. A table whose record does not read was computed from all
    events, as far as anybody knows."""
    path = lake.table(stage.table)
    try:
        newest = log.newest_version(path)
        record = None if newest is None else reader.record_at(path, newest, ours=False)
    except StoreError:
        newest, record = 0, None
    if newest is None or (record is not None and record.epoch == 0):
        return  # a new view sees the events that are left
    known = record.since if record is not None else {}
    for name in {each.relation.name for each in inputs_of(stage)}:
        head = heads.input(name)
        if head is not None and head.record.gone > known.get(owner.entry(name), 0):
            raise _gone(stage.table, name, head.record.trimmed, "its rows were computed from more")


def _gone_at(lake: LakeLayout, span: Span) -> int:
    """The events that were gone from an input at the version that a span ends with."""
    head = span.head
    if head.version == span.upto or not head.record.gone:
        return head.record.gone
    return reader.record_at(lake.table(span.relation.name), span.upto).gone


def _gone(table: str, name: str, trimmed: Trimmed | None, why: str) -> EventsGone:
    assert trimmed is not None, "a log that is short was trimmed"
    return EventsGone(
        sentence(
            "'{}' cannot be computed anew: {}, and retention has taken {} events from '{}', which begins after {}",
            Name(table),
            why,
            f"{trimmed.rows:,}",
            Name(name),
            moment(trimmed.until),
        ),
        where=Text(Name(table)),
        hint=sentence(
            "restore '{}' from a backup; or have it begin with the events that are left: DROP it and CREATE it again",
            Name(table),
        ),
    )


def moment(millis: int) -> str:
    """An event time for people."""
    return f"{datetime.fromtimestamp(millis / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
