"""The stored form of a table: columns, quoting, properties."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from strandline.state_store.tablespec import TableSpec, arrow_schema, quoted, schema_json

KEYED = TableSpec("t", (("k", "STRING"), ("odd `name", "INT")), "keyed", ("k",), "STRUCT<__n: BIGINT>")


def test_state_is_the_last_stored_column_and_not_a_visible_one() -> None:
    assert KEYED.visible == ("k", "odd `name")
    assert KEYED.stored[-1] == ("__state", "STRUCT<__n: BIGINT>")


def test_names_are_quoted_so_that_any_sql_name_can_be_a_column() -> None:
    assert KEYED.ddl == "`k` STRING, `odd ``name` INT, `__state` STRUCT<__n: BIGINT>"
    assert quoted("a.b") == "`a.b`"
    assert quoted("__state.__k0") == "`__state`.`__k0`"


def test_every_table_has_a_changelog_and_a_month_of_history() -> None:
    append = TableSpec("log", (("k", "STRING"),), "append")
    for spec in (KEYED, append):
        assert spec.properties["delta.enableChangeDataFeed"] == "true"
        assert spec.properties["delta.deletedFileRetentionDuration"] == "interval 30 days"
        assert spec.properties["delta.logRetentionDuration"] == "interval 30 days"


def test_only_keyed_tables_use_deletion_vectors_and_append_tables_refuse_deletes() -> None:
    append = TableSpec("log", (("k", "STRING"),), "append")
    assert KEYED.properties["delta.enableDeletionVectors"] == "true"
    assert "delta.enableDeletionVectors" not in append.properties
    assert append.properties["delta.appendOnly"] == "true"
    assert "delta.appendOnly" not in KEYED.properties


# Stored columns in Spark's DDL become the schema that Delta's log has.


@pytest.mark.parametrize(
    ("ddl", "arrow"),
    [
        ("BOOLEAN", pa.bool_()),
        ("INT", pa.int32()),
        ("BIGINT", pa.int64()),
        ("DOUBLE", pa.float64()),
        ("STRING", pa.string()),
        ("BINARY", pa.binary()),
        ("DATE", pa.date32()),
        ("TIMESTAMP", pa.timestamp("us", "UTC")),
        ("DECIMAL(38, 9)", pa.decimal128(38, 9)),
        ("ARRAY<DECIMAL(4, 2)>", pa.list_(pa.field("element", pa.decimal128(4, 2)))),
        ("MAP<STRING, ARRAY<INT>>", pa.map_(pa.string(), pa.list_(pa.field("element", pa.int32())))),
        ("STRUCT<`a b`: INT, __k: STRUCT<`x``y`: STRING>>", None),
    ],
)
def test_types(ddl: str, arrow: pa.DataType | None) -> None:
    [field] = arrow_schema(schema_json([("c", ddl)]))
    inner = pa.struct([("a b", pa.int32()), ("__k", pa.struct([("x`y", pa.string())]))])
    assert field == pa.field("c", arrow or inner)


def test_every_column_may_be_null_and_has_no_metadata() -> None:
    found = json.loads(schema_json([("a", "INT"), ("b", "STRING")]))
    assert found == {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "b", "type": "string", "nullable": True, "metadata": {}},
        ],
    }


@pytest.mark.parametrize("ddl", ["VARIANT", "INT INT", "ARRAY<INT", "STRUCT<a INT>", "DECIMAL(1)", ""])
def test_what_no_table_of_ours_has_is_refused(ddl: str) -> None:
    with pytest.raises(ValueError, match=r"stands where|is no type"):
        schema_json([("c", ddl)])
