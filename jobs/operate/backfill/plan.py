"""The plan of a backfill: which rows of which view are computed anew, from what. Nothing is changed by it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import InsertQuery, View
from strandline.jobs.model.errors import RangeInseparable, RefreshFailed
from strandline.jobs.operate.backfill.columns import time_column
from strandline.jobs.run.schedule import maintained
from strandline.state_store.delta import reader
from strandline.state_store.layout import Lake
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.model.settings import Settings
    from strandline.jobs.operate.backfill.columns import TimeColumn
    from strandline.jobs.operate.backfill.period import Period
    from strandline.jobs.run.schedule import Maintained


@dataclass(frozen=True)
class BackfillPlan:
    """What a backfill is going to do.

    Attributes:
        item: the view, with its stages; the last one is computed anew.
        column: the one by which the rows are separated.
        condition: which rows of the view are computed anew, in DuckDB's SQL.
        version: of the view's table, as it is now.
        rows: of the view, inside the period and outside of it.
        reads: {table: its version and the number of its rows then}: what they are computed from.
        followers: what reads the view, and takes in the difference.
    """

    item: Maintained
    pipeline: str
    period: Period
    column: TimeColumn
    condition: str
    version: int
    rows: int
    reads: Mapping[str, tuple[int, int]]
    followers: tuple[str, ...]

    @property
    def view(self) -> str:
        return self.item.target

    @property
    def rows_read(self) -> int:
        """The rows that the range is computed from."""
        return sum(rows for _, rows in self.reads.values())

    def __str__(self) -> str:
        lines = [f"{self.view}: compute the rows anew whose {self.column.name} is {self.period}"]
        lines += [f"  read {name} at version {at}: {rows:,} rows" for name, (at, rows) in self.reads.items()]
        lines.append("  prove them: DuckDB computes the same rows from the view's SQL, without the engine's rules")
        lines.append(f"  store what differs, in one commit after version {self.version}; {self.rows:,} rows are stored")
        lines += [f"  then {name} takes in the difference, at its next refresh" for name in self.followers]
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The plan as values of JSON."""
        begin, end = self.period.begin, self.period.end
        return {
            "view": self.view,
            "column": self.column.name,
            "from": begin.isoformat() if begin is not None else None,
            "to": end.isoformat() if end is not None else None,
            "version": self.version,
            "rows": self.rows,
            "reads": {name: {"version": at, "rows": rows} for name, (at, rows) in self.reads.items()},
            "followers": list(self.followers),
        }


def plan_backfill(settings: Settings, name: str, period: Period, by: str | None = None) -> BackfillPlan:
    """The plan for the rows of a view in a period.

    Args:
        by: the column that tells which rows those are; default: the begin of the view's windows, or the only column
            of its key that is a time.

    Raises:
        UnknownName: there is no such definition.
        RangeInseparable: it is no view, or its rows cannot be told apart by time.
        RefreshFailed: the view has no rows yet.
        VersionGone, CorruptState, ForeignWrite: its table, or what it reads, is broken: verify it first.
    """
    lake = Lake(settings.lake)
    catalog = Catalog(lake)
    view = catalog.get(name)
    if not isinstance(view, View) or view.partial:
        what = "its rows are computed when they are asked for" if isinstance(view, View) else "its rows are its topic's"
        raise RangeInseparable(
            sentence("'{}' has nothing to be computed anew: {}", Name(name), what), hint="name a view that is stored"
        )
    item = next(each for level in maintained([view], catalog) for each in level if each.target == name)
    column = time_column(item.stages[-1], by)
    condition = period.condition(column)
    head = reader.head(lake.table(name))
    if head is None or not head.record.vector:
        raise RefreshFailed(sentence("'{}' has no rows yet", Name(name)), hint=f"type: strandline run {view.pipeline}")
    return BackfillPlan(
        item=item,
        pipeline=view.pipeline,
        period=period,
        column=column,
        condition=condition,
        version=head.version,
        rows=head.record.rows,
        reads={table: (at, reader.record_at(lake.table(table), at).rows) for table, at in head.record.versions.items()},
        followers=_followers(name, catalog),
    )


def _followers(name: str, catalog: Catalog) -> tuple[str, ...]:
    """The definitions that read the view."""
    found = [each for each in catalog.definitions() if isinstance(each, View | InsertQuery) and name in each.inputs]
    return tuple(each.target if isinstance(each, InsertQuery) else each.name for each in found)
