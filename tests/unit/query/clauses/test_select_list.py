"""The SELECT list: EXPLODE, fields of a struct, names that are made up."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, SqlError, UnknownName
from strandline.jobs.sql.dialect import sql_of
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of
from tests.support.query_text import block, shown


def test_explode_repeats_rows_for_the_items(catalog: Catalog) -> None:
    found = block("CREATE STREAM v AS SELECT id, EXPLODE(tags) AS tag, UCASE(EXPLODE(tags)) AS t FROM s", catalog)
    (items,) = found.expand
    assert sql_of(items.expression) == "s.tags"
    assert shown(found.outputs) == ["id = s.id", f"tag = {items.name}", f"t = UCASE({items.name})"]


def test_a_struct_gives_its_fields(catalog: Catalog) -> None:
    found = block("SELECT who->*, who->name AS n FROM s", catalog)
    assert shown(found.outputs) == ["name = s.who->name", "age = s.who->age", "n = s.who->name"]


def test_expressions_without_a_name_are_numbered_past_names_that_are_there(lake: LakeLayout) -> None:
    catalog = catalog_of(lake, "CREATE STREAM x (ksql_col_1 INT, a STRUCT<b INT>, b INT);")
    found = block("CREATE STREAM v AS SELECT b + 1, b + 2, b, a->b FROM x", catalog)
    assert [output.name for output in found.outputs] == ["ksql_col_0", "ksql_col_2", "b", "b_1"]


def names(text: str, catalog: Catalog) -> list[str]:
    return [output.name for output in block(text, catalog).outputs]


def test_a_star_leaves_out_what_except_names(catalog: Catalog) -> None:
    assert names("SELECT * EXCEPT (tags, who) FROM s", catalog) == ["id", "k", "v"]
    assert names("SELECT s.* EXCLUDE tags, r.w FROM s JOIN r ON s.id = r.id", catalog) == [
        "id",
        "k",
        "v",
        "who",
        "w",
    ]
    assert names("SELECT * EXCEPT (s.id, v, w, tags, who) FROM s JOIN r ON s.id = r.id", catalog) == ["k", "id"]
    assert names("SELECT who->* EXCEPT (age) FROM s", catalog) == ["name"]


def test_a_star_has_another_value_where_replace_says_so(catalog: Catalog) -> None:
    found = block("SELECT * EXCEPT (tags, who) REPLACE (v + 1 AS v) FROM s", catalog)
    assert shown(found.outputs) == ["id = s.id", "k = s.k", "v = s.v + 1"]
    grouped = block("SELECT * EXCEPT (id, tags, who) REPLACE (SUM(v) AS v) FROM s GROUP BY k", catalog)
    assert [output.name for output in grouped.outputs] == ["k", "v"]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("SELECT * EXCEPT (nope) FROM s", UnknownName, "unknown column 'nope'"),
        ("SELECT * EXCEPT (id) FROM s JOIN r ON s.id = r.id", InvalidQuery, "s.id or r.id"),
        ("SELECT * EXCEPT (id, w) FROM r", InvalidQuery, "leaves no column"),
        ("SELECT * REPLACE (1 AS nope) FROM s", UnknownName, "unknown column 'nope'"),
        ("SELECT s.* EXCEPT (r.id) FROM s JOIN r ON s.id = r.id", UnknownName, "unknown column"),
    ],
)
def test_a_star_refuses_names_that_it_does_not_have(
    text: str, error: type[SqlError], said: str, catalog: Catalog
) -> None:
    with pytest.raises(error, match=said):
        block(text, catalog)
