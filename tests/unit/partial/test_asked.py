"""What a SELECT asks of a partial view: the keys that its WHERE names."""

from __future__ import annotations

from typing import cast

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.settings import Settings
from strandline.jobs.partial.pull import Key, asked
from strandline.jobs.query.clauses.read import read_pull
from strandline.jobs.serve.errors import KeyRequired
from strandline.jobs.serve.pull import key_predicate
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Select
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM s (id BIGINT KEY, a INT, b VARCHAR) WITH (KAFKA_TOPIC = 't');
    CREATE TABLE v WITH (STATE = 'partial') AS SELECT a, b, COUNT(*) AS n FROM s GROUP BY a, b;
"""


def keys(settings: Settings, where: str) -> list[Key]:
    """The keys that a query with this WHERE reads."""
    served = ServedLake(settings, DEFINITIONS)
    catalog = Catalog(served.lake)
    (statement,) = parse(f"SELECT n FROM v WHERE {where};")
    pull = read_pull(cast("Select", statement).query, catalog)
    found = asked(pull, key_predicate(pull), catalog)
    assert found is not None
    return found.keys


@pytest.mark.parametrize(
    ("where", "found"),
    [
        ("a = 1 AND b = 'x'", [(1, "x")]),
        ("b IN ('x', 'y', 'x') AND a IN (1, -2) AND n > 3", [(1, "x"), (1, "y"), (-2, "x"), (-2, "y")]),
        ("a = 1 AND a = 2 AND b = 'x'", []),
        ("a IN (-2147483648, 2147483647) AND b = ''", [(-2147483648, ""), (2147483647, "")]),
    ],
)
def test_the_keys_that_a_condition_names(settings: Settings, where: str, found: list[Key]) -> None:
    assert keys(settings, where) == found


@pytest.mark.parametrize(
    "where", ["a = 1", "a = 1 OR b = 'x'", "a + 0 = 1 AND b = 'x'", "a = 2147483648 AND b = 'x'", "a > 1 AND b = 'x'"]
)
def test_a_condition_that_names_no_keys_is_refused(settings: Settings, where: str) -> None:
    with pytest.raises(KeyRequired):
        keys(settings, where)
