"""ORDER BY of a pull query: columns of the answer, and others that are computed for the order alone."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, UnknownName
from strandline.jobs.query.clauses.read_pull import read_pull
from strandline.jobs.query.logical.pull import OrderItem, PullQuery
from strandline.jobs.query.logical.query import Block
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.layout import Lake
from tests.support.catalog_from_sql import catalog_of
from tests.support.query_text import shown

SOURCES = """
CREATE STREAM s (id INT KEY, k VARCHAR, v INT);
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT);
"""


@pytest.fixture
def catalog(lake: Lake) -> Catalog:
    return catalog_of(lake, SOURCES)


def read(text: str, catalog: Catalog) -> PullQuery:
    return read_pull(parse_query(text), catalog)


def order(pull: PullQuery) -> list[str]:
    return [f"{each.column}{' DESC' if each.descending else ''}" for each in pull.order]


@pytest.mark.parametrize(
    ("text", "items", "beside"),
    [
        ("SELECT id, n + 1 AS m FROM t ORDER BY 2 DESC, id", ["m DESC", "id"], []),
        ("SELECT id, n + 1 AS m FROM t ORDER BY n + 1, t.id", ["m", "id"], []),
        (
            "SELECT id, n + 1 AS m FROM t ORDER BY k, m * 2, k DESC",
            ["__o0", "__o1", "__o0 DESC"],
            ["t.k", "t.n + 1 * 2"],
        ),
        ("SELECT id AS k FROM t ORDER BY k, t.k", ["k", "__o0"], ["t.k"]),
        ("SELECT k FROM s GROUP BY k ORDER BY COUNT(*) DESC", ["__o0 DESC"], ["__a0"]),
        ("SELECT * FROM t ORDER BY 3", ["n"], []),
        ("SELECT k FROM s UNION SELECT k FROM t ORDER BY k DESC", ["k DESC"], []),
        ("SELECT DISTINCT k, v FROM s ORDER BY v, 1", ["v", "k"], []),
    ],
)
def test_an_item_is_a_column_of_the_answer_or_one_beside_it(
    catalog: Catalog, text: str, items: list[str], beside: list[str]
) -> None:
    pull = read(text, catalog)
    assert order(pull) == items
    found = shown(pull.query.outputs[pull.shown :]) if isinstance(pull.query, Block) else []
    assert [each.split(" = ", 1)[1].replace("(", "").replace(")", "") for each in found] == beside


def test_nulls_and_offset_are_kept(catalog: Catalog) -> None:
    pull = read("SELECT id FROM t ORDER BY n DESC NULLS FIRST OFFSET 3", catalog)
    assert pull.order == (OrderItem("__o0", descending=True, nulls_first=True),)
    assert (pull.offset, pull.outputs[0][0], len(pull.outputs)) == (3, "id", 1)


def test_an_order_inside_another_query_says_nothing_without_limit(catalog: Catalog) -> None:
    with_order = read("SELECT id FROM (SELECT id FROM t ORDER BY n) AS q", catalog)
    assert with_order == read("SELECT id FROM (SELECT id FROM t) AS q", catalog)


@pytest.mark.parametrize(
    ("text", "error", "column"),
    [
        ("SELECT id FROM t ORDER BY 2", InvalidQuery, 27),
        ("SELECT id FROM t ORDER BY nope", UnknownName, 27),
        ("SELECT DISTINCT k FROM s ORDER BY v", UnknownName, 35),
        ("SELECT DISTINCT k FROM s ORDER BY k || 'x'", InvalidQuery, 35),
        ("SELECT k FROM s UNION SELECT k FROM t ORDER BY n", UnknownName, 48),
        ("SELECT k FROM s UNION SELECT k FROM t ORDER BY LEN(k)", InvalidQuery, 48),
        ("SELECT k, COUNT(*) FROM s GROUP BY 3", InvalidQuery, 36),
        ("SELECT k, COUNT(*) FROM s GROUP BY 2", InvalidQuery, 17),
        ("SELECT k FROM s PARTITION BY k", NotSupported, 8),
        ("SELECT k FROM (SELECT k FROM s EMIT CHANGES) AS q", NotSupported, 23),
    ],
)
def test_what_is_wrong_says_where(catalog: Catalog, text: str, error: type[SqlError], column: int) -> None:
    with pytest.raises(error) as caught:
        read(text, catalog)
    assert caught.value.column == column
