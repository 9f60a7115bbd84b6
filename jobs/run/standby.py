"""The next definition of a view: its rows are made ready in a standby beside the view's, then swapped in.

    inputs ──> inner stages, numbered on from the former ones ──> v__standby          v and all that reads it go on
           └─> shared stages: see `jobs.run.shared` ──────────┘

    standby (a, b, c, __state) ──────────────> all rows, in files of their own      ┐
    view    (a, b, __state)  ─┐                                                     ├─ one commit, mode `rebuild`
    standby                  ─┴─ difference ─> (a, b, c, __state, weight), listed   ┘

The standby is refreshed like any view, so it can be brought up to its inputs as often as one likes, and after any kill.

The table keeps its identity in the swap. The difference is the commit's change feed: who reads the view's changes sees
that, and nothing of rows that both definitions give. A row from before has NULL in a column that it did not have.
Where rows are only ever added, the commit adds those that the next definition gives beyond the former one's: it must
give all of these.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.functions.failing_rows import BREAKS
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.ivm.refresh.guarded_stage import REASON
from strandline.jobs.ivm.rules.stored import spec_of, state_type, stored_columns
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.stage_columns import hidden_columns, storage_of, visible_columns, visible_key
from strandline.jobs.model.tables import META_COLUMNS
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.run.shared import at_one_cut, cut, made_apart, made_elsewhere, standing_in
from strandline.state_store.commits import REBUILD, Rekeyed
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import forget
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.files import remove_folder
from strandline.state_store.layout import name_of
from strandline.state_store.paths import folders_in
from strandline.state_store.tablespec import STATE, WEIGHT
from strandline.state_store.wording import Name, quoted, sentence

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    import duckdb

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.model.stage import Stage
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.commits import Head
    from strandline.state_store.layout import LakeLayout


@dataclass(frozen=True)
class Standby:
    """What makes the rows of a view's next definition ready.

    Attributes:
        item: maintains the rows, with the inner stages that are the definition's own.
        shared: maintain the stages that other views may read as well, each after what it reads.
    """

    definition: View
    item: RefreshUnit
    shared: tuple[RefreshUnit, ...]

    def apart(self, lake: LakeLayout) -> dict[str, str]:
        """{shared table: the table in which it is made apart}, see `made_apart`."""
        return made_apart(self.definition, [item.target for item in self.shared], lake)

    def seen_in(self, lake: LakeLayout) -> LakeLayout:
        """The lake as the standby reads it, with what is made apart in its place."""
        return standing_in(self.apart(lake), lake)

    def at_one_cut(self, lake: LakeLayout) -> bool:
        """True if its rows reflect one version of each input, by whatever way it is read."""
        seen = self.seen_in(lake)
        head = reader.head(seen.table(self.item.target))
        return head is not None and at_one_cut(head.record.vector, seen)


def next_to(present: View, definition: View, catalog: Catalog) -> View:
    """The definition with inner stages whose tables stand beside those of the present one, in its pipeline."""
    first = present.first_stage + len(compiled(present, catalog).stages) - 1
    return replace(definition, pipeline=present.pipeline, first_stage=first)


def standby_of(definition: View, catalog: Catalog) -> Standby:
    """What makes the rows ready of a definition that is not in the catalog yet."""
    supposed = catalog.supposing(definition)
    items = [item for level in maintained([definition], supposed) for item in level]
    shared = tuple(item for item in items if tables.is_shared(item.target))
    [item] = (item for item in items if item not in shared)
    table = tables.standby(definition.name)
    stages = (*item.stages[:-1], replace(item.stages[-1], table=table))
    # Its expectations are asked of the view, when it has the rows.
    return Standby(definition, replace(item, name=table, target=table, stages=stages, blocking=()), shared)


def catch_up(context: RunContext, standby: Standby, *, locked: bool = False) -> Head:
    """Bring the standby to the present heads of its inputs; from history, when it is not there yet.

    Args:
        locked: the lock of the pipeline is held: shared tables that others read are brought up as well. Otherwise they
            are read as they stand, and their inputs at the versions that they reflect.

    Raises:
        RefreshFailed: an expression of the definition fails on a row, or an input has no table yet.
        StrandlineError: as of a refresh.
    """
    apart = standby.apart(context.lake)
    if locked and made_elsewhere(apart, context.lake):
        # What was computed from our own is begun anew, from those that stand.
        discard_standby(standby.definition, context.lake)
        apart = standby.apart(context.lake)
    lake = standing_in(apart, context.lake)
    ours = [item for item in standby.shared if locked or item.target in apart]
    standing = [item.target for item in standby.shared if item not in ours]
    levels = [*([item] for item in ours), [standby.item]]
    done = refresh_all(replace(context, lake=lake), levels, frozenset(), cut(standing, lake))
    if done.failures:
        raise next(iter(done.failures.values()))
    letters = (tables.dead_letters(stage.table) for item in (*standby.shared, standby.item) for stage in item.stages)
    found = next((each for each in letters if _has_failed_rows(each, lake)), None)
    if found is not None:
        raise RefreshFailed(
            sentence("an expression of the next definition fails on some rows; '{}' has them", Name(found)),
            hint="write TRY_CAST, NULLIF or CASE, so that every row of the history has a value",
        )
    head = reader.head(lake.table(standby.item.target))
    if head is None:
        inputs = standby.item.inputs
        missing = quoted(name for name in inputs if reader.head(lake.table(name)) is None)
        raise RefreshFailed(sentence("the next definition reads {}, of which there is no table yet", missing))
    return head


def _has_failed_rows(letters: str, lake: LakeLayout) -> bool:
    """True if a table of dead letters has rows on which an expression fails: those that break an expectation belong
    there, and the next definition says so."""
    path = lake.table(letters)
    if reader.head(path) is None:
        return False
    reasons = reader.read_rows(path, columns=[REASON]).column(REASON).to_pylist()
    return not all(reason.startswith(BREAKS) for reason in reasons)


def discard_standby(definition: View, lake: LakeLayout) -> None:
    """Remove the standby of a definition, with its inner stages: they are nobody's."""
    _remove(lake, definition, lambda number: number >= definition.first_stage)


def discard_former(definition: View, lake: LakeLayout) -> None:
    """Remove what the swap to a definition has left: the standby, and the inner stages before its own.

    Of a definition that shares its stages, those that were made apart and are adopted by now.
    """
    shares = definition.maintenance.state == "shared"
    _remove(lake, definition, lambda number: shares or number < definition.first_stage)


def _remove(lake: LakeLayout, definition: View, goes: Callable[[int], bool]) -> None:
    ready = tables.standby(definition.name)
    there = [name_of(path.name) for path in folders_in(lake.tables)]
    for name in tables.owned_by(definition.name, there):
        number = tables.stage_number(definition.name, name)
        if name in (ready, tables.dead_letters(ready)) or (number is not None and goes(number)):
            forget(lake, name)
            remove_folder(lake.table(name))


_MEMORY: Final = "1GB"
"""Of a DuckDB engine for the swap alone, where Spark computes everything else. Beyond, DuckDB goes to disk."""


def swap(context: RunContext, former: Stage, standby: Stage, view: Head, ready: Head) -> Head:
    """Commit the rows of the standby to the view's table; its head afterwards.

    Args:
        former, standby: the last stages of the two definitions, each with the table that holds its rows.
        view, ready: the heads of these tables.

    Raises:
        CommitConflict: another writer committed to the view first.
        CorruptState, VersionGone: the rows of one of them do not read.
        RefreshFailed: DuckDB has not the memory or the disk for it; or rows would go from a view to which rows are
            only ever added.
    """
    import duckdb

    lake = context.lake
    record = replace(
        ready.record,
        epoch=view.record.epoch + 1,
        table=view.record.table,
        writer=context.writer,
        mode=REBUILD,
        reason="replaced: the rows of another definition",
        rekeyed=_rekeyed(former, standby, view),
    )
    with _duckdb_engine(context) as duckdb_engine, duckdb_engine.connection() as connection:
        tables = [
            DuckDBTable(connection, duckdb_engine.kept, lake.table(stage.table), spec_of(stage), name)
            for stage, name in ((former, "former"), (standby, "standby"))
        ]
        before, rows = (t.read(head.version).text for t, head in zip(tables, (view, ready), strict=True))
        names = ", ".join(engine_of("duckdb").name(name) for name, _ in stored_columns(standby))
        all_rows = f"SELECT {names} FROM ({rows})"
        target = DuckDBTable(connection, duckdb_engine.kept, lake.table(former.table), spec_of(standby), "next")
        try:
            if storage_of(standby) == "append":
                there = f"SELECT {names} FROM ({before})"
                _check_none_go(connection, there, all_rows, former)
                added = target.append_if_any(f"{all_rows} EXCEPT ALL {there}", record)
                return target.advance(record, view) if added is None else added
            return target.replace_all(all_rows, difference(former, standby, before, rows), record, view)
        except duckdb.Error as error:
            said = str(error).partition("\n")[0]
            raise RefreshFailed(f"the swap of '{former.table}' does not compute: {said}") from error


def _rekeyed(former: Stage, standby: Stage, view: Head) -> Rekeyed | None:
    """What the record of the swap says of the key of the rows."""
    before, key = visible_key(former), visible_key(standby)
    if storage_of(standby) == "append" or set(before) == set(key):
        return view.record.rekeyed
    return Rekeyed(tuple(sorted(key)), view.record.epoch + 1)


def _check_none_go(connection: duckdb.DuckDBPyConnection, before: str, rows: str, former: Stage) -> None:
    """Raise RefreshFailed if a row of `before` is not among `rows`; both are SELECTs of all stored columns."""
    shown = [name for name, _ in visible_columns(former) if name not in dict(META_COLUMNS)]
    names = ", ".join(engine_of("duckdb").name(name) for name in shown)
    gone = _first_of(connection, names, f"{before} EXCEPT ALL {rows}")
    if gone is None:
        return
    number, *values = gone
    one = ", ".join(f"{name} = {value}" for name, value in zip(shown, values, strict=True))
    if _first_of(connection, names, f"SELECT {names} FROM ({before}) EXCEPT ALL SELECT {names} FROM ({rows})") is None:
        raise RefreshFailed(
            f"{number} of its rows, such as ({one}), would have another place or time: `_partition`, `_offset`, ROWTIME"
        )
    raise RefreshFailed(
        f"{number} of its rows would go, such as ({one}), and rows are only ever added to it: "
        "where only events to come are meant, name a moment (ROWTIME) in the query"
    )


def _first_of(connection: duckdb.DuckDBPyConnection, names: str, text: str) -> tuple[object, ...] | None:
    """The number of rows of a SELECT, with these columns of one of them; None when it has none."""
    return next(iter(connection.sql(f"SELECT count(*) OVER (), {names} FROM ({text}) LIMIT 1").fetchall()), None)


def difference(former: Stage, standby: Stage, before: str, rows: str) -> str:
    """SELECT of the rows by which the two differ: the columns of `standby`, and `__weight`, +1 or −1.

    What only rules keep in `__state` does not count: nobody can read it. Rows of `former` may be alike once they have
    NULL for a column that told them apart; each of them is a row of the difference.

    Args:
        before, rows: SELECTs of the stored columns of `former` and of `standby`.
    """
    engine = engine_of("duckdb")
    new = ", ".join(engine.name(name) for name, _ in stored_columns(standby))
    seen = [engine.name(name) for name, _ in visible_columns(standby)]
    seen += [f"{STATE}.{engine.name(name)}" for name, _ in hidden_columns(standby)]
    shown = [engine.name(name) for name, _ in visible_columns(standby)]
    if state_type(standby) is not None:
        shown.append(f"any_value({STATE}) AS {STATE}")
    total = f"sum({WEIGHT})::BIGINT"
    return f"""SELECT * EXCLUDE (__copy) FROM (
  SELECT {", ".join(shown)}, sign({total})::BIGINT AS {WEIGHT}, unnest(range(abs({total}))) AS __copy FROM (
    SELECT {new}, 1 AS {WEIGHT} FROM ({rows})
    UNION ALL SELECT {", ".join(_as_next(former, standby))}, -1 AS {WEIGHT} FROM ({before})
  ) GROUP BY {", ".join(seen)}
)"""


def _as_next(former: Stage, standby: Stage) -> list[str]:
    """The columns of a row of `former` as `standby` has them; NULL for what it did not have."""
    engine = engine_of("duckdb")
    had = dict(visible_columns(former))
    made = [
        f"{engine.name(name) if had.get(name) == kind else engine.cast('NULL', kind)} AS {engine.name(name)}"
        for name, kind in visible_columns(standby)
    ]
    wanted, kept = state_type(standby), state_type(former)
    if wanted is not None:
        there = dict(kept.fields) if kept is not None else {}
        fields = (
            (name, engine.field(STATE, name) if there.get(name) == kind else engine.cast("NULL", kind))
            for name, kind in wanted.fields
        )
        made.append(f"{engine.struct(fields)} AS {STATE}")
    return made


def _duckdb_engine(context: RunContext) -> AbstractContextManager[DuckDBEngine]:
    if context.duckdb_engine is not None:
        return nullcontext(context.duckdb_engine)
    return DuckDBEngine(_MEMORY, os.cpu_count() or 2)
