"""A lake whose views are published, and what a reader of their topics makes of the records."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.logs.log import Log
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.settings import Settings
from strandline.jobs.publish.encoder import ORDINAL, VERSION, decoded_rows
from strandline.jobs.publish.publisher import Published, open_publisher, open_topic, registry_of
from strandline.jobs.publish.topic import topic_as_source
from strandline.state_store.delta import reader
from strandline.state_store.digest import Digest, digest_of_table
from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT, paid DECIMAL(12, 2), tags ARRAY<VARCHAR>)
        WITH (KAFKA_TOPIC = '{prefix}visits');
    CREATE TABLE places (name VARCHAR PRIMARY KEY, land VARCHAR, opens TIME, founded DATE, kinds MAP<VARCHAR, INT>)
        WITH (KAFKA_TOPIC = '{prefix}places');
    CREATE MATERIALIZED VIEW by_town WITH (KAFKA_TOPIC = '{prefix}by_town', PARTITIONS = 3) AS
        SELECT town, COUNT(*) AS visits, SUM(paid) AS paid, AVG(n) AS mean, MAX(ROWTIME) AS last FROM visits
        GROUP BY town;
    CREATE MATERIALIZED VIEW by_both WITH (KAFKA_TOPIC = '{prefix}by_both') AS
        SELECT town, n, COLLECT_LIST(tags) AS tags, COUNT(*) AS visits FROM visits GROUP BY town, n;
    CREATE TABLE hourly WITH (KAFKA_TOPIC = '{prefix}hourly', VALUE_FORMAT = 'AVRO', PARTITIONS = 2) AS
        SELECT town, COUNT(*) AS visits FROM visits WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY town;
    CREATE MATERIALIZED VIEW open_places WITH (KAFKA_TOPIC = '{prefix}open_places') AS
        SELECT name, land, opens, founded, kinds FROM places WHERE opens IS NOT NULL;
    CREATE MATERIALIZED VIEW lands WITH (KAFKA_TOPIC = '{prefix}lands') AS SELECT DISTINCT land FROM places;
    CREATE MATERIALIZED VIEW total WITH (KAFKA_TOPIC = '{prefix}total') AS SELECT COUNT(*) AS visits FROM visits;
"""
VIEWS = ("by_town", "by_both", "hourly", "open_places", "lands", "total")
_TOWNS = ("Rome", "Oslo", None, 'Röros "Bergstad"', "")


class PublishedLake(ServedLake):
    """A lake with views of many shapes: one key, composite keys, windows, NULL keys, no key, rows that go again."""

    def __init__(self, settings: Settings, prefix: str = "") -> None:
        super().__init__(settings, DEFINITIONS.format(prefix=prefix))
        self._epochs = 0

    def epoch(self, duckdb_engine: DuckDBEngine) -> None:
        """Some visits and places, then every view at the heads of its inputs."""
        number = self._epochs
        self._epochs += 1
        visits = [
            {
                "id": number,
                "town": _TOWNS[(number + place) % 5],
                "n": place,
                "paid": Decimal(f"{number}.{place}5"),
                "tags": tags,
            }
            for place, tags in enumerate(([], ["a", None], None))
        ]
        self.append("visits", visits)
        self.append("places", [self._place(number), {"name": "Oslo", "land": f"land {number}"}])
        self.refresh(duckdb_engine)

    def catalog(self) -> Catalog:
        """The definitions as they are now."""
        return Catalog(self.lake)

    def view(self, name: str) -> View:
        """The definition of a view."""
        found = self.catalog().get(name)
        assert isinstance(found, View)
        return found

    def source(self, name: str) -> Source:
        """The topic of a view, as a source."""
        return topic_as_source(self.view(name))

    def publish(self, name: str) -> Published:
        """What a publisher that begins now does."""
        publisher = open_publisher(self.settings, name)
        try:
            return publisher.catch_up()
        finally:
            publisher.close()

    def log_of(self, name: str) -> Log:
        """The log that the topic of a view is in."""
        topic = open_topic(self.source(name), self.settings, self.lake)
        topic.close()
        return topic.log

    def digest(self, name: str, version: int) -> Digest:
        """What the table's record says of a version."""
        return Digest.parse(reader.record_at(self.lake.table(name), version).digest)

    def moves(self, name: str, version: int) -> bool:
        """True if a version has other rows than the one before."""
        return self.digest(name, version) != self.digest(name, version - 1)

    def committed(self, name: str) -> list[tuple[bytes, bytes | None, list[tuple[str, bytes]]]]:
        """(key, value, headers) of each record."""
        log, topic = self.log_of(name), self.source(name).topic
        runs = (run for partition, end in log.end_offsets(topic).items() for run in log.read(topic, partition, 0, end))
        return [
            (key or b"", value, [(header, said or b"") for header, said in headers or ()])
            for run in runs
            for key, value, headers in zip(run.keys, run.values, run.headers, strict=True)
        ]

    def digest_of(self, name: str, live: Mapping[bytes, bytes]) -> Digest:
        """The digest of the rows that these live records are."""
        rows = decoded_rows(dict(live), self.source(name), registry_of(self.settings, self.lake))
        return digest_of_table(rows.to_batches())

    def folds(self, name: str) -> Iterator[tuple[int, Digest]]:
        """(version, digest of the rows that a reader has then), for each version that the topic's records name."""
        live = dict[bytes, bytes]()
        for version, records in sorted(self.records(name).items()):
            assert [ordinal for ordinal, _, _ in records] == list(range(1, len(records) + 1)), "each once"
            for _, key, value in records:
                live.pop(key, None)
                if value is not None:
                    live[key] = value
            yield version, self.digest_of(name, live)

    def records(self, name: str) -> dict[int, list[tuple[int, bytes, bytes | None]]]:
        """{version: [(ordinal, key, value), …]}, in order."""
        found: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        log, topic = self.log_of(name), self.source(name).topic
        for partition, end in log.end_offsets(topic).items():
            for run in log.read(topic, partition, 0, end):
                for key, value, headers in zip(run.keys, run.values, run.headers, strict=True):
                    stated = {
                        header: int(said or b"") for header, said in headers or () if header in (VERSION, ORDINAL)
                    }
                    found.setdefault(stated[VERSION], []).append((stated[ORDINAL], key or b"", value))
        return {version: sorted(records) for version, records in found.items()}

    def _place(self, number: int) -> dict[str, Any]:
        """A place that is open in two of three epochs, in which its row is there."""
        opens = None if number % 3 == 2 else 1000 * number
        founded = dt.date(1969, 12, 31 - number % 7)
        return {"name": "Rome", "land": None, "opens": opens, "founded": founded, "kinds": [("x", number), ("y", None)]}
