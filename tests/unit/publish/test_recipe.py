"""The recipe of docs/changelog-topic.md gives each version of a table, also after its versions began anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.model.settings import Settings
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.digest import Digest
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.files import remove_file
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
    monkeypatch.setattr("strandline.jobs.publish.local_topic.LocalTopic.position", lambda _: None)
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
