"""The types of DuckDB's answers as the language's: a query over the system catalog may make types that no view has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model import types as t

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.model.types import SqlType


def as_language_has_it(table: pa.Table) -> tuple[pa.Table, tuple[SqlType, ...]]:
    """The table with the types of the language, and those types."""
    import pyarrow as pa

    types = tuple(_type_of(field.type) for field in table.schema)
    columns = [column.cast(each.arrow()) for column, each in zip(table.columns, types, strict=True)]
    return pa.table(columns, names=[str(number) for number in range(len(columns))]), types


def _type_of(arrow: pa.DataType) -> SqlType:
    import pyarrow.types as kinds

    if kinds.is_list(arrow):
        # Lists of oids, for which there is no type here. Drivers know text[] by heart, and asyncpg asks for the other
        # types by a query that has such a list itself.
        return t.array(t.VARCHAR if kinds.is_int64(arrow.value_type) else _type_of(arrow.value_type))
    if kinds.is_decimal(arrow):
        return t.decimal(arrow.precision, arrow.scale)
    for is_it, sql_type in (
        (kinds.is_boolean, t.BOOLEAN),
        (kinds.is_uint32, t.BIGINT),
        (kinds.is_int64, t.BIGINT),
        (kinds.is_uint64, t.decimal(20, 0)),
        (kinds.is_integer, t.INT),
        (kinds.is_floating, t.DOUBLE),
        (kinds.is_date, t.DATE),
        (kinds.is_timestamp, t.TIMESTAMP),
        (kinds.is_binary, t.BYTES),
    ):
        if is_it(arrow):
            return sql_type
    return t.VARCHAR
