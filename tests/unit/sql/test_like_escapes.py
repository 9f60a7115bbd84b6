"""The backslash of LIKE is written out when a statement is read, and nowhere else."""

from __future__ import annotations

import pytest

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.settings import Settings
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import parse_query
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a LIKE 'x%'", r"a LIKE 'x%'"),
        (r"a LIKE 'x\_'", r"a LIKE 'x\_' ESCAPE '\'"),
        (r"a NOT LIKE 'x\_'", r"a NOT LIKE 'x\_' ESCAPE '\'"),
        (r"a ILIKE 'x\_'", r"LCASE(a) LIKE LCASE('x\_') ESCAPE '\'"),
        (r"a LIKE b", r"a LIKE b ESCAPE '\'"),
        (r"a LIKE 'x\!%' ESCAPE '!'", r"a LIKE 'x\!%' ESCAPE '!'"),
        (r"a LIKE ANY ('x%', 'y\_')", r"(a LIKE 'x%' OR a LIKE 'y\_' ESCAPE '\')"),
        (r"a NOT LIKE ALL ('x%', 'y')", r"(a NOT LIKE 'x%' AND a NOT LIKE 'y')"),
        (r"a ILIKE SOME (ARRAY['x'])", r"(LCASE(a) LIKE LCASE('x'))"),
        (r"a LIKE ANY ('x!%', b) ESCAPE '!'", r"(a LIKE 'x!%' ESCAPE '!' OR a LIKE b ESCAPE '!')"),
    ],
)
def test_a_like_with_a_backslash_names_its_escape(written: str, read: str) -> None:
    (statement,) = parse(f"SELECT a FROM t WHERE {written};")
    assert isinstance(statement, Select)
    assert sql_of(statement.query) == sql_of(parse_query(f"SELECT a FROM t WHERE {read}"))


def test_the_text_of_a_view_from_before_keeps_its_meaning() -> None:
    text = r"SELECT a FROM t WHERE a LIKE 'x\_'"
    assert sql_of(parse_query(text)) == text


def test_a_pull_finds_what_the_backslash_takes_for_itself(settings: Settings) -> None:
    session = Interpreter(settings)
    (found,) = session.run(r"SELECT v FROM (VALUES ('a_b'), ('axb'), ('a\b')) AS t (v) WHERE v LIKE 'a\_b'")
    assert isinstance(found, Rows)
    assert list(found.rows) == [("a_b",)]
    with pytest.raises(InvalidQuery, match="ends in its ESCAPE"):
        list(session.run("SELECT v FROM (VALUES ('a')) AS t (v) WHERE v LIKE 'a\\'"))
