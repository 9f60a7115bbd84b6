"""A lake with a view to be replaced. Two views read it, in a pipeline without a topic of its own: it needs no JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.layout import LakeLayout
from tests.support import lake_tables
from tests.unit.operate.verify.damage import head_of, said

SALES = """
CREATE STREAM sales (shop VARCHAR, item VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
"""
BY_SHOP = "CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM sales GROUP BY shop;"
READERS = """
CREATE MATERIALIZED VIEW most AS SELECT MAX(n) AS m FROM by_shop;
CREATE MATERIALIZED VIEW large AS SELECT shop, n FROM by_shop WHERE n > 1;
"""
NEXT = """CREATE OR REPLACE TABLE by_shop AS
  SELECT shop, COUNT(*) AS n, SUM(qty) AS total, MAX(qty) AS most FROM sales WHERE qty > 1 GROUP BY shop;"""
EVENTS = [{"shop": s, "item": i, "qty": q} for s, i, q in (("a", "x", 1), ("a", "y", 5), ("b", "x", 2), ("c", "x", 1))]
PIPELINE = "views"

Rows = list[tuple[Any, ...]]

BEFORE: Rows = [("a", 2, 6), ("b", 1, 2), ("c", 1, 1)]
AFTER: Rows = [("a", 1, 5, 5), ("b", 1, 2, 2)]


def made(settings: Settings) -> LakeLayout:
    """The lake with its events, and the views fresh."""
    lake = LakeLayout(settings.lake)
    list(Interpreter(settings, "sales").run(SALES))
    list(Interpreter(settings, PIPELINE).run(BY_SHOP + READERS))
    events(lake, EVENTS)
    # Rows whose record says another digest prove nothing of what is computed from them.
    sales = lake.table("sales")
    assert isinstance(sales, Path)
    said(sales, digest=str(reader.digest_of_rows(sales, read_snapshot(sales, head_of(sales)))))
    drain(settings, PIPELINE)
    return lake


def events(lake: LakeLayout, rows: Sequence[Mapping[str, object]], first: int = 0, epoch: int = 0) -> None:
    """One more commit of sales."""
    lake_tables.events(lake, "sales", rows, first, epoch)


def replace_by_shop(folder: Path) -> None:
    """The replacement, as a process makes it."""
    list(Interpreter(load_settings(lake=folder), PIPELINE).run(NEXT))


def rows(lake: LakeLayout, name: str) -> Rows:
    """The rows that a reader sees: the columns of the definition that stands, at the head."""
    found = Catalog(lake).get(name)
    assert isinstance(found, View)
    names = [column.name for column in found.columns]
    return sorted(tuple(row.values()) for row in reader.read_rows(lake.table(name), columns=names).to_pylist())
