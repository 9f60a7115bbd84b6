"""Histories of what is kept beside tables, cut off from power at every moment: catalog, requests with a key, backups.

Of each step that was reported all must be there; of another one all or nothing; and the next one must succeed.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import relation
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.restore import execute_restore, plan_restore
from strandline.jobs.serve.errors import Unauthenticated
from strandline.jobs.server.state.access import Tokens, make_token
from strandline.jobs.server.state.inserts import Inserts
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import CommitRecord
from strandline.state_store.delta import reader
from strandline.state_store.errors import BackupBroken, SettingsError
from strandline.state_store.layout import LakeLayout
from tests.support.arrow_table import ArrowTable
from tests.support.power import Disk, Recorder, disks, lay_out
from tests.support.power_cuts import Cuts

_TIME: Final = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)


class History(ABC):
    """Steps in a folder, each of which is reported when it is done."""

    def prepare(self, root: Path) -> None:  # noqa: B027 (most begin with nothing)
        """What is on the disk before, flushed."""

    @abstractmethod
    def steps(self, root: Path) -> list[Any]:
        """Take all steps; what is reported of each, to be noted by `report`."""

    @abstractmethod
    def check(self, root: Path, reported: list[Any]) -> None:
        """What must hold on a disk of a moment at which so much was reported; then go on there."""

    def run(self, root: Path) -> Recorder:
        """The recorded history."""
        self.prepare(root)
        recorder = Recorder(root)
        self.report = recorder.told.append
        recorder.as_flushed()
        with recorder.recording():
            self.steps(root)
        return recorder


def assert_each_disk(history: History, folder: Path, seed: random.Random, most: int) -> Cuts:
    """Lay out every disk that the history may leave, and check it."""
    root = folder / "history"
    root.mkdir()
    recorder = history.run(root)
    seen: set[tuple[int, Disk]] = set()
    for number, moment in enumerate(recorder.moments):
        for disk in disks(moment, seed, most):
            if (moment.told, disk) in seen:
                continue
            seen.add((moment.told, disk))
            # In the place of the first: what is kept may name it.
            shutil.rmtree(root)
            lay_out(disk, root)
            try:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(os, "fsync", lambda _handle: None)
                    history.check(root, recorder.told[: moment.told])
            except Exception as error:
                kept = folder / "disk"
                shutil.rmtree(kept, ignore_errors=True)
                lay_out(disk, kept)
                raise AssertionError(f"moment {number} of {len(recorder.moments)}, kept in {kept}: {error}") from error
    return Cuts(len(recorder.moments), len(seen))


class CatalogHistory(History):
    """Definitions come, are replaced, and go."""

    STATEMENTS: Final = (
        "CREATE STREAM visits (page VARCHAR, n INT) WITH (KAFKA_TOPIC = 'visits', PARTITIONS = 1);",
        "CREATE MATERIALIZED VIEW pages AS SELECT page, COUNT(*) AS n FROM visits GROUP BY page;",
        "CREATE OR REPLACE MATERIALIZED VIEW pages AS SELECT page, SUM(n) AS n FROM visits GROUP BY page;",
        "DROP VIEW pages;",
    )

    def steps(self, root: Path) -> list[Any]:
        settings = load_settings(lake=root / "lake")
        for statement in self.STATEMENTS:
            list(Interpreter(settings, "shop").run(statement))
            self.report(self._state(root))
        return []

    def check(self, root: Path, reported: list[Any]) -> None:
        found = self._state(root)
        allowed = self._all[len(reported) : len(reported) + 2]
        assert found in allowed, f"{found} instead of {allowed}"
        Catalog(LakeLayout(root / "lake")).check_pipeline("shop")
        list(Interpreter(load_settings(lake=root / "lake"), "shop").run("CREATE STREAM later (n INT);"))
        assert "later" in self._state(root)

    def run(self, root: Path) -> Recorder:
        recorder = super().run(root)
        self._all = [{}, *recorder.told]
        return recorder

    def _state(self, root: Path) -> dict[str, str]:
        catalog = Catalog(LakeLayout(root / "lake"))
        assert not catalog.broken, catalog.broken
        return {each.name: str(getattr(each, "text", "")) for each in catalog.definitions()}


class InsertHistory(History):
    """Requests with a key, each sent again after the power has come back."""

    REQUESTS: Final = {"first": [{"n": 1}, {"n": 2}], "second": [{"n": 3}], "third": [{"n": 4}, {"n": 5}]}

    def prepare(self, root: Path) -> None:
        list(Interpreter(self._settings(root), "shop").run("CREATE STREAM visits (n INT);"))

    def steps(self, root: Path) -> list[Any]:
        for key in self.REQUESTS:
            self.report((key, self._insert(root, key)))
        return []

    def check(self, root: Path, reported: list[Any]) -> None:
        said = dict(reported)
        for _ in range(2):
            for key in self.REQUESTS:
                found = self._insert(root, key)
                assert said.setdefault(key, found) == found, key
        source = self._source(root)
        log = LocalLog(LakeLayout(root / "lake"))
        values = [
            value
            for partition, end in log.end_offsets(source.topic).items()
            for run in log.read(source.topic, partition, 0, end)
            for value in run.values
        ]
        assert sorted(map(str, values)) == sorted(str(f'{{"n":{n}}}'.encode()) for n in range(1, 6)), values

    def _insert(self, root: Path, key: str) -> Any:
        settings = self._settings(root)
        inserts = Inserts(settings, LakeLayout(root / "lake"), root / "server" / "inserts")
        return inserts.insert(self._source(root), self.REQUESTS[key], key).places

    def _source(self, root: Path) -> Source:
        found = Catalog(LakeLayout(root / "lake")).get("visits")
        assert isinstance(found, Source)
        return found

    def _settings(self, root: Path) -> Settings:
        return load_settings(lake=root / "lake")


class BackupHistory(History):
    """A lake that changes between two backups of it, on a disk of their own."""

    def prepare(self, root: Path) -> None:
        list(Interpreter(load_settings(lake=root / "lake"), "shop").run("CREATE STREAM visits (n INT);"))
        self._table(root).create(CommitRecord(epoch=0, writer="shop/1"))
        self._grow(root, 0)

    def steps(self, root: Path) -> list[Any]:
        for first in (10, 20):
            self.report(self._back_up(root))
            self._grow(root, first)
        return []

    def check(self, root: Path, reported: list[Any]) -> None:
        newest = self._restored(root)
        if reported:
            assert newest is not None
            assert newest[0] >= reported[-1][0], "a backup that was reported is not there"
        for number, count in reported:
            assert self._restored(root, number) == (number, count)
        again = self._back_up(root)
        assert self._restored(root) == again

    def _back_up(self, root: Path) -> tuple[int, int]:
        settings = load_settings(lake=root / "lake")
        done = execute_backup(settings, plan_backup(settings, root / "backup"))
        return done.number, reader.read_rows(root / "lake" / "tables" / "visits").num_rows

    def _grow(self, root: Path, first: int) -> None:
        place = {"_partition": 0, "_timestamp": _TIME, "_stream_time": _TIME}
        self._table(root).apply([{"n": number, "_offset": number, **place} for number in range(first, first + 2)])

    def _table(self, root: Path) -> ArrowTable:
        """The event log of the stream."""
        catalog, lake = Catalog(LakeLayout(root / "lake")), LakeLayout(root / "lake")
        source = catalog.get("visits")
        assert isinstance(source, Source)
        schema = pa.schema([(name, kind.arrow()) for name, kind in relation("visits", catalog).columns])
        return ArrowTable(lake.table("visits"), schema, log_spec(source))

    def _restored(self, root: Path, number: int | None = None) -> tuple[int, int] | None:
        target = root.parent / "restored"
        shutil.rmtree(target, ignore_errors=True)
        try:
            plan = plan_restore(root / "backup", target, number)
        except BackupBroken:
            assert number is None
            return None
        execute_restore(plan)
        return plan.manifest.number, reader.read_rows(target / "tables" / "visits").num_rows


class TokenHistory(History):
    """Tokens come, and one is replaced."""

    def steps(self, root: Path) -> list[Any]:
        for name in ("reader", "writer", "reader"):
            self.report((name, make_token(root / "tokens.json", name, ("read:*",), None)))
        return []

    def check(self, root: Path, reported: list[Any]) -> None:
        newest = dict(reported)
        try:
            tokens = Tokens(root / "tokens.json")
        except SettingsError:
            assert not reported
            return
        # The third step may have taken the place of the first one's token.
        certain = {name for name in newest if len(reported) != 2 or name != "reader"}
        for name in certain:
            assert tokens.find(f"Bearer {newest[name]}").name == name
        with pytest.raises(Unauthenticated):
            tokens.find("Bearer sl_reader_" + "0" * 43)
        made_token = make_token(root / "tokens.json", "later", ("read:*",), None)
        assert Tokens(root / "tokens.json").find(f"Bearer {made_token}").name == "later"


HISTORIES: Final[dict[str, type[History]]] = {
    "catalog": CatalogHistory,
    "requests with a key": InsertHistory,
    "backups": BackupHistory,
    "tokens": TokenHistory,
}
