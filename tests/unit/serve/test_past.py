"""Time travel: tables as they were by version and by time, the changes between versions, and what is not kept."""

from __future__ import annotations

import datetime as dt
import time
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.python import Library
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.settings import load_settings
from strandline.jobs.partial.pull import answer
from strandline.jobs.serve.catalogued import names_read
from strandline.jobs.serve.errors import VersionNotKept
from strandline.jobs.serve.pull import plan_pull
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select
from strandline.state_store.delta import log
from tests.support.on_disk import on_disk
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE TABLE by_town AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
    CREATE TABLE partial_view WITH (STATE = 'partial') AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> ServedLake:
    """Version 1 has a visit to Rome, 2 another one and one to Oslo, 3 a third one to Rome."""
    served = ServedLake(load_settings(lake=tmp_path_factory.mktemp("past") / "lake"), DEFINITIONS)
    for towns in (["Rome"], ["Rome", "Oslo"], ["Rome"]):
        served.append("visits", [{"id": 1, "town": town, "n": 1} for town in towns])
        with served.duckdb_engine() as duckdb_engine:
            served.refresh(duckdb_engine)
        time.sleep(0.01)
    assert log.newest_version(served.lake.table("by_town")) == 3
    return served


def asked(served: ServedLake, text: str) -> list[dict[str, Any]]:
    (statement,) = parse(text)
    assert isinstance(statement, Select)
    catalog = Catalog(served.lake)
    found = answer(plan_pull(statement, catalog, served.lake), catalog, served.lake, Library((), ()))
    rows: list[dict[str, Any]] = found.table.rename_columns(list(found.names)).to_pylist()
    return rows


def committed(served: ServedLake, version: int) -> str:
    moment = log.read_commit(served.lake.table("by_town"), version).timestamp / 1000
    return dt.datetime.fromtimestamp(moment, dt.UTC).isoformat()


@pytest.mark.parametrize(
    "clause",
    [
        *("VERSION AS OF 2", "FOR VERSION AS OF 2", "FOR SYSTEM_VERSION AS OF 2", "AS OF VERSION 2"),
        *("TIMESTAMP AS OF '{}'", "FOR TIMESTAMP AS OF '{}'", "FOR SYSTEM_TIME AS OF '{}'", "AS OF TIMESTAMP '{}'"),
        "FOR SYSTEM_TIME AS OF TIMESTAMP '{}'",
    ],
)
def test_a_table_as_it_was(served: ServedLake, clause: str) -> None:
    said = clause.format(committed(served, 2))
    rows = [{"town": "Oslo", "visits": 1}, {"town": "Rome", "visits": 2}]
    assert asked(served, f"SELECT * FROM by_town {said}") == rows
    assert asked(served, f"SELECT by_town.visits FROM by_town {said} WHERE town = 'Rome'") == [{"visits": 2}]
    assert asked(served, f"SELECT b.visits FROM by_town {said} AS b WHERE b.town = 'Oslo' LIMIT 1") == [{"visits": 1}]


def test_two_versions_beside_each_other(served: ServedLake) -> None:
    text = """
        SELECT n.town, n.visits - COALESCE(o.visits, 0) AS more
        FROM by_town n LEFT JOIN by_town VERSION AS OF 1 AS o ON n.town = o.town ORDER BY n.town
    """
    assert asked(served, text) == [{"town": "Oslo", "more": 1}, {"town": "Rome", "more": 2}]
    assert asked(served, "WITH o AS (SELECT * FROM by_town VERSION AS OF 1) SELECT COUNT(*) AS n FROM o") == [{"n": 1}]
    assert asked(served, "SELECT COUNT(*) AS n FROM visits VERSION AS OF 1") == [{"n": 1}]
    assert asked(served, "SELECT COUNT(*) AS n FROM by_town AS OF VERSION 0") == [{"n": 0}]


@pytest.mark.parametrize(
    "call", ["table_changes('by_town', 2, 3)", "CHANGES(by_town, 2, 3)", "table_changes('by_town', 2)"]
)
def test_changes_between_versions(served: ServedLake, call: str) -> None:
    text = f"SELECT town, visits, _change_type, _commit_version FROM {call} ORDER BY _commit_version, town, visits"
    assert [tuple(row.values()) for row in asked(served, text)] == [
        ("Oslo", 1, "insert", 2),
        ("Rome", 1, "update_preimage", 2),
        ("Rome", 2, "update_postimage", 2),
        ("Rome", 2, "update_preimage", 3),
        ("Rome", 3, "update_postimage", 3),
    ]
    assert asked(served, f"SELECT COUNT(*) AS n FROM {call} c WHERE c._change_type = 'insert'") == [{"n": 1}]


def test_changes_since_a_time(served: ServedLake) -> None:
    since = f"table_changes('by_town', '{committed(served, 3)}')"
    assert asked(served, f"SELECT COUNT(*) AS n FROM {since}") == [{"n": 2}]
    assert asked(served, "SELECT COUNT(*) AS n FROM table_changes('visits', 2, 2)") == [{"n": 2}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELECT * FROM by_town VERSION AS OF 4", "no version 4 yet: the newest is 3"),
        (
            "SELECT * FROM by_town TIMESTAMP AS OF '2001-01-01'",
            "'by_town' was not there yet: versions 0 to 3 are, since 20",
        ),
        ("SELECT * FROM by_town TIMESTAMP AS OF '2999-01-01'", "a time to come"),
        ("SELECT * FROM table_changes('by_town', 1, 9)", "no version 9 yet"),
    ],
)
def test_versions_that_there_are_not(served: ServedLake, text: str, said: str) -> None:
    with pytest.raises(VersionNotKept, match=said):
        asked(served, text)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM by_town VERSION AS OF 'x'",
        "SELECT * FROM by_town TIMESTAMP AS OF 5",
        "SELECT * FROM by_town TIMESTAMP AS OF 'noon'",
        "SELECT * FROM by_town TIMESTAMP AS OF NOW()",
        "SELECT * FROM table_changes('by_town', 3, 2)",
        "SELECT * FROM table_changes('by_town')",
    ],
)
def test_what_is_no_version_is_refused(served: ServedLake, text: str) -> None:
    with pytest.raises(InvalidQuery):
        asked(served, text)


def test_what_is_not_kept_says_what_is(tmp_path: Path) -> None:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    for _ in range(3):
        served.append("visits", [{"id": 1, "town": "Rome", "n": 1}])
        with served.duckdb_engine() as duckdb_engine:
            served.refresh(duckdb_engine)
    path = served.lake.table("by_town")
    for file in log.read_commit(path, 1).added:
        on_disk(file.path).unlink()
    for text in ("SELECT * FROM by_town VERSION AS OF 1", "SELECT * FROM table_changes('by_town', 1, 3)"):
        with pytest.raises(VersionNotKept, match="version 1 of 'by_town' is not kept any more: versions 2 to 3 are"):
            asked(served, text)


def test_a_view_that_was_renamed(tmp_path: Path) -> None:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    served.append("visits", [{"id": 1, "town": "Rome", "n": 1}])
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine)
    assert list(Interpreter(served.settings).run("ALTER TABLE by_town RENAME TO towns;"))
    run = Interpreter(served.settings).run
    for text in ("SELECT towns.visits FROM towns VERSION AS OF 1;", "SELECT towns.visits FROM CHANGES(towns, 1, 1);"):
        (found,) = run(text)
        assert list(getattr(found, "rows")) == [(1,)]  # noqa: B009


def test_scopes_are_asked_for_the_table(served: ServedLake) -> None:
    catalog = Catalog(served.lake)
    for text in ("SELECT * FROM by_town VERSION AS OF 2", "SELECT * FROM table_changes('by_town', 1, 2)"):
        (statement,) = parse(text)
        assert isinstance(statement, Select)
        assert names_read(statement.query, catalog) == ["by_town"]
