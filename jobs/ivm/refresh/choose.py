"""The choice of each refresh: take in the changes, or compute everything anew and store the difference.

Measured (docs/design/0004): an epoch of few changes costs its planning and commit, whatever the history; beyond a part
of the input's rows, reading everything once is cheaper than looking up what each change touches. Which part depends on
the stage: a linear aggregate reads nothing but the changes; a join, or a group that must be computed again, reads the
other inputs. The commit's reason says what was chosen and why.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from strandline.jobs.ivm.rules.aggregate import recomputed
from strandline.jobs.model.options import Refresh
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, LatestStage, inputs_of
from strandline.jobs.model.stage_columns import storage_of
from strandline.state_store.delta.log import read_record
from strandline.state_store.digest import Digest
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.ivm.refresh.span import Span
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.layout import Lake


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
    """

    mode: Literal["full", "delta"]
    reason: str
    few_changes: bool


def first_refresh(spans: Sequence[Span]) -> Choice:
    """All rows: the table has none of these inputs yet."""
    rows = joined(", ", (sentence("'{}' at version {}", Name(span.relation.name), span.upto) for span in spans))
    read = sentence("all rows of {}", rows) if rows else "constants"
    return Choice("full", sentence("first refresh: {}", read), few_changes=False)


def choose(lake: Lake, stage: Stage, spans: Sequence[Span], refresh: Refresh) -> Choice:
    """The cheaper way, unless the view's REFRESH says which."""
    moved = [span for span in spans if span.after != span.upto]
    changes = joined(
        ", ",
        (sentence("'{}' from version {} to {}", Name(span.relation.name), span.after, span.upto) for span in moved),
    )
    changed = _rows_changed(lake, moved)
    few = changed is not None and changed <= _MAX_BROADCAST_CHANGES
    if storage_of(stage) == "append" or isinstance(stage, LatestStage):
        return Choice("delta", sentence("changes of {}", changes), few)
    if refresh == "full":
        return Choice("full", sentence("REFRESH = 'full': all rows after changes of {}", changes), few_changes=False)
    if refresh == "auto" and changed is not None and _reads_more_than_changes(stage):
        rows = sum(Digest.parse(span.head.record.digest).count for span in spans)
        if changed > _CROSSING * rows:
            reason = sentence("all rows: {} of {} changed, {}", changed, rows, changes)
            return Choice("full", reason, few_changes=False)
    return Choice("delta", sentence("changes of {}", changes), few)


def _reads_more_than_changes(stage: Stage) -> bool:
    match stage:
        case AggregateStage():
            return stage.session is not None or bool(recomputed(stage)) or len(inputs_of(stage)) > 1
        case AnalyticStage():
            return True
        case _:
            return len(inputs_of(stage)) > 1


def _rows_changed(lake: Lake, spans: Sequence[Span]) -> int | None:
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


def in_words(stage: Stage, refresh: Refresh) -> str:
    """The choice that `choose` will make, in words for EXPLAIN."""
    if storage_of(stage) == "append" or isinstance(stage, LatestStage):
        return "its changes: rows are only ever added to what it reads"
    if refresh == "full":
        return "full: all rows, stored as a difference"
    if refresh == "incremental":
        return "incremental: the changes, whatever they cost"
    if not _reads_more_than_changes(stage):
        return "auto: the changes, which are all that it reads"
    return f"auto: the changes; all rows, as a difference, when more than {_CROSSING:.0%} of the inputs' rows changed"
