"""The progress of a stream, as Dagster's events: what each table and topic has done since the last report.

Labels are those of a drain's report, so that Dagster plots both on one line. Rows are counted by the commits since the
version that was reported last, by whichever run: what a stream committed in the moment before it was killed is counted
with what the next one does.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import dagster as dg

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.logs.open import open_log
from strandline.jobs.model import tables
from strandline.jobs.operate.quality.freshness import Waiting
from strandline.jobs.run.committed import counted_since
from strandline.jobs.run.dagster_child import table_metadata
from strandline.orchestration.changelog_topics import ChangelogTopics
from strandline.orchestration.metadata import from_pipes, with_defined
from strandline.orchestration.roles import Role, role_of, table_of
from strandline.state_store.delta.log import now_ms
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.report import TableReport
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.heartbeat import Heartbeat

Event = dg.AssetMaterialization | dg.AssetObservation


class Progress:
    """Turns the beats of one pipeline's streams into events.

    Args:
        specs: the assets of the pipeline, and of its topics.
        topics: {topic that it reads: its asset}.
        definitions: those of the pipeline.
        told: {table: the version that was reported last}, of those that were.
    """

    def __init__(
        self,
        settings: Settings,
        specs: Sequence[dg.AssetSpec],
        topics: Mapping[str, dg.AssetKey],
        definitions: Sequence[Definition] = (),
        told: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self._settings, self._specs, self._topics = settings, specs, topics
        self._told = dict(told)
        self._published = ChangelogTopics(settings, definitions)
        self._run: tuple[int, int] | None = None
        self._tables: dict[str, TableReport] = {}
        self._lag: dict[str, int | None] = {}

    def said(self, beat: Heartbeat) -> str:
        """One line for the run's log."""
        before = self._before(beat)
        changed = [each for each in beat.tables if _changed(each, before.get(each.name))]
        waiting = ", ".join(f"{topic}: {'?' if n is None else n} waiting" for topic, n in beat.lag.items())
        busy = f"; at work since {(now_ms() - beat.busy_since) / 1000:.0f} s" if beat.busy_since is not None else ""
        stopped = f"; stopped: {', '.join(beat.failures)}" if beat.failures else ""
        what = ", ".join(f"{each.name} at version {each.version}" for each in changed) or "nothing changed"
        return f"{what} ({beat.micro_batches} micro-batches so far; {waiting or 'no topics'}{busy}{stopped})"

    def events(self, beat: Heartbeat) -> Iterator[Event]:
        """The events since the last call: a materialization of each table that changed, each topic's lag, and how far
        each changelog topic is."""
        before = self._before(beat)
        waiting = self._waiting()
        for table in beat.tables:
            last = before.get(table.name)
            if _changed(table, last):
                epochs = table.epoch - (last.epoch if last is not None else 0)
                yield from self._materialized(self._counted(_since(table, last)), epochs, waiting)
                self._told[table.name] = table.version
        for topic, lag in beat.lag.items():
            # A topic that was added after Dagster has loaded its definitions has no asset yet.
            asset = self._topics.get(topic)
            if asset is not None and lag is not None and lag != self._lag.get(topic, -1):
                yield dg.AssetObservation(asset, metadata={"lag": lag})
        yield from self._published.events()
        self._run = (beat.process.pid, beat.started)
        self._tables, self._lag = {each.name: each for each in beat.tables}, dict(beat.lag)

    def _counted(self, table: TableReport) -> TableReport:
        """The report with the rows by the commits since the version that was reported last."""
        try:
            return counted_since(table, Lake(self._settings.lake).table(table.name), self._told.get(table.name))
        except StrandlineError:
            return table  # what is broken is told by the run

    def _before(self, beat: Heartbeat) -> dict[str, TableReport]:
        """What was reported last. A new process counts from nothing again, at the versions that are known."""
        if self._run == (beat.process.pid, beat.started):
            return self._tables
        return {name: replace(each, inserted=0, deleted=0, seconds=0.0) for name, each in self._tables.items()}

    def _materialized(self, table: TableReport, epochs: int, waiting: Waiting) -> Iterator[Event]:
        for spec in self._specs:
            role = role_of(spec)
            if role is Role.TOPIC or table_of(spec) != table.name:
                continue
            metadata: dict[str, Any] = from_pipes(table_metadata(table, role))
            if epochs > 0:
                metadata["seconds per epoch"] = round(table.seconds / epochs, 4)
            with suppress(StrandlineError):  # a definition that was dropped meanwhile, a broker that does not answer
                metadata["stale seconds"] = round(waiting.seconds(tables.definition_of(table.name), now_ms()), 3)
            yield dg.AssetMaterialization(spec.key, metadata=with_defined(metadata, spec))

    def _waiting(self) -> Waiting:
        lake = Lake(self._settings.lake)
        return Waiting(Catalog(lake), lake, open_log(self._settings, lake))


def _changed(table: TableReport, before: TableReport | None) -> bool:
    return before is None or before.version != table.version


def _since(table: TableReport, before: TableReport | None) -> TableReport:
    """The report with the counts since the last one."""
    if before is None:
        return table
    return replace(
        table,
        inserted=table.inserted - before.inserted,
        deleted=table.deleted - before.deleted,
        seconds=round(table.seconds - before.seconds, 3),
    )
