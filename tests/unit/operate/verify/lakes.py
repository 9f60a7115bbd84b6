"""A lake as its pipeline leaves it, made without Spark: a stream with a dead letter, a keyed source, three views."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.event_logs import dead_letter_spec, log_spec
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.ivm.rules.stored import spec_of, stored_columns
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.tables import DEAD_LETTER_COLUMNS, META_COLUMNS, TOMBSTONE
from strandline.jobs.model.types import BOOLEAN
from strandline.jobs.run.schedule import maintained
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.commits import CommitRecord, TableVersion
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support.arrow_table import ArrowTable, Row

NOON = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)

DEFINITIONS = """
    CREATE STREAM visits (page VARCHAR, seconds DOUBLE) WITH (KAFKA_TOPIC = 'clicks', PARTITIONS = 2);
    CREATE TABLE pages (page VARCHAR PRIMARY KEY, owner VARCHAR) WITH (KAFKA_TOPIC = 'pages');
    CREATE TABLE totals AS SELECT page, COUNT(*) AS n, SUM(seconds) AS seconds FROM visits GROUP BY page;
    CREATE MATERIALIZED VIEW owned AS
        SELECT owner, SUM(n) AS n FROM pages JOIN totals ON pages.page = totals.page GROUP BY owner;
    CREATE MATERIALIZED VIEW spread AS
        SELECT n, COUNT(*) AS pages FROM (SELECT page, COUNT(*) AS n FROM visits GROUP BY page) AS t GROUP BY n;
"""
TABLES = (
    "visits",
    "visits__dead_letters",
    "pages__log",
    "pages",
    "totals",
    "owned",
    "spread__stage_1",
    "spread",
)
"""Every table of the lake."""


class MadeLake:
    """The lake, and how to write its tables on."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.lake = LakeLayout(settings.lake)
        assert list(Interpreter(settings, "shop").run(DEFINITIONS))
        self.catalog = Catalog(self.lake)
        self.log = LocalLog(self.lake)
        self.tables: dict[str, ArrowTable] = {}
        self.fingerprints: dict[str, str] = {}
        for definition in self.catalog.definitions():
            if isinstance(definition, Source):
                self._source(definition)
            for item in (item for level in maintained([definition], self.catalog) for item in level):
                for stage in item.stages:
                    schema = pa.schema([(name, t.arrow()) for name, t in stored_columns(stage)])
                    self.tables[stage.table] = ArrowTable(self.lake.table(stage.table), schema, spec_of(stage))
                    self.fingerprints[stage.table] = item.fingerprint

    def visits(self, rows: Sequence[tuple[int, str, float]], offsets: Mapping[int, int]) -> None:
        """One epoch of the stream: (partition, page, seconds), each at the next offset; all below `offsets` is read."""
        self._events("visits", "clicks", [(p, {"page": page, "seconds": s}) for p, page, s in rows], offsets)

    def pages(self, rows: Sequence[tuple[str, str | None]], end: int) -> None:
        """One epoch of the keyed source's events: (page, owner), None deletes the page."""
        events = [(0, {"page": page, "owner": owner, TOMBSTONE: owner is None}) for page, owner in rows]
        self._events("pages__log", "pages", events, {0: end})

    def dead_letter(self, partition: int, offset: int) -> None:
        """A record of the stream's topic that does not decode."""
        row = {"_topic": "clicks", "_partition": partition, "_offset": offset, "reason": "not JSON"}
        offsets = {"clicks": {str(partition): offset + 1}}
        self._commit("visits__dead_letters", [row], None, {"offsets": offsets, "topics": self._ids("clicks")})

    def refresh(
        self, table: str, rows: Sequence[Row], gone: Callable[[Row], bool] | None = None, inputs: Sequence[str] = ()
    ) -> None:
        """One epoch of a table that is computed: these rows come, `gone` go, and its vector names its inputs' heads."""
        vector = {}
        for name in inputs:
            head = reader.head(self.lake.table(name))
            assert head is not None
            vector[name] = head.at
        self._commit(table, rows, gone, {"vector": vector, "fingerprint": self.fingerprints[table]})

    def vector(self, table: str) -> dict[str, TableVersion]:
        head = reader.head(self.lake.table(table))
        assert head is not None
        return dict(head.record.vector)

    def _source(self, source: Source) -> None:
        columns = [(c.name, c.type.arrow()) for c in source.columns]
        columns += [(name, t.arrow()) for name, t in META_COLUMNS]
        if source.kind == "table":
            columns.append((TOMBSTONE, BOOLEAN.arrow()))
        spec, letters = log_spec(source), dead_letter_spec(source)
        self.tables[spec.name] = ArrowTable(self.lake.table(spec.name), pa.schema(columns), spec)
        schema = pa.schema([(name, t.arrow()) for name, t in DEAD_LETTER_COLUMNS])
        self.tables[letters.name] = ArrowTable(self.lake.table(letters.name), schema, letters)

    def _ids(self, topic: str) -> dict[str, str]:
        return {topic: self.log.identity(topic).id}

    def _events(self, table: str, topic: str, rows: Sequence[tuple[int, Row]], offsets: Mapping[int, int]) -> None:
        begins = self.log.end_offsets(topic)
        made = []
        for partition, row in rows:
            self.log.produce(topic, [Record(None, b"{}", 0, partition=partition)])
            time = NOON + dt.timedelta(seconds=begins[partition])
            place = {"_partition": partition, "_offset": begins[partition], "_timestamp": time, "_stream_time": time}
            made.append({**row, **place})
            begins[partition] += 1
        said = {topic: {str(partition): end for partition, end in offsets.items()}}
        self._commit(table, made, None, {"offsets": said, "topics": self._ids(topic)})

    def _commit(
        self, name: str, rows: Sequence[Row], gone: Callable[[Row], bool] | None, said: Mapping[str, Any]
    ) -> None:
        table = self.tables[name]
        head = reader.head(table.path)
        if head is None:
            head = table.create(CommitRecord(epoch=0, writer="shop/1", fingerprint=said.get("fingerprint", "")))
        table.apply(rows, gone, CommitRecord(epoch=head.record.epoch + 1, writer="shop/1", mode="delta", **said))


def healthy(settings: Settings) -> MadeLake:
    """Nine records of the stream, one of them broken; a page that changed its owner; every view at its inputs."""
    made = MadeLake(settings)
    made.visits([(0, "a", 0.1), (0, "b", 2.5), (1, "a", 0.2)], {0: 2, 1: 1})
    made.pages([("a", "Ann"), ("b", "Bob"), ("c", "Cy")], 3)
    _views(made, {"a": (2, 0.1 + 0.2), "b": (1, 2.5)}, {"Ann": 2, "Bob": 1}, {1: 1, 2: 1})
    made.log.produce("clicks", [Record(None, b"?", 0, partition=1)])
    made.dead_letter(1, 1)
    made.visits([(1, "a", 0.3), (1, "b", 1.0), (0, "d", 4.0)], {0: 3, 1: 4})
    made.pages([("b", "Ann"), ("c", None)], 5)
    _views(made, {"a": (3, 0.1 + 0.2 + 0.3), "b": (2, 3.5), "d": (1, 4.0)}, {"Ann": 5}, {1: 1, 2: 1, 3: 1})
    return made


def _views(
    made: MadeLake, totals: Mapping[str, tuple[int, float]], owned: Mapping[str, int], spread: Mapping[int, int]
) -> None:
    """The views at the heads of their inputs; each gets all of its rows anew, `pages` those that changed."""
    first = reader.head(made.lake.table("pages")) is None
    pages = [("a", "Ann"), ("b", "Bob"), ("c", "Cy")] if first else [("b", "Ann")]
    every = None if first else (lambda row: True)
    moved = None if first else (lambda row: row["page"] != "a")
    made.refresh("pages", [{"page": page, "owner": owner} for page, owner in pages], moved, ["pages__log"])
    made.refresh("totals", [{"page": p, "n": n, "seconds": s} for p, (n, s) in totals.items()], every, ["visits"])
    made.refresh("owned", [{"owner": o, "n": n} for o, n in owned.items()], every, ["pages", "totals"])
    made.refresh("spread__stage_1", [{"page": p, "n": n} for p, (n, _) in totals.items()], every, ["visits"])
    made.refresh("spread", [{"n": n, "pages": p} for n, p in spread.items()], every, ["spread__stage_1"])
