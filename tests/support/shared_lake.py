"""A lake with views that share stages, in a pipeline without a topic of its own: it needs no JVM.

`sales` is a stream that tests write; `by_shop` is a table over it; the views `a` and `b` share the join of the two, and
`c` has an inner aggregate that nobody else has.
"""

from __future__ import annotations

from pathlib import Path

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.model.tables import is_shared
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.shared import shared_tables
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.layout import LakeLayout
from tests.support.replaced_lake import BY_SHOP, EVENTS, PIPELINE, SALES, events
from tests.unit.operate.verify.damage import head_of, said

_JOIN = "FROM sales s JOIN by_shop b ON s.shop = b.shop"
_CELLS = "SELECT shop, item, COUNT(*) AS c FROM sales GROUP BY shop, item"
_ITEMS = "SELECT item, COUNT(*) AS c FROM sales GROUP BY item"

SELECTS = {
    "by item": f"SELECT s.item AS k, COUNT(*) AS n {_JOIN} GROUP BY s.item",
    "of busy shops": f"SELECT s.item AS k, COUNT(*) AS n {_JOIN} WHERE b.n > 1 GROUP BY s.item",
    "by shop": f"SELECT s.shop AS k, COUNT(*) AS n {_JOIN} WHERE s.qty > 1 GROUP BY s.shop",
    "most": f"SELECT shop AS k, MAX(c) AS n FROM ({_CELLS}) AS i GROUP BY shop",
    "least": f"SELECT shop AS k, MIN(c) AS n FROM ({_CELLS}) AS i GROUP BY shop",
    "often": "SELECT item AS k, COUNT(*) AS n FROM sales GROUP BY item HAVING COUNT(*) > 1",
    "plain": "SELECT item AS k, COUNT(*) AS n FROM sales GROUP BY item",
    "items": f"SELECT item AS k, MAX(c) AS n FROM ({_ITEMS}) AS o GROUP BY item",
    "of cells": f"SELECT s.item AS k, COUNT(*) AS n FROM sales s JOIN ({_CELLS}) i ON s.shop = i.shop GROUP BY s.item",
    "of both": f"SELECT i.shop AS k, COUNT(*) AS n FROM ({_CELLS}) i JOIN ({_ITEMS}) o ON i.item = o.item AND o.c > 1 "
    "GROUP BY i.shop",
}
"""Queries by name, all with the columns k VARCHAR and n BIGINT. The first three have one join, the next two one inner
aggregate; the last two join such aggregates, so they have a shared stage over others."""

Rows = list[tuple[object, ...]]


def statement(name: str, select: str, state: str = "shared", *, replacing: bool = True) -> str:
    """The statement that defines a view by a query of `SELECTS`."""
    create = "CREATE OR REPLACE" if replacing else "CREATE"
    return f"{create} MATERIALIZED VIEW {name} WITH (STATE = '{state}') AS {SELECTS[select]};"


def made(settings: Settings) -> LakeLayout:
    """The lake with its events, and the views fresh."""
    lake = LakeLayout(settings.lake)
    list(Interpreter(settings, "sales").run(SALES))
    views = (("a", "by item"), ("b", "of busy shops"), ("c", "most"))
    list(Interpreter(settings, PIPELINE).run(BY_SHOP + "".join(statement(*each, replacing=False) for each in views)))
    events(lake, EVENTS)
    # Rows whose record says another digest prove nothing of what is computed from them.
    vouch(lake)
    drain(settings, PIPELINE)
    return lake


def vouch(lake: LakeLayout) -> None:
    """Let the last record of `sales` have the digest of its rows."""
    sales = lake.table("sales")
    assert isinstance(sales, Path)
    said(sales, digest=str(reader.digest_of_rows(sales, read_snapshot(sales, head_of(sales)))))


def replace_view(folder: Path, text: str) -> None:
    """A replacement, as a process makes it."""
    list(Interpreter(load_settings(lake=folder), PIPELINE).run(text))


def rows(lake: LakeLayout, name: str) -> Rows:
    """The rows that a reader of a view sees."""
    return sorted(tuple(row.values()) for row in reader.read_rows(lake.table(name), columns=["k", "n"]).to_pylist())


def shared_in(lake: LakeLayout) -> set[str]:
    """The shared tables that are in the lake."""
    return {path.name for path in lake.tables.iterdir() if is_shared(path.name)}  # type: ignore[union-attr]


def shared_by(lake: LakeLayout, *names: str) -> set[str]:
    """The shared tables that these views read; without names, all that are read."""
    catalog = Catalog(lake)
    return {table for name in names or catalog.names() for table in shared_tables(catalog.get(name), catalog)}
