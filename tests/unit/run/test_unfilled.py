"""A source without any record is an empty table for the views that read it beside others: they do not wait for it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import Any

import pytest

from strandline.jobs.ingest.topics import behind
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import ViewsStopped
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import rows

PIPELINE = "shop"
DEFINITIONS = """
    CREATE TABLE item (id INT PRIMARY KEY, name VARCHAR);
    CREATE STREAM sale (item INT, qty INT);
    CREATE TABLE stock (id INT PRIMARY KEY, n INT);
    CREATE MATERIALIZED VIEW sold AS SELECT i.id, s.qty FROM item i LEFT JOIN sale s ON i.id = s.item;
    CREATE MATERIALIZED VIEW per_item AS SELECT item, SUM(qty) AS qty FROM sale GROUP BY item;
    CREATE MATERIALIZED VIEW totals AS SELECT i.id, p.qty FROM item i LEFT JOIN per_item p ON i.id = p.item;
    CREATE MATERIALIZED VIEW ids AS SELECT id FROM item UNION ALL SELECT id FROM stock;
    CREATE MATERIALIZED VIEW empty AS SELECT n, COUNT(*) AS c FROM stock GROUP BY n;
"""


@pytest.fixture
def shop(settings: Settings) -> Interpreter:
    interpreter = Interpreter(settings, PIPELINE)
    list(interpreter.run(DEFINITIONS))
    return interpreter


def test_the_rows_of_the_other_input_are_seen(shop: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    list(shop.run("INSERT INTO item VALUES (1, 'pear'), (2, 'leek');"))
    drain(settings, PIPELINE, in_driver=True)
    assert rows(lake, "sold") == [(1, None), (2, None)]
    assert rows(lake, "totals") == [(1, None), (2, None)], "also where a view lies between"
    assert rows(lake, "ids") == [(1,), (2,)]
    assert_correct(lake, PIPELINE)
    list(shop.run("INSERT INTO sale (item, qty) VALUES (2, 5); INSERT INTO stock VALUES (7, 1);"))
    drain(settings, PIPELINE, in_driver=True)
    assert rows(lake, "sold") == [(1, None), (2, 5)]
    assert rows(lake, "totals") == [(1, None), (2, 5)]
    assert rows(lake, "ids") == [(1,), (2,), (7,)]
    assert_correct(lake, PIPELINE)


def test_nothing_is_begun_where_nothing_has_come(shop: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    drain(settings, PIPELINE, in_driver=True)
    assert all(reader.head(lake.table(name)) is None for name in ("item__log", "sale", "stock__log", "sold"))


def test_a_source_with_records_that_wait_is_not_taken_for_empty(
    shop: Interpreter, settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event that looks up a table must not find it empty while the table's rows wait in its topic."""

    def waits(sources: Sequence[Source], *more: Any) -> bool:
        return [each.name for each in sources] == ["sale"] or behind(sources, *more)

    monkeypatch.setattr("strandline.jobs.run.stream.behind", waits)
    list(shop.run("INSERT INTO item VALUES (1, 'pear');"))
    drain(settings, PIPELINE, in_driver=True)
    assert reader.head(lake.table("sale")) is None
    assert rows(lake, "ids") == [(1,)], "the topic of 'stock' holds nothing"


def test_an_event_log_that_is_lost_is_not_begun_anew(shop: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    list(shop.run("INSERT INTO item VALUES (1, 'pear'); INSERT INTO sale (item, qty) VALUES (1, 2);"))
    drain(settings, PIPELINE, in_driver=True)
    shutil.rmtree(on_disk(lake.table("sale")))
    with pytest.raises(Exception, match="sale") as lost:
        drain(settings, PIPELINE, in_driver=True)
    assert "store.table_lost" in str(lost.value) or isinstance(lost.value, ViewsStopped)
    assert not on_disk(lake.table("sale")).exists()
