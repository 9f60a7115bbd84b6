"""DELETE and UPDATE of a table: records of its topic, made from what table and topic hold."""

from __future__ import annotations

import json
from decimal import Decimal

import pytest

from strandline.jobs.ingest import newest
from strandline.jobs.ingest.logs.open import open_log
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import (
    InvalidQuery,
    NotSupported,
    SourceBehind,
    SqlError,
    SqlSyntaxError,
    TypeMismatch,
    UnknownName,
)
from strandline.jobs.model.settings import Settings
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import Lake
from tests.support.lake_tables import append
from tests.unit.session.statements import STREAM, VIEW, message, run

TABLE = (
    "CREATE TABLE visit (product VARCHAR PRIMARY KEY, visitor VARCHAR PRIMARY KEY, length INT, at TIME, on_day DATE, "
    "price DECIMAL(6, 2), tags ARRAY<VARCHAR>, seen TIMESTAMP) "
    "WITH (KAFKA_TOPIC = 'visit', FORMAT = 'JSON', PARTITIONS = 2);"
)
ROWS = (
    "INSERT INTO visit (product, visitor, length, at, on_day, price, tags, seen) VALUES "
    "('leek', 'ann', 60, '10:30:00', '2024-02-29', 1.50, ARRAY['a', 'b'], '2024-02-29T10:00:00'), "
    "('leek', 'bob', 50, NULL, NULL, NULL, NULL, NULL);"
)


def records(settings: Settings, lake: Lake) -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) of all records of the table's topic; those of a key in their order."""
    log = open_log(settings, lake)
    ends = log.end_offsets("visit")
    runs = [run for number, end in ends.items() for run in log.read("visit", number, 0, end)]
    return [pair for each in runs for pair in zip(each.keys, each.values, strict=True)]


def test_delete_writes_a_tombstone_for_each_key(session: Interpreter, settings: Settings, lake: Lake) -> None:
    run(session, TABLE + ROWS)
    text = "DELETE FROM visit WHERE product = 'leek' AND visitor IN ('ann', 'bob', 'ann')"
    assert message(session, text) == "2 keys deleted from 'visit'"
    tombstones = sorted(key for key, value in records(settings, lake) if value is None and key is not None)
    assert tombstones == [b'{"product":"leek","visitor":"ann"}', b'{"product":"leek","visitor":"bob"}']


def test_update_writes_the_whole_row_from_what_waits_in_the_topic(
    session: Interpreter, settings: Settings, lake: Lake
) -> None:
    """Every type comes back as it was: the columns that are not SET."""
    run(session, TABLE + ROWS)
    (before,) = [value for key, value in records(settings, lake) if key is not None and b"ann" in key]
    text = "UPDATE visit SET length = 61 WHERE visitor = 'ann' AND product = 'leek'"
    assert message(session, text) == "1 row of 'visit' updated"
    *_, after = [value for key, value in records(settings, lake) if key is not None and b"ann" in key]
    assert before is not None
    assert after == before.replace(b":60", b":61")
    assert message(session, text.replace("61", "NULL")) == "1 row of 'visit' updated"


def test_update_writes_the_whole_row_from_the_table(session: Interpreter, settings: Settings, lake: Lake) -> None:
    run(session, TABLE)
    stored = {"product": "leek", "visitor": "ann", "length": 60, "at": 37_800_000, "price": Decimal("1.50")}
    append(lake, "visit", [stored, {**stored, "visitor": "bob"}])
    run(session, "UPDATE visit SET length = 61 WHERE visitor = 'ann' AND product = 'leek'")
    ((_, value),) = records(settings, lake)
    assert value is not None
    written = json.loads(value)
    assert {name: written[name] for name in ("length", "at", "price")} == {"length": 61, "at": 37_800_000, "price": 1.5}


def test_a_key_without_a_row_is_not_updated(session: Interpreter, settings: Settings, lake: Lake) -> None:
    run(session, TABLE + ROWS + "DELETE FROM visit WHERE product = 'leek' AND visitor = 'ann';")
    for visitor in ("ann", "eve"):
        text = f"UPDATE visit SET length = 1 WHERE product = 'leek' AND visitor = '{visitor}'"
        assert message(session, text) == "0 rows of 'visit' updated"
    assert len(records(settings, lake)) == 3


def test_a_long_backlog_is_for_the_pipeline(session: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest, "_MOST_WAITING", 1)
    run(session, TABLE + ROWS)
    with pytest.raises(SourceBehind, match="2 events of 'visit' wait"):
        run(session, "UPDATE visit SET length = 1 WHERE product = 'leek' AND visitor = 'ann'")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("DELETE FROM visit", SqlSyntaxError),
        ("DELETE visit WHERE product = 'x'", SqlSyntaxError),
        ("DELETE FROM visit WHERE product = 'x'", InvalidQuery),
        ("DELETE FROM visit WHERE product = 'x' AND visitor = 'y' AND length = 3", InvalidQuery),
        ("DELETE FROM visit WHERE product = 'x' OR visitor = 'y'", InvalidQuery),
        ("DELETE FROM visit WHERE product = 'x' AND product = 'y'", InvalidQuery),
        ("DELETE FROM visit WHERE product > 'x' AND visitor = 'y'", InvalidQuery),
        ("DELETE FROM visit WHERE product = 1 AND visitor = 'y'", TypeMismatch),
        ("DELETE FROM visit WHERE product = visitor AND visitor = 'y'", NotSupported),
        ("DELETE FROM nope WHERE product = 'x'", UnknownName),
        ("DELETE FROM s WHERE id = 1", InvalidQuery),
        ("DELETE FROM v WHERE id = 1", InvalidQuery),
        ("UPDATE visit SET length = 1", SqlSyntaxError),
        ("UPDATE visit SET length = 'x' WHERE product = 'x' AND visitor = 'y'", TypeMismatch),
        ("UPDATE visit SET product = 'z' WHERE product = 'x' AND visitor = 'y'", InvalidQuery),
        ("UPDATE visit SET width = 1 WHERE product = 'x' AND visitor = 'y'", UnknownName),
        ("UPDATE visit SET length = 1, length = 2 WHERE product = 'x' AND visitor = 'y'", InvalidQuery),
    ],
)
def test_what_does_not_name_keys_is_refused(session: Interpreter, text: str, error: type[SqlError]) -> None:
    run(session, TABLE + STREAM + VIEW)
    with pytest.raises(error) as refused:
        run(session, text)
    assert refused.value.line == 1
    assert isinstance(session.catalog.get("visit"), Source)
