"""The table of clients in docs/postgresql.md: each is driven against a running server, and what it checks holds."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from strandline.jobs.run.jars import home
from tests.campaigns.postgres_clients import clients, drive, server
from tests.support.examples import AT_LENGTH

JAR = next(iter(home("jdbc").glob("postgresql-*.jar")), None)
CLIENTS = {client.name: client for client in clients(sys.executable, JAR)}
EACH_TIME = ("SQLAlchemy, pg8000", "asyncpg")
"""One way by text and one by binary values; the others are nightly's."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server() as address:
        yield address


@pytest.mark.parametrize("name", CLIENTS if AT_LENGTH else EACH_TIME)
def test_a_client(address: str, name: str) -> None:
    client = CLIENTS[name]
    if client.missing:
        pytest.skip(f"{name}: {client.missing}; `python -m strandline.jobs.run.jars jdbc` or `make setup`")
    outcome = drive(client, address)
    assert outcome.failures == ()
    assert outcome.held
