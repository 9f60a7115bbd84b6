"""Statements that are prepared once and executed often, while definitions change beneath them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.server.state.access import ServerOptions
from strandline.jobs.server.state.pool import Queries
from strandline.jobs.session.interpreter import Interpreter
from tests.support.postgres_server import postgres_server
from tests.support.served_lake import ServedLake
from tests.unit.server.postgres.conftest import LIMITS

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR) WITH (KAFKA_TOPIC = 'visits');
    CREATE VIEW shown AS SELECT id AS x FROM visits;
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[ServedLake, str]]:
    made = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    with made.duckdb_engine() as duckdb_engine:
        made.append("visits", [{"id": 1, "town": "Rome"}, {"id": 2, "town": "Oslo"}])
        made.refresh(duckdb_engine)
    with postgres_server(made.settings, ServerOptions(tmp_path / "server", limits=LIMITS, queries=1)) as address:
        yield made, address


async def connected(address: str) -> Any:
    """asyncpg, which describes what it prepares, and reads rows by that."""
    at = dict(part.split("=") for part in address.split())
    return await asyncpg.connect(host=at["host"], port=int(at["port"]), user=at["user"], database=at["dbname"])


def test_an_answer_of_other_columns_than_were_described_is_refused(served: tuple[ServedLake, str]) -> None:
    """A driver reads the bytes of a DOUBLE as a BIGINT otherwise."""
    made, address = served
    text = "SELECT x FROM shown ORDER BY x LIMIT 1"

    async def changed() -> None:
        connection = await connected(address)
        statement = await connection.prepare(text)
        assert await statement.fetchval() == 1
        assert await connection.fetchval(text) == 1
        list(Interpreter(made.settings).run("DROP VIEW shown; CREATE VIEW shown AS SELECT id + 0.5 AS x FROM visits;"))
        with pytest.raises(asyncpg.InvalidCachedStatementError, match="prepare the statement again"):
            await statement.fetchval()
        # What it keeps itself it prepares again, by the same error.
        assert await connection.fetchval(text) == 1.5
        assert (await connection.prepare(text)).get_attributes()[0].type.name != "int8"
        await connection.close()

    asyncio.run(changed())


def test_a_text_is_described_once_for_all_connections(
    served: tuple[ServedLake, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    answer = Queries.answer

    def counted(self: Queries, question: Any, *rest: Any) -> Any:
        asked.append(type(question).__name__)
        return answer(self, question, *rest)

    async def described() -> None:
        for _ in range(3):
            connection = await connected(served[1])
            found = await connection.prepare("SELECT x + $1::int AS y FROM shown")
            assert [each.name for each in found.get_attributes()] == ["y"]
            await connection.close()

    monkeypatch.setattr(Queries, "answer", counted)
    asyncio.run(described())
    assert asked == ["TypesAsked"]
