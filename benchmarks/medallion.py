"""The hour of Feldera's medallion demo: 4,859 changes of Delta tables through its 15 views, as they are printed.

    python -m benchmarks.medallion DEMO [--days 1] [--hours 4]

DEMO is the demo's file in github.com/feldera/feldera: crates/pipeline-manager/demos/sql/01-medallion-architecture.sql.
Its bronze tables are Delta tables that delta-rs writes, its views are Delta tables that Strandline keeps. An hour is
what its `push_changes.py` prints for one: 1,709 changes of orders, 753 items, 1,367 clicks and 1,030 movements of
stock, here as one commit of each table and a MERGE of orders. The demo's own data lie in a bucket and their
number is not published: `--days` says of how many days of such hours the history is made.

Printed are the seconds of each hour in this process (no JVM), from the read of the Delta commits to the last view's
commit, and of each table in it; and whether the views are what DuckDB gives for the printed statements over the same
tables. DuckDB divides DECIMALs as doubles: a product that stands at a threshold of gold_inventory_risk to the seventh
digit may have another level there, and is shown.
"""

from __future__ import annotations

import argparse
import re
import statistics
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
from deltalake import DeltaTable, write_deltalake

from strandline.jobs.model.definitions import View
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run.pipeline import drain, opened
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.run.stream import Round

PIPELINE: Final = "medallion"
AIM: Final = 0.5
WARM_UP: Final = 4
# The driver takes in so many rows at once.
_HOURS_AT_ONCE: Final = 24
# A prime: an hour changes no order twice.
_STEP: Final = 7_919

# Of an hour, by Feldera's docs (use_cases/medallion_architecture/part2.md). A change of status is a delete and an
# insert there: of 1,709 changes of orders some 300 are new orders, as 753 items need, and some 700 change another.
ITEMS, CLICKS, MOVES = 753, 1_367, 1_030
NEW_ORDERS, CHANGED_ORDERS = 301, 704
CUSTOMERS, PRODUCTS, SUPPLIERS, WAREHOUSES = 20_000, 2_000, 100, 5
_CONNECTORS = re.compile(r"CREATE TABLE (\w+) \((.*?)\) WITH \(.*?\n\);", re.DOTALL)
_LATENESS = re.compile(r" LATENESS INTERVAL '1' HOUR")
_TRUNCATED = re.compile(r"DATE_TRUNC\(([\w.]+), DAY\)")


def pick(of: int, salt: int) -> str:
    """A number from 0, evenly, of row n."""
    return f"(hash(n, {salt}) % {of})::BIGINT"


def word(words: dict[str, int], salt: int) -> str:
    """One of some words, by their weights, of row n."""
    total, at, cases = sum(words.values()), 0, []
    for each, weight in words.items():
        at += weight
        cases.append(f"WHEN {pick(total, salt)} < {at} THEN '{each}'")
    return f"CASE {' '.join(cases)} END"


STATUS = {"delivered": 70, "shipped": 8, "confirmed": 7, "pending": 5, "cancelled": 6, "returned": 4}
EVENTS = {"page_view": 50, "product_view": 30, "add_to_cart": 12, "begin_checkout": 5, "purchase": 3}
MOVEMENTS = {"sale_reserve": 80, "restock": 12, "cancellation_restock": 5, "return_restock": 3}
TIERS = {"standard": 70, "silver": 18, "gold": 9, "platinum": 3}
CATEGORIES = {each: 1 for each in ("audio", "books", "garden", "kitchen", "office", "shoes", "sport", "toys")}
COUNTRIES = {"DE": 3, "FR": 2, "US": 4, "JP": 1}

# The columns of row n, whose time is `moment`.
COLUMNS: Final[dict[str, dict[str, str]]] = {
    "bronze_suppliers": {
        "supplier_id": "n + 1",
        "supplier_name": "'supplier ' || n",
        "country": word(COUNTRIES, 1),
        "lead_time_days": f"3 + {pick(25, 2)}",
        "updated_at": "moment",
    },
    "bronze_products": {
        "product_id": "n + 1",
        "product_name": "'product ' || n",
        "category": word(CATEGORIES, 3),
        "brand": f"'brand ' || {pick(60, 4)}",
        "supplier_id": f"1 + {pick(SUPPLIERS, 5)}",
        "list_price": f"5 + {pick(20_000, 6)} / 100.0",
        "cost_price": f"3 + {pick(10_000, 6)} / 100.0",
        "weight_kg": f"{pick(900, 7)} / 100.0",
        "is_active": f"{pick(20, 8)} > 0",
        "updated_at": "moment",
    },
    "bronze_customers": {
        "customer_id": "n + 1",
        "email": "'c' || n || '@example.org'",
        "signup_date": "CAST(moment AS DATE)",
        "customer_tier": word(TIERS, 9),
        "geo_country": word(COUNTRIES, 10),
        "geo_region": f"'region ' || {pick(12, 11)}",
        "updated_at": "moment",
    },
    "bronze_orders": {
        "order_id": "n + 1",
        "user_id": f"1 + {pick(CUSTOMERS, 12)}",
        "order_status": word(STATUS, 13),
        "order_total": f"10 + {pick(40_000, 14)} / 100.0",
        "discount_amount": f"{pick(1_000, 15)} / 100.0",
        "shipping_cost": "4.90",
        "payment_method": word({"card": 7, "invoice": 2, "wallet": 1}, 16),
        "coupon_code": f"CASE WHEN {pick(10, 17)} = 0 THEN 'TEN' END",
        "created_at": "moment",
        "updated_at": "moment",
        "ingested_at": "moment",
    },
    "bronze_order_items": {
        "order_item_id": "n + 1",
        "order_id": f"1 + n * {NEW_ORDERS} // {ITEMS}",
        "product_id": f"1 + {pick(PRODUCTS, 18)}",
        "quantity": f"1 + {pick(4, 19)}",
        "unit_price": f"5 + {pick(20_000, 20)} / 100.0",
        "discount_pct": f"{pick(4, 21)} * 5.0",
        "ingested_at": "moment",
    },
    "bronze_clickstream_events": {
        "event_id": "n + 1",
        "user_id": f"1 + {pick(CUSTOMERS, 22)}",
        "session_id": f"'s' || {pick(1_000_000, 23)}",
        "event_type": word(EVENTS, 24),
        "page_url": f"'/p/' || {pick(PRODUCTS, 25)}",
        "product_id": f"1 + {pick(PRODUCTS, 25)}",
        "referrer": "'search'",
        "device_type": word({"phone": 6, "laptop": 4}, 26),
        "geo_country": word(COUNTRIES, 27),
        "geo_region": f"'region ' || {pick(12, 28)}",
        "event_timestamp": "moment",
        "ingested_at": "moment",
    },
    "bronze_inventory_events": {
        "inventory_event_id": "n + 1",
        "product_id": f"1 + {pick(PRODUCTS, 29)}",
        "warehouse_id": f"1 + {pick(WAREHOUSES, 30)}",
        "event_type": word(MOVEMENTS, 31),
        "quantity_change": f"CASE WHEN {pick(100, 31)} < 80 THEN -1 - {pick(4, 32)} ELSE 1 + {pick(40, 32)} END",
        "event_timestamp": "moment",
        "ingested_at": "moment",
    },
}
PER_HOUR: Final = {
    "bronze_orders": NEW_ORDERS,
    "bronze_order_items": ITEMS,
    "bronze_clickstream_events": CLICKS,
    "bronze_inventory_events": MOVES,
}
FIXED: Final = {"bronze_suppliers": SUPPLIERS, "bronze_products": PRODUCTS, "bronze_customers": CUSTOMERS}


@dataclass
class Bronze:
    """The seven Delta tables, as another writer keeps them.

    Attributes:
        types: {table: {column: its type as DuckDB names it}}.
        hours: that they hold.
    """

    folder: Path
    types: dict[str, dict[str, str]]
    hours: int = 0
    db: duckdb.DuckDBPyConnection = field(default_factory=duckdb.connect)

    def begin(self) -> None:
        """What does not change by the hour, and the other tables without rows."""
        self.db.execute("SET TimeZone = 'UTC'")
        for table in COLUMNS:
            at = "TIMESTAMPTZ '2025-01-01 00:00:00+00' + to_hours(n % 8000)"
            rows = self._rows(table, f"range({FIXED.get(table, 0)}) AS rows(n)", at)
            feed = {"delta.enableChangeDataFeed": "true"}
            write_deltalake(str(self.folder / table), rows, configuration=feed)

    def come(self, hours: int) -> int:
        """What so many hours bring, but for changes of orders, in one commit of each table; its rows."""
        for table, count in PER_HOUR.items():
            numbers = f"range({self.hours * count}, {(self.hours + hours) * count}) AS rows(n)"
            write_deltalake(str(self.folder / table), self._rows(table, numbers, _at(table)), mode="append")
        self.hours += hours
        return hours * sum(PER_HOUR.values())

    def change(self) -> int:
        """A new status of some orders of the last two weeks, as a MERGE; the rows that go and come."""
        orders = self.hours * NEW_ORDERS
        recent = min(orders, 14 * 24 * NEW_ORDERS)
        drawn = f"{orders - recent} + (r * {_STEP} + {self.hours}) % {recent}"
        numbers = f"(SELECT {drawn} AS n FROM range({CHANGED_ORDERS}) AS x(r)) AS rows"
        changed = self._rows("bronze_orders", numbers, _at("bronze_orders"), salt=1_000 + self.hours)
        (
            DeltaTable(str(self.folder / "bronze_orders"))
            .merge(changed, "t.order_id = s.order_id", source_alias="s", target_alias="t")
            .when_matched_update({"order_status": "s.order_status", "updated_at": "s.updated_at"})
            .execute()
        )
        return 2 * int(changed.num_rows)

    def _rows(self, table: str, numbers: str, at: str, *, salt: int = 13) -> pa.Table:
        columns = {**COLUMNS[table], **({"order_status": word(STATUS, salt)} if table == "bronze_orders" else {})}
        listed = ", ".join(f"CAST({text} AS {self.types[table][name]}) AS {name}" for name, text in columns.items())
        return self.db.sql(f"SELECT {listed} FROM (SELECT n, {at} AS moment FROM {numbers}) AS timed").to_arrow_table()


def _at(table: str) -> str:
    """The time of row n: evenly over its hour."""
    return f"TIMESTAMPTZ '2025-10-01 00:00:00+00' + to_seconds(n * 3600 // {PER_HOUR[table]})"


def main() -> None:
    """Build the history, play the hours, compare, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("demo", type=Path)
    parser.add_argument("--days", type=int, default=1)
    parser.add_argument("--hours", type=int, default=4)
    asked = parser.parse_args()
    text = _LATENESS.sub("", asked.demo.read_text())
    with tempfile.TemporaryDirectory() as folder:
        lake = Path(folder)
        bronze = Bronze(lake / "bronze", _types(text))
        bronze.begin()
        hours, seconds = play(text, lake, bronze, asked.days, asked.hours)
        report(hours, seconds)
        wrong = compare(text, lake, bronze)
    print("all views are what DuckDB gives for the printed statements" if not wrong else f"WRONG: {wrong}")
    raise SystemExit(bool(wrong))


def _types(text: str) -> dict[str, dict[str, str]]:
    """The columns of the bronze tables, with the types that Delta has for them: a TIMESTAMP is an instant."""
    with duckdb.connect() as db:
        db.execute(_CONNECTORS.sub(r"CREATE TABLE \1 (\2);", text.partition("CREATE LOCAL VIEW")[0]))
        found = db.sql(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() WHERE NOT internal ORDER BY column_index"
        ).fetchall()
    types: dict[str, dict[str, str]] = defaultdict(dict)
    for table, name, of in found:
        types[table][name] = {"TIMESTAMP": "TIMESTAMPTZ"}.get(of, of)
    return types


def play(text: str, lake: Path, bronze: Bronze, days: int, hours: int) -> tuple[list[Round], list[float]]:
    """The rounds that take in an hour each, and the processor seconds of each hour."""
    tables, begin, views = text.partition("CREATE LOCAL VIEW")
    settings = load_settings(lake=lake / "lake", engine="duckdb", ingest={"driver_rows": 200_000})
    interpreter = Interpreter(settings, PIPELINE)
    list(interpreter.run(_CONNECTORS.sub(rf"CREATE TABLE \1 (\2) WITH (DELTA = '{bronze.folder}/\1');", tables)))
    rows = 0
    while bronze.hours < 24 * days:
        rows += bronze.come(_HOURS_AT_ONCE)
        drain(settings, PIPELINE, in_driver=True, watch=lambda _: None)
    print(f"{rows:,} rows of {days} days", flush=True)
    list(interpreter.run(begin + views))
    began = time.monotonic()
    drain(settings, PIPELINE, in_driver=True, watch=lambda _: None)
    print(f"first refresh of the views: {time.monotonic() - began:.1f} s", flush=True)
    rounds: list[Round] = []
    seconds = []
    with opened(settings, PIPELINE, None, in_driver=True) as (run, _):
        run.observer = rounds.append
        for _ in range(hours + WARM_UP):
            changes = bronze.come(1) + bronze.change()
            began = time.process_time()
            run.drain(in_driver=True)
            seconds.append(time.process_time() - began)
            if run.failures:
                raise next(iter(run.failures.values()))
    print(f"an hour: {changes:,} changes", flush=True)
    taken = [each for each in rounds if each.micro_batch is not None]
    return taken[WARM_UP:], seconds[WARM_UP:]


def report(hours: list[Round], seconds: list[float]) -> None:
    """Print the seconds of an hour, and of each table in it."""
    whole = statistics.median(each.seconds for each in hours)
    intake = statistics.median(each.ingest_seconds for each in hours)
    print(f"an hour: {whole:.2f} s (aim {AIM} s), of which {intake:.2f} s to read the Delta commits", flush=True)
    print(f"each: {' '.join(f'{each.seconds:.2f}' for each in hours)}", flush=True)
    print(f"of a processor: {' '.join(f'{each:.2f}' for each in seconds)}", flush=True)
    spent: dict[str, list[float]] = defaultdict(list)
    for each in hours:
        for stage in each.refreshed.stages:
            spent[stage.table].append(stage.seconds)
    print(f"{'table':<48}{'median s':>10}")
    for table, every in sorted(spent.items(), key=lambda item: -statistics.median(item[1])):
        print(f"{table:<48}{statistics.median(every):>10.3f}", flush=True)


def compare(text: str, lake: Path, bronze: Bronze) -> list[str]:
    """The views that are not what DuckDB gives for their printed statements over the same tables."""
    text = _TRUNCATED.sub(r"DATE_TRUNC('day', \1)", text)
    views = "CREATE LOCAL VIEW" + text.partition("CREATE LOCAL VIEW")[2]
    views = re.sub(r"CREATE (LOCAL|MATERIALIZED) VIEW", "CREATE VIEW", views)
    wrong = []
    with duckdb.connect() as db:
        db.execute("SET TimeZone = 'UTC'")
        for table, columns in bronze.types.items():
            db.register("rows", DeltaTable(str(bronze.folder / table)).to_pyarrow_table())
            plain = ", ".join(f"CAST({name} AS {_plain(of)}) AS {name}" for name, of in columns.items())
            db.execute(f"CREATE TABLE {table} AS SELECT {plain} FROM rows")
        db.execute(views)
        interpreter = Interpreter(load_settings(lake=lake / "lake"), PIPELINE)
        found = [each for each in interpreter.catalog.pipeline(PIPELINE) if isinstance(each, View)]
        for view in found:
            names = [column.name for column in view.columns]
            ours = reader.read_rows(interpreter.lake.table(view.name), columns=names)
            db.register("ours", ours)
            numbers = {column.name for column in view.columns if column.type.base.value in ("DECIMAL", "DOUBLE")}
            count = differing(db, view.name, names, numbers)
            if count or not ours.num_rows:
                wrong.append(f"{view.name}: {count} of {ours.num_rows} rows")
                print(f"{view.name} has, and DuckDB has not: {example(db, names, numbers)}", flush=True)
        print(f"{len(found)} views compared", flush=True)
    return wrong


def _plain(of: str) -> str:
    return "TIMESTAMP" if of == "TIMESTAMPTZ" else of


def differing(db: duckdb.DuckDBPyConnection, view: str, names: list[str], numbers: set[str]) -> int:
    """Rows of `ours` that are no row of the view. Quotients of DECIMALs have more digits there: to a millionth."""
    exact = [name for name in names if name not in numbers]
    places = ", ".join([*exact, *(name for name in names if name in numbers)])
    for side, rows in (("mine", "ours"), ("theirs", view)):
        placed = f"SELECT *, row_number() OVER (ORDER BY {places}) AS place FROM {rows}"
        db.execute(f"CREATE OR REPLACE TEMP TABLE {side} AS {placed}")
    differs = [f"mine.{name} IS DISTINCT FROM theirs.{name}" for name in exact]
    for name in names:
        if name in numbers:
            one, two = (f"CAST({side}.{name} AS DOUBLE)" for side in ("mine", "theirs"))
            near = f"abs({one} - {two}) <= 1e-5 + 1e-6 * abs({two})"
            differs.append(f"NOT COALESCE({near}, {one} IS NULL AND {two} IS NULL)")
    [(count,)] = db.execute(
        f"SELECT COUNT(*) FROM mine FULL JOIN theirs USING (place) WHERE {' OR '.join(differs)}"
        " OR mine.place IS NULL OR theirs.place IS NULL"
    ).fetchall()
    return int(count)


def example(db: duckdb.DuckDBPyConnection, names: list[str], numbers: set[str]) -> list[tuple[object, ...]]:
    """The first rows whose exact columns the other has not."""
    exact = ", ".join(name for name in names if name not in numbers)
    only = f"SELECT {exact} FROM mine EXCEPT ALL SELECT {exact} FROM theirs"
    return db.execute(f"SELECT * FROM mine WHERE ({exact}) IN ({only}) LIMIT 2").fetchall()


if __name__ == "__main__":
    main()
