"""Definitions that the tests of CREATE and INSERT look at, over two sources."""

from __future__ import annotations

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source, View
from tests.support.catalog_from_sql import run

SOURCES = """
CREATE STREAM readings (sensor VARCHAR KEY, reading DOUBLE, area VARCHAR, n INT, at TIMESTAMP, tags ARRAY<VARCHAR>);
CREATE TABLE users (name VARCHAR, id BIGINT PRIMARY KEY, age INT, balance DECIMAL(10, 2));
"""


def view(text: str, catalog: Catalog) -> View:
    found = run(text, catalog)
    assert isinstance(found, View)
    return found


def shape(definition: Source | View) -> list[tuple[str, str, bool]]:
    return [(c.name, str(c.type), c.key) for c in definition.columns]
