"""Comments beside columns become the columns' descriptions."""

from __future__ import annotations

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import InsertQuery
from strandline.orchestration.assets import column_comments
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of

SQL = """
-- What the scanners send.
CREATE STREAM checkins (
  id BIGINT KEY,     -- the package
  Place VARCHAR,     /* where it was seen; not '--' */
  note VARCHAR
) WITH (KAFKA_TOPIC = 't--t');
CREATE TABLE seen AS SELECT
    id,
    MAX(rowtime) AS newest,  -- of its events
    COUNT(*) AS n            -- how often
  FROM checkins GROUP BY id;
"""


def comments(catalog: Catalog, name: str) -> dict[str, str]:
    found = catalog.get(name)
    assert not isinstance(found, InsertQuery)
    return column_comments(found)


def test_a_comment_describes_the_column_on_its_line(lake: LakeLayout) -> None:
    catalog = catalog_of(lake, SQL)
    assert comments(catalog, "checkins") == {"id": "the package", "place": "where it was seen; not '--'"}
    assert comments(catalog, "seen") == {"newest": "of its events", "n": "how often"}
