"""A source gets columns while a run is at work on its events, and by processes that die."""

from __future__ import annotations

import json
from dataclasses import replace
from threading import Event, Thread

import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.intents import Replacement
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.ingest.in_driver import SmallBatches
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source, View
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.report import MicroBatch
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run import end_replacements
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.stream import PipelineStream
from strandline.jobs.session.define.analyze import define
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import CreateView
from strandline.state_store.commits import CommitRecord, Head
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import widen
from strandline.state_store.errors import DiskFailed, WriterBusy
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from tests.support.altered_lake import PIPELINE, alter, columns, made, rows, run, take_in
from tests.support.begun_lake import begins_with
from tests.support.examples import AT_LENGTH
from tests.support.invariants import assert_correct
from tests.support.waiting import PATIENCE_SECONDS, wait_until
from tests.support.warm_process import exit_code

KILLED = -9
BEFORE_THE_COLUMNS = (
    "after-replacement-intent:1",
    "after-columns-seen",
    "before-source-columns",
    "before-log-entry:1",
    "after-log-entry:1",
    "before-log-entry:2",
)
AFTER_THE_COLUMNS = (
    "after-log-entry:2",
    "after-source-columns:2",
    "after-replacement-definition",
    "after-replacement-clean-up",
)
NEXT_TO_THEM = ("after-columns-seen", "after-log-entry:1", "after-log-entry:2", "after-replacement-definition")
OLD = [("a", "Anna"), ("b", "Bert")]
NEW = [("a", "Anna", None, None), ("b", "Bert", None, None)]


template, lake = begins_with(made)


def a_record_at_a_time(settings: Settings) -> Settings:
    return settings.model_copy(update={"ingest": settings.ingest.model_copy(update={"max_rows_per_epoch": 1})})


class Query:
    """A query as Spark's is one, over the sources that the pipeline has when it starts: a record at a time."""

    def __init__(self, stream: PipelineStream) -> None:
        self._stream, self._number, self._stopped = stream, 0, False
        stream._outdated = False
        topics = open_log(stream.settings, stream.lake)
        reading = stream._reading()
        self._at = reading.start
        self._end = {name: {str(p): end for p, end in topics.end_offsets(name).items()} for name in self._at}
        self._checkpoint = stream.session.checkpoint(stream.pipeline)
        (self._checkpoint / "offsets").mkdir(parents=True)
        assert stream.context.duckdb_engine is not None
        self._small = SmallBatches(reading, self._checkpoint, stream.context.duckdb_engine)

    def awaitTermination(self, _seconds: float) -> bool:
        if self._stopped or self._at == self._end:
            return True
        topic = next(name for name, ends in self._end.items() if self._at[name] != ends)
        self._at = {**self._at, topic: {"0": self._at[topic]["0"] + 1}}
        note = "\n".join(["v1", "{}", json.dumps({"topics": self._at})])
        (self._checkpoint / "offsets" / str(self._number)).write_text(note)
        self._stream._spark_batch(self._small, None, self._number)  # type: ignore[arg-type]
        self._number += 1
        return False

    def stop(self) -> None:
        self._stopped = True


@pytest.mark.parametrize("by_driver", [True, False], ids=["driver", "query"])
def test_a_run_takes_the_columns_between_two_micro_batches(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch, by_driver: bool
) -> None:
    """Records have the field from the beginning; those before the change are read without it, those after it with."""
    topics = open_log(settings, lake)
    sent = {n: json.dumps({"shop": "a", "qty": n, "coupon": f"c{n}"}).encode() for n in range(10, 16)}
    topics.produce("sales", [Record(None, body, 1_714_564_900_000 + n) for n, body in sent.items()])
    if not by_driver:
        monkeypatch.setattr(PipelineStream, "_drain_by_driver", lambda *_, **__: False)
        monkeypatch.setattr(PipelineStream, "_start", lambda stream, available_now: Query(stream))
    threads: list[Thread] = []

    def watch(batch: MicroBatch) -> None:
        if batch.number == 2:
            given = (settings, "ALTER STREAM sales ADD COLUMN coupon VARCHAR;")
            threads.append(Thread(target=run, args=given))
            threads[0].start()
            wait_until(lambda: intents.begun_replacements(lake), "the intent does not come")

    report = drain(a_record_at_a_time(settings), PIPELINE, watch=watch)
    threads[0].join(PATIENCE_SECONDS)
    assert intents.find_replacement("sales", lake) is None
    assert sum(each.inserted for each in report.tables if each.name == "sales") == 6
    newest = log.newest_version(lake.table("sales"))
    assert newest is not None
    modes = [each.record.mode for each in log.read_history(lake.table("sales"), newest - 7, newest) if each.record]
    assert modes == [*["ingest"] * 3, "columns", *["ingest"] * 3]
    found = [row for row in rows(lake, "sales") if row[1] >= 10]
    assert found == [("a", n, None if n < 13 else f"c{n}") for n in range(10, 16)]
    assert rows(lake, "by_shop") == [("a", 8, 81), ("b", 1, 2)]
    assert_correct(lake, PIPELINE)
    assert [each for each in verify(settings, [], deep=True) if each.ok is False] == []


@pytest.mark.kill
@pytest.mark.parametrize("place", [*BEFORE_THE_COLUMNS, *AFTER_THE_COLUMNS] if AT_LENGTH else NEXT_TO_THEM)
def test_a_kill_leaves_the_former_columns_or_all(place: str, settings: Settings, lake: LakeLayout) -> None:
    assert exit_code(alter, lake.root, failpoint=place) == KILLED
    assert rows(lake, "shops") == (OLD if place in BEFORE_THE_COLUMNS else NEW)
    drain(settings, PIPELINE)  # ends what was begun
    assert rows(lake, "shops") == NEW
    run(settings, "INSERT INTO shops (id, name, town, size) VALUES ('b', 'Bert', 'Ulm', 3);")
    take_in(settings)
    assert rows(lake, "shops") == [NEW[0], ("b", "Bert", "Ulm", 3)]
    assert rows(lake, "all_shops") == OLD
    assert intents.find_replacement("shops", lake) is None
    assert_correct(lake, PIPELINE)
    assert [each for each in verify(settings, [], deep=True) if each.ok is False] == []


def test_a_fault_after_the_first_table_is_ended_by_the_next_run(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event log has the columns, the rows of the keyed table do not yet: it cannot be given up any more."""

    def failing(path: LakePath, head: Head, schema: str, record: CommitRecord) -> Head:
        if path.name == "shops":
            raise DiskFailed("the disk is full")
        return widen(path, head, schema, record)

    with monkeypatch.context() as patched:
        patched.setattr(end_replacements, "widen", failing)
        with pytest.raises(DiskFailed):
            alter(lake.root)
    assert columns(lake, "shops") == ["id", "name"]
    drain(settings, PIPELINE)
    assert rows(lake, "shops") == NEW
    assert_correct(lake, PIPELINE)


def test_a_fault_before_it_leaves_the_source(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise DiskFailed("the disk is full")

    heads = [reader.head(lake.table(name)) for name in ("shops", "shops__log")]
    with monkeypatch.context() as patched:
        patched.setattr(intents, "plan_epoch", failing)
        with pytest.raises(RefreshFailed, match="'shops' keeps its definition: the disk is full"):
            alter(lake.root)
    assert columns(lake, "shops") == ["id", "name"]
    assert [reader.head(lake.table(name)) for name in ("shops", "shops__log")] == heads
    alter(lake.root)
    assert rows(lake, "shops") == NEW


def test_a_view_that_is_about_to_be_replaced_comes_first(settings: Settings, lake: LakeLayout) -> None:
    """Its next definition was made over the columns of before."""
    view = Catalog(lake).get("all_shops")
    assert isinstance(view, View)
    with locked(lake.catalog):
        intents.put_replacement(Replacement(view), lake)
    with pytest.raises(WriterBusy, match="'all_shops' reads 'shops', and is being replaced"):
        alter(lake.root)
    assert columns(lake, "shops") == ["id", "name"]


def test_what_is_registered_while_columns_are_about_to_come_was_read_without_them(
    settings: Settings, lake: LakeLayout
) -> None:
    """A run that is in a long micro-batch has not taken the columns yet."""
    session = Interpreter(settings, PIPELINE)
    shops = Catalog(lake).get("shops")
    assert isinstance(shops, Source)
    with locked(lake.catalog):
        wide = replace(shops, columns=(*shops.columns, Column("town", t.VARCHAR)), added=1)
        intents.put_replacement(Replacement(wide), lake)
    list(session.run("CREATE MATERIALIZED VIEW more AS SELECT * FROM shops"))
    with pytest.raises(RefreshFailed, match="'shops' was altered meanwhile"):
        list(session.run("CREATE OR REPLACE MATERIALIZED VIEW all_shops AS SELECT id FROM shops"))
    drain(settings, PIPELINE)
    assert columns(lake, "shops") == ["id", "name", "town"]
    assert (rows(lake, "more"), rows(lake, "all_shops")) == (OLD, OLD)
    run(settings, "INSERT INTO shops (id, name, town) VALUES ('b', 'Bert', 'Ulm');")
    take_in(settings)
    assert (rows(lake, "more"), rows(lake, "all_shops")) == (OLD, OLD)
    assert_correct(lake, PIPELINE)
    assert [each for each in verify(settings, [], deep=True) if each.ok is False] == []


def test_what_was_read_before_the_columns_and_is_registered_after_them(settings: Settings, lake: LakeLayout) -> None:
    slow = Interpreter(settings, PIPELINE)
    [statement] = parse("CREATE MATERIALIZED VIEW more AS SELECT * FROM shops")
    assert isinstance(statement, CreateView)
    read = define(statement, slow.catalog, PIPELINE)
    alter(lake.root)
    slow.catalog.add(read)
    drain(settings, PIPELINE)
    assert rows(lake, "more") == OLD
    assert_correct(lake, PIPELINE)


def test_two_processes_that_alter_at_once_are_told(settings: Settings, lake: LakeLayout) -> None:
    errors: list[BaseException] = []
    together = Event()

    def one(name: str) -> None:
        session = Interpreter(settings, PIPELINE)
        together.wait()
        try:
            list(session.run(f"ALTER TABLE shops ADD {name} VARCHAR"))
        except (WriterBusy, RefreshFailed) as error:
            errors.append(error)

    threads = [Thread(target=one, args=(name,)) for name in ("one", "two")]
    for each in threads:
        each.start()
    together.set()
    for each in threads:
        each.join(PATIENCE_SECONDS)
    added = set(columns(lake, "shops")) - {"id", "name"}
    assert len(added) + len(errors) == 2
    assert added
    assert_correct(lake, PIPELINE)
