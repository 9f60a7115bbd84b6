"""dbt over a lake: `dbt build` applies models and brings them up to date, `dbt test` asks them, and no model says how.

dbt runs in an environment of its own (`infra.dbt_environment`), with the adapter as its wheel holds it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest

import strandline
from strandline.jobs.operate.verify.findings import Check
from strandline.jobs.operate.verify.verify import verify
from tests.support.dbt_project import installed_adapter, run_dbt, start_dbt

SOURCES = """
CREATE TABLE customers (customer_id BIGINT PRIMARY KEY, country VARCHAR);
CREATE TABLE orders (order_id BIGINT PRIMARY KEY, customer_id BIGINT, product VARCHAR, amount DECIMAL(10, 2),
  ordered_at TIMESTAMP);
INSERT INTO customers VALUES (1, 'it'), (2, 'no');
INSERT INTO orders VALUES (1, 1, 'leek', 5.00, '2026-01-01T10:00:00'), (2, 2, 'pear', 50.00, '2026-01-02T10:00:00'),
  (3, 1, 'pear', 7.50, '2026-01-20T11:00:00');
"""
PROJECT = {
    "dbt_project.yml": """
name: shop
version: "1.0"
profile: shop
flags: {send_anonymous_usage_stats: false}
""",
    "profiles.yml": "shop: {target: dev, outputs: {dev: {type: strandline, lake: lake, schema: shop, threads: 4}}}",
    "seeds/countries.csv": "code,name,since\nit,Italy,1861-03-17\nno,Nor'way,1905-06-07\n",
    "models/schema.yml": """
sources: [{name: shop, tables: [{name: orders}, {name: customers}]}]
models:
  - name: daily
    description: "What was sold on a day: it's kept up to date."
    config: {options: {owner: 'team:shop', freshness: 5 seconds}}
    columns: [{name: day, data_tests: [unique, not_null]}]
  - name: newest
    columns:
      - name: customer_id
        data_tests: [{relationships: {arguments: {to: "source('shop', 'customers')", field: customer_id}}}]
  - name: cheap
    columns: [{name: product, data_tests: [{accepted_values: {arguments: {values: [leek, pear]}}}]}]
""",
    # The look-back of an incremental model is deleted here, as docs/migrate/dbt.md says …
    "models/daily.sql": """
{{ config(materialized='incremental', unique_key='day') }}
SELECT CAST(ordered_at AS DATE) AS day, COUNT(*) AS orders, SUM(amount) AS amount
FROM {{ source('shop', 'orders') }}
GROUP BY CAST(ordered_at AS DATE)
""",
    # … and left as it is here.
    "models/newest.sql": """
{{ config(materialized='incremental', unique_key='customer_id', incremental_strategy='merge') }}
SELECT customer_id, order_id, ordered_at
FROM {{ source('shop', 'orders') }}
{% if is_incremental() %}
WHERE ordered_at >= (SELECT MAX(ordered_at) FROM {{ this }}) - INTERVAL '3 days'
{% endif %}
QUALIFY ROW_NUMBER() OVER (PARTITION BY customer_id ORDER BY ordered_at DESC, order_id) = 1
""",
    "models/cheap.sql": """
{{ config(materialized='view') }}
SELECT * FROM {{ source('shop', 'orders') }} WHERE amount < 10
""",
    "models/cheap_count.sql": """
{{ config(materialized='table') }}
SELECT product, COUNT(*) AS n FROM {{ ref('cheap') }} GROUP BY product
""",
    "models/sold.sql": """
{{ config(materialized='ephemeral') }}
SELECT c.country, o.amount FROM {{ source('shop', 'orders') }} o
JOIN {{ source('shop', 'customers') }} c ON o.customer_id = c.customer_id
""",
    "models/per_country.sql": """
{{ config(materialized='materialized_view') }}
SELECT k.name, SUM(s.amount) AS amount FROM {{ ref('sold') }} s JOIN {{ ref('countries') }} k ON s.country = k.code
GROUP BY k.name
""",
    "tests/no_negative.sql": "SELECT * FROM {{ ref('daily') }} WHERE amount < 0",
}
BUILT = {"daily", "newest", "cheap", "cheap_count", "per_country", "countries"}


@pytest.fixture(scope="module")
def adapter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_adapter(tmp_path_factory.mktemp("dbt"))


@dataclass(frozen=True)
class Project:
    """A folder with a dbt project and its lake."""

    folder: Path
    adapter: Path

    @property
    def lake(self) -> strandline.Lake:
        return strandline.open_lake(str(self.folder / "lake"))

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def dbt(self, *arguments: str, failpoint: str = "") -> dict[str, tuple[str, str]]:
        """Run dbt; {name of a node: (its status, its message)}."""
        found = run_dbt(self.folder, self.adapter, *arguments, failpoint=failpoint)
        return {name.split(".")[3 if name.startswith("unit_test") else 2]: each for name, each in found.items()}

    def dbt_without_results(self, *arguments: str) -> None:
        """Run a command of dbt that has no nodes. Raises AssertionError: it failed; what it printed."""
        done = start_dbt(self.folder, self.adapter, *arguments)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def project(adapter: Path, tmp_path: Path) -> Project:
    made = Project(tmp_path, adapter)
    for name, text in PROJECT.items():
        made.write(name, text)
    made.lake.execute(SOURCES, pipeline="sources")
    return made


def by_key(lake: strandline.Lake, name: str) -> list[tuple[object, ...]]:
    return sorted((tuple(row.values()) for row in lake.arrow(name).to_pylist()), key=str)


def lake_checks(project: Project) -> list[Check]:
    return verify(project.lake.settings, [], deep=True)


def test_build_applies_models_and_brings_them_up_to_date_and_docs_describe_them(project: Project) -> None:
    first = project.dbt("build")
    assert {name for name, (_, said) in first.items() if "created" in said} == BUILT
    assert {status for status, _ in first.values()} == {"success", "pass"}
    assert len(first) == len(BUILT) + 5
    lake = project.lake
    assert [row[1:] for row in by_key(lake, "daily")] == [(1, Decimal(each)) for each in ("5.00", "50.00", "7.50")]
    assert [row[:2] for row in by_key(lake, "newest")] == [(1, 3), (2, 2)]
    assert by_key(lake, "per_country") == [("Nor'way", Decimal("50.00")), ("Italy", Decimal("12.50"))]
    assert by_key(lake, "cheap_count") == [("leek", 1), ("pear", 1)]
    assert lake.query("SELECT COUNT(*) AS n FROM cheap") == [{"n": 2}]
    about = lake.describe("daily")
    assert (about["kind"], about["pipeline"]) == ("materialized view", "shop")
    assert about["description"] == "What was sold on a day: it's kept up to date."

    # A row comes later than any look-back reaches, and another goes: both models are right all the same.
    lake.execute(
        "INSERT INTO orders VALUES (4, 2, 'leek', 1.00, '2025-01-01T00:00:00'); DELETE FROM orders WHERE order_id = 2"
    )
    second = project.dbt("build")
    assert {name for name, (_, said) in second.items() if "unchanged" in said} == BUILT
    assert [row[:2] for row in by_key(lake, "newest")] == [(1, 3), (2, 4)]
    assert [row[1:] for row in by_key(lake, "daily")] == [(1, Decimal(each)) for each in ("1.00", "5.00", "7.50")]

    project.dbt("docs", "generate")
    catalog = json.loads((project.folder / "target" / "catalog.json").read_text())
    assert catalog["errors"] is None
    assert {name.split(".")[2] for name in catalog["nodes"]} == BUILT
    assert {name.split(".")[3] for name in catalog["sources"]} == {"orders", "customers"}
    daily = catalog["nodes"]["model.shop.daily"]
    assert {name: each["type"] for name, each in daily["columns"].items()} == {
        "day": "DATE",
        "orders": "BIGINT",
        "amount": "DECIMAL(20, 2)",
    }
    assert daily["metadata"]["comment"] == "What was sold on a day: it's kept up to date."


def test_a_changed_model_is_replaced_and_a_changed_test_fails(project: Project) -> None:
    project.dbt("build")
    project.write("models/daily.sql", PROJECT["models/daily.sql"].replace("COUNT(*)", "MAX(amount) AS most, COUNT(*)"))
    project.write("models/per_country.sql", PROJECT["models/per_country.sql"].replace("'materialized_view'", "'view'"))
    project.write("seeds/countries.csv", "code,name,since\nit,Italia,1861-03-17\n")
    project.write("tests/no_negative.sql", "SELECT * FROM {{ ref('daily') }} WHERE amount > 6")
    found = project.dbt("build")
    assert "replaced (pipeline 'shop')" in found["daily"][1]
    assert "unchanged" in found["countries"][1]
    assert "view 'per_country' created" in found["per_country"][1]
    assert found["no_negative"] == ("fail", "Got 2 results, configured to fail if != 0")
    assert project.lake.query("SELECT name FROM per_country") == [{"name": "Italia"}]
    assert project.dbt("test", "--select", "daily")["no_negative"][0] == "fail"


def test_a_full_refresh_makes_anew_what_cannot_be_replaced_and_what_reads_it(project: Project) -> None:
    project.dbt("build")
    project.write("models/cheap.sql", "SELECT order_id, product FROM {{ source('shop', 'orders') }} WHERE amount < 6")
    status, said = project.dbt("run", "--select", "cheap+")["cheap"]
    assert status == "error"
    assert "or: dbt build --full-refresh --select cheap+ drops it with all that reads it" in said
    project.write("models/cheap.sql", "SELECT order_id, nope FROM {{ source('shop', 'orders') }}")
    assert "unknown column 'nope' (line 2," in project.dbt("run", "--full-refresh", "--select", "cheap+")["cheap"][1]
    assert by_key(project.lake, "cheap_count") == [("leek", 1), ("pear", 1)]  # an error has dropped nothing

    project.write("models/cheap.sql", "SELECT order_id, product FROM {{ source('shop', 'orders') }} WHERE amount < 6")
    found = project.dbt("build", "--full-refresh", "--select", "cheap+")
    assert "'cheap_count' dropped; 'cheap' dropped; view 'cheap' created" in found["cheap"][1]
    assert by_key(project.lake, "cheap_count") == [("leek", 1)]
    # As another materialization, and with a column of another type.
    kept = "{{ config(materialized='table') }} SELECT CAST(order_id AS VARCHAR) AS order_id, product FROM cheap_orders"
    project.write("models/cheap_orders.sql", "SELECT * FROM {{ source('shop', 'orders') }} WHERE amount < 10")
    project.write("models/cheap.sql", kept.replace("cheap_orders", "{{ ref('cheap_orders') }}"))
    found = project.dbt("build", "--full-refresh", "--select", "+cheap+")
    assert {status for status, _ in found.values()} == {"success", "pass"}
    assert by_key(project.lake, "cheap_count") == [("leek", 1), ("pear", 1)]


def test_a_contract_is_compared_before_anything_changes(project: Project) -> None:
    project.dbt("build", "--select", "daily")
    agreed = "{name: day, data_type: date}, {name: amount, data_type: AMOUNT}, {name: orders, data_type: bigint}"
    contract = "models: [{name: agreed, config: {contract: {enforced: true}}, columns: [COLUMNS]}]"
    contract = contract.replace("COLUMNS", agreed)
    select = "{{ config(materialized='table') }} SELECT day, orders, amount FROM {{ ref('daily') }}"
    project.write("models/agreed.sql", select)
    project.write("models/agreed.yml", contract.replace("AMOUNT", "varchar"))
    status, said = project.dbt("run", "--select", "agreed")["agreed"]
    assert status == "error"
    assert "data type mismatch" in said
    assert "agreed" not in project.lake.names()
    project.write("models/agreed.yml", contract.replace("AMOUNT", "'decimal(20, 2)'"))
    assert project.dbt("run", "--select", "agreed")["agreed"][0] == "success"
    assert [each["name"] for each in project.lake.describe("agreed")["columns"]] == ["day", "amount", "orders"]


def test_a_microbatch_model_is_one_view_of_all_rows(project: Project) -> None:
    project.write(
        "models/timed.yml",
        "sources: [{name: timed, tables: [{name: orders, config: {event_time: ordered_at}}]}]",
    )
    batches = "incremental_strategy='microbatch', event_time='ordered_at', begin='2026-01-01', batch_size='day'"
    select = "SELECT order_id, ordered_at FROM {{ source('timed', 'orders') }}"
    project.write("models/batches.sql", f"{{{{ config(materialized='incremental', {batches}) }}}} {select}")
    days = ("--event-time-start", "2026-01-01", "--event-time-end", "2026-01-04")
    assert project.dbt("run", "--select", "batches", *days)["batches"][0] == "success"
    assert [row[0] for row in by_key(project.lake, "batches")] == [1, 2, 3]


def test_a_connection_is_tried_and_macros_and_hooks_ask_and_change(project: Project) -> None:
    project.dbt_without_results("debug")
    project.write(
        "macros/asks.sql",
        """
{% macro asks() %}
  {% do run_query("CREATE TABLE kept (id BIGINT PRIMARY KEY)") %}
  {% do run_query("INSERT INTO kept VALUES (" ~ run_query("SELECT 7 AS n").columns[0].values()[0] ~ ")") %}
{% endmacro %}
""",
    )
    project.dbt_without_results("run-operation", "asks")
    project.write(
        "models/hooked.sql",
        "{{ config(pre_hook='SELECT 1', post_hook='INSERT INTO kept VALUES (8)') }} SELECT * FROM "
        "{{ source('shop', 'orders') }}",
    )
    assert project.dbt("run", "--select", "hooked")["hooked"][0] == "success"
    project.lake.drain("shop")
    assert by_key(project.lake, "kept") == [(7,), (8,)]


def test_the_freshness_of_a_source_is_that_of_a_column_or_of_its_newest_event(project: Project) -> None:
    fresh = "freshness: {warn_after: {count: 6, period: hour}}"
    project.write(
        "models/schema.yml",
        f"""
sources:
  - name: shop
    tables:
      - name: orders
        config: {{loaded_at_field: ordered_at, {fresh}}}
      - name: customers
        config: {{loaded_at_field: rowtime, {fresh}}}
""",
    )
    project.write(
        "models/newest.sql", "{{ config(materialized='table') }} SELECT * FROM {{ source('shop', 'orders') }}"
    )
    project.dbt("build", "--select", "newest")
    start_dbt(project.folder, project.adapter, "source", "freshness")
    found = json.loads((project.folder / "target" / "sources.json").read_text())["results"]
    assert {each["unique_id"].split(".")[-1]: each["status"] for each in found} == {
        "orders": "warn",
        "customers": "pass",
    }


def test_a_seed_with_other_columns_is_made_anew_with_its_readers(project: Project) -> None:
    project.dbt("build", "--select", "countries", "sold", "per_country")
    project.write("seeds/countries.csv", "code,name,since,of\nit,Italy,1861-03-17,\nno,Norway,1905-06-07,sweden\n")
    refused, said = project.dbt("seed")["countries"]
    assert (refused, "--full-refresh drops them" in said) == ("error", True)
    assert {name for name, _ in by_key(project.lake, "per_country")} == {"Italy", "Nor'way"}
    project.dbt("build", "--full-refresh", "--select", "countries", "per_country")
    assert {name for name, _ in by_key(project.lake, "per_country")} == {"Italy", "Norway"}
    assert project.lake.query("SELECT code, of FROM countries ORDER BY code") == [
        {"code": "it", "of": None},
        {"code": "no", "of": "sweden"},
    ]


def test_what_has_no_meaning_here_is_an_error_of_its_model(project: Project) -> None:
    project.write("models/several.sql", PROJECT["models/newest.sql"].split("QUALIFY")[0])
    project.write("models/broken.sql", "SELECT nope FROM {{ source('shop', 'orders') }}")
    project.write("models/kept.sql", "{{ config(options={'state': 'shared'}) }} SELECT 1 AS one")
    found = project.dbt("build", "--select", "several", "broken", "kept", "daily")
    assert {name for name, (status, _) in found.items() if status == "error"} >= {"several", "broken", "kept"}
    assert "1 values of unique_key (customer_id) have several rows" in found["several"][1]
    assert "[sql.unknown_name] unknown column 'nope' (line 2, column 12)" in found["broken"][1]
    assert "options are for views whose rows are kept" in found["kept"][1]
    assert found["daily"][0] == "success"


def test_macros_of_dbt_say_here_what_they_mean_and_today_is_that_of_the_clock(project: Project) -> None:
    project.write("profiles.yml", PROJECT["profiles.yml"].replace("threads: 4", "threads: 4, clock: 1 HOUR"))
    project.write(
        "models/moments.sql",
        """
{{ config(materialized='table') }}
with final as (
  select order_id,
    {{ dbt.dateadd('hour', 2, 'cast(ordered_at as date)') }} as two_oclock,
    {{ dbt.dateadd('month', 1, 'ordered_at') }} as a_month_later,
    {{ dbt.date_trunc('week', 'ordered_at') }} as monday,
    {{ dbt.datediff('ordered_at', "cast('2026-02-01' as timestamp)", 'day') }} as days,
    {{ dbt.last_day('ordered_at', 'month') }} as month_end,
    {{ dbt.date(2026, 1, 2) }} as second,
    {{ dbt.safe_cast('product', api.Column.translate_type('integer')) }} as no_number,
    {{ dbt.split_part('product', "'e'", 1) }} as before_e,
    {{ dbt.hash('order_id') }} as hashed,
    cast(product as {{ api.Column.string_type(10) }}) as product
  from {{ source('shop', 'orders') }}
  where ordered_at < {{ dbt.current_timestamp() }} and cast(ordered_at as date) <= current_date
)
select * from final
""",
    )
    assert project.dbt("build", "--select", "moments")["moments"][0] == "success"
    first = by_key(project.lake, "moments")[0]
    assert [each.isoformat() if hasattr(each, "isoformat") else each for each in first] == [
        1,
        "2026-01-01T02:00:00+00:00",
        "2026-02-01T10:00:00+00:00",
        "2025-12-29T00:00:00+00:00",
        31,
        "2026-01-31",
        "2026-01-02",
        None,
        "l",
        "c4ca4238a0b923820dcc509a6f75849b",
        "leek",
    ]
    assert project.lake.describe("clock")["pipeline"] == "clock"


# --- snapshots ------------------------------------------------------------------------------------------------------

SNAPSHOT = """
{% snapshot prices %}
{{ config(unique_key='order_id', schema='history', STRATEGY) }}
SELECT order_id, product, amount, ordered_at FROM {{ source('shop', 'orders') }}
{% endsnapshot %}
"""
BY_TIME = "strategy='timestamp', updated_at='ordered_at', hard_deletes='invalidate'"
BY_VALUES = "strategy='check', check_cols=['amount'], hard_deletes='new_record'"


def snapshotted(project: Project, *columns: str) -> list[tuple[object, ...]]:
    """These columns, and whether the row is the present one."""
    rows = project.lake.query(f"SELECT {', '.join(columns)}, dbt_valid_to IS NULL AS present FROM prices")
    return sorted((tuple(row.values()) for row in rows), key=str)


def test_a_snapshot_keeps_what_a_row_was_and_when(project: Project) -> None:
    project.write("snapshots/prices.sql", SNAPSHOT.replace("STRATEGY", BY_TIME))
    assert project.dbt("snapshot")["prices"] == ("success", "3 rows begin, 0 end")
    lake = project.lake
    assert lake.describe("prices")["pipeline"] == "shop_history"
    # A view over a snapshot is maintained as any: once for each row that begins or ends.
    lake.execute("CREATE MATERIALIZED VIEW kept AS SELECT order_id, COUNT(*) AS n FROM prices GROUP BY order_id")
    assert project.dbt("snapshot")["prices"] == ("success", "0 rows begin, 0 end")
    lake.execute(
        "INSERT INTO orders VALUES (1, 1, 'leek', 6.00, '2026-02-01T00:00:00');"
        "INSERT INTO orders VALUES (4, 2, 'kale', 1.00, '2026-02-02T00:00:00');"
        "UPDATE orders SET amount = 9.00 WHERE order_id = 2;"  # at the same time: no change, as dbt has it
        "DELETE FROM orders WHERE order_id = 3"
    )
    assert project.dbt("snapshot")["prices"] == ("success", "2 rows begin, 2 end")
    assert snapshotted(project, "order_id", "amount") == [
        (1, Decimal("5.00"), False),
        (1, Decimal("6.00"), True),
        (2, Decimal("50.00"), True),
        (3, Decimal("7.50"), False),
        (4, Decimal("1.00"), True),
    ]
    [first] = lake.query("SELECT dbt_valid_from, dbt_valid_to FROM prices WHERE amount = 5.00")
    assert [each.isoformat()[:10] for each in first.values()] == ["2026-01-01", "2026-02-01"]
    lake.drain("default")
    assert by_key(lake, "kept") == [(1, 2), (2, 1), (3, 1), (4, 1)]
    assert [check for check in lake_checks(project) if check.ok is False] == []


def test_a_snapshot_by_values_with_rows_that_say_that_one_is_gone_and_a_new_column(project: Project) -> None:
    project.write("snapshots/prices.sql", SNAPSHOT.replace("STRATEGY", BY_VALUES))
    assert project.dbt("snapshot")["prices"] == ("success", "3 rows begin, 0 end")
    project.lake.execute(
        "UPDATE orders SET product = 'figs' WHERE order_id = 1; UPDATE orders SET amount = NULL WHERE order_id = 2;"
        "DELETE FROM orders WHERE order_id = 3"
    )
    assert project.dbt("snapshot")["prices"] == ("success", "2 rows begin, 2 end")
    expected = [
        (1, Decimal("5.00"), "False", True),
        (2, Decimal("50.00"), "False", False),
        (2, None, "False", True),
        (3, Decimal("7.50"), "False", False),
        (3, Decimal("7.50"), "True", True),
    ]
    assert snapshotted(project, "order_id", "amount", "dbt_is_deleted") == expected
    wider = SNAPSHOT.replace("STRATEGY", BY_VALUES).replace("ordered_at FROM", "ordered_at, customer_id FROM")
    project.write("snapshots/prices.sql", wider)
    project.lake.execute("INSERT INTO orders VALUES (3, 1, 'pear', 8.00, '2026-01-20T11:00:00')")
    assert project.dbt("snapshot")["prices"] == ("success", "1 rows begin, 1 end")
    assert snapshotted(project, "order_id", "amount", "customer_id", "dbt_is_deleted")[-3:] == [
        (3, Decimal("7.50"), None, "False", False),
        (3, Decimal("7.50"), None, "True", False),
        (3, Decimal("8.00"), 1, "False", True),
    ]


@pytest.mark.kill
def test_a_snapshot_that_is_killed_is_taken_as_a_whole_and_once(project: Project) -> None:
    project.write("snapshots/prices.sql", SNAPSHOT.replace("STRATEGY", BY_VALUES))
    project.dbt("snapshot", failpoint="after-snapshot-merge")
    project.lake.execute("UPDATE orders SET amount = 6.00 WHERE order_id = 1; DELETE FROM orders WHERE order_id = 2")
    project.dbt("snapshot", failpoint="after-snapshot-merge")
    assert project.dbt("snapshot")["prices"] == ("success", "0 rows begin, 0 end")
    assert snapshotted(project, "order_id", "amount", "dbt_is_deleted") == [
        (1, Decimal("5.00"), "False", False),
        (1, Decimal("6.00"), "False", True),
        (2, Decimal("50.00"), "False", False),
        (2, Decimal("50.00"), "True", True),
        (3, Decimal("7.50"), "False", True),
    ]


def test_a_snapshot_whose_key_is_not_unique_writes_nothing(project: Project) -> None:
    project.write(
        "snapshots/prices.sql",
        SNAPSHOT.replace("STRATEGY", BY_TIME).replace("unique_key='order_id'", "unique_key=['customer_id', 'product']"),
    )
    project.write(
        "snapshots/prices.sql",
        (project.folder / "snapshots/prices.sql")
        .read_text()
        .replace("product, amount", "customer_id, product, amount"),
    )
    assert project.dbt("snapshot")["prices"][0] == "success"
    project.lake.execute(
        "INSERT INTO orders VALUES (5, 1, 'leek', 1.00, '2026-03-01T00:00:00'), "
        "(6, 1, 'leek', 2.00, '2026-03-02T00:00:00')"
    )
    status, said = project.dbt("snapshot")["prices"]
    assert (status, "1 values of unique_key have several rows" in said, "1, leek" in said) == ("error", True, True)
    assert len(snapshotted(project, "order_id")) == 3


# --- tests ----------------------------------------------------------------------------------------------------------


def test_failures_are_stored_as_a_view_that_goes_on_saying_what_fails(project: Project) -> None:
    project.write("tests/no_cheap.sql", "SELECT product, amount FROM {{ ref('cheap') }} WHERE amount < 6")
    found = project.dbt("build", "--store-failures")
    assert found["no_cheap"] == ("fail", "Got 1 result, configured to fail if != 0")
    assert found["no_negative"][0] == "pass"
    lake = project.lake
    assert lake.describe("no_cheap")["pipeline"] == "shop_dbt_test__audit"
    assert by_key(lake, "no_cheap") == [("leek", Decimal("5.00"))]
    lake.execute("INSERT INTO orders VALUES (9, 1, 'kale', 2.00, '2026-01-01T10:00:00')")
    lake.drain("sources")
    lake.drain("shop_dbt_test__audit")
    assert by_key(lake, "no_cheap") == [("kale", Decimal("2.00")), ("leek", Decimal("5.00"))]
    again = project.dbt("test", "--select", "no_cheap", "--store-failures")
    assert again["no_cheap"] == ("fail", "Got 2 results, configured to fail if != 0")


def test_unit_tests_of_models(project: Project) -> None:
    project.dbt("build", "--exclude-resource-type", "unit_test")
    project.write(
        "models/units.yml",
        """
unit_tests:
  - name: days_are_summed
    model: daily
    given:
      - input: source('shop', 'orders')
        rows:
          - {order_id: 1, amount: 1.50, ordered_at: '2026-01-01T10:00:00'}
          - {order_id: 2, amount: 2.50, ordered_at: '2026-01-01T23:00:00'}
          - {order_id: 3, ordered_at: '2026-01-02T00:00:00'}
    expect:
      rows: [{day: '2026-01-01', orders: 2, amount: 4.00}, {day: '2026-01-02', orders: 1, amount: null}]
  - name: countries_are_named
    model: per_country
    given:
      - {input: ref('sold'), format: sql, rows: "select 'it' as country, cast(3 as decimal(10, 2)) as amount"}
      - {input: ref('countries'), rows: [{code: it, name: Italy}, {code: no, name: Norway}]}
    expect: {rows: [{name: Italy, amount: 3.00}]}
  - name: of_nothing_nothing
    model: cheap_count
    given: [{input: ref('cheap'), rows: []}]
    expect: {rows: []}
  - name: wrong
    model: cheap_count
    given: [{input: ref('cheap'), rows: [{product: leek}]}]
    expect: {rows: [{product: leek, n: 2}]}
""",
    )
    found = project.dbt("test", "--select", "test_type:unit")
    assert {name: status for name, (status, _) in found.items()} == {
        "days_are_summed": "pass",
        "countries_are_named": "pass",
        "of_nothing_nothing": "pass",
        "wrong": "fail",
    }
