"""The stored form of a table: columns, quoting, properties."""

from __future__ import annotations

from strandline.state_store.tablespec import TableSpec, quoted

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
