"""The text of a definition with other names for its relations: what changes, and what stays as it was typed."""

from __future__ import annotations

import pickle
import shlex

import pytest

from strandline.jobs.catalog.name_map import NameMap
from strandline.jobs.catalog.stored_names import renamed_text, stored_statement
from strandline.jobs.model.errors import InvalidQuery, NameTaken, UnknownName
from strandline.jobs.sql.dialect import quote, sql_of
from strandline.jobs.sql.statements import parse_one
from strandline.jobs.sql.syntax import CreateView, Select
from strandline.state_store.errors import StrandlineError
from strandline.state_store.wording import Name, quoted, sentence

NAMES = NameMap({"old": "new", "t": "Two Words"})


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ("CREATE TABLE old AS SELECT a FROM s", "CREATE TABLE new AS SELECT a FROM s"),
        ("create or replace table Old\n  as select A -- of old\n from OLD", None),
        (
            "CREATE STREAM x AS SELECT old FROM old WHERE old = 'old'",
            "CREATE STREAM x AS SELECT old FROM new WHERE old = 'old'",
        ),
        ("CREATE TABLE x AS SELECT o.a FROM old o", "CREATE TABLE x AS SELECT o.a FROM new o"),
        ("CREATE TABLE x AS SELECT a FROM old AS new", "CREATE TABLE x AS SELECT a FROM new"),
        ("CREATE TABLE x AS SELECT old.a FROM old", "CREATE TABLE x AS SELECT old.a FROM new AS old"),
        (
            "CREATE TABLE x AS SELECT * FROM old JOIN s ON k = l",
            "CREATE TABLE x AS SELECT * FROM new AS old JOIN s ON k = l",
        ),
        ("INSERT INTO old SELECT a FROM t", "INSERT INTO new SELECT a FROM `Two Words`"),
        (
            "CREATE MATERIALIZED VIEW IF NOT EXISTS t AS SELECT 1 AS one",
            "CREATE MATERIALIZED VIEW IF NOT EXISTS `Two Words` AS SELECT 1 AS one",
        ),
        (
            "CREATE SOURCE STREAM old (old INT) WITH (KAFKA_TOPIC = 'old')",
            "CREATE SOURCE STREAM new (old INT) WITH (KAFKA_TOPIC = 'old')",
        ),
        (
            "CREATE STREAM old (a INT);\nALTER STREAM old ADD COLUMN b INT",
            "CREATE STREAM new (a INT);\nALTER STREAM new ADD COLUMN b INT",
        ),
        (
            "CREATE TABLE x AS WITH old AS (SELECT a FROM old) SELECT a FROM old",
            "CREATE TABLE x AS WITH old AS (SELECT a FROM new) SELECT a FROM old",
        ),
        ("SELECT a FROM s WHERE a IN (SELECT b FROM old)", "SELECT a FROM s WHERE a IN (SELECT b FROM new)"),
        ("SELECT a FROM old__dead_letters", "SELECT a FROM new__dead_letters"),
        (
            "SELECT x.a FROM TUMBLE(old, at, INTERVAL '1' HOUR) AS x",
            "SELECT x.a FROM TUMBLE(new, at, INTERVAL '1' HOUR) AS x",
        ),
        (
            "SELECT old.a FROM TUMBLE(old, at, INTERVAL '1' HOUR)",
            "SELECT old.a FROM TUMBLE(new, at, INTERVAL '1' HOUR) AS old",
        ),
    ],
)
def test_relations_have_the_names_that_they_have_now(stored: str, shown: str | None) -> None:
    wanted = shown or "create or replace table new\n  as select A -- of old\n from new"
    assert renamed_text(stored, NAMES.of) == wanted


def test_a_text_with_a_type_that_is_gone_still_has_its_name() -> None:
    assert renamed_text("CREATE STREAM old (a money)", NAMES.of) == "CREATE STREAM new (a money)"


@pytest.mark.parametrize(
    ("said", "stored"),
    [
        ("SELECT new.a FROM new", "SELECT new.a FROM old AS new"),
        (
            "SELECT n.a FROM new n JOIN `Two Words` ON n.k = 1",
            "SELECT n.a FROM old AS n JOIN t AS `Two Words` ON n.k = 1",
        ),
        (
            "WITH new AS (SELECT a FROM new) SELECT a FROM new",
            "WITH new AS (SELECT a FROM old AS new) SELECT a FROM new",
        ),
        (
            "SELECT a FROM s WHERE EXISTS (SELECT 1 FROM new WHERE new.k = s.k)",
            "SELECT a FROM s WHERE EXISTS(SELECT 1 FROM old AS new WHERE new.k = s.k)",
        ),
        ("SELECT a FROM HOP(new, at, INTERVAL '1' HOUR, INTERVAL '2' HOUR)", None),
        ("SELECT a FROM new AS x (a, b)", "SELECT a FROM old AS x(a, b)"),
        ("SELECT a FROM s", "SELECT a FROM s"),
    ],
)
def test_a_query_reads_what_is_stored(said: str, stored: str | None) -> None:
    statement = stored_statement(parse_one(said), NAMES)
    assert isinstance(statement, Select)
    found = sql_of(statement.query)
    assert found == stored if stored else found.startswith("SELECT a FROM HOP(old, at, ") and found.endswith(" AS new")


def test_a_definition_is_kept_with_stored_names_in_its_text_too() -> None:
    statement = stored_statement(parse_one("CREATE TABLE new AS SELECT a, COUNT(*) AS n FROM new GROUP BY a"), NAMES)
    assert isinstance(statement, CreateView)
    assert statement.name == "old"
    assert statement.sql == "CREATE TABLE old AS SELECT a, COUNT(*) AS n FROM old GROUP BY a"


@pytest.mark.parametrize(
    ("text", "error", "place", "hint"),
    [
        ("SELECT a\n FROM s JOIN old ON 1 = 1", UnknownName, "line 2, column 14", "write new"),
        ("SELECT a FROM old__dead_letters", UnknownName, "line 1, column 15", "write new__dead_letters"),
        ("DROP TABLE IF EXISTS old", UnknownName, "line 1, column 1", "write new"),
        ("INSERT INTO old VALUES (1)", UnknownName, "line 1, column 1", "write new"),
        ("ALTER TABLE old RENAME TO x", UnknownName, "line 1, column 1", "write new"),
        ("CREATE STREAM old (a INT)", NameTaken, "line 1, column 1", "write CREATE … new, which is there already"),
        ("WITH old AS (SELECT 1 AS one) SELECT one FROM new, old", InvalidQuery, "line 1, column 47", "give the part"),
    ],
)
def test_a_former_name_is_unknown(text: str, error: type[StrandlineError], place: str, hint: str) -> None:
    with pytest.raises(error) as caught:
        stored_statement(parse_one(text), NAMES)
    assert caught.value.where == place
    assert str(caught.value.hint).startswith(hint)


def test_a_sentence_has_the_names_that_definitions_are_called_by() -> None:
    text = sentence("{} is read by {}", quoted(["old"]), quoted(["t__dead_letters", "x"]))
    assert text == "'old' is read by 't__dead_letters', 'x'"
    assert NAMES.localized(text) == "'new' is read by 'Two Words__dead_letters', 'x'"
    assert NAMES.localized(sentence("DROP STREAM {} first", Name("t", quote))) == "DROP STREAM `Two Words` first"
    assert NAMES.localized(sentence("rebuild {}", Name("t__log", shlex.quote))) == "rebuild 'Two Words__log'"


def test_words_and_values_of_a_sentence_stay() -> None:
    text = sentence("column '{}' takes INT, not '{}', as FROM old says of {}", "old", "t", Name("s"))
    assert NAMES.localized(text) == "column 'old' takes INT, not 't', as FROM old says of s"
    assert NAMES.localized("'old' is a text without names") == "'old' is a text without names"


def test_an_error_is_told_with_its_names() -> None:
    error = UnknownName(
        sentence("'{}' has no column 'old'", Name("old")), hint=sentence("DESCRIBE {}", Name("t", quote))
    )
    again = pickle.loads(pickle.dumps(error.message))
    assert NAMES.localized(again) == NAMES.localized_error(error).message == "'new' has no column 'old'"
    assert error.hint == "DESCRIBE `Two Words`"
    assert NAMES.localized_error(error).message == "'new' has no column 'old'"


def test_a_sentence_has_a_place_for_each_value() -> None:
    with pytest.raises(ValueError, match="zip"):
        sentence("'{}' and '{}'", 1)
