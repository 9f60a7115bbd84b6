"""Views of the public suites of RisingWave, Feldera and Arroyo, maintained through inserts, updates and deletes."""

from __future__ import annotations

from collections.abc import Iterator

import duckdb
import pytest

from strandline.state_store.errors import StrandlineError
from tests.outside import (
    arroyo,
    feldera_aggregates,
    feldera_nested,
    risingwave_aggregates,
    risingwave_asof,
    risingwave_joins,
    risingwave_ordered,
    risingwave_over,
    risingwave_sets,
    risingwave_subqueries,
    risingwave_windows,
)
from tests.outside.cases import Case
from tests.outside.followed import FollowedCase
from tests.outside.refused import REFUSED, SOURCES, Refused
from tests.support.catalog_from_sql import run
from tests.support.examples import examples
from tests.support.memory_catalog import MemoryCatalog

SUITES = {
    "RisingWave": (
        *risingwave_joins.CASES,
        *risingwave_asof.CASES,
        *risingwave_aggregates.CASES,
        *risingwave_ordered.CASES,
        *risingwave_sets.CASES,
        *risingwave_subqueries.CASES,
        *risingwave_windows.CASES,
        *risingwave_over.CASES,
    ),
    "Feldera": (*feldera_aggregates.CASES, *feldera_nested.CASES),
    "Arroyo": arroyo.CASES,
}
CASES = {f"{suite}: {case.origin}": case for suite, cases in SUITES.items() for case in cases}
SEEDS = range(examples(1))
_FEWEST = 60


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_views_show_what_their_suite_states(case: Case, seed: int, db: duckdb.DuckDBPyConnection) -> None:
    followed = FollowedCase(case, db, seed)
    try:
        assert followed.wrong() == ""
    finally:
        followed.close()


def test_the_suites_have_at_least_sixty_views() -> None:
    assert sum(len(case.views) for case in CASES.values()) >= _FEWEST
    assert len(CASES) == sum(map(len, SUITES.values())), "two cases have one name"


@pytest.mark.parametrize("refused", REFUSED, ids=[each.origin for each in REFUSED])
def test_what_is_not_there_is_refused_by_its_code(refused: Refused) -> None:
    catalog = MemoryCatalog()
    run(SOURCES, catalog)
    with pytest.raises(StrandlineError) as found:
        run(f"CREATE MATERIALIZED VIEW v AS {refused.select};", catalog)
    assert found.value.code == refused.code
