"""A pipeline with a join, a MAX that loses its maximum and a window, its events, and what it must hold in the end.

    customers (keyed, rows change and go) ⋈ orders (a stream) ──> best: MAX per region
    orders ──> hourly: count and sum per window                orders ──> sizes: a group of its own

Event n is a function of n, so what was produced is known without being kept.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout

PIPELINE = "shop"
DEFINITIONS = """
CREATE STREAM orders (customer VARCHAR KEY, id BIGINT, amount BIGINT)
  WITH (KAFKA_TOPIC = 'orders', VALUE_FORMAT = 'JSON', PARTITIONS = 2);
CREATE TABLE customers (customer VARCHAR PRIMARY KEY, region VARCHAR)
  WITH (KAFKA_TOPIC = 'customers', VALUE_FORMAT = 'JSON', PARTITIONS = 1);
CREATE MATERIALIZED VIEW totals AS
  SELECT customer, COUNT(*) AS n, SUM(amount) AS total FROM orders GROUP BY customer;
CREATE MATERIALIZED VIEW best AS
  SELECT c.region AS region, MAX(t.total) AS top, COUNT(*) AS n
  FROM totals t JOIN customers c ON t.customer = c.customer GROUP BY c.region;
CREATE TABLE hourly AS
  SELECT amount % 5 AS kind, COUNT(*) AS n, SUM(amount) AS total
  FROM orders WINDOW TUMBLING (SIZE 1 HOUR) GROUP BY amount % 5;
"""
VIEWS = ("totals", "best", "hourly")
CUSTOMERS = 40
_MINUTE = 60_000


def order(number: int) -> Record:
    """The stream's event of that number: a minute after the one before; its amount may be negative."""
    body = {"id": number, "amount": number * 7919 % 1009 - 300}
    return Record(f"c{number * 31 % CUSTOMERS}".encode(), json.dumps(body).encode(), number * _MINUTE)


def customer(number: int) -> Record:
    """The keyed source's event of that number: customers move between regions, every seventh event takes one away."""
    key = f"c{number * 17 % CUSTOMERS}".encode()
    value = None if number % 7 == 6 else json.dumps({"region": f"r{number * 13 % 5}"}).encode()
    return Record(key, value, number * _MINUTE)


def define(settings: Settings) -> None:
    """Register the pipeline."""
    for _ in Interpreter(settings, PIPELINE).run(DEFINITIONS):
        pass


def produce(lake: LakeLayout, numbers: range) -> None:
    """The events of these numbers, of both sources."""
    log = LocalLog(lake)
    log.produce("orders", [order(number) for number in numbers])
    log.produce("customers", [customer(number) for number in numbers])


def assert_complete(lake: LakeLayout, produced: int) -> None:
    """Each event is in its log once, and every view is what DuckDB makes of the events that were produced."""
    for table in ("orders", "customers__log"):
        places = Counter(
            tuple(row.values())
            for row in reader.read_rows(lake.table(table), columns=["_partition", "_offset"]).to_pylist()
        )
        assert len(places) == produced, f"{table}: {produced - len(places)} events lost"
        assert max(places.values()) == 1, f"{table}: doubled {[place for place, n in places.items() if n > 1]}"
    expected = _expected(produced)
    for view, rows in expected.items():
        found = reader.read_rows(lake.table(view)).to_pylist()
        columns = rows.schema.names
        assert _multiset(found, columns) == _multiset(rows.to_pylist(), columns), view


def _multiset(rows: Iterable[dict[str, Any]], columns: list[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(row[column] for column in columns) for row in rows)


def _expected(produced: int) -> dict[str, pa.Table]:
    """The visible columns of the views; of the windows without their bounds, which the groups' sums give away."""
    with duckdb.connect() as db:
        db.register("orders", _orders(produced))
        db.register("customers", _customers(produced))
        db.execute(
            "CREATE TABLE totals AS SELECT customer, COUNT(*) AS n, SUM(amount)::BIGINT AS total FROM orders GROUP BY 1"
        )
        best = "SELECT region, MAX(total) AS top, COUNT(*) AS n FROM totals JOIN customers USING (customer) GROUP BY 1"
        hourly = "SELECT amount % 5 AS kind, COUNT(*) AS n, SUM(amount)::BIGINT AS total FROM orders GROUP BY 1, hour"
        texts = {"totals": "FROM totals", "best": best, "hourly": hourly}
        return {view: db.sql(text).to_arrow_table() for view, text in texts.items()}


def _orders(produced: int) -> pa.Table:
    found = [order(number) for number in range(produced)]
    return pa.Table.from_pylist(
        [
            {
                "customer": _text(record.key),
                "amount": json.loads(record.value or b"{}")["amount"],
                "hour": record.timestamp_ms // (60 * _MINUTE),
            }
            for record in found
        ]
    )


def _customers(produced: int) -> pa.Table:
    """The newest region of each customer that is there."""
    newest = {record.key: record.value for record in (customer(number) for number in range(produced))}
    rows = [{"customer": _text(key), **json.loads(value)} for key, value in newest.items() if value is not None]
    return pa.Table.from_pylist(rows)


def _text(key: bytes | None) -> str:
    return (key or b"").decode()
