"""Attempts of one refresh side by side, as Spark makes them: a task that is started again, or twice at once.

One attempt commits an epoch that another one is about to commit. Whichever of the two ends first, Spark takes its
result: it must be that of a refresh, and not that of a race which it lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.refresh.context import Heads, RunContext
from strandline.jobs.ivm.rules.stored import spec_of
from strandline.jobs.model.settings import Settings
from strandline.jobs.run import refresh_views
from strandline.jobs.run.pipeline import drain
from strandline.jobs.run.refresh_views import Refreshed, refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import TableVersion
from strandline.state_store.delta import commit as commits
from strandline.state_store.delta import log, reader
from strandline.state_store.delta.commit import flush_log
from strandline.state_store.delta.compaction import CompactionPlan, Merge, compact
from strandline.state_store.delta.heads import set_aside
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import CommitConflict, InputReplaced
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from strandline.state_store.tablespec import TableSpec
from tests.support.invariants import assert_correct

SHOP = """
CREATE STREAM sales (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, SUM(qty) AS qty FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW by_count AS SELECT n, COUNT(*) AS shops FROM by_shop GROUP BY n;
CREATE MATERIALIZED VIEW most AS SELECT MAX(shops) AS most FROM by_count;
"""
VIEWS = ("by_shop", "by_count", "most")


class Attempts:
    """Attempts of one pipeline's refresh, each with a DuckDB engine of its own, as in workers."""

    def __init__(self, settings: Settings, stack: ExitStack) -> None:
        self.settings, self.lake, self._stack = settings, LakeLayout(settings.lake), stack

    def attempt(self, only: str | None = None) -> Refreshed:
        """One of all views, or one that ends when it has refreshed one of them."""
        catalog = Catalog(self.lake)
        levels = maintained(catalog.pipeline("shop"), catalog)
        if only is not None:
            levels = [[item for item in level if item.target == only] for level in levels]
        duckdb_engine = self._stack.enter_context(DuckDBEngine("200MB", 1))
        return refresh_all(
            RunContext(None, self.lake, "shop/1", duckdb_engine=duckdb_engine, engine="duckdb"), levels, frozenset()
        )

    def spec(self, table: str) -> TableSpec:
        catalog = Catalog(self.lake)
        items = [item for level in maintained(catalog.pipeline("shop"), catalog) for item in level]
        return next(spec_of(stage) for item in items for stage in item.stages if stage.table == table)

    def sell(self, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take events in, and refresh nothing."""
        list(Interpreter(self.settings, "shop").run(f"INSERT INTO sales VALUES {text};"))
        with monkeypatch.context() as patched:
            patched.setattr("strandline.jobs.run.stream.refresh_all", lambda *_: Refreshed((), {}))
            drain(self.settings, "shop", in_driver=True)

    def check(self, epochs: int) -> None:
        """Each table has one commit for each epoch, and what its SQL says."""
        for name in VIEWS:
            path = self.lake.table(name)
            commits = log.read_history(path, -1, log.versions(path)[-1])
            found = [c.record.epoch for c in commits if c.record is not None and c.record.mode != "compact"]
            assert found == list(range(epochs + 1)), name
        assert_correct(self.lake, "shop")


@pytest.fixture
def attempts(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Attempts]:
    made = settings.model_copy(update={"engine": "duckdb"})
    list(Interpreter(made, "shop").run(SHOP))
    with ExitStack() as stack:
        found = Attempts(made, stack)
        found.sell("('a', 1), ('b', 2), ('a', 3)", monkeypatch)
        assert not found.attempt().failures
        found.sell("('b', 5), ('c', 1)", monkeypatch)
        yield found


def before_the_entry(monkeypatch: pytest.MonkeyPatch, table: str, once: Callable[[], object]) -> None:
    """Do something when a commit of a table is all but made."""
    waiting = [once]

    def flushed(path: LakePath, at: TableVersion | None = None) -> None:
        flush_log(path, at)
        if path.name == table and waiting:
            waiting.pop()()

    monkeypatch.setattr(commits, "flush_log", flushed)


@pytest.mark.parametrize("table", VIEWS)
def test_an_attempt_that_loses_the_race_goes_on(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """The other one is done with everything when this one is about to commit."""
    faster: list[Refreshed] = []
    before_the_entry(monkeypatch, table, lambda: faster.append(attempts.attempt()))
    slower = attempts.attempt()
    assert faster
    assert not faster[0].failures
    assert not slower.failures
    attempts.check(epochs=2)


def test_an_attempt_goes_on_where_the_faster_one_was_lost(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has committed a view, and is lost before the next: this one loses the view, and makes the rest."""

    before_the_entry(monkeypatch, "by_shop", lambda: attempts.attempt("by_shop"))
    assert not attempts.attempt().failures
    attempts.check(epochs=2)


def test_an_attempt_is_made_again_after_its_own_commit(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its worker was lost when the entry was written, and nobody heard of it."""

    class WorkerLost(BaseException):
        pass

    def lost(name: str) -> None:
        if name == "after-log-entry":
            raise WorkerLost

    with monkeypatch.context() as patched:
        patched.setattr(commits, "failpoint", lost)
        with pytest.raises(WorkerLost):
            attempts.attempt()
    again = attempts.attempt()
    assert not again.failures
    assert [each.mode for each in again.stages if each.table == "by_shop"] == ["none"]
    attempts.check(epochs=2)


def test_an_input_that_the_other_attempt_compacted_is_no_other_input(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one merges the files of a view after its commit, and computes the next one from that version."""

    assert not attempts.attempt("by_shop").failures
    seen, waiting = Heads.find, [True]

    def found(heads: Heads, name: str) -> object:
        head = seen(heads, name)
        if name == "by_shop" and waiting:
            waiting.pop()
            merged(attempts.lake.table("by_shop"), attempts.spec("by_shop"))
            assert not attempts.attempt().failures
        return head

    monkeypatch.setattr(Heads, "find", found)
    assert not attempts.attempt().failures
    assert not waiting
    attempts.check(epochs=2)


def merged(path: LakePath, spec: TableSpec) -> None:
    """All files in one."""
    head = reader.head(path)
    assert head is not None
    snapshot = read_snapshot(path, head.version)
    plan = CompactionPlan(
        head.version, len(snapshot.files), (Merge(tuple(snapshot.files), head.record.rows, 0, "to have one"),)
    )
    compact(path, spec, head, snapshot, plan)


@pytest.mark.parametrize("kind", [CommitConflict, InputReplaced])
def test_what_does_not_come_right_is_said(
    attempts: Attempts, monkeypatch: pytest.MonkeyPatch, kind: type[CommitConflict | InputReplaced]
) -> None:
    """It is tried a few times, and not for ever."""
    tried: list[str] = []

    def refused(*_: object) -> None:
        tried.append("again")
        raise kind("no")

    monkeypatch.setattr(refresh_views, "decide", refused)
    failures = attempts.attempt().failures
    assert isinstance(failures["by_shop"], kind)
    assert len(tried) < 10


def test_a_table_whose_history_was_replaced_stays_an_error(attempts: Attempts, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not forgiven by looking again."""
    set_aside(attempts.lake, "sales")
    attempts.sell("('z', 1)", monkeypatch)
    assert isinstance(attempts.attempt().failures["by_shop"], InputReplaced)
