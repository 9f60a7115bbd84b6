"""The swap: the rows of the standby take the place of the view's, in one commit of the view's own table.

    standby (a, b, c, __state) ──────────────> all rows, in files of their own      ┐
    view    (a, b, __state)  ─┐                                                     ├─ one commit, mode `rebuild`
    standby                  ─┴─ difference ─> (a, b, c, __state, weight), listed   ┘

The table keeps its identity. The difference is the commit's change feed: who reads the view's changes sees that, and
nothing of rows that both definitions give. A row from before has NULL in a column that it did not have.

Where rows are only ever added, the commit adds those that the next definition gives beyond the former one's: it must
give all of these.
"""

from __future__ import annotations

import os
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.rules.stored import spec_of, state_type, stored_columns
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.relation import META_COLUMNS
from strandline.jobs.model.stage_columns import hidden_columns, storage_of, visible_columns
from strandline.state_store.commits import REBUILD
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.tablespec import STATE, WEIGHT

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import duckdb

    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.model.stage import Stage
    from strandline.state_store.commits import Head

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
