"""A view that changes leave as it is reflects them: what is read beside it is as new as its pipeline's last refresh."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from strandline.jobs.model.settings import Settings
from strandline.jobs.serve.consistent_snapshot import newest_snapshot, reflected
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import DEFAULT_PIPELINE, Interpreter
from strandline.state_store.commits import read_reached
from strandline.state_store.delta import log, reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.examples import examples
from tests.support.lakes import delta_rs
from tests.support.on_disk import on_disk
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE TABLE item (id BIGINT PRIMARY KEY, shop VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'item');
    CREATE STREAM heard (id BIGINT KEY, n BIGINT) WITH (KAFKA_TOPIC = 'heard');
    CREATE MATERIALIZED VIEW large AS SELECT id, shop, n FROM item WHERE n > 7;
    CREATE MATERIALIZED VIEW huge AS SELECT id, n FROM large WHERE n > 8;
    CREATE MATERIALIZED VIEW most AS SELECT shop, MAX(n) AS n FROM item GROUP BY shop;
    CREATE MATERIALIZED VIEW above AS
        SELECT m.shop, COUNT(*) AS c FROM most m JOIN large l ON m.shop = l.shop GROUP BY m.shop;
    CREATE MATERIALIZED VIEW odd AS SELECT shop, 1 / (n - 3) AS x FROM item WHERE n < 4;
    CREATE STREAM loud AS SELECT id, n FROM heard WHERE n > 7;
    INSERT INTO loud SELECT id, n + 100 AS n FROM heard WHERE n < 2;
"""
VIEWS = ("item", "large", "huge", "most", "above", "odd", "loud")
PAIRS = (
    "SELECT (SELECT COUNT(*) FROM item WHERE n > 7), (SELECT COUNT(*) FROM large), "
    "(SELECT COUNT(*) FROM large WHERE n > 8), (SELECT COUNT(*) FROM huge)",
    "SELECT (SELECT SUM(n) FROM (SELECT MAX(n) AS n FROM item GROUP BY shop)), (SELECT SUM(n) FROM most)",
    "SELECT (SELECT COUNT(*) FROM item i JOIN (SELECT DISTINCT shop FROM item) s ON i.shop = s.shop WHERE i.n > 7), "
    "(SELECT SUM(c) FROM above)",
    "SELECT (SELECT COUNT(*) FROM heard WHERE n > 7 OR n < 2), (SELECT COUNT(*) FROM loud)",
)


@pytest.fixture
def served(settings: Settings) -> ServedLake:
    return ServedLake(settings, DEFINITIONS)


def rows(served: ServedLake, text: str) -> list[tuple[object, ...]]:
    (result,) = Interpreter(served.settings).run(text)
    assert isinstance(result, Rows)
    return [tuple(row) for row in result.rows]


def at_heads(served: ServedLake) -> bool:
    """True if all tables are read at their heads beside each other."""
    found = newest_snapshot((*VIEWS, "heard"), served.lake).versions
    return found == {name: log.newest_version(served.lake.table(name)) for name in found}


@pytest.mark.parametrize("seed", range(examples(2)))
def test_what_is_read_beside_each_other_is_of_one_moment_and_the_newest(served: ServedLake, seed: int) -> None:
    """Random changes, many of which leave views as they are; some refreshes leave out some views."""
    chance = random.Random(seed)
    with served.duckdb_engine() as engine:
        for step in range(14):
            for _ in range(chance.randint(1, 2)):
                item = {"id": chance.randint(0, 3), "shop": chance.choice("ab"), "n": chance.choice([1, 3, 5, 7, 8, 9])}
                served.append("item", [{**item, "_tombstone": chance.random() < 0.2}])
            served.append("heard", [{"id": step, "n": chance.choice([1, 5, 5, 5, 9])}])
            whole = step < 2 or chance.random() < 0.6
            some = chance.sample(VIEWS, 3)
            served.refresh(engine, None if whole else [*some, *(f"{name}__insert_1" for name in some)])
            assert not whole or at_heads(served)
            for text in PAIRS:
                (counts,) = rows(served, text)
                pairs = [counts[at : at + 2] for at in range(0, len(counts), 2)]
                assert all((one or 0) == (other or 0) for one, other in pairs), (text, counts)


def test_a_reader_of_its_own_writes_does_not_wait_for_another_change(served: ServedLake) -> None:
    with served.duckdb_engine() as engine:
        quiet_after_the_first(served, engine)
    at = log.newest_version(served.lake.table("huge"))
    assert at is not None
    assert reflected(served.lake, "huge", at).offsets["item"].ends == {0: 3}
    assert reflected(served.lake, "huge", at, by_commits=True).offsets["item"].ends == {0: 1}


def quiet_after_the_first(served: ServedLake, engine: DuckDBEngine) -> None:
    """A row that every view of items has; then two that `large` does not have."""
    for number, n in ((1, 9), (2, 1), (3, 2)):
        served.append("item", [{"id": number, "shop": "a", "n": n}])
        served.append("heard", [{"id": number, "n": 9}])
        served.refresh(engine)


JOINED = "SELECT i.id, l.n FROM item i LEFT JOIN large l ON i.id = l.id ORDER BY i.id"


@pytest.mark.parametrize("lost", ["gone", "cut", "flipped", "of another"])
def test_a_note_that_is_lost_or_damaged_makes_answers_older_and_no_worse(served: ServedLake, lost: str) -> None:
    with served.duckdb_engine() as engine:
        quiet_after_the_first(served, engine)
        assert rows(served, JOINED) == [(1, 9), (2, None), (3, None)]
        file = on_disk(served.lake.reached(DEFAULT_PIPELINE))
        whole = file.read_bytes()
        damaged = {
            "gone": b"",
            "cut": whole[: len(whole) // 2],
            "flipped": whole.replace(b'"item": [', b'"itel": [', 1),
            "of another": b'{"reached": 1}',
        }
        file.unlink()
        if lost != "gone":
            file.write_bytes(damaged[lost])
        assert rows(served, JOINED) == [(1, 9)]
        served.refresh(engine)
        assert rows(served, JOINED) == [(1, 9), (2, None), (3, None)]


def test_a_note_of_versions_that_are_lost_is_worthless(served: ServedLake) -> None:
    """A power cut took the newest commit of an input, and another one was made in its place."""
    with served.duckdb_engine() as engine:
        quiet_after_the_first(served, engine)
        path = served.lake.table("item")
        newest, large = log.newest_version(path), log.newest_version(served.lake.table("large"))
        assert newest is not None
        assert large is not None
        assert reflected(served.lake, "large", large).noted
        on_disk(log.commit_file(path, newest)).unlink()
        assert not reflected(served.lake, "large", large).noted
        served.refresh(engine, ["item"])
        assert log.newest_version(path) == newest
        assert not reflected(served.lake, "large", large).noted


def test_merged_files_leave_a_note_as_true_as_it_was(served: ServedLake) -> None:
    with served.duckdb_engine() as engine:
        for number in range(4):
            served.append("item", [{"id": 5 + number, "shop": "a", "n": 9}])
            served.refresh(engine)
        quiet_after_the_first(served, engine)
    path = served.lake.table("large")
    before = log.newest_version(path)
    delta_rs(path).optimize.compact()
    assert log.newest_version(path) != before
    assert rows(served, JOINED)[:3] == [(1, 9), (2, None), (3, None)]


def test_a_note_is_of_one_definition(served: ServedLake) -> None:
    """Two definitions may have equal rows, above all none, and reflect other versions of what they read."""
    with served.duckdb_engine() as engine:
        quiet_after_the_first(served, engine)
    path = served.lake.table("large")
    newest = log.newest_version(path)
    assert newest is not None
    noted = read_reached(served.lake, DEFAULT_PIPELINE)["large"]
    record = reader.record_at(path, newest)
    assert noted.of(newest, record)
    for other in (
        replace(record, fingerprint="another"),
        replace(record, table="another"),
        replace(record, digest="another"),
        replace(record, vector={name: replace(at, version=99) for name, at in record.vector.items()}),
        replace(record, vector={}),
    ):
        assert not noted.of(newest, other)
    assert not noted.of(newest - 1, record)
