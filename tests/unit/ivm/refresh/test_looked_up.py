"""What events found in a table (SEMANTICS = 'ksql'), on Delta by DuckDB: kept when all rows are computed anew."""

from __future__ import annotations

import pytest

from strandline.jobs.model.settings import Settings
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.served_lake import ServedLake

DEFINITIONS = """
CREATE STREAM visits (id BIGINT KEY, town VARCHAR);
CREATE TABLE places (town VARCHAR PRIMARY KEY, land VARCHAR);
CREATE TABLE lands AS SELECT town, land FROM places;
CREATE MATERIALIZED VIEW by_land WITH (SEMANTICS = 'ksql', REFRESH = '{}') AS
  SELECT l.land, COUNT(*) AS n FROM visits v JOIN lands l ON v.town = l.town GROUP BY l.land;
"""


@pytest.mark.parametrize("refresh", ["auto", "full", "incremental"])
def test_earlier_events_stay_with_the_row_that_they_found(
    settings: Settings, duckdb_engine: DuckDBEngine, refresh: str
) -> None:
    """With few rows in the lake `auto` computes all of them at once, too."""
    made = ServedLake(settings, DEFINITIONS.format(refresh))
    made.append("places", [{"town": "Wien", "land": "k. u. k."}])
    made.refresh(duckdb_engine)
    made.append("visits", [{"id": 1, "town": "Wien"}, {"id": 2, "town": "Wien"}])
    made.refresh(duckdb_engine)
    assert rows(made) == {"k. u. k.": 2}
    made.append("places", [{"town": "Wien", "land": "Österreich"}])
    made.refresh(duckdb_engine)
    assert rows(made) == {"k. u. k.": 2}
    made.append("visits", [{"id": 3, "town": "Wien"}])
    made.refresh(duckdb_engine)
    assert rows(made) == {"k. u. k.": 2, "Österreich": 1}


def rows(made: ServedLake) -> dict[str, int]:
    """{land: visits}."""
    found = reader.read_rows(made.lake.table("by_land"), columns=["land", "n"])
    return dict(zip(found["land"].to_pylist(), found["n"].to_pylist(), strict=True))
