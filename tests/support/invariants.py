"""What must hold of every pipeline at rest, whatever happened to it before."""

from __future__ import annotations

from collections.abc import Collection

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source, View
from strandline.state_store import changelog
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support import oracle


def assert_correct(lake: LakeLayout, pipeline: str, trimmed: Collection[str] = ()) -> None:
    """Every table equals its SQL recomputed by DuckDB, and its change feed folded from version 0.

    Args:
        trimmed: views whose events retention has taken: of them the feed alone.
    """
    catalog = Catalog(lake)
    for definition in catalog.pipeline(pipeline):
        if isinstance(definition, View) or (isinstance(definition, Source) and definition.kind == "table"):
            columns = [c.name for c in definition.columns]
            if definition.name not in trimmed:
                actual = oracle.visible(lake, definition.name, columns)
                wrong = oracle.difference(definition, actual, oracle.expected(lake, catalog, definition.name))
                assert not wrong, wrong
            assert_feed_is_table(lake, definition.name, columns)


def assert_feed_is_table(lake: LakeLayout, table: str, columns: list[str]) -> None:
    """The change feed folded from version 0 is the table; a pre-image that matches no row raises in `fold`."""
    path = lake.table(table)
    feed = reader.read_changes(path, after=-1)
    folded = changelog.fold(feed, columns)
    assert oracle.multiset(folded, columns) == oracle.visible(lake, table, columns), f"{table}: feed and table differ"
