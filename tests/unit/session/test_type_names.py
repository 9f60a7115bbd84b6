"""CREATE TYPE and DROP TYPE: a name for a type, in this text and in those after it."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.type_names import read_types
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import NameTaken, UnknownName
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import CorruptState
from tests.support.on_disk import on_disk
from tests.unit.session.statements import message, rows, run


def types_of(session: Interpreter, name: str) -> list[t.SqlType]:
    """The types of a definition's columns."""
    found = session.catalog.get(name)
    assert isinstance(found, Source | View)
    return [column.type for column in found.columns]


def test_a_name_stands_for_its_type_from_the_next_statement_on(session: Interpreter) -> None:
    run(session, "CREATE TYPE address AS STRUCT<street VARCHAR, zip INT>; CREATE STREAM p (id INT KEY, home ADDRESS);")
    struct = t.struct(("street", t.VARCHAR), ("zip", t.INT))
    assert types_of(session, "p") == [t.INT, struct]
    run(session, "CREATE TYPE addresses AS ARRAY<address>")
    assert read_types(session.lake) == {"address": struct, "addresses": t.array(struct)}
    run(session, "CREATE STREAM q AS SELECT id, CAST(NULL AS addresses) AS a FROM p")
    assert message(session, "DROP TYPE address") == "'address' dropped"
    assert types_of(session, "q") == [t.INT, t.array(struct)]
    assert rows(session, "SHOW TYPES") == [{"name": "addresses", "type": str(t.array(struct))}]


def test_a_name_is_given_once(session: Interpreter) -> None:
    assert message(session, "CREATE TYPE id AS INT") == "type 'id' created"
    assert message(session, "CREATE TYPE id AS INT") == "type 'id' unchanged"
    assert message(session, "CREATE TYPE IF NOT EXISTS id AS BIGINT") == "type 'id' unchanged"
    with pytest.raises(NameTaken, match="is INT"):
        run(session, "CREATE TYPE id AS BIGINT")
    assert message(session, "DROP TYPE IF EXISTS nope") == "'nope' is not there"
    with pytest.raises(UnknownName):
        run(session, "DROP TYPE nope")


def test_a_broken_file_of_types_says_so(session: Interpreter) -> None:
    run(session, "CREATE TYPE id AS INT")
    path = on_disk(session.lake.catalog / "types" / "types.json")
    path.write_bytes(path.read_bytes().replace(b"INT", b"DATE"))
    with pytest.raises(CorruptState, match="checksum"):
        read_types(session.lake)
