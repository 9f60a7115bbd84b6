"""The types of the language, and how each is written for Spark, DuckDB and Arrow.

Delta has no time of day: TIME is stored as INT, milliseconds of the day; only this module and what prints values
know. DATE is a day, TIMESTAMP an instant in UTC, microseconds (printed without zone, as ksqlDB does).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from strandline.jobs.model.errors import TypeMismatch

if TYPE_CHECKING:
    import pyarrow as pa


class BaseType(StrEnum):
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
    BaseType.BOOLEAN: "BOOLEAN",
    BaseType.INT: "INT",
    BaseType.BIGINT: "BIGINT",
    BaseType.DOUBLE: "DOUBLE",
    BaseType.VARCHAR: "STRING",
    BaseType.BYTES: "BINARY",
    BaseType.DATE: "DATE",
    BaseType.TIME: "INT",
    BaseType.TIMESTAMP: "TIMESTAMP",
    BaseType.NULL: "VOID",
}

_DUCKDB = {
    **{base: base.value for base in _SPARK},
    BaseType.BYTES: "BLOB",
    BaseType.TIME: "INTEGER",
    BaseType.TIMESTAMP: "TIMESTAMPTZ",
    BaseType.NULL: '"NULL"',
}

# From the narrowest; arithmetic and comparison take the wider of two.
NUMERIC = (BaseType.INT, BaseType.BIGINT, BaseType.DECIMAL, BaseType.DOUBLE)
INTEGER_DIGITS = {BaseType.INT: 10, BaseType.BIGINT: 19}
MAX_PRECISION = 38


@dataclass(frozen=True)
class SqlType:
    """A type. `args` are precision and scale (DECIMAL), element types (ARRAY, MAP); `fields` a STRUCT's members."""

    base: BaseType
    precision: int = 0
    scale: int = 0
    args: tuple[SqlType, ...] = ()
    fields: tuple[tuple[str, SqlType], ...] = ()

    @property
    def is_numeric(self) -> bool:
        return self.base in NUMERIC

    @property
    def is_nested(self) -> bool:
        return self.base in (BaseType.ARRAY, BaseType.MAP, BaseType.STRUCT)

    def __str__(self) -> str:
        """As written in a statement; `parse_type` reads it back."""
        match self.base:
            case BaseType.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case BaseType.ARRAY | BaseType.MAP:
                return f"{self.base}<{', '.join(str(a) for a in self.args)}>"
            case BaseType.STRUCT:
                return f"STRUCT<{', '.join(f'`{name}` {inner}' for name, inner in self.fields)}>"
            case _:
                return self.base.value

    def spark(self) -> str:
        """As written in Spark DDL."""
        match self.base:
            case BaseType.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case BaseType.ARRAY | BaseType.MAP:
                return f"{self.base}<{', '.join(a.spark() for a in self.args)}>"
            case BaseType.STRUCT:
                members = (f"`{name.replace('`', '``')}`: {inner.spark()}" for name, inner in self.fields)
                return f"STRUCT<{', '.join(members)}>"
            case _:
                return _SPARK[self.base]

    def duckdb(self) -> str:
        """As written in DuckDB."""
        match self.base:
            case BaseType.DECIMAL:
                return f"DECIMAL({self.precision}, {self.scale})"
            case BaseType.ARRAY:
                return f"{self.args[0].duckdb()}[]"
            case BaseType.MAP:
                return f"MAP({self.args[0].duckdb()}, {self.args[1].duckdb()})"
            case BaseType.STRUCT:
                fields = ('"' + name.replace('"', '""') + f'" {inner.duckdb()}' for name, inner in self.fields)
                return f"STRUCT({', '.join(fields)})"
            case _:
                return _DUCKDB[self.base]

    def arrow(self) -> pa.DataType:
        """As stored in memory and Parquet."""
        import pyarrow as pa

        match self.base:
            case BaseType.DECIMAL:
                return pa.decimal128(self.precision, self.scale)
            case BaseType.ARRAY:
                return pa.list_(self.args[0].arrow())
            case BaseType.MAP:
                return pa.map_(self.args[0].arrow(), self.args[1].arrow())
            case BaseType.STRUCT:
                return pa.struct([(name, inner.arrow()) for name, inner in self.fields])
            case _:
                flat: dict[BaseType, pa.DataType] = {
                    BaseType.BOOLEAN: pa.bool_(),
                    BaseType.INT: pa.int32(),
                    BaseType.BIGINT: pa.int64(),
                    BaseType.DOUBLE: pa.float64(),
                    BaseType.VARCHAR: pa.string(),
                    BaseType.BYTES: pa.binary(),
                    BaseType.DATE: pa.date32(),
                    BaseType.TIME: pa.int32(),
                    BaseType.TIMESTAMP: pa.timestamp("us", tz="UTC"),
                    BaseType.NULL: pa.null(),
                }
                return flat[self.base]


BOOLEAN = SqlType(BaseType.BOOLEAN)
INT = SqlType(BaseType.INT)
BIGINT = SqlType(BaseType.BIGINT)
DOUBLE = SqlType(BaseType.DOUBLE)
VARCHAR = SqlType(BaseType.VARCHAR)
BYTES = SqlType(BaseType.BYTES)
DATE = SqlType(BaseType.DATE)
TIME = SqlType(BaseType.TIME)
TIMESTAMP = SqlType(BaseType.TIMESTAMP)
NULL = SqlType(BaseType.NULL)


def decimal(precision: int, scale: int) -> SqlType:
    """DECIMAL(precision, scale), held within 38 digits as Spark does: whole digits win over fractional ones."""
    if precision > MAX_PRECISION:
        scale = max(min(scale, 6), scale - (precision - MAX_PRECISION))
        precision = MAX_PRECISION
    return SqlType(BaseType.DECIMAL, precision=precision, scale=scale)


def array(element: SqlType) -> SqlType:
    """ARRAY<element>."""
    return SqlType(BaseType.ARRAY, args=(element,))


def map_of(key: SqlType, value: SqlType) -> SqlType:
    """MAP<key, value>.

    Raises:
        TypeMismatch: the key is an ARRAY, a MAP or a STRUCT.
    """
    if key.is_nested:
        raise TypeMismatch(f"the key of a MAP is a plain value, not {key}")
    return SqlType(BaseType.MAP, args=(key, value))


def struct(*fields: tuple[str, SqlType]) -> SqlType:
    """STRUCT<name type, …>."""
    return SqlType(BaseType.STRUCT, fields=fields)


def has_null(sql_type: SqlType) -> bool:
    """True if the type is that of a bare NULL, or contains it: no column has such a type."""
    inside = (*sql_type.args, *(field for _, field in sql_type.fields))
    return sql_type.base is BaseType.NULL or any(map(has_null, inside))


def without_null(sql_type: SqlType) -> SqlType:
    """The type with VARCHAR in the place of that of a bare NULL, as PostgreSQL has it."""
    if sql_type.base is BaseType.NULL:
        return VARCHAR
    args = tuple(map(without_null, sql_type.args))
    return replace(sql_type, args=args, fields=tuple((name, without_null(of)) for name, of in sql_type.fields))


def as_decimal(sql_type: SqlType) -> SqlType:
    """Smallest DECIMAL that holds every value of an integer or decimal type."""
    return sql_type if sql_type.base is BaseType.DECIMAL else decimal(INTEGER_DIGITS[sql_type.base], 0)


def common_type(left: SqlType, right: SqlType) -> SqlType | None:
    """Type that both fit into without loss of meaning; None if there is none (ksqlDB widens numbers only)."""
    if left == right or right.base is BaseType.NULL:
        return left
    if left.base is BaseType.NULL:
        return right
    if left.is_numeric and right.is_numeric:
        if BaseType.DOUBLE in (left.base, right.base):
            return DOUBLE
        if BaseType.DECIMAL in (left.base, right.base):
            a, b = as_decimal(left), as_decimal(right)
            scale = max(a.scale, b.scale)
            return decimal(max(a.precision - a.scale, b.precision - b.scale) + scale, scale)
        return BIGINT
    if left.base == right.base and left.base in (BaseType.ARRAY, BaseType.MAP):
        inner = [common_type(a, b) for a, b in zip(left.args, right.args, strict=True)]
        return None if None in inner else SqlType(left.base, args=tuple(t for t in inner if t))
    if left.base is BaseType.STRUCT and right.base is BaseType.STRUCT:
        return _common_struct(dict(left.fields), dict(right.fields))
    return None


def _nameless(fields: dict[str, SqlType]) -> bool:
    """True for the fields of ROW (…)."""
    return all(name == f"f{place}" for place, name in enumerate(fields, 1))


def _common_struct(left: dict[str, SqlType], right: dict[str, SqlType]) -> SqlType | None:
    """All fields of both; those of one name have a common type. None where one side's have no names (`ROW(a, b)`) and
    the other's do: DuckDB takes them by their places."""
    if not left.keys() & right.keys() and _nameless(left) is not _nameless(right):
        return None
    fields = {**left, **right}
    for name in left.keys() & right.keys():
        shared = common_type(left[name], right[name])
        if shared is None:
            return None
        fields[name] = shared
    return struct(*fields.items())
