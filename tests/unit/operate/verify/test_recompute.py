"""The SQL of a view, computed again: over its inputs as they were, and only where the tables can tell."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.tables import META_COLUMNS
from strandline.jobs.operate.verify.findings import Check
from strandline.jobs.operate.verify.recompute import frozen, queries
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import log, reader
from strandline.state_store.layout import LakeLayout
from tests.support.arrow_table import ArrowTable
from tests.unit.operate.verify.damage import flip
from tests.unit.operate.verify.lakes import MadeLake

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)


def recompute(made: MadeLake, table: str) -> Check:
    (found,) = (check for check in verify(made.settings, [table], deep=True) if check.check == "recompute")
    return found


def test_a_view_is_compared_at_its_vector_and_not_at_the_heads(made: MadeLake) -> None:
    made.visits([(0, "e", 1.0)], {0: 4, 1: 4})
    assert recompute(made, "totals").ok is True
    assert recompute(made, "spread").ok is True
    made.refresh("totals", [], None, ["visits"])
    assert recompute(made, "totals").what.endswith("1 missing, as (page='e', n=1, seconds=1.0)")


def test_a_view_over_a_broken_input_is_not_blamed(made: MadeLake) -> None:
    flip(log.commit_file(made.lake.table("visits"), 2))
    assert recompute(made, "totals").ok is None
    assert "'visits'" in recompute(made, "totals").what


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("CREATE STREAM v AS SELECT s.k AS k, t.x FROM s JOIN t ON s.k = t.k", False),
        ("CREATE MATERIALIZED VIEW v AS SELECT s.k AS k, t.x FROM s JOIN t ON s.k = t.k", True),
        ("CREATE MATERIALIZED VIEW v AS SELECT k, 1 AS n FROM s UNION ALL SELECT k, x AS n FROM t", True),
    ],
)
def test_an_event_that_joins_a_table_as_it_was_cannot_be_computed_again(
    settings: Settings, text: str, told: bool
) -> None:
    sources = """
        CREATE STREAM s (k INT KEY, n INT) WITH (KAFKA_TOPIC = 's');
        CREATE TABLE t (k INT PRIMARY KEY, x INT) WITH (KAFKA_TOPIC = 't');
    """
    assert list(Interpreter(settings).run(f"{sources}{text};"))
    catalog = Catalog(LakeLayout(settings.lake))
    view = catalog.get("v")
    assert isinstance(view, View)
    assert [each.query is not None and frozen(each.query) for each in queries(view, catalog)] == [not told]


def test_the_rows_of_queries_into_a_stream_are_computed_again(settings: Settings) -> None:
    text = """
        CREATE STREAM a (n INT) WITH (KAFKA_TOPIC = 'a');
        CREATE STREAM b (n INT) WITH (KAFKA_TOPIC = 'b');
        INSERT INTO b SELECT n + 1 AS n FROM a WHERE n > 0;
    """
    assert list(Interpreter(settings).run(text))
    lake, catalog = LakeLayout(settings.lake), Catalog(LakeLayout(settings.lake))
    _append(lake, catalog, "a", [(0, 0), (0, 1), (0, 2)], CommitRecord(epoch=1))
    head = reader.head(lake.table("a"))
    assert head is not None
    record = CommitRecord(epoch=1, vector={"b__insert_1/a": head.at})
    _append(lake, catalog, "b", [(0, 77), (65_536, 2), (65_536, 3)], record)
    found = {check.check: check.ok for check in verify(settings, ["b"], deep=True)}
    assert (found["vector"], found["recompute"]) == (True, True)
    _append(lake, catalog, "b", [(65_536, 9)], CommitRecord(epoch=2, vector=record.vector))
    found = {check.check: check.ok for check in verify(settings, ["b"], deep=True)}
    assert (found["vector"], found["recompute"]) == (True, False)


def _append(lake: LakeLayout, catalog: Catalog, name: str, rows: list[tuple[int, int]], record: CommitRecord) -> None:
    """One commit of a stream's event log: (partition, n)."""
    source = catalog.get(name)
    assert isinstance(source, Source)
    schema = pa.schema([("n", pa.int32()), *((column, t.arrow()) for column, t in META_COLUMNS)])
    table = ArrowTable(lake.table(name), schema, log_spec(source))
    if record.epoch == 1:
        table.create(CommitRecord(epoch=0))
    events = [
        {"n": n, "_partition": partition, "_offset": at, "_timestamp": NOON, "_stream_time": NOON}
        for at, (partition, n) in enumerate(rows)
    ]
    table.apply(events, None, record)
