"""PARTITION BY: the key that it makes, and where it cannot stand."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery
from tests.support.query_text import block


@pytest.mark.parametrize(
    ("query", "key", "names"),
    [
        ("SELECT id, k FROM s PARTITION BY k", ("k",), ["id", "k"]),
        ("SELECT id, k FROM s PARTITION BY NULL", (), ["id", "k"]),
        ("SELECT * FROM r PARTITION BY w + id", ("ksql_col_0",), ["ksql_col_0", "id", "w"]),
        ("SELECT k, v + 1 AS x FROM s PARTITION BY v + 1, k", ("x", "k"), ["k", "x"]),
    ],
)
def test_partition_by_makes_the_key(catalog: Catalog, query: str, key: tuple[str, ...], names: list[str]) -> None:
    found = block(f"CREATE STREAM v AS {query}", catalog)
    assert (found.key, [output.name for output in found.outputs]) == (key, names)


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT id, k FROM s PARTITION BY NULL, k", "stands alone"),
        ("SELECT id, k FROM t PARTITION BY k", "for streams"),
        ("SELECT k, COUNT(*) FROM s GROUP BY k PARTITION BY k", "for streams"),
    ],
)
def test_partition_by_that_cannot_be(catalog: Catalog, query: str, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        block(f"CREATE STREAM v AS {query}", catalog)
