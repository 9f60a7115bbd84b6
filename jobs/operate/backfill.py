"""Backfills: the rows of a range of time computed anew from history, proved, and put in place in one commit."""

import datetime as dt
import os
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Literal

import pyarrow as pa
from sqlglot import exp

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.engines.engine import engine_of
from strandline.jobs.functions.python import Library
from strandline.jobs.ivm.refresh.context import Heads, RunContext
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.refresh.refresh import RecomputedPart, backfill_decided
from strandline.jobs.ivm.rules.stored import unmarked
from strandline.jobs.model.definitions import InsertQuery, View
from strandline.jobs.model.errors import RangeInseparable, RefreshFailed
from strandline.jobs.model.report import Steps
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, MapStage, Stage
from strandline.jobs.model.stage_columns import key_names, storage_of, visible_columns
from strandline.jobs.model.tables import WINDOW_BOUNDS
from strandline.jobs.model.types import BIGINT, DATE, TIMESTAMP
from strandline.jobs.operate.verify.findings import counted
from strandline.jobs.operate.verify.recompute import PartRows, check_recompute
from strandline.jobs.operate.verify.subjects import Opened, opened, subjects
from strandline.jobs.operate.verify.tables import check_digest
from strandline.jobs.run.orphans import sole_writer
from strandline.jobs.run.schedule import RefreshUnit, maintained
from strandline.state_store.delta import log, reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import InputReplaced
from strandline.state_store.layout import LakeLayout
from strandline.state_store.wording import Name, Text, sentence

# The columns of a view by whose values its rows can be separated: times that are part of the row's key.
#
#     key (page, windowstart, windowend)   windowstart, windowend    a window's rows are computed from its own events
#     key (page, day)                      day                       a DATE or TIMESTAMP that rows are grouped by
#     key (page)                           none                      a row moves out of a range when its time changes
#
# What decides a row's place in or out of a range must not change while the row is the same row: a backfill that takes
# it away on one side would not put it back on the other.

Unit = Literal["milliseconds", "date", "timestamp"]
"""How a column says a moment; windows have theirs in milliseconds since the epoch, as ksqlDB has them."""


@dataclass(frozen=True)
class TimeColumn:
    """A visible column that separates the rows of a view by time.

    Attributes:
        key: the name of the key column that it shows.
    """

    name: str
    key: str
    unit: Unit


def time_column(stage: Stage, wanted: str | None) -> TimeColumn:
    """The column that separates the rows of a stage: the wanted one, or else the begin of its windows, or the only one.

    Raises:
        RangeInseparable: there is none, or several, or the wanted one is none.
    """
    if storage_of(stage) == "append":
        raise RangeInseparable(
            sentence(
                "the rows of '{}' are events, which are only ever added: none can be taken back", Name(stage.table)
            ),
            hint=sentence("compute it anew with what reads it: strandline rebuild {}", Name(stage.table, shlex.quote)),
        )
    found = {each.name: each for each in _time_columns(stage)}
    if wanted is not None and wanted in found:
        return found[wanted]
    begins = [each for each in found.values() if each.key == WINDOW_BOUNDS[0]]
    if wanted is None and len(begins or found) == 1:
        return (begins or [*found.values()])[0]
    named = ", ".join(found)
    if wanted is None and found:
        raise RangeInseparable(
            sentence("several columns separate the rows of '{}' by time: {}", Name(stage.table), named),
            hint=f"say which: --by {named}",
        )
    what = f"the column '{wanted}' of" if wanted is not None else "no column of"
    verb = "does not separate" if wanted is not None else "separates"
    raise RangeInseparable(
        sentence(
            "{} '{}' {} its rows by time: it takes a DATE, a TIMESTAMP or a window among what a row is grouped by",
            what,
            Name(stage.table),
            verb,
        ),
        hint=f"--by {named}"
        if found
        else sentence("compute all of it anew: strandline rebuild {}", Name(stage.table, shlex.quote)),
    )


def _time_columns(stage: Stage) -> Iterator[TimeColumn]:
    types = dict(visible_columns(stage))
    for name, key in _shown_keys(stage):
        if types[name] == TIMESTAMP:
            yield TimeColumn(name, key, "timestamp")
        elif types[name] == DATE:
            yield TimeColumn(name, key, "date")
        elif types[name] == BIGINT and key in WINDOW_BOUNDS:
            yield TimeColumn(name, key, "milliseconds")


def _shown_keys(stage: Stage) -> Iterator[tuple[str, str]]:
    """Visible columns that have the value of a key column, each with that key column."""
    keys = key_names(stage)
    match stage:
        case MapStage():
            shown = [{each.name: each.expression for each in core.columns} for core in stage.body]
            for name in stage.visible:
                same = (key for key in keys if all(core[name] == core[key] for core in shown))
                yield from ((name, key) for key in [*same][:1])
        case AggregateStage() | AnalyticStage():
            for output in stage.outputs:
                of = output.expression
                if isinstance(of, exp.Column) and of.name in keys:
                    yield output.name, of.name
        case _:
            yield from ((name, name) for name, _ in visible_columns(stage) if name in keys)


# The period of a backfill: from a moment up to another one, as a condition on a column of the view.


@dataclass(frozen=True)
class Period:
    """The moments from `begin` up to and without `end`, both in UTC; None is open."""

    begin: dt.datetime | None
    end: dt.datetime | None

    def __str__(self) -> str:
        said = [f"from {self.begin:%Y-%m-%d %H:%M:%S}" if self.begin is not None else ""]
        said.append(f"up to {self.end:%Y-%m-%d %H:%M:%S}" if self.end is not None else "")
        return " ".join(each for each in said if each)

    def condition(self, column: TimeColumn) -> str:
        """The condition, in DuckDB's SQL, that a row of the period meets.

        Raises:
            RangeInseparable: the column holds days, and the period begins or ends within one.
        """
        name = engine_of("duckdb").name(column.name)
        bounds = ((self.begin, ">="), (self.end, "<"))
        return " AND ".join(f"{name} {sign} {_value(at, column)}" for at, sign in bounds if at is not None)


def period_of(begin: str | None, end: str | None) -> Period:
    """The period between two texts of ISO 8601; one without a zone is in UTC, one without a time at midnight.

    Raises:
        RangeInseparable: neither is given, nothing lies between them, or one is no moment.
    """
    period = Period(_moment(begin), _moment(end))
    if period.begin is None and period.end is None:
        raise RangeInseparable("a backfill without a begin and an end is a rebuild", hint="type: --from, --to or both")
    if period.begin is not None and period.end is not None and period.begin >= period.end:
        raise RangeInseparable(f"nothing lies {period}", hint="--from is the first moment, --to the first one after")
    return period


def _moment(text: str | None) -> dt.datetime | None:
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        raise RangeInseparable(f"'{text}' is no moment", hint="as 2026-11-22 or 2026-11-22T06:30:00") from None
    return found.replace(tzinfo=dt.UTC) if found.tzinfo is None else found.astimezone(dt.UTC)


def _value(at: dt.datetime, column: TimeColumn) -> str:
    engine = engine_of("duckdb")
    if column.unit == "milliseconds":
        return str(int(at.timestamp() * 1000))
    if column.unit == "timestamp":
        return engine.cast(f"'{at:%Y-%m-%d %H:%M:%S.%f}+00:00'", TIMESTAMP)
    if at.time() != dt.time():
        raise RangeInseparable(f"'{column.name}' holds days, and {at:%Y-%m-%d %H:%M:%S} is within one")
    return engine.cast(f"'{at:%Y-%m-%d}'", DATE)


# The plan of a backfill: which rows of which view are computed anew, from what. Nothing is changed by it.


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

    item: RefreshUnit
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
        InputReplaced: what it reads was begun anew since.
        VersionGone, CorruptState, ForeignWrite: its table, or what it reads, is broken: verify it first.
    """
    lake = LakeLayout(settings.lake)
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
        reads={table: _read(view, table, at, lake) for table, at in head.record.versions.items()},
        followers=_followers(name, catalog),
    )


def _read(view: View, table: str, version: int, lake: LakeLayout) -> tuple[int, int]:
    """The version of an input that the view was computed from, and its rows."""
    path = lake.table(table)
    newest = log.newest_version(path)
    if newest is not None and newest < version:
        raise InputReplaced(
            sentence("the rows of '{}' were computed from another history of '{}'", Name(view.name), Name(table)),
            where=Text(Name(view.name)),
            hint=sentence("type: strandline rebuild {}", Name(view.name, shlex.quote)),
        )
    return version, reader.record_at(path, version).rows


def _followers(name: str, catalog: Catalog) -> tuple[str, ...]:
    """The definitions that read the view."""
    found = [each for each in catalog.definitions() if isinstance(each, View | InsertQuery) and name in each.inputs]
    return tuple(each.target if isinstance(each, InsertQuery) else each.name for each in found)


# The execution of a backfill: the rows of the period computed anew, proved, and stored as the difference.
#
#     writer's lock ──> table is what its record says ──> rows of the period ──> equal to the view's SQL? ──> one commit
#
# Nothing is stored unless all of it holds. A kill before the commit leaves the view as it was; after it, all is done.


@dataclass(frozen=True)
class BackfillResult:
    """What a backfill came to.

    Attributes:
        computed: rows in the period, as they are now.
        inserted, deleted: rows by which they differ from what was stored.
        version: of the commit; None when nothing differs.
    """

    view: str
    computed: int
    inserted: int
    deleted: int
    version: int | None
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The result as values of JSON."""
        return asdict(self)


def execute_backfill(settings: Settings, plan: BackfillPlan, steps: Steps) -> BackfillResult:
    """Carry out a plan, without a JVM, at the version vector where the view stands when its turn comes.

    Raises:
        WriterBusy: the view's pipeline is running.
        RefreshFailed: the rows do not prove right, or the view got another definition meanwhile.
        StrandlineError: as of `backfill_decided`. Nothing was changed by any of these.
    """
    lake = LakeLayout(settings.lake)
    writer = f"backfill/{os.getpid()}"
    with sole_writer(lake, plan.pipeline, writer):
        catalog = _unchanged(plan, lake)
        (subject,) = (each for each in subjects([plan.view], catalog, lake) if each.table == plan.view)
        table = opened(subject)
        steps.begin(f"comparing the {counted(table.record.rows, 'stored row')} with their record")
        _check_whole(table)
        steps.done(f"{counted(table.record.rows, 'row')} of version {table.version} are what was committed")
        with _surroundings(settings, lake, catalog, writer) as context:
            proof = _Proof(plan, table, catalog, context, steps)
            heads, item = Heads(lake), plan.item
            decision = decide(item.stages[-1], item.options.errors, item.letters(item.stages[-1]), heads)
            said = f"the rows whose {plan.column.name} is {plan.period}"
            part = RecomputedPart(plan.condition, said, proof.check)
            steps.begin("computing the rows of the range", plan.rows_read)
            done = backfill_decided(context, heads, decision, item.owner(item.stages[-1]), part)
            steps.done("nothing differs" if done.version is None else f"version {done.version} has the difference")
    return BackfillResult(plan.view, proof.rows, done.inserted, done.deleted, done.version, round(done.seconds, 3))


class _Proof:
    """The proof of the computed rows, and what it has seen of them."""

    def __init__(self, plan: BackfillPlan, table: Opened, catalog: Catalog, context: RunContext, steps: Steps) -> None:
        assert context.functions is not None
        self.rows = 0
        self._plan, self._steps = plan, steps
        self._recomputed = partial(check_recompute, table, catalog, context.lake, context.functions)

    def check(self, rows: pa.Table) -> None:
        """Compare the rows with the view's SQL, computed by DuckDB without the engine's rules.

        Raises:
            RefreshFailed: they differ, or the SQL does not run over the inputs.
        """
        self.rows = rows.num_rows
        self._steps.done(f"{counted(rows.num_rows, 'row')} are computed anew")
        self._steps.begin("computing them again from the view's SQL, to compare", self._plan.rows_read)
        outcome = self._recomputed(part=PartRows(rows, self._plan.condition))
        if outcome.ok is None:
            raise RefreshFailed(sentence("the rows of '{}' cannot be proved: {}", Name(self._plan.view), outcome.what))
        if not outcome.ok:
            raise RefreshFailed(
                f"the rows computed anew do not prove right: {outcome.what}",
                where=Text(Name(self._plan.view)),
                hint=sentence(
                    "what it reads may itself be wrong: strandline verify --deep, or rebuild {}",
                    Name(self._plan.view, shlex.quote),
                ),
            )
        self._steps.done("they are the rows of the view's SQL")
        self._steps.begin("storing what differs")


def _check_whole(table: Opened) -> None:
    """Raise RefreshFailed unless the rows of the table are those of its record: others would only be hidden."""
    outcome = check_digest(table, reader.digest_of_rows(table.path, table.snapshot))
    if outcome.ok is False:
        raise RefreshFailed(outcome.what, where=Text(Name(table.subject.table)), hint=table.subject.hint)


def _unchanged(plan: BackfillPlan, lake: LakeLayout) -> Catalog:
    """The catalog, in which the view is what was planned.

    Raises:
        RefreshFailed: it is another one, or about to be.
    """
    catalog = Catalog(lake)
    view = catalog.find(plan.view)
    begun = any(each.name == plan.view for each in intents.begun_replacements(lake))
    if begun or not isinstance(view, View) or unmarked(plan.item.fingerprint) != view.fingerprint:
        raise RefreshFailed(
            sentence("'{}' was dropped or gets another definition", Name(plan.view)),
            hint=f"type: strandline run {plan.pipeline}",
        )
    return catalog


@contextmanager
def _surroundings(settings: Settings, lake: LakeLayout, catalog: Catalog, writer: str) -> Iterator[RunContext]:
    """The surroundings of the computation: the DuckDB engine of this process, and the functions that users wrote."""
    functions = Library(catalog.functions.values(), settings.functions.modules)
    with DuckDBEngine(*settings.kernel_size) as duckdb_engine:
        yield RunContext(None, lake, writer, functions, duckdb_engine, "duckdb")
