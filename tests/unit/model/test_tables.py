"""The tables that a definition owns, and the options of a view as typed values."""

from __future__ import annotations

import pytest

from strandline.jobs.model import tables
from strandline.jobs.model.definitions import ViewOptions
from strandline.state_store.layout import LakeLayout
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
def test_a_definition_owns_these_tables(lake: LakeLayout, name: str, owned: tuple[str, ...]) -> None:
    assert tables.own_tables(catalog_of(lake, TEXT).get(name)) == owned


def test_what_a_definition_owns_is_told_by_its_name_alone(lake: LakeLayout) -> None:
    """Every table that a definition makes is its own, and no other name is: a drop takes neither less nor more."""
    owned = ["s", "s__log", "s__dead_letters", "s__insert_1__dead_letters", "s__insert_2__stage_1", "s__stage_1"]
    owned += ["s__stage_1__dead_letters", "s__insert_2__stage_1__dead_letters"]
    others = ["s2", "s__stage_1x", "s__stage_one", "s__logs", "ss", "s__insert_", "t", "t__log", "shared__s", "S"]
    assert sorted(tables.owned_by("s", [*others, *owned])) == sorted(owned)
    assert tables.owned_by("s", reversed(owned))[:3] == ["s", "s__log", "s__dead_letters"]
    for definition in catalog_of(lake, TEXT).definitions():
        made = tables.own_tables(definition)
        assert sorted(tables.owned_by(definition.name, made)) == sorted(made)


@pytest.mark.parametrize("name", ["_x", "shared__x", "x__log", "x__dead_letters", "x__stage_1", "x__insert_12"])
def test_names_that_strandline_makes(name: str) -> None:
    assert tables.is_made(name)


@pytest.mark.parametrize("name", ["shared_x", "shared", "x_log", "x__logs", "x__stage_1x", "fresh", "settled"])
def test_names_that_anybody_may_take(name: str) -> None:
    assert not tables.is_made(name)


def test_errors_are_null_by_default_where_ksqldb_is_asked_for() -> None:
    assert ViewOptions.read({}) == ViewOptions()
    assert ViewOptions.read({"SEMANTICS": "ksql"}).errors == "null"
    assert ViewOptions.read({"SEMANTICS": "ksql", "ERRORS": "stop"}).errors == "stop"
