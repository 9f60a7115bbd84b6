"""The replicas of a server: they follow, start again where they were, and are made anew with their view."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve import watch
from strandline.jobs.serve.catalogued import Catalogued
from strandline.jobs.serve.consistent_snapshot import reflected
from strandline.jobs.server.state.replicas import Followed, Replicas
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log
from strandline.state_store.delta.heads import set_aside
from tests.support.on_disk import on_disk
from tests.support.served_lake import ServedLake
from tests.support.waiting import wait_until

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
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine)


def of(served: ServedLake, replicas: Replicas) -> Followed | None:
    return replicas.of(Catalogued(served.lake).relation("by_town"))


def visits(followed: Followed | None, town: str) -> int | None:
    """What the replica says; None while it says nothing."""
    found = followed.get((town,)) if followed is not None else None
    row = found[1] if found is not None else None
    return None if row is None else int(row["visits"])


def test_it_follows_when_it_is_told(served: ServedLake, replicas: Replicas, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not look by itself here."""
    monkeypatch.setattr(watch, "LOOK_SECONDS", 3600.0)
    followed = of(served, replicas)
    wait_until(lambda: visits(followed, "Rome") == 1, "the replica does not follow")
    visit(served, "Rome")
    replicas.told("by_town")
    wait_until(lambda: visits(followed, "Rome") == 2, "the replica does not follow")


def test_another_server_in_the_folder_goes_on_where_the_first_was(
    served: ServedLake, replicas: Replicas, tmp_path: Path
) -> None:
    first = of(served, replicas)
    wait_until(lambda: visits(first, "Rome") == 1, "the replica does not follow")
    replicas.close()
    visit(served, "Rome")
    again = Replicas(served.lake, tmp_path / "replicas", lambda _: None)
    followed = of(served, again)
    # Until it has been at the head it says nothing, though it has rows.
    wait_until(lambda: visits(followed, "Rome") is not None, "the replica does not follow")
    assert visits(followed, "Rome") == 2
    again.close()


def test_a_view_that_is_made_anew_gets_a_replica_of_its_new_columns(served: ServedLake, replicas: Replicas) -> None:
    first = of(served, replicas)
    wait_until(lambda: visits(first, "Rome") == 1, "the replica does not follow")
    select = "SELECT town, SUM(n) AS n, COUNT(*) AS visits FROM visits GROUP BY town"
    assert list(Interpreter(served.settings).run(f"DROP TABLE by_town; CREATE TABLE by_town AS {select};"))
    visit(served, "Rome")
    wait_until(lambda: visits(of(served, replicas), "Rome") == 2, "the replica does not follow")
    assert of(served, replicas) is not first


def test_the_replica_of_a_view_that_is_replaced_has_its_new_columns(served: ServedLake, replicas: Replicas) -> None:
    first = of(served, replicas)
    wait_until(lambda: visits(first, "Rome") == 1, "the replica does not follow")
    select = "SELECT town, COUNT(*) + 10 AS visits, SUM(n) AS n FROM visits GROUP BY town"
    assert list(Interpreter(served.settings).run(f"CREATE OR REPLACE TABLE by_town AS {select};"))
    wait_until(lambda: visits(of(served, replicas), "Rome") == 11, "the replica does not follow")
    assert list(Interpreter(served.settings).run(f"CREATE OR REPLACE TABLE by_town AS {select.replace('10', '20')};"))
    wait_until(lambda: visits(of(served, replicas), "Rome") == 21, "the replica does not follow")


def test_what_versions_reflect_is_told_of_the_table_that_is_there(served: ServedLake, replicas: Replicas) -> None:
    """Its versions have the numbers of the former one's, which was set aside."""
    followed = of(served, replicas)
    assert followed is not None
    wait_until(lambda: followed.version == 1, "the replica does not follow")
    assert followed.standing(1) == reflected(served.lake, "by_town", 1)
    visit(served, "Rome")
    visit(served, "Rome")
    set_aside(served.lake, "by_town")
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine)
    replicas.told("by_town")
    wait_until(lambda: followed.version == 1 and visits(followed, "Rome") == 3, "the replica does not follow")
    expected = reflected(served.lake, "by_town", 1)
    assert expected.versions["visits"] == 3
    assert followed.standing(1) == expected


def test_what_keeps_a_replica_from_following_is_logged_as_data(
    served: ServedLake, replicas: Replicas, caplog: pytest.LogCaptureFixture
) -> None:
    followed = of(served, replicas)
    assert followed is not None
    wait_until(lambda: visits(followed, "Rome") == 1, "the replica is not restored")
    path = served.lake.table("by_town")
    visit(served, "Rome")
    on_disk(log.commit_file(path, log.newest_version(path) or 0)).write_text("{")
    with caplog.at_level("WARNING", "strandline"):
        assert followed.look()
    [said] = [each for each in caplog.records if "stands still" in each.message and each.exc_info is None][:1]
    assert (vars(said)["view"], vars(said)["error"]["code"]) == ("by_town", "store.corrupt")
