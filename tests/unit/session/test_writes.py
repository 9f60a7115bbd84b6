"""INSERT, UPDATE and DELETE: records of constants, or a refusal of the whole statement."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from decimal import Decimal

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest import produce
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model import types as t
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
from strandline.jobs.model.types import SqlType
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.writes import evaluate
from strandline.state_store.layout import LakeLayout
from tests.support.lake_tables import append
from tests.support.parsed import parse_expression
from tests.unit.session.statements import STREAM, VIEW, message, run


def test_rows_are_given_to_the_source_as_values_of_its_columns(
    session: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[Mapping[str, object]] = []

    def kept(_source: Source, rows: Sequence[Mapping[str, object]], *_: object) -> int:
        given.extend(rows)
        return len(rows)

    monkeypatch.setattr(produce, "insert_rows", kept)
    run(session, STREAM)
    run(session, "INSERT INTO s VALUES (1, 'it''s', 1.5)")
    text = "INSERT INTO s (name, id, ROWTIME) VALUES (NULL, 2 + 3 * 4, 99), ('x', 7, 0)"
    assert message(session, text) == "2 rows inserted into 's'"
    assert given == [
        {"id": 1, "name": "it's", "d": Decimal("1.50")},
        {"name": None, "id": 14, "rowtime": 99},
        {"name": "x", "id": 7, "rowtime": 0},
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("INSERT INTO nope VALUES (1)", UnknownName),
        ("INSERT INTO v VALUES (1, 1)", InvalidQuery),
        ("INSERT INTO s VALUES (1)", InvalidQuery),
        ("INSERT INTO s (id, id) VALUES (1, 1)", InvalidQuery),
        ("INSERT INTO s (ids) VALUES (1)", UnknownName),
        ("INSERT INTO s (id) VALUES (1), ('x')", TypeMismatch),
        ("INSERT INTO s (id) VALUES (9223372036854775808)", TypeMismatch),
        ("INSERT INTO s (d) VALUES (1.005)", TypeMismatch),
        ("INSERT INTO s (d) VALUES (12345)", TypeMismatch),
        ("INSERT INTO s (id) VALUES (1 / 0)", InvalidQuery),
        ("INSERT INTO s (id) VALUES (name)", NotSupported),
    ],
)
def test_a_wrong_row_is_refused_and_nothing_is_written(
    session: Interpreter, settings: Settings, lake: LakeLayout, text: str, error: type[SqlError]
) -> None:
    run(session, STREAM + VIEW)
    with pytest.raises(error):
        run(session, text)
    assert sum(open_log(settings, lake).end_offsets("t").values()) == 0


# DELETE and UPDATE of a table: records of its topic, made from what table and topic hold.

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


def records(settings: Settings, lake: LakeLayout) -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) of all records of the table's topic; those of a key in their order."""
    log = open_log(settings, lake)
    ends = log.end_offsets("visit")
    runs = [run for number, end in ends.items() for run in log.read("visit", number, 0, end)]
    return [pair for each in runs for pair in zip(each.keys, each.values, strict=True)]


def test_a_column_that_is_not_null_is_given_in_every_row(session: Interpreter, lake: LakeLayout) -> None:
    run(session, "CREATE TABLE z (id INT NOT NULL PRIMARY KEY, n INT NOT NULL, s VARCHAR);")
    stored = Catalog(lake).get("z")
    assert isinstance(stored, Source)
    assert [each.required for each in stored.columns] == [True, True, False]
    for values in ("(id, s) VALUES (1, 'a')", "VALUES (1, 2, 'a'), (2, NULL, 'b')"):
        with pytest.raises(TypeMismatch, match="'n' is NOT NULL"):
            run(session, f"INSERT INTO z {values}")
    assert message(session, "INSERT INTO z (id, n) VALUES (1, 2)") == "1 row inserted into 'z'"
    with pytest.raises(TypeMismatch, match="'n' is NOT NULL"):
        run(session, "UPDATE z SET n = NULL WHERE id = 1")


def test_delete_writes_a_tombstone_for_each_key(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    run(session, TABLE + ROWS)
    text = "DELETE FROM visit WHERE product = 'leek' AND visitor IN ('ann', 'bob', 'ann')"
    assert message(session, text) == "2 keys deleted from 'visit'"
    tombstones = sorted(key for key, value in records(settings, lake) if value is None and key is not None)
    assert tombstones == [b'{"product":"leek","visitor":"ann"}', b'{"product":"leek","visitor":"bob"}']


def test_update_writes_the_whole_row_from_what_waits_in_the_topic(
    session: Interpreter, settings: Settings, lake: LakeLayout
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


def test_update_writes_the_whole_row_from_the_table(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    run(session, TABLE)
    stored = {"product": "leek", "visitor": "ann", "length": 60, "at": 37_800_000, "price": Decimal("1.50")}
    append(lake, "visit", [stored, {**stored, "visitor": "bob"}])
    run(session, "UPDATE visit SET length = 61 WHERE visitor = 'ann' AND product = 'leek'")
    ((_, value),) = records(settings, lake)
    assert value is not None
    written = json.loads(value)
    assert {name: written[name] for name in ("length", "at", "price")} == {"length": 61, "at": 37_800_000, "price": 1.5}


def test_a_key_without_a_row_is_not_updated(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    run(session, TABLE + ROWS + "DELETE FROM visit WHERE product = 'leek' AND visitor = 'ann';")
    for visitor in ("ann", "eve"):
        text = f"UPDATE visit SET length = 1 WHERE product = 'leek' AND visitor = '{visitor}'"
        assert message(session, text) == "0 rows of 'visit' updated"
    assert len(records(settings, lake)) == 3


def test_a_long_backlog_is_for_the_pipeline(session: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(produce, "_MOST_WAITING", 1)
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


# Constant expressions: exactly the value that SQL gives them.


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("-9223372036854775807 - 1", t.BIGINT, -(2**63)),
        ("7 / 2", t.INT, 3),
        ("-7 / 2", t.INT, -3),
        ("-7 % 3", t.INT, -1),
        ("1 / 8.0", t.DOUBLE, 0.125),
        ("1", t.DOUBLE, 1.0),
        ("1e3", t.DOUBLE, 1000.0),
        ("0.1 + 0.2", t.decimal(3, 1), Decimal("0.3")),
        ("12345678901234567890123456789012345678", t.decimal(38, 0), Decimal("12345678901234567890123456789012345678")),
        ("'a' || 'b'", t.VARCHAR, "ab"),
        ("CAST(1.5 AS VARCHAR)", t.VARCHAR, "1.5"),
        ("CAST('12' AS INT)", t.BIGINT, 12),
        ("CAST(2.9 AS INT)", t.INT, 2),
        ("CAST(1.005 AS DECIMAL(4, 2))", t.decimal(4, 2), Decimal("1.01")),
        ("NULL + 1", t.INT, None),
        ("TRUE", t.BOOLEAN, True),
        ("'12'", t.BIGINT, 12),
        ("' -1.50'", t.decimal(4, 2), Decimal("-1.50")),
        ("'1e3'", t.DOUBLE, 1000.0),
        ("'true'", t.BOOLEAN, True),
        ("5.0", t.INT, 5),
        ("'2024-05-01'", t.DATE, dt.date(2024, 5, 1)),
        ("TIME '09:35:00.250'", t.TIME, 34_500_250),
        ("'09:35'", t.TIME, 34_500_000),
        ("'2024-05-01T12:00:00+02:00'", t.TIMESTAMP, dt.datetime(2024, 5, 1, 10, tzinfo=dt.UTC)),
        ("TO_BYTES('00ff', 'hex')", t.BYTES, b"\x00\xff"),
        ("ARRAY[1, NULL, 2 + 1]", t.array(t.BIGINT), [1, None, 3]),
        ("MAP('a' := 1, 'b' := NULL)", t.map_of(t.VARCHAR, t.DOUBLE), {"a": 1.0, "b": None}),
        ("STRUCT(x := 1)", t.struct(("x", t.INT), ("y", t.VARCHAR)), {"x": 1, "y": None}),
    ],
)
def test_constant_expressions_have_exactly_the_value_of_sql(text: str, kind: SqlType, value: object) -> None:
    found = evaluate(parse_expression(text), kind, "c")
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("'x'", t.INT),
        ("'1.5'", t.INT),
        ("'2147483648'", t.INT),
        ("'1.005'", t.decimal(4, 2)),
        ("'NaN'", t.decimal(4, 2)),
        ("'maybe'", t.BOOLEAN),
        ("'1' || '2'", t.INT),
        ("5.5", t.INT),
        ("5", t.VARCHAR),
    ],
)
def test_what_a_column_cannot_hold_is_refused(text: str, kind: SqlType) -> None:
    with pytest.raises(TypeMismatch, match="column 'c'"):
        evaluate(parse_expression(text), kind, "c")
