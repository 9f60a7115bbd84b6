"""CREATE FUNCTION … LANGUAGE PYTHON and CREATE TYPE: what may be named, who may drop it, and what uses it."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from strandline.jobs.catalog.catalog import Catalog, read_types
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import (
    FunctionRefused,
    InvalidQuery,
    NameInUse,
    NameTaken,
    SqlSyntaxError,
    TypeMismatch,
    UnknownName,
)
from strandline.jobs.model.settings import FunctionSettings, Settings, load_settings
from strandline.jobs.serve.results import Document, Message, Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk
from tests.support.python_function_stage import MODULE
from tests.unit.session.statements import message, rows, run

SPREAD = f"CREATE FUNCTION spread(low BIGINT, high BIGINT) RETURNS DOUBLE LANGUAGE PYTHON AS '{MODULE}:spread'"
STREAM = "CREATE STREAM s (id BIGINT KEY, low INT, high BIGINT, name VARCHAR) WITH (KAFKA_TOPIC = 't')"


@pytest.fixture
def session(settings: Settings) -> Interpreter:
    return Interpreter(settings.model_copy(update={"functions": FunctionSettings(modules=(MODULE,))}))


def say(session: Interpreter, text: str) -> str:
    *_, last = session.run(text)
    assert isinstance(last, Message)
    return last.text


def test_a_module_that_the_operator_does_not_name_is_never_imported(settings: Settings) -> None:
    """The error says what to type, for the operator to type it."""
    with pytest.raises(FunctionRefused) as refused:
        say(Interpreter(settings), "CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE PYTHON AS 'antigravity:fly'")
    assert refused.value.hint is not None
    assert 'modules = ["antigravity"]' in refused.value.hint
    assert "antigravity" not in sys.modules


def test_the_allow_list_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_FUNCTIONS__MODULES", json.dumps(["geo", "shop.prices"]))
    assert load_settings().functions.modules == ("geo", "shop.prices")
    monkeypatch.delenv("STRANDLINE_FUNCTIONS__MODULES")
    assert load_settings().functions.modules == ()


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("nonsense", "does not name Python code"),
        ("tests.support.python_functions:missing", "has no 'missing'"),
        ("tests.support.python_functions:NOT_CALLABLE", "cannot be called"),
        ("tests.no_such_module:f", "cannot be imported"),
    ],
)
def test_code_that_cannot_be_called_is_refused_at_create(settings: Settings, code: str, words: str) -> None:
    allowed = FunctionSettings(modules=(MODULE, "tests.no_such_module"))
    session = Interpreter(settings.model_copy(update={"functions": allowed}))
    with pytest.raises(FunctionRefused, match=words):
        say(session, f"CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE PYTHON AS '{code}'")
    assert not session.catalog.functions


def test_an_aggregate_without_its_methods_is_refused_by_name(session: Interpreter) -> None:
    text = f"CREATE AGGREGATE FUNCTION f(a INT) RETURNS INT LANGUAGE PYTHON AS '{MODULE}:Unfinished'"
    with pytest.raises(FunctionRefused, match="has no merge, finish"):
        say(session, text)


@pytest.mark.parametrize("name", ["UCASE", "count", "now"])
def test_functions_of_the_language_keep_their_names(session: Interpreter, name: str) -> None:
    with pytest.raises(NameTaken):
        say(session, f"CREATE FUNCTION {name}(a INT) RETURNS INT LANGUAGE PYTHON AS '{MODULE}:spread'")


@pytest.mark.parametrize(
    "text",
    [
        "CREATE FUNCTION f(a INT KEY) RETURNS INT LANGUAGE PYTHON AS 'm:f'",
        "CREATE FUNCTION f(a INT) LANGUAGE PYTHON AS 'm:f'",
        "CREATE FUNCTION f(a INT) RETURNS INT LANGUAGE PYTHON",
        "CREATE FUNCTION f(a) RETURNS INT LANGUAGE PYTHON AS 'm:f'",
    ],
)
def test_a_statement_that_is_not_complete_is_no_statement(session: Interpreter, text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        say(session, text)


def test_saying_it_again_changes_nothing_and_another_one_must_say_so(session: Interpreter) -> None:
    assert say(session, SPREAD) == "function 'SPREAD' created"
    assert say(session, SPREAD.replace("(low", "( low")) == "function 'SPREAD' unchanged"
    other = SPREAD.replace("DOUBLE", "DECIMAL(10, 2)")
    with pytest.raises(NameTaken):
        say(session, other)
    assert say(session, other.replace("CREATE", "CREATE OR REPLACE")) == "function 'SPREAD' replaced"
    assert session.catalog.functions["SPREAD"].returns == t.decimal(10, 2)


def test_functions_are_listed_and_described(session: Interpreter) -> None:
    say(session, SPREAD)
    *_, shown = session.run("SHOW FUNCTIONS")
    assert isinstance(shown, Rows)
    assert ("SPREAD", "python scalar") in shown.rows
    *_, described = session.run("DESCRIBE FUNCTION spread")
    assert isinstance(described, Document)
    assert described.data["code"] == f"{MODULE}:spread"
    assert described.data["parameters"] == [{"name": "low", "type": "BIGINT"}, {"name": "high", "type": "BIGINT"}]
    with pytest.raises(UnknownName, match="SPRED"):
        list(session.run("DESCRIBE FUNCTION spred"))


def test_a_function_of_the_language_is_described_by_its_kind(session: Interpreter) -> None:
    kinds = [
        each.data["kind"]
        for each in session.run("DESCRIBE FUNCTION sum; DESCRIBE FUNCTION ucase;")
        if isinstance(each, Document)
    ]
    assert kinds == ["aggregate", "scalar"]


def test_what_a_function_takes_is_described(session: Interpreter) -> None:
    (repeat,) = session.run("DESCRIBE FUNCTION repeat;")
    assert isinstance(repeat, Document)
    assert repeat.data["forms"] == [{"takes": ["VARCHAR", "INT"], "gives": "VARCHAR"}]
    (total,) = session.run("DESCRIBE FUNCTION sum;")
    assert isinstance(total, Document)
    assert {"takes": ["INT"], "gives": "BIGINT"} in total.data["forms"]
    (listed,) = session.run("DESCRIBE FUNCTION list_first;")
    assert isinstance(listed, Document)
    assert "LIST_FIRST(a) is a[1]" in listed.text
    (synonym,) = session.run("DESCRIBE FUNCTION listagg;")
    assert isinstance(synonym, Document)
    assert synonym.data["other_names"] == ["STRING_AGG"]


def test_a_function_comes_back_from_the_files_of_the_catalog(session: Interpreter, lake: LakeLayout) -> None:
    say(session, f"CREATE AGGREGATE FUNCTION longest(a VARCHAR) RETURNS VARCHAR LANGUAGE PYTHON AS '{MODULE}:Longest'")
    found = Catalog(lake).functions["LONGEST"]
    assert found == session.catalog.functions["LONGEST"]
    assert (found.aggregate, found.retracts) == (True, False)


def test_a_table_may_be_called_as_a_function_is(session: Interpreter) -> None:
    say(session, SPREAD)
    say(session, "CREATE STREAM spread (id BIGINT KEY) WITH (KAFKA_TOPIC = 'spread')")
    assert say(session, "DROP FUNCTION spread") == "'SPREAD' dropped"
    assert session.catalog.find("spread") is not None


def test_a_function_that_a_view_calls_can_be_neither_dropped_nor_changed(session: Interpreter) -> None:
    say(session, f"{SPREAD}; {STREAM}; CREATE STREAM v AS SELECT id, spread(low, high) AS half FROM s")
    for text in ("DROP FUNCTION spread", SPREAD.replace("CREATE", "CREATE OR REPLACE").replace("DOUBLE", "INT")):
        with pytest.raises(NameInUse, match="'v'"):
            say(session, text)
    say(session, "DROP STREAM v")
    assert say(session, "DROP FUNCTION spread") == "'SPREAD' dropped"
    assert say(session, "DROP FUNCTION IF EXISTS spread") == "'SPREAD' is not there"


def view_of(session: Interpreter) -> View:
    """The definition of `v`."""
    found = session.catalog.get("v")
    assert isinstance(found, View)
    return found


def test_types_are_checked_and_widened_at_create(session: Interpreter) -> None:
    say(session, f"{SPREAD}; {STREAM}; CREATE STREAM v AS SELECT id, spread(low, high) AS half FROM s")
    assert {column.name: column.type for column in view_of(session).columns}["half"] == t.DOUBLE
    with pytest.raises(TypeMismatch, match="argument 2 of SPREAD must be BIGINT"):
        say(session, "CREATE STREAM w AS SELECT id, spread(low, name) AS half FROM s")
    with pytest.raises(TypeMismatch, match="takes 2 arguments"):
        say(session, "CREATE STREAM w AS SELECT id, spread(low) AS half FROM s")


def test_an_aggregate_stands_only_where_aggregates_stand(session: Interpreter) -> None:
    say(session, f"CREATE AGGREGATE FUNCTION longest(a VARCHAR) RETURNS VARCHAR LANGUAGE PYTHON AS '{MODULE}:Longest'")
    say(session, STREAM)
    with pytest.raises(InvalidQuery, match="LONGEST cannot stand here"):
        say(session, "CREATE STREAM v AS SELECT id FROM s WHERE longest(name) = 'x'")
    say(session, "CREATE TABLE v AS SELECT high, longest(name) AS word FROM s GROUP BY high")


def test_the_rows_of_a_view_depend_on_the_source_of_its_functions(session: Interpreter) -> None:
    """Another source is another fingerprint, so that rows of one are never taken for rows of the other."""
    view = "CREATE STREAM v AS SELECT id, spread(low, high) AS half FROM s"
    say(session, f"{SPREAD}; {STREAM}; {view}")
    before = view_of(session).fingerprint
    say(session, "DROP STREAM v")
    changed = session.catalog.functions["SPREAD"]
    session.catalog.put_function(replace(changed, source="another"))
    say(session, view)
    assert view_of(session).fingerprint != before


def test_queries_call_functions_too(session: Interpreter) -> None:
    say(session, f"{SPREAD}; {STREAM}")
    *_, found = session.run("SELECT spread(3, 8) AS half, spread(NULL, 1) AS none")
    assert isinstance(found, Rows)
    assert list(found.rows) == [(2.5, None)]


# CREATE TYPE and DROP TYPE: a name for a type, in this text and in those after it.


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
