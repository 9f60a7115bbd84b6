"""The recipe of docs/changelog-topic.md gives each version of a table, also after its versions began anew."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.rebuild import execute_rebuild, plan_rebuilds
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.digest import Digest
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.files import remove_file, remove_folder
from strandline.state_store.layout import LakeLayout
from tests.support.published_lake import PublishedLake

_PAGE = Path(__file__).parents[3] / "docs" / "changelog-topic.md"

TableAt = Callable[[Any, int, int], dict[bytes, bytes]]


@pytest.fixture
def table_at() -> TableAt:
    """The recipe, as it is printed."""
    [text] = re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(text, found)
    recipe: TableAt = found["table_at"]
    return recipe


@pytest.fixture
def made(settings: Settings) -> PublishedLake:
    return PublishedLake(settings)


class Published:
    """What a view's table was at each generation and version that was published."""

    def __init__(self, made: PublishedLake, view: str) -> None:
        self._made, self._view = made, view
        self.known: dict[tuple[int, int], Digest] = {}

    def publish(self, generation: int) -> None:
        """Publish, and note the head."""
        done = self._made.publish(self._view)
        self.known[generation, done.version] = self._made.digest(self._view, done.version)

    def check(self, table_at: TableAt) -> None:
        records = self._made.committed(self._view)
        for (generation, version), digest in self.known.items():
            found = self._made.digest_of(self._view, table_at(records, generation, version))
            assert found == digest, (self._view, generation, version)


@pytest.mark.parametrize("view", ["by_both", "hourly", "open_places"])
def test_every_version_before_and_after_a_rebuild(
    made: PublishedLake, duckdb_engine: DuckDBEngine, table_at: TableAt, view: str
) -> None:
    published = Published(made, view)
    for _ in range(4):
        made.epoch(duckdb_engine)
        published.publish(1)
    set_aside(made.lake, view)
    made.epoch(duckdb_engine)
    published.publish(2)
    for _ in range(3):
        made.epoch(duckdb_engine)
        published.publish(2)
    assert len({version for _, version in published.known}) < len(published.known), "versions of the same numbers"
    published.check(table_at)


def test_records_say_whose_they_are(made: PublishedLake, duckdb_engine: DuckDBEngine) -> None:
    """A new generation is told by its first record; a table that has only lost its feed has none."""
    made.epoch(duckdb_engine)
    made.publish("by_town")
    for _ in range(2):
        made.epoch(duckdb_engine)
    table = made.lake.table("by_town")
    newest = log.newest_version(table)
    assert newest is not None
    make_checkpoint(table, newest)
    remove_file(log.commit_file(table, newest - 1))
    assert made.publish("by_town").way == "difference"
    assert origins(made) == {(identity(made), b"1")}
    before = identity(made)
    set_aside(made.lake, "by_town")
    made.epoch(duckdb_engine)
    made.publish("by_town")
    assert origins(made) == {(before, b"1"), (identity(made), b"2")}


def test_a_topic_of_before_goes_on(
    made: PublishedLake, duckdb_engine: DuckDBEngine, table_at: TableAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records say no generation, and neither does its position."""
    published = Published(made, "by_town")
    with monkeypatch.context() as patched:
        patched.setattr("strandline.jobs.publish.encoder.GENERATION", "another")
        patched.setattr("strandline.jobs.publish.publisher.newest_generation", lambda *_: -1)
        for _ in range(2):
            made.epoch(duckdb_engine)
            published.publish(0)
    for _ in range(2):
        made.epoch(duckdb_engine)
        published.publish(0)
    set_aside(made.lake, "by_town")
    made.epoch(duckdb_engine)
    published.publish(1)
    published.check(table_at)


def test_the_position_that_is_forgotten_is_found_in_the_records(
    made: PublishedLake, duckdb_engine: DuckDBEngine, table_at: TableAt, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = Published(made, "by_town")
    made.epoch(duckdb_engine)
    published.publish(1)
    made.epoch(duckdb_engine)
    monkeypatch.setattr("strandline.jobs.publish.topic.LocalTopic.position", lambda _: None)
    published.publish(2)
    published.check(table_at)


def origins(made: PublishedLake) -> set[tuple[bytes, bytes]]:
    """(table, generation) of the records."""
    headers = [dict(each[2]) for each in made.committed("by_town")]
    return {(each["strandline.table"], each["strandline.generation"]) for each in headers}


def identity(made: PublishedLake) -> bytes:
    head = reader.head(made.lake.table("by_town"))
    assert head is not None
    return head.record.table.encode()


def test_every_version_across_a_rename_replacements_and_a_lost_table(settings: Settings, table_at: TableAt) -> None:
    """By statements alone: what a reader noted then is what the topic still gives at the end."""
    plain = settings.model_copy(update={"engine": "duckdb"})
    lake, known = LakeLayout(settings.lake), dict[tuple[int, int], dict[str, tuple[object, ...]]]()

    def run(text: str) -> list[Any]:
        return list(Interpreter(plain, "p").run(text))

    def records() -> list[tuple[bytes, bytes | None, list[tuple[str, bytes]]]]:
        log = open_log(plain, lake)
        runs = [run for each, end in log.end_offsets("counted").items() for run in log.read("counted", each, 0, end)]
        return [
            (key or b"", value, [(name, said or b"") for name, said in headers or ()])
            for each in runs
            for key, value, headers in zip(each.keys, each.values, each.headers, strict=True)
        ]

    def noted(name: str, *more: str) -> None:
        run(f"INSERT INTO sales VALUES {', '.join(('(1, 2)', '(2, 5)', *more))};")
        drain(plain, "p", in_driver=True)
        found = reader.head(lake.table("counted"))
        (rows,) = run(f"SELECT shop, n, x FROM {name};")
        assert found is not None
        generation = max(int(dict(headers)["strandline.generation"]) for _, _, headers in records())
        known[generation, found.version] = {str(row[0]): tuple(row[1:]) for row in rows.rows}

    def replaced(name: str, select: str) -> None:
        query = f"SELECT shop, COUNT(*) AS n, {select} GROUP BY shop"
        run(f"CREATE OR REPLACE MATERIALIZED VIEW {name} WITH (KAFKA_TOPIC = 'counted') AS {query};")

    run("CREATE STREAM sales (shop INT KEY, qty INT) WITH (KAFKA_TOPIC = 'sales');")
    replaced("counted", "MAX(qty) AS x FROM sales")
    noted("counted", "(3, 1)")
    run("ALTER TABLE counted RENAME TO called;")
    noted("called", "(3, 9)")
    replaced("called", "MIN(qty) AS x FROM sales WHERE shop <> 3")
    noted("called")
    remove_folder(lake.table("counted"))
    for plan in plan_rebuilds(plain, ["counted"]):
        execute_rebuild(plain, plan)
    noted("called", "(4, 4)")
    replaced("called", "MAX(-qty) AS x FROM sales")
    noted("called", "(3, 0)")
    assert {generation for generation, _ in known} == {1, 2}
    assert len(known) == 5
    for (generation, version), rows in known.items():
        found = {json.loads(key): json.loads(value) for key, value in table_at(records(), generation, version).items()}
        assert {str(key): (each["n"], each["x"]) for key, each in found.items()} == rows, (generation, version)
