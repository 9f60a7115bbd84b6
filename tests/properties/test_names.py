"""Whatever relations are called by now, the texts of views that are shown mean what the views are.

view over s, t ──s and t are renamed──> its text over the new names ──read again──> the same view
"""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.stored_names import shown_text, stored_statement
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.session.define.analyze import Defining, define
from strandline.jobs.sql.statements import parse_one
from tests.properties.picker import Picker
from tests.properties.scenario import Tally, scenario
from tests.support.catalog_from_sql import run
from tests.support.checked_views import defined
from tests.support.examples import AT_LENGTH
from tests.support.memory_catalog import MemoryCatalog
from tests.unit.query.clauses import test_everything_is_read as corpus
from tests.unit.query.clauses.test_maintained import QUERIES

SEEDS = range(300) if AT_LENGTH else range(12)


def check(catalog: Catalog) -> None:
    """Rename everything, then read the text of each definition as it is shown: nothing is changed by it."""
    before = catalog.definitions()
    names = [each.name for each in before]
    for number, name in enumerate(names):
        catalog.rename(name, f"n{number} x" if number % 3 == 0 else f"n{number}")
    for each in before:
        assert isinstance(each, Source | View)
        shown = shown_text(each.sql, catalog)
        statement = parse_one(shown)
        assert isinstance(statement, Defining)
        stored = stored_statement(statement, catalog.name_map)
        assert define(stored, catalog, each.pipeline) is catalog.get(each.name), shown
        # The text that would be kept is over stored names again, and shows the same.
        assert shown_text(stored.sql, catalog) == shown
    for name in names:
        catalog.rename(name, name)
    assert all(shown_text(each.sql, catalog) == each.sql for each in before)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_views_are_the_same_under_other_names(seed: int) -> None:
    made = scenario(Picker.seeded(seed), 6, Tally())
    assert made.catalog is not None
    check(made.catalog)


@pytest.mark.parametrize("sql", QUERIES)
def test_views_of_every_clause_are_the_same_under_other_names(sql: str) -> None:
    check(defined(sql))


@pytest.mark.parametrize(
    ("create", "sql"), [("MATERIALIZED VIEW", q) for q in corpus.VIEWS] + [("STREAM", q) for q in corpus.STREAMS]
)
def test_views_of_everything_that_is_read_are_the_same_under_other_names(create: str, sql: str) -> None:
    catalog = MemoryCatalog()
    run(corpus.SOURCES, catalog)
    run(f"CREATE {create} v AS {sql};", catalog)
    check(catalog)
