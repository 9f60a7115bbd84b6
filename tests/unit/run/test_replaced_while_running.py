"""A view with two dependents is replaced while a run is at work and readers look on, and by processes that die."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pyarrow as pa
import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.intents import Replacement
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.standby import next_to
from strandline.jobs.serve.results import LiveRows, Tombstone
from strandline.jobs.session.define.analyze import define
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import CreateView
from strandline.state_store import changelog
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.begun_lake import begins_with
from tests.support.examples import AT_LENGTH
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import AFTER, BEFORE, NEXT, PIPELINE, Rows, events, made, replace_by_shop, rows
from tests.support.running import polled, running
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.warm_process import exit_code

KILLED = -9

BOTH = """SELECT by_shop.shop, by_shop.n, large.n AS large FROM by_shop LEFT JOIN large ON by_shop.shop = large.shop
  ORDER BY by_shop.shop"""

# Where a kill leaves the former definition, and where the next one: the commit of the swap is what decides.
BEFORE_THE_SWAP = (
    "after-standby-build",
    "after-standby-proof",
    "after-replacement-intent:1",
    "before-replacement-swap",
    "before-log-entry:2",
)
AFTER_THE_SWAP = (
    "after-log-entry:2",
    "after-replacement-swap",
    "after-replacement-definition",
    "after-replacement-clean-up",
)
NEXT_TO_THE_SWAP = ("after-standby-proof", "before-log-entry:2", "after-log-entry:2", "after-replacement-definition")


template, lake = begins_with(made)


def test_a_run_takes_the_next_definition_between_two_refreshes(settings: Settings, lake: LakeLayout) -> None:
    head = reader.head(lake.table("by_shop"))
    assert head is not None
    later: Rows = [("a", 1, 5, 5), ("b", 2, 11, 9)]
    with (
        running(settings, lake, PIPELINE),
        polled(settings, "SELECT shop, n, total FROM by_shop ORDER BY shop") as seen,
        polled(settings, BOTH) as together,
        # Three rows, two changes by the swap (b has the same values as before), one by the event after it.
        _subscribed(settings, "SELECT shop, n, total FROM by_shop EMIT CHANGES LIMIT 6") as subscriber,
    ):
        list(Interpreter(settings, PIPELINE).run(NEXT))
        assert rows(lake, "by_shop") == AFTER
        events(lake, [{"shop": "b", "item": "x", "qty": 9}], first=4, epoch=1)
        wait_until(lambda: rows(lake, "by_shop") == later, "it does not come")
        wait_until(lambda: rows(lake, "large") == [("b", 2)], "it does not come")
    assert sorted(subscriber.values()) == [row[:3] for row in later]
    states = [BEFORE, [row[:3] for row in AFTER], [row[:3] for row in later]]
    assert [each for each in seen if each not in states] == []
    assert BEFORE in seen
    # Who reads the view with one that follows it sees both before the swap, or both after it.
    assert [each for each in together if any(large != (n if n > 1 else None) for _, n, large in each)] == []
    assert [(shop, n) for shop, n, _ in together[0]] == [row[:2] for row in BEFORE]
    # A subscriber from before: the rows that it had, and the changes since, are the table.
    path = lake.table("by_shop")
    columns = ["shop", "n", "total", "most"]
    rows_then = reader.read_changes(path, after=-1, upto=head.version)
    changes = reader.read_changes(path, after=head.version)
    null = pa.nulls(rows_then.num_rows, pa.int32())
    folded = changelog.fold(
        pa.concat_tables([rows_then.append_column("most", null).select(changes.column_names), changes]), columns
    )
    assert sorted(tuple(row.values()) for row in folded.to_pylist()) == rows(lake, "by_shop")
    assert_correct(lake, PIPELINE)


def test_a_run_that_cannot_take_it_goes_on_with_the_former_one(settings: Settings, lake: LakeLayout) -> None:
    """A row for which the next definition has no value comes after its proof."""
    text = NEXT.replace("MAX(qty) AS most", "MAX(10 / (qty - 5)) AS most")
    catalog = Catalog(lake)
    present, [statement] = catalog.get("by_shop"), parse(text)
    assert isinstance(present, View)
    assert isinstance(statement, CreateView)
    definition = define(statement, catalog, PIPELINE)
    assert isinstance(definition, View)
    with running(settings, lake, PIPELINE):
        with locked(lake.catalog):
            intents.put_replacement(Replacement(next_to(present, definition, catalog)), lake)
        wait_until(lambda: intents.begun_replacements(lake) == [], "it does not come")
        events(lake, [{"shop": "b", "item": "x", "qty": 9}], first=4, epoch=1)
        wait_until(lambda: rows(lake, "large") == [("a", 2), ("b", 2)], "it does not come")
    refused = intents.find_replacement("by_shop", lake)
    assert refused is not None
    assert "fails on some rows" in str(refused.refused)
    assert Catalog(lake).get("by_shop") == present
    assert_correct(lake, PIPELINE)


@pytest.mark.kill
@pytest.mark.parametrize("place", [*BEFORE_THE_SWAP, *AFTER_THE_SWAP] if AT_LENGTH else NEXT_TO_THE_SWAP)
def test_a_kill_leaves_the_former_or_the_next_definition_whole(
    place: str, settings: Settings, lake: LakeLayout
) -> None:
    assert exit_code(replace_by_shop, lake.root, failpoint=place) == KILLED
    assert rows(lake, "by_shop") == (BEFORE if place in BEFORE_THE_SWAP else AFTER)
    events(lake, [{"shop": "b", "item": "x", "qty": 9}], first=4, epoch=1)
    drain(settings, PIPELINE)  # ends what was begun
    found = Catalog(lake).get("by_shop")
    assert isinstance(found, View)
    begun = place not in ("after-standby-build", "after-standby-proof")
    assert [column.name for column in found.columns] == ["shop", "n", "total", *(["most"] if begun else [])]
    assert_correct(lake, PIPELINE)
    list(Interpreter(settings, PIPELINE).run(NEXT))
    assert rows(lake, "by_shop") == [("a", 1, 5, 5), ("b", 2, 11, 9)]
    drain(settings, PIPELINE)
    assert_correct(lake, PIPELINE)
    assert intents.find_replacement("by_shop", lake) is None
    assert sorted(path.name for path in on_disk(lake.tables).iterdir()) == ["by_shop", "large", "most", "sales"]


@contextmanager
def _subscribed(settings: Settings, query: str) -> Iterator[dict[object, tuple[object, ...]]]:
    """What a subscriber holds who takes each change as it comes, until its query ends: {the first column: row}."""
    held: dict[object, tuple[object, ...]] = {}
    [changes] = Interpreter(settings).run(query)
    assert isinstance(changes, LiveRows)

    def take() -> None:
        for change in changes.rows:
            if isinstance(change, Tombstone):
                held.pop(change.row[0], None)
            elif isinstance(change, tuple):
                held[change[0]] = change

    taking = Thread(target=take, daemon=True)
    taking.start()
    wait_until(lambda: sorted(held.values()) == BEFORE, "it does not come")
    yield held
    taking.join(PATIENCE_SECONDS)
    assert not taking.is_alive(), "changes are missing"
