"""WITH RECURSIVE: what of a query that reads itself is read, and what is refused, and where."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, TypeMismatch, UnknownName
from strandline.jobs.query.clauses.query_expression import LEVELS
from strandline.jobs.query.clauses.read import read_pull, read_query
from strandline.jobs.query.logical import Block, Recursion, outputs_of, relations_of
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.from_text import parse_query


def recursion(text: str, catalog: Catalog) -> Recursion:
    """The recursion that a query of the form WITH RECURSIVE r … SELECT … FROM r reads."""
    query = read_query(parse_query(text), catalog)
    assert isinstance(query, Block)
    (part,) = query.inputs
    assert isinstance(part.source, Recursion)
    return part.source


def test_a_set_of_values_that_are_there_has_no_last_round(catalog: Catalog) -> None:
    found = recursion(
        "WITH RECURSIVE r (a, b) AS (SELECT id, n FROM t UNION SELECT r.a, s.v FROM r JOIN s ON r.b = s.id)"
        " SELECT * FROM r",
        catalog,
    )
    assert (found.distinct, found.levels, len(found.steps)) == (True, None, 1)
    assert [name for name, _ in found.outputs] == ["a", "b"]
    assert [each.name for each in relations_of(found)] == ["t", "s"]


@pytest.mark.parametrize(
    ("text", "levels"),
    [
        ("r (a) AS (SELECT id FROM t UNION SELECT a + 1 FROM r WHERE a < 9)", LEVELS),
        ("r (a) AS (SELECT id FROM t UNION ALL SELECT s.id FROM r JOIN s ON s.v = r.a)", LEVELS),
        ("r (a) MAX RECURSION LEVEL 7 AS (SELECT id FROM t UNION SELECT s.id FROM r JOIN s ON s.v = r.a)", 7),
        ("r (a) MAX RECURSION LEVEL 5000 AS (SELECT 1 UNION ALL SELECT a + 1 FROM r WHERE a < 9)", 5000),
    ],
)
def test_rounds_are_counted_where_they_need_not_end(catalog: Catalog, text: str, levels: int) -> None:
    written = f"WITH RECURSIVE {text} SELECT * FROM r"
    assert recursion(written, catalog).levels == levels
    again = sql_of(parse_query(written))
    assert recursion(again, catalog) == recursion(written, catalog), "what is written out reads back"


def test_columns_are_as_wide_as_any_round_needs(catalog: Catalog) -> None:
    found = recursion(
        "WITH RECURSIVE r (a, b) AS (SELECT id, k FROM t UNION SELECT CAST(r.a AS BIGINT), s.k FROM r JOIN s"
        " ON s.id = r.a) SELECT * FROM r",
        catalog,
    )
    assert [str(of) for _, of in found.outputs] == ["BIGINT", "VARCHAR"]
    assert {outputs_of(each) for each in found.branches} == {found.outputs}


def test_several_branches_may_follow_and_begin(catalog: Catalog) -> None:
    found = recursion(
        "WITH RECURSIVE r (a) AS (SELECT id FROM t UNION SELECT id FROM s UNION SELECT s.v FROM r JOIN s ON s.id = r.a"
        " UNION SELECT t.n FROM r, t WHERE t.id = r.a) SELECT * FROM r",
        catalog,
    )
    assert len(found.steps) == 2
    assert len(outputs_of(found.seed)) == 1


def test_a_query_beside_it_that_does_not_read_itself_is_as_ever(catalog: Catalog) -> None:
    query = read_query(parse_query("WITH RECURSIVE r AS (SELECT id FROM t) SELECT id FROM r"), catalog)
    assert query == read_query(parse_query("WITH r AS (SELECT id FROM t) SELECT id FROM r"), catalog)


SEED = "SELECT id, n FROM t UNION ALL"


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("r AS (SELECT id FROM r)", InvalidQuery, "no rows to begin with"),
        ("r AS (SELECT id FROM r UNION SELECT n FROM r)", InvalidQuery, "no rows to begin with"),
        ("r AS (SELECT id FROM t EXCEPT SELECT id FROM r)", InvalidQuery, "no rows to begin with"),
        (f"r (a, b) AS ({SEED} SELECT x.a, y.b FROM r x JOIN r y ON x.b = y.a)", NotSupported, "more than once"),
        (f"r (a, b) AS ({SEED} SELECT a, b FROM r WHERE a IN (SELECT b FROM r))", NotSupported, "more than once"),
        (f"r (a, b) AS ({SEED} SELECT id, n FROM t WHERE id IN (SELECT b FROM r))", NotSupported, "of its own"),
        (f"r (a, b) AS ({SEED} SELECT a, b FROM (SELECT a, b FROM r) q)", NotSupported, "of its own"),
        (f"r (a, b) AS ({SEED} SELECT a, MAX(b) FROM r GROUP BY a)", NotSupported, "GROUP BY or an aggregate"),
        (f"r (a, b) AS ({SEED} SELECT COUNT(*), 1 FROM r)", NotSupported, "GROUP BY or an aggregate"),
        (f"r (a, b) AS ({SEED} SELECT DISTINCT a, b FROM r)", NotSupported, "DISTINCT over"),
        (f"r (a, b) AS ({SEED} SELECT a, ROW_NUMBER() OVER (ORDER BY b) FROM r)", NotSupported, "OVER or LIMIT"),
        (f"r (a, b) AS ({SEED} (SELECT a, b FROM r LIMIT 3))", NotSupported, "OVER or LIMIT"),
        (
            f"r (a, b) AS ({SEED} SELECT l.x, r.b FROM r, LATERAL (SELECT r.a + 1 AS x) AS l)",
            NotSupported,
            "LATERAL, or a subquery",
        ),
        (
            f"r (a, b) AS ({SEED} SELECT t.id, r.b FROM t LEFT JOIN r ON r.a = t.id)",
            NotSupported,
            "pads the rows of 'r'",
        ),
        (
            f"r (a, b) AS ({SEED} SELECT t.id, r.b FROM r FULL JOIN t ON r.a = t.id)",
            NotSupported,
            "pads the rows of 'r'",
        ),
        (f"r (a, b) AS ({SEED} SELECT a, b FROM r LIMIT 3)", NotSupported, "LIMIT of the UNION"),
        ("a AS (SELECT x FROM b), b AS (SELECT 1 AS x UNION SELECT x FROM a)", NotSupported, "comes after it"),
        ("r (a) AS (SELECT 0.5 UNION ALL SELECT a * 0.25 FROM r)", TypeMismatch, "wider with each round"),
        ("r (a) AS (SELECT id FROM t UNION SELECT k FROM r JOIN t ON r.a = t.id)", TypeMismatch, "VARCHAR"),
        ("r (a, a) AS (SELECT id, n FROM t UNION SELECT * FROM r)", InvalidQuery, "two columns"),
        ("r (a, b) AS (SELECT id FROM t UNION SELECT * FROM r)", InvalidQuery, "2 names are given"),
        ("r (m) AS (SELECT MAP('a' := id) FROM t UNION ALL SELECT m FROM r)", NotSupported, "rows are compared"),
        ("r (a) AS (SELECT id FROM t UNION SELECT __level FROM r)", UnknownName, "__level"),
        ("r MAX RECURSION LEVEL 5 AS (SELECT id FROM t)", InvalidQuery, "does not read itself"),
        ("r MAX RECURSION LEVEL 0 AS (SELECT 1 AS a UNION ALL SELECT a FROM r)", InvalidQuery, "from 1 to"),
        ("r (a) AS (SELECT id FROM t UNION SELECT a FROM r) CYCLE a SET c USING p", NotSupported, "CYCLE"),
    ],
)
def test_what_cannot_follow_row_by_row_is_refused(
    catalog: Catalog, text: str, error: type[SqlError], words: str
) -> None:
    alias = text.split(maxsplit=1)[0]
    written = f"WITH RECURSIVE {text} SELECT * FROM {alias}"
    for read in (lambda tree: read_query(tree, catalog), lambda tree: read_pull(tree, catalog)):
        with pytest.raises(error) as raised:
            read(parse_query(written))
        assert words in raised.value.message
        assert type(raised.value) is error


def test_ksqldb_has_none(catalog: Catalog) -> None:
    text = "WITH RECURSIVE r (a) AS (SELECT id FROM t UNION SELECT a FROM r) SELECT a FROM r"
    with pytest.raises(NotSupported, match="ksqlDB's semantics"):
        read_query(parse_query(text), catalog, semantics="ksql")
