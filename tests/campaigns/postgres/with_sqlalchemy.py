"""SQLAlchemy over one driver: reflection, and queries that it writes by itself.

with_sqlalchemy.py ADDRESS DRIVER    psycopg, psycopg2, pg8000, asyncpg
"""

from __future__ import annotations

import asyncio
import datetime as dt
import importlib
import sys
from decimal import Decimal
from functools import partial
from typing import Any

import sqlalchemy as sa

from tests.campaigns.postgres.checking import check, told

HOUR = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def inspected(connection: Any) -> None:
    """The inspector's answers."""
    of = sa.inspect(connection)

    def columns_of(table: str) -> int:
        return len(of.get_columns(table))

    def key_of(table: str) -> object:
        return of.get_pk_constraint(table)["constrained_columns"]

    check("tables", lambda: sorted(of.get_table_names()), ["everything", "visits"])
    check("views", lambda: sorted(of.get_materialized_view_names()), ["Odd Name", "by_id", "by_town"])
    check("schemas", lambda: "public" in of.get_schema_names(), expected=True)
    for table, key, columns in (("by_town", ["town"], 3), ("everything", ["id"], 14), ("Odd Name", ["town"], 2)):
        check(f"columns of {table}", partial(columns_of, table), columns)
        check(f"key of {table}", partial(key_of, table), key)
        for name in ("foreign_keys", "indexes", "unique_constraints", "check_constraints"):
            check(f"{name} of {table}", partial(getattr(of, f"get_{name}"), table), [])
        check(f"comment of {table}", partial(of.get_table_comment, table), {"text": None})
    check("types", lambda: str(of.get_columns("everything")[10]["type"]).startswith("ARRAY"), expected=True)
    check("definition of a view", lambda: "GROUP BY town" in of.get_view_definition("by_town"), expected=True)
    check("whether there is one", lambda: (of.has_table("by_town"), of.has_table("no_such")), (True, False))
    check("enums", of.get_enums, [])
    check("sequences", of.get_sequence_names, [])


def reflected(connection: Any) -> None:
    """Queries over reflected tables."""
    known = sa.MetaData()
    known.reflect(connection, views=True)
    check("reflection", lambda: len(known.tables), 5)
    town = sa.Table("by_town", sa.MetaData(), autoload_with=connection)
    all_types = sa.Table("everything", sa.MetaData(), autoload_with=connection)

    def rows(statement: Any) -> list[Any]:
        with connection.begin_nested():
            return [tuple(row) for row in connection.execute(statement)]

    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    columns = all_types.c
    for name, statement, expected in (
        ("equal", sa.select(town.c.town).where(town.c.town == "Rome"), [("Rome",)]),
        ("in", sa.select(sa.func.count()).where(town.c.town.in_(["Rome", "Oslo"])), [(2,)]),
        ("like", sa.select(town.c.town).where(town.c.town.like("Ro%")), [("Rome",)]),
        ("ilike", sa.select(town.c.town).where(town.c.town.ilike("rO%")), [("Rome",)]),
        ("hours", sa.select(sa.func.date_trunc("hour", columns.at)).where(columns.id == 1), [(HOUR,)]),
        ("limit", sa.select(town.c.town).order_by(town.c.town).limit(1).offset(1), [("Oslo",)]),
        ("aggregates", sa.select(sa.func.count(), sa.func.sum(town.c.visits)), [(4, 1000)]),
        ("having", sa.select(town.c.visits).group_by(town.c.visits).having(sa.func.count() > 1), [(250,)]),
        ("timestamp", sa.select(columns.id).where(columns.at > moment), [(1,)]),
        ("decimal", sa.select(columns.id).where(columns.price == Decimal("12.34")), [(1,)]),
        ("bytes", sa.select(columns.id).where(columns.raw == b"\0\xff"), [(1,)]),
        ("boolean", sa.select(columns.id).where(columns.flag), [(1,)]),
        ("null", sa.select(columns.id).where(columns.name.is_(None)), [(2,)]),
        ("day", sa.select(columns.id).where(columns.day == dt.date(2024, 5, 1)), [(1,)]),
        ("array", sa.select(columns.numbers).where(columns.id == 1), [([1, None, 3],)]),
        ("cast", sa.select(sa.cast(columns.id, sa.String)).where(columns.id == 1), [("1",)]),
        ("subquery", sa.select(sa.func.count()).select_from(sa.select(town).subquery()), [(4,)]),
    ):
        check(name, partial(rows, statement), expected)
    streamed = connection.execution_options(stream_results=True, yield_per=100)
    check("streamed", lambda: sum(1 for _ in streamed.execute(sa.text("SELECT id FROM by_id"))), 1000)


def _pooled(url: str) -> set[int]:
    """Sessions that go back to the pool, which resets them, and come out of it again."""
    engine = sa.create_engine(url, pool_size=2, pool_pre_ping=True)
    found: set[int] = set()
    for _ in range(6):
        with engine.connect() as one, engine.connect() as other:
            found |= {each.scalar(sa.text("SELECT COUNT(*) FROM by_town")) for each in (one, other)}
    engine.dispose()
    return found


def main() -> None:
    address, driver = sys.argv[1:]
    told(f"{sa.__version__} with {driver} {importlib.import_module(driver).__version__}")
    url = f"postgresql+{driver}://{address}"
    if driver != "asyncpg":
        with sa.create_engine(url).connect() as connection:
            inspected(connection)
            reflected(connection)
        check("pool", partial(_pooled, url), {4})
        return

    from sqlalchemy.ext.asyncio import create_async_engine  # it needs greenlet, which the others do without

    async def asynchronously() -> None:
        async with create_async_engine(url).connect() as connection:
            await connection.run_sync(inspected)
            await connection.run_sync(lambda inner: reflected(inner))

    asyncio.run(asynchronously())


if __name__ == "__main__":
    main()
