"""asyncpg: types that it asks for, prepared statements, cursors in a transaction, COPY, a pool."""

from __future__ import annotations

import asyncio
import datetime as dt
import io
import json
import sys
from collections.abc import Awaitable
from decimal import Decimal
from typing import Any

import asyncpg

from tests.campaigns.postgres.checking import check, told

URL = f"postgresql://{sys.argv[1]}"


async def tell(name: str, asked: Awaitable[object], expected: object = None) -> None:
    """As `check`, of what is awaited."""
    outcome = asyncio.ensure_future(asked)
    await asyncio.wait([outcome])
    check(name, outcome.result, expected)


async def rows(session: Any, sql: str, *arguments: object) -> object:
    return [tuple(row) for row in await session.fetch(sql, *arguments)]


async def prepared(session: Any) -> object:
    statement = await session.prepare("SELECT town, visits FROM by_town WHERE town = $1")
    kinds = [each.type.name for each in statement.get_attributes()]
    return kinds, [await statement.fetchval(town, column=1) for town in ("Rome", "Oslo")]


async def cursors(session: Any) -> object:
    async with session.transaction():
        count = 0
        async for _ in session.cursor("SELECT id FROM by_id", prefetch=100):
            count += 1
        moved = await session.cursor("SELECT id FROM by_id")
        await moved.forward(995)
        return count, len(await moved.fetch(10))


async def as_json(session: Any) -> Any:
    await session.set_type_codec("json", encoder=json.dumps, decoder=json.loads, schema="pg_catalog")
    return await session.fetchval("SELECT tags FROM everything WHERE id = 1")


async def pooled() -> object:
    async with asyncpg.create_pool(URL, min_size=2, max_size=4) as pool:
        return set(await asyncio.gather(*(pool.fetchval("SELECT COUNT(*) FROM by_town") for _ in range(10))))


async def main() -> None:
    told(asyncpg.__version__)
    session = await asyncpg.connect(URL)
    day = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    await tell("every type", rows(session, "SELECT * FROM everything ORDER BY id"))
    sql = "SELECT town FROM by_town WHERE visits > $1 AND town = $2"
    await tell("parameters", rows(session, sql, 9, "Rome"), [("Rome",)])
    await tell("a list", rows(session, "SELECT id FROM by_id WHERE id = ANY($1)", [7, 8]), [(7,), (8,)])
    await tell("a timestamp", rows(session, "SELECT id FROM everything WHERE at > $1", day), [(1,)])
    await tell("a decimal", rows(session, "SELECT id FROM everything WHERE price = $1", Decimal("12.34")), [(1,)])
    await tell("prepared", prepared(session), (["text", "int8"], [250, 250]))
    await tell("cursors", cursors(session), (1000, 5))
    for form in ("text", "csv", "binary"):
        copied = session.copy_from_query("SELECT * FROM by_town", output=io.BytesIO(), format=form)
        await tell(f"copy as {form}", copied, "COPY 4")
    sql = "SELECT typname FROM pg_type WHERE oid = ANY($1::oid[])"
    await tell("catalog", rows(session, sql, [25]), [("text",)])
    await tell("json", as_json(session), {"hot": 1})
    await tell("reset", session.reset())
    await tell("pool", pooled(), {4})
    await session.close()


if __name__ == "__main__":
    asyncio.run(main())
