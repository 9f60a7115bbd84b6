"""Definitions get other names while a run is at work: it says stored names alone, and goes on."""

from __future__ import annotations

import json

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.report import MicroBatch
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain, outlook
from strandline.jobs.run.stream import PipelineStream
from strandline.state_store.layout import LakeLayout
from tests.support.altered_lake import PIPELINE, made, rows, run
from tests.support.invariants import assert_correct
from tests.unit.run.test_altered_while_running import Query, a_record_at_a_time

NAMES = {
    1: "ALTER STREAM sales RENAME TO deals; ALTER TABLE by_shop RENAME TO sold;",
    3: "ALTER STREAM deals RENAME TO sales; ALTER TABLE sold RENAME TO b; ALTER VIEW named RENAME TO c;",
    4: "CREATE MATERIALIZED VIEW sold AS SELECT b.shop FROM b WHERE b.n > 1;",
}


@pytest.mark.parametrize("by_driver", [True, False], ids=["driver", "query"])
def test_a_run_goes_on_whatever_its_definitions_are_called(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch, by_driver: bool
) -> None:
    made(settings)
    sent = [{"shop": "b", "qty": number} for number in range(6)]
    topics = open_log(settings, lake)
    topics.produce("sales", [Record(None, json.dumps(row).encode(), 1_714_564_900_000) for row in sent])
    if not by_driver:
        monkeypatch.setattr(PipelineStream, "_drain_by_driver", lambda *_, **__: False)
        monkeypatch.setattr(PipelineStream, "_start", lambda stream, available_now: Query(stream))

    def watch(batch: MicroBatch) -> None:
        if batch.number in NAMES:
            run(settings, NAMES[batch.number])

    report = drain(a_record_at_a_time(settings), PIPELINE, watch=watch)
    assert sum(each.inserted for each in report.tables if each.name == "sales") == 6
    assert Catalog(lake).name_map.names == {"by_shop": "b", "named": "c"}
    assert str(outlook(settings, PIPELINE)).splitlines()[-1] == "  views: b, c, everything, all_shops, sold"
    drain(settings, PIPELINE)
    assert rows(lake, "by_shop") == [("a", 2, 6), ("b", 7, 17)]
    assert rows(lake, "sold") == [("a",), ("b",)]
    assert_correct(lake, PIPELINE)
    assert [each for each in verify(settings, [], deep=True) if each.ok is False] == []
