"""Takes what a rule gives into a store, and checks on the way what every rule owes."""

from __future__ import annotations

from jobs.model.stage import Stage
from jobs.model.stage_columns import key_names, key_path, visible_columns
from tests.support.duck_store import ALWAYS, FROM, TO, Store, quoted


def append(stage: Stage, store: Store, sql: str, epoch: int) -> None:
    """Add the rows of an append rule."""
    names = ", ".join(quoted(name) for name, _ in visible_columns(stage))
    [(count,)] = store.db.execute(
        f"INSERT INTO {store.table} ({names}, {FROM}, {TO}) SELECT {names}, {epoch}, {ALWAYS} FROM ({sql})"
    ).fetchall()
    if count:
        store.moved = epoch


def settle(stage: Stage, store: Store, sql: str, epoch: int, *, types: bool) -> None:
    """Replace the keys that a rule settles; a row that stays as it was is left alone.

    Args:
        types: check that the columns have the types that are stored, too.

    Raises:
        AssertionError: a key is settled twice, `__old` is not the stored row, a type differs.
    """
    db = store.db
    db.execute(f"CREATE OR REPLACE TEMP TABLE settled AS {sql}")
    names = [name for name, _ in store.columns]
    if types:
        _check_types(store, names)
    _check_keys(stage, store, names)
    listed = ", ".join(map(quoted, names))
    differs = " OR ".join(f"{quoted(name)} IS DISTINCT FROM (__old).{quoted(name)}" for name in names)
    moved = f"__old IS NOT NULL AND (NOT __exists OR {differs})"
    came = f"__exists AND (__old IS NULL OR {differs})"
    db.execute(
        f"UPDATE {store.table} AS o SET {TO} = {epoch} FROM (FROM settled WHERE {moved}) AS s"
        f" WHERE o.{TO} = {ALWAYS} AND {_same_key(stage, 'o', 's')}"
    )
    db.execute(f"INSERT INTO {store.table} SELECT {listed}, {epoch}, {ALWAYS} FROM settled WHERE {came}")
    if db.execute(f"SELECT 1 FROM settled WHERE ({moved}) OR ({came}) LIMIT 1").fetchall():
        store.moved = epoch


def path(stage: Stage, name: str) -> str:
    """Where a key column is in the stored row."""
    return ".".join(map(quoted, key_path(stage, name)))


def _check_types(store: Store, names: list[str]) -> None:
    given = {name: kind for name, kind, *_ in store.db.execute("DESCRIBE settled").fetchall()}
    declared = {name: kind for name, kind, *_ in store.db.execute(f"DESCRIBE {store.table}").fetchall()}
    wrong = {name: (given[name], declared[name]) for name in names if given[name] != declared[name]}
    assert not wrong, f"{store.table}: the rule's types are not the stored ones: {wrong}"


def _check_keys(stage: Stage, store: Store, names: list[str]) -> None:
    same = " AND ".join(f"(s.__old).{quoted(name)} IS NOT DISTINCT FROM o.{quoted(name)}" for name in names)
    twice, wrong = store.db.execute(
        f"SELECT count(*) FROM settled a JOIN settled b ON {_same_key(stage, 'a', 'b')} AND a.rowid <> b.rowid"
        f" UNION ALL SELECT count(*) FROM settled s LEFT JOIN"
        f" (SELECT *, TRUE AS here FROM {store.table} WHERE {TO} = {ALWAYS}) o"
        f" ON {_same_key(stage, 's', 'o')} WHERE (s.__old IS NOT NULL) <> COALESCE(o.here, FALSE)"
        f" OR (o.here AND NOT ({same}))"
    ).fetchall()
    assert twice == (0,), f"{store.table}: a key is settled twice"
    assert wrong == (0,), f"{store.table}: __old is not the stored row"


def _same_key(stage: Stage, left: str, right: str) -> str:
    paths = [path(stage, name) for name in key_names(stage)]
    return " AND ".join(f"{left}.{each} IS NOT DISTINCT FROM {right}.{each}" for each in paths) or "TRUE"
