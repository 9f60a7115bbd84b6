"""Every block of SQL in the pages is executed: what stands before it on the page, or is taken for granted, is here.

A block that is no SQL but a grammar is fenced as text, one for `psql` alone as that.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema

from infra.house.plan import ROOT
from strandline.jobs.ingest.formats.registry import LocalRegistry
from strandline.jobs.model.settings import load_settings
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.foreign_iceberg import catalog_environment, end_threads, open_catalog

_SALES: Final = """
CREATE STREAM sales (shop VARCHAR, item VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'sales');
CREATE TABLE shops (shop VARCHAR PRIMARY KEY) WITH (KAFKA_TOPIC = 'shops');
CREATE TABLE by_shop AS SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM sales GROUP BY shop;
CREATE MATERIALIZED VIEW busiest AS SELECT MAX(qty) AS n FROM sales;
"""
_SOLD: Final = "CREATE STREAM sold AS SELECT shop, item, qty FROM sales WHERE qty > 1;"
_BEFORE: Final = {
    ("evolution.md", "CREATE OR REPLACE TABLE by_shop"): _SALES,
    ("evolution.md", "CREATE OR REPLACE STREAM sold"): _SALES + _SOLD,
    ("evolution.md", "SWAP WITH"): _SALES,
    ("evolution.md", "ALTER STREAM sales"): _SALES,
    ("state.md", "by_category"): """
        CREATE STREAM visits (product VARCHAR) WITH (KAFKA_TOPIC = 'visits');
        CREATE TABLE info (product VARCHAR PRIMARY KEY, category VARCHAR) WITH (KAFKA_TOPIC = 'info');
        CREATE TABLE products (name VARCHAR PRIMARY KEY, category VARCHAR) WITH (KAFKA_TOPIC = 'products');
    """,
}
"""{(page, how a block begins or a part of it): the statements before it}."""
_FIELDS: Final = [{"name": "id", "type": "long"}]
_ROW: Final = ["null", {"type": "record", "name": "row", "fields": _FIELDS}]
_SCHEMAS: Final = {
    "clicks-value": ("AVRO", {"type": "record", "name": "r", "fields": _FIELDS}),
    "users-value": ("JSON", {"type": "object", "properties": {"name": {"type": "string"}}}),
    "shop.public.orders-value": (
        "AVRO",
        {"type": "record", "name": "e", "fields": [{"name": "before", "type": _ROW}, {"name": "after", "type": "row"}]},
    ),
    "shop.public.orders-key": ("AVRO", {"type": "record", "name": "k", "fields": _FIELDS}),
}
"""{subject: what a registry has of it}, in the order of their numbers, from 1 on."""
BLOCKS: Final = [
    (str(page.relative_to(ROOT / "docs")), text)
    for page in sorted((ROOT / "docs").rglob("*.md"))
    for text in re.findall(r"```sql\n(.*?)```", page.read_text(), flags=re.DOTALL)
]


@pytest.mark.parametrize(("page", "text"), BLOCKS)
def test_a_block_of_sql_is_taken(page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    functions = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "functions.md").read_text(), flags=re.DOTALL)
    (tmp_path / "geo.py").write_text("\n\n".join(functions))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("STRANDLINE_FUNCTIONS__MODULES", json.dumps(["geo"]))
    before = [made for (of, part), made in _BEFORE.items() if of == page and part in text]
    settings = load_settings(lake=tmp_path / "lake")
    session = Interpreter(settings)
    if "VALUE_SCHEMA_ID" in text:
        registry = LocalRegistry(LakeLayout(settings.lake).registry)
        for subject, (form, schema) in _SCHEMAS.items():
            registry.register_schema(subject, Schema(json.dumps(schema), form))
    if "ICEBERG" in text:
        _make_iceberg(tmp_path, monkeypatch)
    assert list(session.run("".join(before) + text))


def _make_iceberg(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog that the pages name, with its tables, and the folder beside it."""
    (folder / "landing" / "sold").mkdir(parents=True)
    monkeypatch.chdir(folder)
    catalog = open_catalog("prod", catalog_environment("prod", folder, folder), monkeypatch)
    for namespace, table in (("web", "clicks"), ("shop", "orders")):
        catalog.create_namespace(namespace)
        catalog.create_table(f"{namespace}.{table}", schema=pa.schema([("id", pa.int64()), ("label", pa.string())]))
    end_threads()
