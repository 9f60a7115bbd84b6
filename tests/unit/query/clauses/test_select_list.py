"""The SELECT list: EXPLODE, fields of a struct, names that are made up."""

from __future__ import annotations

from jobs.catalog.catalog import Catalog
from jobs.sql.dialect import sql_of
from state_store.layout import Lake
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


def test_expressions_without_a_name_are_numbered_past_names_that_are_there(lake: Lake) -> None:
    catalog = catalog_of(lake, "CREATE STREAM x (ksql_col_1 INT, a STRUCT<b INT>, b INT);")
    found = block("CREATE STREAM v AS SELECT b + 1, b + 2, b, a->b FROM x", catalog)
    assert [output.name for output in found.outputs] == ["ksql_col_0", "ksql_col_2", "b", "b_1"]
