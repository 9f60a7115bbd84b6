"""SHOW, DESCRIBE and EXPLAIN: what there is, and where it stands."""

from __future__ import annotations

from strandline.jobs.serve.results import Document
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.lake_tables import append
from tests.unit.session.statements import STREAM, VIEW, rows, run


def test_show_lists_what_there_is(session: Interpreter) -> None:
    run(session, STREAM + VIEW + "CREATE MATERIALIZED VIEW m AS SELECT id FROM s; INSERT INTO s (id) VALUES (1), (2)")
    assert [row["name"] for row in rows(session, "SHOW STREAMS")] == ["s", "m"]
    assert [row["name"] for row in rows(session, "LIST TABLES")] == ["v"]
    assert [row["name"] for row in rows(session, "SHOW VIEWS")] == ["v", "m"]
    assert rows(session, "SHOW MATERIALIZED VIEWS") == rows(session, "SHOW VIEWS")
    assert rows(session, "SHOW TOPICS") == [{"topic": "t", "partitions": 3, "records": 2}]
    assert {"name": "COUNT", "kind": "aggregate"} in rows(session, "SHOW FUNCTIONS")


def test_describe_extended_says_where_the_table_stands(session: Interpreter, lake: LakeLayout) -> None:
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
        "rows": 3,
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
