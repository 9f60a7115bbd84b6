"""The tables that a definition owns, and the options of a view as typed values."""

from __future__ import annotations

import pytest

from jobs.model import tables
from jobs.model.view_options import ViewOptions
from state_store.layout import Lake
from tests.support.catalog_from_sql import catalog_of

TEXT = """
CREATE STREAM s (a INT);
CREATE TABLE t (k INT PRIMARY KEY, a INT);
CREATE STREAM r (a INT);
CREATE STREAM v AS SELECT a FROM s;
INSERT INTO s SELECT a FROM r;
"""


@pytest.mark.parametrize(
    ("name", "owned"),
    [
        ("s", ("s", "s__dead_letters")),
        ("t", ("t__log", "t", "t__dead_letters")),
        ("v", ("v", "v__dead_letters")),
        ("s__insert_1", ()),
    ],
)
def test_a_definition_owns_these_tables(lake: Lake, name: str, owned: tuple[str, ...]) -> None:
    assert tables.own_tables(catalog_of(lake, TEXT).get(name)) == owned


def test_errors_are_null_by_default_where_ksqldb_is_asked_for() -> None:
    assert ViewOptions.read({}) == ViewOptions()
    assert ViewOptions.read({"SEMANTICS": "ksql"}).errors == "null"
    assert ViewOptions.read({"SEMANTICS": "ksql", "ERRORS": "stop"}).errors == "stop"
