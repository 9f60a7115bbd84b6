"""Fingerprints and the digests of shared stages are in every lake: these values never change."""

from __future__ import annotations

from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.definitions import View
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.query.logical import fingerprint
from strandline.jobs.sql.from_text import parse_query
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of

TEXT = """
CREATE TABLE shop (id INT PRIMARY KEY, tags ARRAY<STRUCT<name VARCHAR, weight DECIMAL(9, 2)>>, city MAP<VARCHAR, INT>);
CREATE STREAM sale (shop INT, at TIMESTAMP, price DOUBLE);
CREATE MATERIALIZED VIEW sales WITH (STATE = 'shared') AS
  SELECT s.id, COUNT(*) AS n, MAX(price) AS best, CAST(s.tags AS VARCHAR) AS tags
  FROM sale LEFT JOIN shop AS s ON sale.shop = s.id GROUP BY s.id, CAST(s.tags AS VARCHAR);
CREATE MATERIALIZED VIEW windows AS
  SELECT shop, SUM(price) AS total FROM sale WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 MINUTE) GROUP BY shop;
"""


def test_a_definition_keeps_its_fingerprint_and_its_shared_tables(lake: LakeLayout) -> None:
    catalog = catalog_of(lake, TEXT)
    made = {d.name: d.fingerprint for d in catalog.definitions() if isinstance(d, View)}
    tables = [stage.table for stage in plan(catalog.get("sales"), catalog).stages]
    assert made["sales"] == "f39ae3248848f939"
    assert tables == ["shared__6f0f45435a5f", "sales"]


def test_a_view_of_windows_that_does_not_show_them_keeps_its_fingerprint(lake: LakeLayout) -> None:
    """Such views were made before their bounds were columns: their texts are read as they were."""
    catalog = catalog_of(lake, TEXT)
    text = (
        "SELECT shop, SUM(price) AS total FROM sale WINDOW TUMBLING (SIZE 1 HOUR, GRACE PERIOD 1 MINUTE) GROUP BY shop"
    )
    assert fingerprint(read_query(parse_query(text), catalog)) == "b05c0452b0a1cbcd"
