"""The plan of one refresh: which versions of which inputs it takes in, how, and the record of its commit.

It is a pure function of the stage and the heads, so it can be made again after a kill at any point.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Literal

from strandline.jobs.ivm.refresh import begun_logs
from strandline.jobs.ivm.refresh.runtime import Span
from strandline.jobs.ivm.rules.computed_again import recomputed
from strandline.jobs.ivm.rules.recompute import grows
from strandline.jobs.ivm.rules.stored import unmarked
from strandline.jobs.model.definitions import Refresh
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.stage import (
    AggregateStage,
    AnalyticStage,
    LatestStage,
    RecursiveStage,
    inputs_of,
    kept_with_stage,
)
from strandline.jobs.model.stage_columns import storage_of
from strandline.state_store.commits import REBUILD
from strandline.state_store.delta.log import read_record
from strandline.state_store.digest import Digest
from strandline.state_store.errors import InputReplaced
from strandline.state_store.storage_verbs import Requests
from strandline.state_store.wording import Name, Text, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.ivm.refresh.context import Heads, Owner, RunContext
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import CommitRecord, Head, TableVersion
    from strandline.state_store.duckdb.rows import Computed
    from strandline.state_store.layout import LakeLayout


Mode = Literal["none", "full", "delta", "advance", "rebuild"]

FROM_TOPIC: Final = "from-topic"
"""The fingerprint of rows that were put back from a changelog topic: without `__state` and vector, no refresh goes on
from them."""

_WHOLE = ("full", REBUILD)
"""The modes in which all rows of the inputs are read."""


@dataclass(frozen=True)
class StageResult:
    """The outcome of a refresh.

    Attributes:
        from_vector: the vector of the table's last commit before; empty for a table that had none.
        to_vector: the vector that its rows reflect now.
        mode: `none` nothing to do or to say, `full` all rows of the inputs, `delta` their changes, `advance` only the
            vector moved, `rebuild` all rows of the inputs, whatever was stored.
        inserted, deleted: visible rows inserted and retracted.
        version: of the commit that was made; None when there was none.
        seconds: wall clock.
        began: seconds since the epoch, by the clock of the process that did it.
        planned_seconds: of `seconds`, until it was known what to take in.
        taken: rows of the changes that it took in; None: all rows were computed, or a commit does not say how many.
        requests: to an object store, in those seconds.
    """

    table: str
    from_vector: dict[str, int]
    to_vector: dict[str, int]
    mode: Mode
    reason: str
    inserted: int = 0
    deleted: int = 0
    version: int | None = None
    seconds: float = field(default=0.0, compare=False)
    began: float = field(default=0.0, compare=False)
    planned_seconds: float = field(default=0.0, compare=False)
    taken: int | None = None
    requests: Requests = field(default_factory=Requests, compare=False)


@dataclass(frozen=True)
class Epoch:
    """A refresh that is to be done.

    Attributes:
        head: of the stage's table before.
        record: of the commit to be made, but for what only the rows can say.
        first: some input was never taken in: every row is new to the stage.
        few_changes: the changes are small enough to be sent to every task.
        changed: rows that the commits to take in say they changed; None: one does not say, or all rows are computed.
        given: what its rule gives, where it was computed with that of others (`jobs.ivm.refresh.together`).
    """

    stage: Stage
    head: Head
    spans: tuple[Span, ...]
    record: CommitRecord
    first: bool
    few_changes: bool
    changed: int | None = None
    given: Computed | None = None

    @property
    def moved(self) -> frozenset[str] | None:
        """The aliases of the inputs that moved; None: all rows are computed."""
        if self.first or self.record.mode in _WHOLE:
            return None
        names = {span.relation.name for span in self.spans if span.after != span.upto}
        return frozenset(each.alias for each in inputs_of(self.stage) if each.relation.name in names)

    @property
    def anew(self) -> bool:
        """True when all rows are computed although some are stored."""
        return self.record.mode in _WHOLE and not self.first

    @property
    def lag(self) -> int:
        """Versions of the input that is furthest behind."""
        return max((span.lag for span in self.spans), default=0)

    def done(self, mode: Mode, reason: str, committed: Head | None) -> StageResult:
        """The result of the refresh, with the commit that it made."""
        before = self.head.record
        record = committed.record if committed else replace(before, inserted=0, deleted=0)
        version = committed.version if committed else None
        moved = (record.inserted, record.deleted)
        versions = (before.versions, record.versions)
        return StageResult(self.stage.table, *versions, mode, reason, *moved, version, taken=self.changed)


def missing_input(stage: Stage, heads: Heads) -> StageResult | None:
    """The result of a stage of which an input has no table yet: nothing to do."""
    names = dict.fromkeys(each.relation.name for each in inputs_of(stage))
    missing = next((name for name in names if heads.input(name) is None), None)
    return (
        None
        if missing is None
        else StageResult(stage.table, {}, {}, "none", sentence("input '{}' has no rows to be read yet", Name(missing)))
    )


def spans_of(stage: Stage, owner: Owner, heads: Heads, head: Head, upto: Mapping[str, int]) -> tuple[Span, ...]:
    """The versions to take in of each input: from the table's vector up to the inputs' heads.

    Args:
        head: of the stage's table.
        upto: versions to stop at, in place of a head.

    Raises:
        InputReplaced: an input is not the one that the table was computed from.
        VersionGone: the input's log no longer reaches back to the recorded version.
    """
    spans = []
    for name, relation in {each.relation.name: each.relation for each in inputs_of(stage)}.items():
        newest = heads.input(name)
        assert newest is not None
        entry = owner.entry(name)
        before = head.record.vector.get(entry)
        if before is not None:
            _check_same(stage, name, before, heads.at(name, before.version))
        reached = heads.at(name, upto[name]) if name in upto else newest.at
        assert reached is not None
        spans.append(Span(relation, entry, before.version if before else None, reached, newest))
    return tuple(spans)


def planned(
    context: RunContext, stage: Stage, owner: Owner, head: Head, spans: tuple[Span, ...], refresh: Refresh
) -> Epoch | StageResult:
    """The epoch to be run, or the result when there is nothing to take in.

    Raises:
        RefreshFailed: the table was made by another definition.
        EventsGone: the epoch would read events again that retention has taken from an input.
    """
    if owner.owns_table:
        _check_fingerprint(stage, head, owner.fingerprint)
    vector = head.record.versions
    # A stage without inputs has no vector to tell by; its rows are computed by its first epoch, and never change.
    computed = bool(spans) or head.record.epoch > 0
    if computed and all(span.after is not None and span.after >= span.upto for span in spans):
        at = joined(
            ", ", (sentence("'{}' is at version {} still", Name(span.relation.name), span.after) for span in spans)
        )
        return StageResult(stage.table, vector, vector, "none", at or "constants do not change")
    first = not computed or any(span.after is None for span in spans)
    choice = first_refresh(spans) if first else choose(context.lake, stage, spans, refresh)
    record = replace(next_record(context, owner, head, spans), mode=choice.mode, reason=choice.reason)
    if first:
        begun_logs.check_whole(stage, head.record, [span for span in spans if span.after is not None])
        since = begun_logs.since(context.lake, head.record, spans)
        record = replace(record, since=since, reason=sentence("{}{}", record.reason, begun_logs.said(spans)))
    elif short := begun_logs.shortened(head.record, spans):
        if choice.mode == "full" and refresh == "auto":
            choice = replace(
                choice, mode="delta", reason=sentence("changes, since '{}' was trimmed", Name(short[0].relation.name))
            )
            record = replace(record, mode=choice.mode, reason=choice.reason)
        check = begun_logs.check_changes if choice.mode == "delta" else begun_logs.check_whole
        check(stage, head.record, spans)
    return Epoch(stage, head, spans, record, first, choice.few_changes, choice.changed)


def next_record(context: RunContext, owner: Owner, head: Head, spans: tuple[Span, ...]) -> CommitRecord:
    """The record of the commit after `head`, which takes in these spans; its mode and reason are still the head's."""
    return replace(
        head.record,
        epoch=head.record.epoch + 1,
        vector={**head.record.vector, **{span.entry: span.reached for span in spans}},
        fingerprint=owner.fingerprint if owner.owns_table else head.record.fingerprint,
        writer=context.writer,
    )


def _check_same(stage: Stage, name: str, recorded: TableVersion, found: TableVersion | None) -> None:
    if found is not None and recorded.same(found):
        return
    if found is None:
        seen = sentence(
            "'{}' no longer has its version {}: a part of its log was lost, or it went back",
            Name(name),
            recorded.version,
        )
    elif recorded.table and found.table and recorded.table != found.table:
        seen = sentence("'{}' was removed and made anew", Name(name))
    else:
        seen = sentence("version {} of '{}' is another commit now: the old one was lost", recorded.version, Name(name))
    raise InputReplaced(
        sentence("the rows of '{}' were computed from another history: {}", Name(stage.table), seen),
        where=Text(Name(stage.table)),
        hint=sentence("type: strandline rebuild {}", Name(stage.table, shlex.quote)),
    )


def _check_fingerprint(stage: Stage, head: Head, fingerprint: str) -> None:
    # Empty: a query that inserts into this stream was first, and left the place free.
    if head.record.fingerprint == FROM_TOPIC:
        raise RefreshFailed(
            sentence(
                "the rows of '{}' were put back from its changelog topic, and cannot be refreshed", Name(stage.table)
            ),
            where=Text(Name(stage.table)),
            hint=sentence("compute them from the inputs: strandline rebuild {}", Name(stage.table, shlex.quote)),
        )
    if head.record.fingerprint not in ("", fingerprint):
        if unmarked(head.record.fingerprint) == unmarked(fingerprint):
            raise RefreshFailed(
                sentence(
                    "the rows of '{}' were stored by another version of Strandline, in another form", Name(stage.table)
                ),
                where=Text(Name(stage.table)),
                hint=sentence("type: strandline rebuild {}", Name(stage.table, shlex.quote)),
            )
        raise RefreshFailed(
            sentence("the rows of '{}' were made by another definition", Name(stage.table)),
            where=Text(Name(stage.table)),
            hint=sentence("type: DROP it and create it again, so that '{}' is computed anew", Name(stage.table)),
        )


# The choice of each refresh: take in the changes, or compute everything anew and store the difference.
#
# Measured (docs/design/0004): an epoch of few changes costs its planning and commit, whatever the history; beyond a
# part of the input's rows, reading everything once is cheaper than looking up what each change touches. Which part
# depends on the stage: a linear aggregate reads nothing but the changes; a join, or a group that must be computed
# again, reads the other inputs. The commit's reason says what was chosen and why.

# The keys of so many changes are some ten MB in memory, in each of the refreshes side by side. Beyond, sorting the
# stored rows is worth its time anyway.
_MAX_BROADCAST_CHANGES = 300_000

# From this part of the inputs' rows on, changes cost more than everything: a change is read twice (old and new), looked
# up, and settled against the stored row, a row of a recomputation once. Peers' crossings lie between 5 and 50 %
# (OpenIVM, pg_trickle); a change that only adds to a sum has none.
_CROSSING = 0.3


@dataclass(frozen=True)
class Choice:
    """The way a refresh is done, and why.

    Attributes:
        few_changes: the changes are small enough to be sent to every task.
        changed: rows that the commits to take in say they changed; None: one does not say, or all rows are computed.
    """

    mode: Literal["full", "delta"]
    reason: str
    few_changes: bool
    changed: int | None = None


def first_refresh(spans: Sequence[Span]) -> Choice:
    """All rows: the table has none of these inputs yet."""
    rows = joined(", ", (sentence("'{}' at version {}", Name(span.relation.name), span.upto) for span in spans))
    read = sentence("all rows of {}", rows) if rows else "constants"
    return Choice("full", sentence("first refresh: {}", read), few_changes=False)


def choose(lake: LakeLayout, stage: Stage, spans: Sequence[Span], refresh: Refresh) -> Choice:
    """The cheaper way, unless the view's REFRESH says which."""
    moved = [span for span in spans if span.after != span.upto]
    changes = joined(
        ", ",
        (sentence("'{}' from version {} to {}", Name(span.relation.name), span.after, span.upto) for span in moved),
    )
    changed = _rows_changed(lake, moved)
    few = changed is not None and changed <= _MAX_BROADCAST_CHANGES
    if storage_of(stage) == "append" or isinstance(stage, LatestStage):
        return Choice("delta", sentence("changes of {}", changes), few, changed)
    if isinstance(stage, RecursiveStage):
        if refresh != "full" and grows(stage) and _only_inserted(lake, moved):
            return Choice("delta", sentence("what follows from the new rows of {}", changes), few, changed)
        return Choice("full", sentence("all rounds of the recursion after changes of {}", changes), few_changes=False)
    if refresh == "full":
        return Choice("full", sentence("REFRESH = 'full': all rows after changes of {}", changes), few_changes=False)
    if refresh == "auto" and changed is not None and _reads_more_than_changes(stage):
        rows = sum(Digest.parse(span.head.record.digest).count for span in spans)
        if changed > _CROSSING * rows:
            reason = sentence("all rows: {} of {} changed, {}", changed, rows, changes)
            return Choice("full", reason, few_changes=False)
    return Choice("delta", sentence("changes of {}", changes), few, changed)


@kept_with_stage
def _reads_more_than_changes(stage: Stage) -> bool:
    match stage:
        case AggregateStage():
            joins = any(len(core.inputs) > 1 for core in stage.body)
            return stage.session is not None or bool(recomputed(stage)) or joins
        case AnalyticStage():
            return True
        case _:
            return len(inputs_of(stage)) > 1


def _rows_changed(lake: LakeLayout, spans: Sequence[Span]) -> int | None:
    """Rows that the commits to take in say they changed; None when one does not say."""
    total = 0
    for span in spans:
        assert span.after is not None
        for version in range(span.after + 1, span.upto + 1):
            record = read_record(lake.table(span.relation.name), version)
            if record is None:
                return None
            total += record.inserted + record.deleted
    return total


def _only_inserted(lake: LakeLayout, spans: Sequence[Span]) -> bool:
    """True if the commits to take in say that they took no row away."""
    records = (
        read_record(lake.table(span.relation.name), version)
        for span in spans
        if span.after is not None
        for version in range(span.after + 1, span.upto + 1)
    )
    return all(record is not None and record.deleted == 0 for record in records)


def in_words(stage: Stage, refresh: Refresh) -> str:
    """The choice that `choose` will make, in words for EXPLAIN."""
    if storage_of(stage) == "append" or isinstance(stage, LatestStage):
        return "its changes: rows are only ever added to what it reads"
    if isinstance(stage, RecursiveStage):
        if grows(stage) and refresh != "full":
            return "what follows from new rows; where rows go, all rounds again, stored as a difference"
        return "all rounds are computed again, stored as a difference"
    if refresh == "full":
        return "full: all rows, stored as a difference"
    if refresh == "incremental":
        return "incremental: the changes, whatever they cost"
    if not _reads_more_than_changes(stage):
        return "auto: the changes, which are all that it reads"
    return f"auto: the changes; all rows, as a difference, when more than {_CROSSING:.0%} of the inputs' rows changed"
