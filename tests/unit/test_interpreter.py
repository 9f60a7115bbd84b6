"""Statements executed without a JVM: definitions, inserts, drops, listings, properties."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from jobs.ingest import produce
from jobs.ingest.logs.open import open_log
from jobs.model import types as t
from jobs.model.errors import (
    InvalidQuery,
    NameInUse,
    NameTaken,
    NotSupported,
    OptionRefused,
    SqlError,
    SqlSyntaxError,
    TypeMismatch,
    UnknownName,
)
from jobs.model.settings import Settings
from jobs.model.types import SqlType
from jobs.serve.results import Document, Message, Result, Rows
from jobs.session.apply import apply
from jobs.session.conversions import assign
from jobs.session.interpreter import Interpreter
from jobs.session.literals import evaluate
from jobs.session.status import status
from jobs.sql.from_text import parse_expression
from state_store.errors import WriterBusy
from state_store.layout import Lake
from state_store.lock import writer_lock
from tests.lake_tables import append, events

STREAM = "CREATE STREAM s (id BIGINT KEY, name VARCHAR, d DECIMAL(6, 2)) WITH (KAFKA_TOPIC = 't', PARTITIONS = 3);"
VIEW = "CREATE TABLE v AS SELECT id, COUNT(*) AS n FROM s GROUP BY id;"


@pytest.fixture
def session(settings: Settings) -> Interpreter:
    return Interpreter(settings)


def run(session: Interpreter, text: str) -> Result:
    """The result of the last statement."""
    *_, last = session.run(text)
    return last


def message(session: Interpreter, text: str) -> str:
    found = run(session, text)
    assert isinstance(found, Message)
    return found.text


def rows(session: Interpreter, text: str) -> list[dict[str, object]]:
    found = run(session, text)
    assert isinstance(found, Rows)
    return [dict(zip(found.names, row, strict=True)) for row in found.rows]


# --- definitions -----------------------------------------------------------------------------------------------------


def test_a_stream_is_registered_with_its_topic(session: Interpreter, settings: Settings, lake: Lake) -> None:
    assert message(session, STREAM) == "stream 's' created (pipeline 'default')"
    assert open_log(settings, lake).end_offsets("t") == {0: 0, 1: 0, 2: 0}


def test_saying_the_same_again_changes_nothing(session: Interpreter) -> None:
    run(session, STREAM + VIEW)
    before = session.catalog.definitions()
    again = STREAM.replace("(id BIGINT KEY, ", "( id   bigint KEY,\n") + VIEW.lower()
    assert [str(result) for result in session.run(again)] == [
        str(Message("stream 's' unchanged (pipeline 'default')")),
        str(Message("table 'v' unchanged (pipeline 'default')")),
    ]
    assert session.catalog.definitions() == before


def test_another_definition_of_a_name_needs_or_replace(session: Interpreter, lake: Lake) -> None:
    run(session, STREAM)
    other = STREAM.replace("name VARCHAR", "name INT")
    with pytest.raises(NameTaken):
        run(session, other)
    assert "replaced" in message(session, other.replace("CREATE", "CREATE OR REPLACE"))
    events(lake, "s", [{"id": 1, "name": 1}])
    with pytest.raises(NotSupported, match="has rows in the lake"):
        run(session, STREAM.replace("CREATE", "CREATE OR REPLACE"))


def test_a_text_that_cannot_be_read_executes_nothing(session: Interpreter) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        run(session, STREAM + "\nSELEC 1;")
    assert (caught.value.line, session.catalog.names()) == (2, ())


def test_dropping_takes_the_table_away_and_leaves_the_topic(
    session: Interpreter, settings: Settings, lake: Lake
) -> None:
    run(session, STREAM + VIEW + "INSERT INTO s (id) VALUES (1);")
    append(lake, "v", [{"id": 1, "n": 1}])
    with pytest.raises(NameInUse):
        run(session, "DROP STREAM s")
    with pytest.raises(NotSupported, match="is no stream"):
        run(session, "DROP STREAM v")
    run(session, "DROP TABLE v; DROP STREAM s;")
    assert session.catalog.names() == ()
    assert list(lake.table("v").parent.iterdir()) == []
    assert sum(open_log(settings, lake).end_offsets("t").values()) == 1
    with pytest.raises(UnknownName):
        run(session, "DROP TABLE v")
    assert "is not there" in message(session, "DROP TABLE IF EXISTS v")


def test_what_a_running_pipeline_writes_is_not_dropped(session: Interpreter, lake: Lake) -> None:
    run(session, STREAM)
    with writer_lock(lake.lock("default"), "run"), pytest.raises(WriterBusy):
        run(session, "DROP STREAM s")
    assert session.catalog.names() == ("s",)


def test_a_query_into_a_stream_is_registered_once(session: Interpreter) -> None:
    run(session, STREAM + STREAM.replace("STREAM s", "STREAM s2").replace("'t'", "'t2'"))
    text = "INSERT INTO s2 SELECT id, name, d FROM s WHERE id > 3"
    assert "created" in message(session, text)
    assert "unchanged" in message(session, text)
    assert [row["writes"] for row in rows(session, "SHOW QUERIES")] == ["s2"]


# --- INSERT INTO … VALUES --------------------------------------------------------------------------------------------


def test_rows_are_given_to_the_source_as_values_of_its_columns(
    session: Interpreter, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, object]] = []
    monkeypatch.setattr(produce, "insert_rows", lambda _source, values, *_: given.extend(values) or len(values))
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
    session: Interpreter, settings: Settings, lake: Lake, text: str, error: type[SqlError]
) -> None:
    run(session, STREAM + VIEW)
    with pytest.raises(error):
        run(session, text)
    assert sum(open_log(settings, lake).end_offsets("t").values()) == 0


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
    ("value", "kind"),
    [
        ("1", t.INT),
        (1, t.VARCHAR),
        (True, t.INT),
        (1, t.BOOLEAN),
        (2**31, t.INT),
        (1.5, t.BIGINT),
        (1.5, t.decimal(3, 1)),
        ("nonsense", t.DATE),
        ("25:00", t.TIME),
        ([1], t.map_of(t.VARCHAR, t.INT)),
        (["x"], t.array(t.INT)),
        ({"z": 1}, t.struct(("x", t.INT))),
        (Decimal("NaN"), t.decimal(3, 1)),
        ("text", t.BYTES),
    ],
)
def test_a_value_that_would_lose_something_is_refused_by_the_name_of_its_column(value: Any, kind: SqlType) -> None:
    with pytest.raises(TypeMismatch, match="column 'c'"):
        assign(value, kind, "column 'c'")


# --- listings and properties -----------------------------------------------------------------------------------------


def test_show_lists_what_there_is(session: Interpreter) -> None:
    run(session, STREAM + VIEW + "CREATE MATERIALIZED VIEW m AS SELECT id FROM s; INSERT INTO s (id) VALUES (1), (2)")
    assert [row["name"] for row in rows(session, "SHOW STREAMS")] == ["s", "m"]
    assert [row["name"] for row in rows(session, "LIST TABLES")] == ["v"]
    assert [row["name"] for row in rows(session, "SHOW VIEWS")] == ["v", "m"]
    assert rows(session, "SHOW TOPICS") == [{"topic": "t", "partitions": 3, "records": 2}]
    assert {"name": "COUNT", "kind": "aggregate"} in rows(session, "SHOW FUNCTIONS")


def test_describe_extended_says_where_the_table_stands(session: Interpreter, lake: Lake) -> None:
    run(session, STREAM + VIEW)
    append(lake, "v", [{"id": 1, "n": 1}])
    append(lake, "v", [{"id": 2, "n": 1}, {"id": 3, "n": 1}], epoch=1)
    found = run(session, "DESCRIBE v EXTENDED")
    assert isinstance(found, Document)
    assert found.data["columns"] == [
        {"name": "id", "type": "BIGINT", "key": True},
        {"name": "n", "type": "BIGINT", "key": False},
    ]
    assert {name: found.data[name] for name in ("version", "epoch", "rows", "reads")} == {
        "version": 1,
        "epoch": 1,
        "rows": 2,
        "reads": ["s"],
    }
    assert "table 'v'" in found.text
    plain = run(session, "DESCRIBE s")
    assert isinstance(plain, Document)
    assert plain.data["value_format"] == "JSON"


def test_explain_shows_the_plan(session: Interpreter) -> None:
    run(session, STREAM + VIEW)
    found = run(session, "EXPLAIN v")
    assert isinstance(found, Document)
    assert "stage 1 of 1" in found.text


def test_only_known_properties_can_be_set(session: Interpreter) -> None:
    run(session, "SET 'auto.offset.reset' = 'latest'")
    assert session.session.from_latest
    assert rows(session, "SHOW PROPERTIES") == [{"property": "auto.offset.reset", "value": "latest"}]
    run(session, "UNSET 'auto.offset.reset'")
    assert not session.session.from_latest
    for text in ("SET 'auto.offset.reset' = 'middle'", "SET 'sasl.jaas.config' = 'x'", "UNSET 'x'"):
        with pytest.raises(OptionRefused):
            run(session, text)


# --- files and status ------------------------------------------------------------------------------------------------


def test_applying_a_file_registers_all_of_it_or_nothing(tmp_path: Path, settings: Settings, lake: Lake) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(STREAM + VIEW + "CREATE TABLE w AS SELECT nope FROM s GROUP BY nope;")
    with pytest.raises(UnknownName):
        apply(file, settings)
    assert Interpreter(settings).catalog.names() == ()
    assert open_log(settings, lake).topics() == []
    file.write_text(STREAM + VIEW + "INSERT INTO s (id) VALUES (1);")
    applied = apply(file, settings)
    assert [change.outcome for change in applied.changes] == ["created", "created"]
    assert (applied.pipeline, applied.skipped) == ("shop", {"INSERT INTO": 1})
    assert sum(open_log(settings, lake).end_offsets("t").values()) == 0
    file.write_text(STREAM)
    again = apply(file, settings)
    assert ([change.outcome for change in again.changes], again.missing) == (["unchanged"], ("v",))


def test_status_counts_what_is_not_in_yet(session: Interpreter, settings: Settings, lake: Lake) -> None:
    run(session, STREAM + VIEW + "INSERT INTO s (id) VALUES (1), (2);")

    def lags() -> dict[object, tuple[object, ...]]:
        return {row[1]: (row[3], row[5], row[6], row[7]) for row in status(settings).rows}

    assert lags() == {"s": (None, None, 2, "events"), "v": (None, None, 0, "versions")}
    events(lake, "s", [{"id": 1}, {"id": 2}])
    assert lags() == {"s": (0, 2, 2, "events"), "v": (None, None, 1, "versions")}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("TIMESTAMP = 'at', TIMESTAMP_FORMAT = 'yyyy-QQ'", "TIMESTAMP_FORMAT"),
        ("TIMESTAMP = 'gone'", "gone"),
        ("TIMESTAMP = 'id', TIMESTAMP_FORMAT = 'yyyy-MM-dd'", "VARCHAR"),
    ],
)
def test_an_event_time_that_cannot_be_read_is_refused_at_create(options: str, fault: str, settings: Settings) -> None:
    """Found at CREATE, not when the first record comes; the catalog stays as it was."""
    interpreter = Interpreter(settings)
    with pytest.raises(SqlError, match=fault):
        list(interpreter.run(f"CREATE STREAM late (id BIGINT, at VARCHAR) WITH ({options});"))
    assert interpreter.catalog.find("late") is None
