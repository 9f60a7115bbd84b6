"""A small lake with every kind of file that a lake has, made without Spark; the same files for the same seed.

averages     a keyed table: 58 commits, some of which change rows; deletion vectors, a checkpoint at 50, a tail
readings     the event log of a stream: rows are only added
sensors      a table's source: nothing has been ingested of it
topics       readings: two partitions, segments for both and for one of them
registry     two schemas, three versions of two subjects
catalog      the intents of a replacement, of `placed`, and of a drop, of `counted`, that a kill has left
beside       what servers and operators keep: see `beside`
"""

from __future__ import annotations

import datetime as dt
import json
import random
import tempfile
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pyarrow as pa
from confluent_kafka.schema_registry import Schema

from strandline.jobs.catalog.intents import DropIntent, Replacement, begin_drop, put_replacement
from strandline.jobs.catalog.manifest import locked
from strandline.jobs.catalog.relations import relation
from strandline.jobs.ingest.event_logs import log_spec
from strandline.jobs.ingest.formats.registry import LocalRegistry
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.settings import load_settings
from strandline.jobs.session.define.analyze import define
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import CreateView
from strandline.state_store.commits import CommitRecord
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import STATE, TableSpec
from tests.campaigns.beside import write_beside
from tests.support.arrow_table import ArrowTable, Row

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = 58
"""The newest version of `averages`: eight commits after the checkpoint."""
_CHANGING = 7
"""Each seventh commit changes rows, the others are empty, so that a run stays short; a checkpoint needs fifty."""
_EPOCH = dt.datetime(2024, 5, 1, tzinfo=dt.UTC)
_DEFINITIONS = """
    CREATE STREAM readings (sensor VARCHAR KEY, reading DOUBLE, n INT) WITH (KAFKA_TOPIC = 'readings', PARTITIONS = 2);
    CREATE TABLE sensors (sensor VARCHAR PRIMARY KEY, place STRUCT<city VARCHAR, floors ARRAY<INT>>)
        WITH (KAFKA_TOPIC = 'sensors');
    CREATE TABLE averages AS SELECT sensor, COUNT(*) AS n, AVG(reading) AS mean FROM readings GROUP BY sensor;
    CREATE TABLE placed AS SELECT a.sensor, a.mean, s.place->city AS city
        FROM averages a JOIN sensors s ON a.sensor = s.sensor;
    CREATE TABLE counted AS SELECT n, COUNT(*) AS c FROM averages GROUP BY n;
"""
_NEXT = """
    CREATE OR REPLACE TABLE placed AS SELECT a.sensor, a.mean, a.n, s.place->floors AS floors
        FROM averages a JOIN sensors s ON a.sensor = s.sensor;
"""


def make_lake(root: Path, seed: int) -> LakeLayout:
    """The lake in a new folder. Identities are drawn from the seed, so that a flip hits the same place in each run."""
    drawn = random.Random(seed)
    _start_once()
    # Identities alone: other modules draw when they are imported.
    with patch("uuid.os", SimpleNamespace(urandom=drawn.randbytes)):
        lake = LakeLayout(root)
        session = Interpreter(load_settings(lake=root), "campaign")
        for _ in session.run(_DEFINITIONS):
            pass
        _averages(session, drawn)
        _readings(session, drawn)
        _topic(lake, drawn)
        _registry(lake)
        write_beside(lake)
        _intents(session)  # last: the next change of the catalog would end the drop
    return lake


@cache
def _start_once() -> None:
    """Start the engine on which a process binds all its definitions: it gives itself an identity."""
    with tempfile.TemporaryDirectory() as folder:
        for _ in Interpreter(load_settings(lake=Path(folder) / "lake"), "campaign").run(_DEFINITIONS):
            pass


def _averages(session: Interpreter, drawn: random.Random) -> None:
    visible = [(name, kind) for name, kind in relation("averages", session.catalog).columns]
    schema = pa.schema(
        [*((name, kind.arrow()) for name, kind in visible), (STATE, pa.struct([("__sum", pa.float64())]))]
    )
    spec = TableSpec(
        "averages", tuple((name, kind.spark()) for name, kind in visible), "keyed", ("sensor",), "STRUCT<__sum: DOUBLE>"
    )
    table = ArrowTable(session.lake.table("averages"), schema, spec)
    table.create(CommitRecord(epoch=0, writer="campaign/1"))
    rows = [_average(number, 1, drawn) for number in range(40)]
    table.apply(rows[:25])
    table.apply(rows[25:])
    for version in range(3, VERSIONS + 1):
        if version % _CHANGING:
            table.apply()
            continue
        changed = {f"s{number}" for number in drawn.sample(range(40), 3)}
        new = [_average(int(name[1:]), version, drawn) for name in sorted(changed)]
        table.apply(new, partial(_is_of, changed))


def _is_of(sensors: set[str], row: Row) -> bool:
    return row["sensor"] in sensors


def _average(number: int, n: int, drawn: random.Random) -> dict[str, Any]:
    mean = drawn.random() * 100
    return {"sensor": f"s{number}", "n": n, "mean": mean, STATE: {"__sum": mean * n}}


def _readings(session: Interpreter, drawn: random.Random) -> None:
    source = session.catalog.get("readings")
    assert isinstance(source, Source)
    of = relation("readings", session.catalog)
    table = ArrowTable(
        session.lake.table("readings"), pa.schema([(n, k.arrow()) for n, k in of.columns]), log_spec(source)
    )
    table.create(CommitRecord(epoch=0, writer="campaign/1"))
    for first in range(0, 120, 20):
        table.apply([_reading(offset, drawn) for offset in range(first, first + 20)])


def _reading(offset: int, drawn: random.Random) -> dict[str, Any]:
    time = _EPOCH + dt.timedelta(seconds=offset)
    place = {"_partition": 0, "_offset": offset, "_timestamp": time, "_stream_time": time}
    return {"sensor": f"s{offset % 40}", "reading": drawn.random() * 100, "n": offset, **place}


def _topic(lake: LakeLayout, drawn: random.Random) -> None:
    log = LocalLog(lake)
    for first in range(0, 60, 10):
        log.produce(
            "readings",
            [
                Record(
                    f"s{number}".encode(),
                    json.dumps({"reading": drawn.random(), "n": number}).encode(),
                    1_700_000_000_000 + number,
                    (("trace", b"abc"),) if number % 2 else (),
                    partition=number % 2 if first < 40 else 0,
                )
                for number in range(first, first + 10)
            ],
        )


def _intents(session: Interpreter) -> None:
    (statement,) = parse(_NEXT)
    assert isinstance(statement, CreateView)
    following = define(statement, session.catalog, "campaign")
    assert isinstance(following, View)
    with locked(session.lake.catalog):
        put_replacement(Replacement(following, epoch=9), session.lake)
        begin_drop(DropIntent("counted", ("counted",)), session.lake)


def _registry(lake: LakeLayout) -> None:
    registry = LocalRegistry(lake.registry)
    for fields in (["a"], ["a", "b"]):
        made = [{"name": name, "type": ["null", "long"]} for name in fields]
        schema = Schema(json.dumps({"type": "record", "name": "reading", "fields": made}), "AVRO")
        registry.register_schema("readings-value", schema)
    registry.register_schema("readings-key", Schema('{"type": "string"}', "AVRO"))
