"""CREATE STREAM and TABLE with columns: the source they make, and what cannot be one."""

from __future__ import annotations

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.errors import InvalidQuery, NameInUse, OptionRefused, SqlError, TypeMismatch
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import run
from tests.unit.session.define.defined import shape, view


def test_a_source_has_its_columns_keys_first_and_its_options(lake: LakeLayout) -> None:
    found = run(
        "CREATE TABLE T (v INT, `K` BIGINT PRIMARY KEY) WITH (KAFKA_TOPIC='x', FORMAT='JSON', PARTITIONS=3)",
        Catalog(lake),
    )
    assert isinstance(found, Source)
    assert found.columns == (Column("K", t.BIGINT, key=True), Column("v", t.INT))
    assert (found.name, found.kind, found.topic, found.partitions) == ("t", "table", "x", 3)
    assert (found.key_format, found.value_format, found.pipeline) == ("JSON", "JSON", "tests")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("CREATE TABLE t (a INT)", InvalidQuery, "has no key"),
        ("CREATE TABLE t (a INT KEY)", InvalidQuery, "PRIMARY KEY"),
        ("CREATE STREAM s (a INT PRIMARY KEY)", InvalidQuery, "a stream has a KEY"),
        ("CREATE STREAM s (a INT, A INT)", InvalidQuery, "two columns are named 'a'"),
        ("CREATE STREAM s (a INT, `A` INT)", InvalidQuery, "'a' and 'A' differ only in case"),
        ("CREATE STREAM s (a INT, b STRUCT<x INT, `X` INT>)", TypeMismatch, "'x' and 'X' differ only in case"),
        ("CREATE STREAM s (`_OFFSET` BIGINT)", InvalidQuery, "reserved"),
        ("CREATE STREAM s (rowtime BIGINT)", InvalidQuery, "reserved"),
        ("CREATE STREAM s (_offset BIGINT)", InvalidQuery, "reserved"),
        ("CREATE STREAM s (__x BIGINT)", InvalidQuery, "reserved"),
        ("CREATE STREAM s (a MAP<VARCHAR, INT> KEY) WITH (FORMAT='JSON')", InvalidQuery, "cannot be a MAP"),
        ("CREATE STREAM s__dead_letters (a INT)", InvalidQuery, "makes itself"),
        ("CREATE STREAM s__log (a INT)", InvalidQuery, "makes itself"),
        ("CREATE STREAM s__insert_12 (a INT)", InvalidQuery, "makes itself"),
        ("CREATE STREAM shared__x (a INT)", InvalidQuery, "makes itself"),
        ("CREATE TABLE shared__0123456789abcdef (a INT PRIMARY KEY)", InvalidQuery, "makes itself"),
        ("CREATE STREAM s (a INT, b INT) WITH (VALUE_FORMAT='KAFKA')", InvalidQuery, "one value column"),
        (
            "CREATE STREAM s (a INT) WITH (VALUE_FORMAT='DEBEZIUM_JSON')",
            InvalidQuery,
            "which rows come and go: 's' is a t",
        ),
        ("CREATE STREAM s (a INT) WITH (VALUE_FORMAT='DEBEZIUM')", OptionRefused, "'DEBEZIUM' is not a format"),
        ("CREATE STREAM s (a INT) WITH ('sasl.jaas.config'='x')", OptionRefused, "can run code"),
    ],
)
def test_sources_that_cannot_be(lake: LakeLayout, text: str, error: type[SqlError], message: str) -> None:
    catalog = Catalog(lake)
    with pytest.raises(error, match=message):
        run(text, catalog)
    assert catalog.names() == ()


def test_a_source_that_others_write_is_read_only(catalog: Catalog) -> None:
    found = run("CREATE SOURCE STREAM feed (sensor VARCHAR KEY, reading DOUBLE)", catalog)
    assert isinstance(found, Source)
    assert found.read_only
    assert Catalog.get(catalog, "feed") == found
    assert view("CREATE STREAM v AS SELECT * FROM feed", catalog).inputs == ("feed",)
    for text in (
        "INSERT INTO feed SELECT sensor, reading FROM readings",
        "CREATE OR REPLACE STREAM feed (sensor VARCHAR KEY)",
        "CREATE OR REPLACE SOURCE STREAM readings (sensor VARCHAR KEY)",
    ):
        with pytest.raises(InvalidQuery, match="SOURCE"):
            run(text, catalog)


def test_a_change_stream_is_read_only_and_gets_columns_as_its_table_does(catalog: Catalog) -> None:
    text = "CREATE TABLE orders (id INT PRIMARY KEY, n INT{}) WITH (VALUE_FORMAT='DEBEZIUM_JSON')"
    found = run(text.format(""), catalog)
    assert isinstance(found, Source)
    assert (found.read_only, found.change_stream, found.key_format) == (True, True, "JSON")
    wide = run(text.format(", shop VARCHAR"), catalog)
    assert isinstance(wide, Source)
    assert (wide.added, [column.name for column in wide.columns]) == (1, ["id", "n", "shop"])


def test_a_source_can_be_replaced_only_while_nobody_reads_it(catalog: Catalog) -> None:
    changed = run("CREATE OR REPLACE STREAM readings (a INT)", catalog)
    assert isinstance(changed, Source)
    assert shape(changed) == [("a", "INT", False)]
    run("CREATE STREAM v AS SELECT sensor, n FROM readings", catalog)
    with pytest.raises(NameInUse, match="'v'"):
        run("CREATE OR REPLACE STREAM readings (a INT)", catalog)
