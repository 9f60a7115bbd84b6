"""A pipeline in a folder of its own, with a suite beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from strandline.jobs.testing.suite import Suite, read_suite

SHOP = """
CREATE TABLE prices (item VARCHAR PRIMARY KEY, price DECIMAL(10, 2)) WITH (KAFKA_TOPIC = 'prices');
CREATE STREAM sold (item VARCHAR KEY, qty INT, share DOUBLE, at TIMESTAMP) WITH (KAFKA_TOPIC = 'sold');
CREATE TABLE by_item AS SELECT item, COUNT(*) AS n, SUM(qty) AS total, SUM(share) AS shares FROM sold GROUP BY item;
CREATE MATERIALIZED VIEW each AS SELECT item, 100 / qty AS each, at FROM sold;
CREATE MATERIALIZED VIEW priced AS SELECT s.item AS item, p.price AS price
  FROM sold s JOIN prices FOR SYSTEM_TIME AS OF s.ROWTIME p ON s.item = p.item;
"""

Written = Callable[[str], Suite]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Write a suite beside the pipeline `shop.sql`, and read it."""
    (tmp_path / "shop.sql").write_text(SHOP)

    def write(text: str) -> Suite:
        (tmp_path / "shop.test.yaml").write_text(dedent(text))
        return read_suite(tmp_path / "shop.sql")

    return write
