"""All of Nexmark in one pipeline, on Spark and Delta, with bids and auctions that change and go."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from benchmarks.nexmark.generator import Event, side_input
from strandline.jobs.ingest.produce import insert_rows
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.apply import apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from tests.nexmark.expected import EXPECTED
from tests.nexmark.maintained_views import GENERATOR, from_scratch, statements, with_amendments
from tests.support.rule_harness import multiset

EVENTS = 1200


def _insert(events: Sequence[Event], interpreter: Interpreter, settings: Settings) -> None:
    rows: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for event in events:
        gone = {"id": event.key, "__tombstone": True, "rowtime": GENERATOR.start}
        rows[event.kind].append(gone if event.row is None else event.row)
    for name, given in rows.items():
        source = interpreter.catalog.get(name)
        assert isinstance(source, Source)
        insert_rows(source, given, settings, interpreter.lake)


@pytest.mark.timeout(1800)  # 34 stages, each committed twice
@pytest.mark.skipif("STRANDLINE_NIGHTLY" not in os.environ, reason="minutes of Spark: `make nightly` runs it")
def test_all_views_follow_two_drains(settings: Settings, spark: SparkSession, tmp_path: Path) -> None:
    file = tmp_path / "nexmark.sql"
    file.write_text(statements(as_tables=True), encoding="utf-8")
    apply(file, settings)
    interpreter = Interpreter(settings, "nexmark")
    side = interpreter.catalog.get("side_input")
    assert isinstance(side, Source)
    insert_rows(side, side_input(), settings, interpreter.lake)
    events = with_amendments()[:EVENTS]
    for end, begin in ((EVENTS * 2 // 3, 0), (EVENTS, EVENTS * 2 // 3)):
        _insert(events[begin:end], interpreter, settings)
        drain(settings, "nexmark", spark)
        wanted = from_scratch(events[:end], list(EXPECTED))
        for name in EXPECTED:
            view = interpreter.catalog.get(name)
            assert isinstance(view, View)
            columns = [column.name for column in view.columns]
            rows = reader.read_rows(interpreter.lake.table(name), columns=columns).to_pylist()
            found = multiset([row[column] for column in columns] for row in rows)
            assert found == wanted[name], name
