"""The types of the language, and how each is written for Spark, DuckDB and Arrow.

Delta has no time of day: TIME is stored as INT, milliseconds of the day; only this module and what prints values
know. DATE is a day, TIMESTAMP an instant in UTC, microseconds (printed without zone, as ksqlDB does).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


class Kind(StrEnum):
    """The name of a type, as written in SQL."""

    BOOLEAN = "BOOLEAN"
    INT = "INT"
    BIGINT = "BIGINT"
    DOUBLE = "DOUBLE"
    DECIMAL = "DECIMAL"
    VARCHAR = "VARCHAR"
    BYTES = "BYTES"
    DATE = "DATE"
    TIME = "TIME"
    TIMESTAMP = "TIMESTAMP"
    ARRAY = "ARRAY"
    MAP = "MAP"
    STRUCT = "STRUCT"
    NULL = "NULL"
    """The type of a bare NULL: fits every other type, is no column's type."""


_SPARK = {
    Kind.BOOLEAN: "BOOLEAN",
    Kind.INT: "INT",
    Kind.BIGINT: "BIGINT",
    Kind.DOUBLE: "DOUBLE",
    Kind.VARCHAR: "STRING",
    Kind.BYTES: "BINARY",
    Kind.DATE: "DATE",
    Kind.TIME: "INT",
    Kind.TIMESTAMP: "TIMESTAMP",
    Kind.NULL: "VOID",
}

_DUCKDB = {
    **{kind: kind.value for kind in _SPARK},
    Kind.BYTES: "BLOB",
    Kind.TIME: "INTEGER",
    Kind.TIMESTAMP: "TIMESTAMPTZ",
    Kind.NULL: '"NULL"',
}

# From the narrowest; arithmetic and comparison take the wider of two.
NUMERIC = (Kind.INT, Kind.BIGINT, Kind.DECIMAL, Kind.DOUBLE)
INTEGER_DIGITS = {Kind.INT: 10, Kind.BIGINT: 19}
MAX_PRECISION = 38


@dataclass(frozen=True)
class SqlType:
    """A type. `args` are precision and scale (DECIMAL), element types (ARRAY, MAP); `fields` a STRUCT's members."""

    kind: Kind
    precision: int = 0
    scale: int = 0
    args: tuple[SqlType, ...] = ()
    fields: tuple[tuple[str, SqlType], ...] = ()

    @property
    def is_numeric(self) -> bool:
        return self.kind in NUMERIC

    @property
    def is_nested(self) -> bool:
        return self.kind in (Kind.ARRAY, Kind.MAP, Kind.STRUCT)

    def __str__(self) -> str:
        """As written in a statement; `parse_type` reads it back."""
        match self.kind:
            case Kind.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case Kind.ARRAY | Kind.MAP:
                return f"{self.kind}<{', '.join(str(a) for a in self.args)}>"
            case Kind.STRUCT:
                return f"STRUCT<{', '.join(f'`{name}` {inner}' for name, inner in self.fields)}>"
            case _:
                return self.kind.value

    def spark(self) -> str:
        """As written in Spark DDL."""
        match self.kind:
            case Kind.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case Kind.ARRAY | Kind.MAP:
                return f"{self.kind}<{', '.join(a.spark() for a in self.args)}>"
            case Kind.STRUCT:
                return f"STRUCT<{', '.join(f'`{name}`: {inner.spark()}' for name, inner in self.fields)}>"
            case _:
                return _SPARK[self.kind]

    def duckdb(self) -> str:
        """As written in DuckDB."""
        match self.kind:
            case Kind.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case Kind.ARRAY:
                return f"{self.args[0].duckdb()}[]"
            case Kind.MAP:
                return f"MAP({self.args[0].duckdb()}, {self.args[1].duckdb()})"
            case Kind.STRUCT:
                members = ", ".join(f'"{name}" {inner.duckdb()}' for name, inner in self.fields)
                return f"STRUCT({members})"
            case _:
                return _DUCKDB[self.kind]

    def arrow(self) -> pa.DataType:
        """As stored in memory and Parquet."""
        import pyarrow as pa

        match self.kind:
            case Kind.DECIMAL:
                return pa.decimal128(self.precision, self.scale)
            case Kind.ARRAY:
                return pa.list_(self.args[0].arrow())
            case Kind.MAP:
                return pa.map_(self.args[0].arrow(), self.args[1].arrow())
            case Kind.STRUCT:
                return pa.struct([(name, inner.arrow()) for name, inner in self.fields])
            case _:
                flat: dict[Kind, pa.DataType] = {
                    Kind.BOOLEAN: pa.bool_(),
                    Kind.INT: pa.int32(),
                    Kind.BIGINT: pa.int64(),
                    Kind.DOUBLE: pa.float64(),
                    Kind.VARCHAR: pa.string(),
                    Kind.BYTES: pa.binary(),
                    Kind.DATE: pa.date32(),
                    Kind.TIME: pa.int32(),
                    Kind.TIMESTAMP: pa.timestamp("us", tz="UTC"),
                    Kind.NULL: pa.null(),
                }
                return flat[self.kind]


BOOLEAN = SqlType(Kind.BOOLEAN)
INT = SqlType(Kind.INT)
BIGINT = SqlType(Kind.BIGINT)
DOUBLE = SqlType(Kind.DOUBLE)
VARCHAR = SqlType(Kind.VARCHAR)
BYTES = SqlType(Kind.BYTES)
DATE = SqlType(Kind.DATE)
TIME = SqlType(Kind.TIME)
TIMESTAMP = SqlType(Kind.TIMESTAMP)
NULL = SqlType(Kind.NULL)


def decimal(precision: int, scale: int) -> SqlType:
    """DECIMAL(precision, scale), held within 38 digits as Spark does: whole digits win over fractional ones."""
    if precision > MAX_PRECISION:
        scale = max(min(scale, 6), scale - (precision - MAX_PRECISION))
        precision = MAX_PRECISION
    return SqlType(Kind.DECIMAL, precision=precision, scale=scale)


def array(element: SqlType) -> SqlType:
    """ARRAY<element>."""
    return SqlType(Kind.ARRAY, args=(element,))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    """MAP<key, value>."""
    return SqlType(Kind.MAP, args=(key, value))


def struct(*fields: tuple[str, SqlType]) -> SqlType:
    """STRUCT<name type, …>."""
    return SqlType(Kind.STRUCT, fields=fields)


def as_decimal(kind: SqlType) -> SqlType:
    """The DECIMAL that holds every value of an integer or decimal type."""
    return kind if kind.kind is Kind.DECIMAL else decimal(INTEGER_DIGITS[kind.kind], 0)


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """The type both fit into without loss of meaning; None when there is none (ksqlDB widens numbers only)."""
    if left == right or right.kind is Kind.NULL:
        return left
    if left.kind is Kind.NULL:
        return right
    if left.is_numeric and right.is_numeric:
        if Kind.DOUBLE in (left.kind, right.kind):
            return DOUBLE
        if Kind.DECIMAL in (left.kind, right.kind):
            a, b = as_decimal(left), as_decimal(right)
            scale = max(a.scale, b.scale)
            return decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
        return BIGINT
    if left.kind == right.kind and left.kind in (Kind.ARRAY, Kind.MAP):
        inner = [common_type(a, b) for a, b in zip(left.args, right.args, strict=True)]
        return None if None in inner else SqlType(left.kind, args=tuple(t for t in inner if t))
    if left.kind is Kind.STRUCT and right.kind is Kind.STRUCT:
        return _common_struct(dict(left.fields), dict(right.fields))
    return None


def _common_struct(left: dict[str, SqlType], right: dict[str, SqlType]) -> SqlType | None:
    """All fields of both; those of one name have a common type."""
    fields = {**left, **right}
    for name in left.keys() & right.keys():
        shared = common_type(left[name], right[name])
        if shared is None:
            return None
        fields[name] = shared
    return struct(*fields.items())
