"""Types of the language and PostgreSQL's oids, which clients know by heart (`pg_type.dat` of its source).

An ARRAY of plain values is an array; MAP, STRUCT and whatever holds one are `json`. TIMESTAMP is an instant, so
`timestamptz`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType, SqlType
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


TEXT_FORMAT: Final = 0
"""The format of a value as text."""
BINARY_FORMAT: Final = 1
UNSPECIFIED: Final = 0
"""The oid by which a client leaves a parameter's type to the server."""
TEXT: Final = 25
JSON: Final = 114
NUMERIC: Final = 1700
_VARIABLE: Final = -1
"""The size of a type without a fixed one."""


@dataclass(frozen=True)
class _WireType:
    """A type of PostgreSQL's.

    Attributes:
        name: as `pg_type` has it.
        sql: as `format_type` shows it.
        size: bytes of a value; −1 where they differ.
        array: the oid of the type of its arrays.
        category: of `pg_type.typcategory`.
    """

    oid: int
    name: str
    sql: str
    size: int
    array: int
    category: str


@dataclass(frozen=True)
class WireColumn:
    """A column of an answer: its name and what a RowDescription says of it."""

    name: str
    type: SqlType
    oid: int
    size: int
    modifier: int


PLAIN: Final[dict[BaseType, _WireType]] = {
    BaseType.BOOLEAN: _WireType(16, "bool", "boolean", 1, 1000, "B"),
    BaseType.BYTES: _WireType(17, "bytea", "bytea", _VARIABLE, 1001, "U"),
    BaseType.BIGINT: _WireType(20, "int8", "bigint", 8, 1016, "N"),
    BaseType.INT: _WireType(23, "int4", "integer", 4, 1007, "N"),
    BaseType.VARCHAR: _WireType(TEXT, "text", "text", _VARIABLE, 1009, "S"),
    BaseType.DOUBLE: _WireType(701, "float8", "double precision", 8, 1022, "N"),
    BaseType.DATE: _WireType(1082, "date", "date", 4, 1182, "D"),
    BaseType.TIME: _WireType(1083, "time", "time without time zone", 8, 1183, "D"),
    BaseType.TIMESTAMP: _WireType(1184, "timestamptz", "timestamp with time zone", 8, 1185, "D"),
    BaseType.DECIMAL: _WireType(NUMERIC, "numeric", "numeric", _VARIABLE, 1231, "N"),
    BaseType.STRUCT: _WireType(JSON, "json", "json", _VARIABLE, 199, "U"),
}
OTHERS: Final = (
    _WireType(18, "char", '"char"', 1, 1002, "Z"),
    _WireType(19, "name", "name", 64, 1003, "S"),
    _WireType(21, "int2", "smallint", 2, 1005, "N"),
    _WireType(26, "oid", "oid", 4, 1028, "N"),
    _WireType(700, "float4", "real", 4, 1021, "N"),
    _WireType(705, "unknown", "unknown", -2, 0, "X"),
    _WireType(1042, "bpchar", "character", _VARIABLE, 1014, "S"),
    _WireType(1043, "varchar", "character varying", _VARIABLE, 1015, "S"),
    _WireType(1114, "timestamp", "timestamp without time zone", 8, 1115, "D"),
    _WireType(2950, "uuid", "uuid", 16, 2951, "U"),
    _WireType(3802, "jsonb", "jsonb", _VARIABLE, 3807, "U"),
)
"""Types that clients send or ask for and no column has."""

_SENT: Final = {each.oid: SqlType(base) for base, each in PLAIN.items()} | {
    21: t.INT,
    26: t.BIGINT,
    700: t.DOUBLE,
    1114: t.TIMESTAMP,
    NUMERIC: t.decimal(t.MAX_PRECISION, 0),
    **dict.fromkeys((18, 19, 705, 1042, 1043, 2950, JSON, 3802), t.VARCHAR),
}
_NAMES: Final = {name: each.oid for each in (*PLAIN.values(), *OTHERS) for name in (each.name, each.sql)} | {
    "int": 23,
    # In SQL: `"char"`, with quotes, is PostgreSQL's own type of one byte.
    "char": 1042,
    "double": 701,
    "string": TEXT,
    "decimal": NUMERIC,
    "bytes": 17,
}
_ELEMENTS: Final = {each.array: each.oid for each in (*PLAIN.values(), *OTHERS) if each.array}
_ARRAYS: Final = {element: array for array, element in _ELEMENTS.items()}


def oid_of(sql_type: SqlType) -> int:
    """The oid of a type."""
    element = element_of(sql_type)
    if element is not None:
        return PLAIN[element.base].array
    return _wire(sql_type).oid


def element_of(sql_type: SqlType) -> SqlType | None:
    """The elements' type of what goes as an array; None for everything else."""
    if sql_type.base is not BaseType.ARRAY:
        return None
    (element,) = sql_type.args
    return None if element.is_nested or element.base is BaseType.NULL else element


def sent_type(oid: int) -> SqlType | None:
    """The type of the language that a parameter of this oid has; None for one that is not taken."""
    element = _ELEMENTS.get(oid)
    if element is not None:
        return t.array(_SENT[element])
    return _SENT.get(oid)


def oids_of(given: Sequence[int], numbers: Iterable[int]) -> list[int]:
    """The oids of the parameters that a client or a text numbers, `$1` first; UNSPECIFIED where it gave none."""
    count = max((*numbers, len(given)), default=0)
    return [*given, *[UNSPECIFIED] * (count - len(given))]


def told_oids(given: Sequence[int], types: Sequence[SqlType]) -> tuple[int, ...]:
    """What a client is told of its parameters: the oids that it gave, as pgJDBC demands, or those of the types."""
    return tuple(oid or oid_of(each) for oid, each in zip(oids_of(given, range(len(types) + 1)), types, strict=True))


def oid_named(name: str) -> int | None:
    """The oid of the type that goes by one of PostgreSQL's names (`int4`, `int4[]`, `_int4`), or one of the language's;
    None for any other."""
    plain = name.lower().removesuffix("[]").removeprefix("_")
    oid = _NAMES.get(plain)
    return oid if oid is None or plain == name.lower() else _ARRAYS.get(oid)


def type_named(name: str) -> SqlType | None:
    """The type that goes by one of PostgreSQL's names, or one of the language's; None for any other."""
    oid = oid_named(name)
    return None if oid is None else sent_type(oid)


def element_oid(oid: int) -> int | None:
    """The oid of an array's elements; None for one that is no array's."""
    return _ELEMENTS.get(oid)


def modifier_of(sql_type: SqlType) -> int:
    """Precision and scale of a numeric in PostgreSQL's one number; −1 for every other type."""
    if sql_type.base is not BaseType.DECIMAL:
        return -1
    return ((sql_type.precision << 16) | sql_type.scale) + 4


def _shown_type(sql_type: SqlType) -> str:
    """The type as PostgreSQL writes it."""
    element = element_of(sql_type)
    if element is not None:
        return f"{_shown_type(element)}[]"
    if sql_type.base is BaseType.DECIMAL:
        return f"numeric({sql_type.precision},{sql_type.scale})"
    return _wire(sql_type).sql


def columns_of(names: Sequence[str], types: Sequence[SqlType]) -> tuple[WireColumn, ...]:
    """The columns of an answer."""
    return tuple(
        WireColumn(name, each, oid_of(each), size_of(each), modifier_of(each))
        for name, each in zip(names, types, strict=True)
    )


def size_of(sql_type: SqlType) -> int:
    """Bytes of a value; −1 where they differ."""
    return _VARIABLE if sql_type.base is BaseType.ARRAY else _wire(sql_type).size


def _wire(sql_type: SqlType) -> _WireType:
    match sql_type.base:
        case BaseType.ARRAY | BaseType.MAP:
            return PLAIN[BaseType.STRUCT]
        case BaseType.NULL:
            return PLAIN[BaseType.VARCHAR]
        case base:
            return PLAIN[base]


# What the port of PostgreSQL refuses by itself, and the SQLSTATEs that its clients hear.


class SqlState(StrEnum):
    """The SQLSTATEs that clients hear: PostgreSQL's, Appendix A of its documentation."""

    CONNECTION_REFUSED = "08004"
    PROTOCOL = "08P01"
    NOT_SUPPORTED = "0A000"
    SEVERAL_ROWS = "21000"
    BAD_DATA = "22000"
    OUT_OF_RANGE = "22003"
    BAD_TIME = "22007"
    TIME_OUT_OF_RANGE = "22008"
    DIVISION_BY_ZERO = "22012"
    NO_FRAME = "22013"
    NO_PATTERN = "2201B"
    INVALID_VALUE = "22023"
    NOT_UTF8 = "22021"
    BAD_BINARY = "22P03"
    BAD_TEXT = "22P02"
    IN_TRANSACTION = "25001"
    READ_ONLY = "25006"
    NO_TRANSACTION = "25P01"
    FAILED_TRANSACTION = "25P02"
    UNKNOWN_STATEMENT = "26000"
    NOT_AUTHENTICATED = "28000"
    WRONG_PASSWORD = "28P01"  # noqa: S105 — a code
    UNKNOWN_CURSOR = "34000"
    UNKNOWN_SAVEPOINT = "3B001"
    FORBIDDEN = "42501"
    SYNTAX = "42601"
    UNKNOWN_COLUMN = "42703"
    UNKNOWN_PARAMETER = "42704"
    UNKNOWN_FUNCTION = "42883"
    UNKNOWN_TABLE = "42P01"
    CURSOR_TAKEN = "42P03"
    STATEMENT_TAKEN = "42P05"
    TYPE_MISMATCH = "42804"
    INVALID_QUERY = "42000"
    TOO_MANY_CONNECTIONS = "53300"
    TOO_LARGE = "54000"
    NOT_READY = "55000"
    SNAPSHOT_TOO_OLD = "72000"
    CANCELLED = "57014"
    CANNOT_CONNECT_NOW = "57P03"
    INTERNAL = "XX000"
    CORRUPT = "XX001"


class Refusal(StrandlineError):
    """What this port does not take: a write, an unknown setting, a message that is none. Stop: the hint says what to
    send instead.

    Args:
        state: its SQLSTATE.
        fatal: the connection ends with it.
        position: the character of the query's text, from 1, that it is about.
        routine: the function of PostgreSQL's that says it, where drivers know an error by that.
    """

    code = "postgres.refused"

    def __init__(
        self,
        state: SqlState,
        message: str,
        *,
        hint: str | None = None,
        fatal: bool = False,
        position: int | None = None,
        routine: str | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.state = state
        self.fatal = fatal
        self.position = position
        self.routine = routine

    @classmethod
    def revived(cls, message: str, hint: str | None) -> Refusal:
        return cls(SqlState.INTERNAL, message, hint=hint)
