"""The replicas of a server: they follow, start again where they were, and are made anew with their view."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jobs.model.settings import load_settings
from jobs.server.state.catalogued import Catalogued
from jobs.server.state.replicas import Followed, Replicas
from jobs.session.interpreter import Interpreter
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
"""


@pytest.fixture
def served(tmp_path: Path) -> ServedLake:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    visit(served, "Rome")
    return served


@pytest.fixture
def replicas(served: ServedLake, tmp_path: Path) -> Iterator[Replicas]:
    found = Replicas(served.lake, tmp_path / "replicas", lambda _: None)
    yield found
    found.close()


def visit(served: ServedLake, town: str) -> None:
    served.append("visits", [{"id": 1, "town": town, "n": 1}])
    with served.kernel() as kernel:
        served.refresh(kernel)


def soon(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < until
        time.sleep(0.02)


def of(served: ServedLake, replicas: Replicas) -> Followed | None:
    return replicas.of(Catalogued(served.lake).relation("by_town"))


def visits(followed: Followed | None, town: str) -> int | None:
    """What the replica says; None while it says nothing."""
    if followed is None:
        return None
    with followed.reading() as now:
        row = now.get((town,)) if now is not None else None
        return None if row is None else int(row["visits"])


def test_it_follows_when_it_is_told(served: ServedLake, replicas: Replicas) -> None:
    followed = of(served, replicas)
    soon(lambda: visits(followed, "Rome") == 1)
    visit(served, "Rome")
    told = time.monotonic()
    replicas.told("by_town")
    soon(lambda: visits(followed, "Rome") == 2)
    # It looks by itself after five seconds.
    assert time.monotonic() - told < 4


def test_another_server_in_the_folder_goes_on_where_the_first_was(
    served: ServedLake, replicas: Replicas, tmp_path: Path
) -> None:
    first = of(served, replicas)
    soon(lambda: visits(first, "Rome") == 1)
    replicas.close()
    visit(served, "Rome")
    again = Replicas(served.lake, tmp_path / "replicas", lambda _: None)
    followed = of(served, again)
    # Until it has been at the head it says nothing, though it has rows.
    soon(lambda: visits(followed, "Rome") is not None)
    assert visits(followed, "Rome") == 2
    again.close()


def test_a_view_that_is_made_anew_gets_a_replica_of_its_new_columns(served: ServedLake, replicas: Replicas) -> None:
    first = of(served, replicas)
    soon(lambda: visits(first, "Rome") == 1)
    select = "SELECT town, SUM(n) AS n, COUNT(*) AS visits FROM visits GROUP BY town"
    assert list(Interpreter(served.settings).run(f"DROP TABLE by_town; CREATE TABLE by_town AS {select};"))
    visit(served, "Rome")
    soon(lambda: visits(of(served, replicas), "Rome") == 2)
    assert of(served, replicas) is not first


def test_the_replica_of_a_view_that_is_replaced_has_its_new_columns(served: ServedLake, replicas: Replicas) -> None:
    first = of(served, replicas)
    soon(lambda: visits(first, "Rome") == 1)
    select = "SELECT town, COUNT(*) + 10 AS visits, SUM(n) AS n FROM visits GROUP BY town"
    assert list(Interpreter(served.settings).run(f"CREATE OR REPLACE TABLE by_town AS {select};"))
    soon(lambda: visits(of(served, replicas), "Rome") == 11)
    assert list(Interpreter(served.settings).run(f"CREATE OR REPLACE TABLE by_town AS {select.replace('10', '20')};"))
    soon(lambda: visits(of(served, replicas), "Rome") == 21)
