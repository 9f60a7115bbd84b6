"""The catalog that the clauses of one SELECT are read over."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import catalog_of

SOURCES = """
CREATE STREAM s (id INT KEY, k VARCHAR, v INT, tags ARRAY<VARCHAR>, who STRUCT<name VARCHAR, age INT>);
CREATE STREAM r (id INT KEY, w INT);
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT);
"""


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    return catalog_of(lake, SOURCES)
