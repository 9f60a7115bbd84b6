"""Stored form of a table: its columns, its key, its Delta properties; and the schema of Delta's log, written and read.

The schema is JSON, the same as Spark's. It is made of the columns, and read back as Arrow's.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from strandline.state_store.errors import CorruptState

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa


# The names of the columns that the store itself adds to rows. No visible column may have one of them.
#
# | column | part of | meaning |
# | --- | --- | --- |
# | `__state` | a stored row | the state kept beside the visible columns, as one struct |
# | `__weight` | a change | +1: the row is inserted, −1: it is retracted |
# | `_commit_version`, `_commit_timestamp` | a change | the commit that made it |
# | `__exists` | an upsert | false: the key is deleted |
# | `__old` | an upsert | the row stored before, NULL when the key was absent; its last two fields are its place: |
# | `__file`, `__position` | a stored row | its data file as a URL, and its number in that file, from 0 |

STATE = "__state"
WEIGHT = "__weight"
VERSION = "_commit_version"
TIMESTAMP = "_commit_timestamp"
EXISTS = "__exists"
OLD = "__old"
FILE = "__file"
POSITION = "__position"


# Spark's DDL of the stored columns, translated into the JSON of Delta's log without a JVM.
#
#     INT | BIGINT | STRING | …        "integer" | "long" | "string" | …
#     DECIMAL(p, s)                    "decimal(p,s)"
#     ARRAY<t>, MAP<k, v>              {"type": "array", …}, {"type": "map", …}
#     STRUCT<`name`: t, …>             {"type": "struct", "fields": […]}

_TOKEN: Final = re.compile(r"`(?:[^`]|``)*`|\w+|[<>(),:]")
_PLAIN: Final[Mapping[str, str]] = {
    "BOOLEAN": "boolean",
    "INT": "integer",
    "BIGINT": "long",
    "DOUBLE": "double",
    "STRING": "string",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp",
}
"""The plain types that our tables have."""


@lru_cache(maxsize=1 << 12)
def _schema_json(columns: tuple[tuple[str, str], ...]) -> str:
    fields = [_field(name, _parsed(spark_type)) for name, spark_type in columns]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


def schema_json(columns: Sequence[tuple[str, str]]) -> str:
    """The schema of columns, (name, Spark DDL type) each, as Delta's `schemaString`; every value may be NULL.

    Raises:
        ValueError: a type is none that our tables have.
    """
    return _schema_json(tuple(columns))


def _parsed(text: str) -> Any:
    tokens = iter([*_TOKEN.findall(text), ""])
    found = _type(tokens)
    if next(tokens):
        raise ValueError(f"'{text}' is no type of a stored column")
    return found


def _type(tokens: Iterator[str]) -> Any:
    match next(tokens).upper():
        case "ARRAY":
            _expect(tokens, "<")
            element = _type(tokens)
            _expect(tokens, ">")
            return {"type": "array", "elementType": element, "containsNull": True}
        case "MAP":
            _expect(tokens, "<")
            key = _type(tokens)
            _expect(tokens, ",")
            value = _type(tokens)
            _expect(tokens, ">")
            return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
        case "STRUCT":
            _expect(tokens, "<")
            return {"type": "struct", "fields": list(_fields(tokens))}
        case "DECIMAL":
            _expect(tokens, "(")
            precision = next(tokens)
            _expect(tokens, ",")
            scale = next(tokens)
            _expect(tokens, ")")
            return f"decimal({precision},{scale})"
        case plain if plain in _PLAIN:
            return _PLAIN[plain]
        case other:
            raise ValueError(f"'{other}' is no type of a stored column")


def _fields(tokens: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The fields of a struct, up to its `>`."""
    more = True
    while more:
        name = next(tokens)
        _expect(tokens, ":")
        plain = name[1:-1].replace("``", "`") if name.startswith("`") else name
        yield _field(plain, _type(tokens))
        more = _expect(tokens, ",", ">") == ","


def _field(name: str, found: Any) -> dict[str, Any]:
    return {"name": name, "type": found, "nullable": True, "metadata": {}}


def _expect(tokens: Iterator[str], *wanted: str) -> str:
    token = next(tokens)
    if token not in wanted:
        raise ValueError(f"'{token}' stands where {' or '.join(wanted)} must")
    return token


# Readers can resume, and tables be restored, from versions up to this age. A month: longer than any holiday's outage;
# Delta's default for removed files is 7 days, after which it refuses to read the changelog even if the files remain.
RECOVERY_HORIZON_DAYS = 30
RECOVERY_HORIZON_MS = RECOVERY_HORIZON_DAYS * 86_400_000

# With so few files each commit's checksum file holds the whole state of the table; a checkpoint every 10 commits
# (Delta's default) would slow down every tenth epoch, and readers would gain nothing.
CHECKPOINT_INTERVAL = 50


@dataclass(frozen=True)
class TableSpec:
    """The stored form of one table.

    Attributes:
        name: the table's name in the lake.
        columns: the visible columns in order, (name, Spark DDL type).
        storage: `append`: rows are only inserted. `keyed`: at most one row per key; rows change and are deleted.
        key: the columns that identify a row, `__state.<field>` for one that is not visible. Empty for an append table,
            and for a keyed one that holds a single row.
        state: the Spark DDL type of the `__state` struct, or None.
    """

    name: str
    columns: tuple[tuple[str, str], ...]
    storage: Literal["append", "keyed"]
    key: tuple[str, ...] = ()
    state: str | None = None

    @property
    def visible(self) -> tuple[str, ...]:
        """The names of the visible columns."""
        return tuple(name for name, _ in self.columns)

    @property
    def stored(self) -> tuple[tuple[str, str], ...]:
        """Every stored column, (name, Spark DDL type): the visible ones, then `__state` if there is one."""
        return (*self.columns, (STATE, self.state)) if self.state else self.columns

    @property
    def ddl(self) -> str:
        """The stored columns as a Spark schema."""
        return ", ".join(f"{quoted(name)} {spark_type}" for name, spark_type in self.stored)

    @property
    def placed_ddl(self) -> str:
        """The stored columns and the place of a row, as a Spark schema."""
        return f"{self.ddl}, `{FILE}` STRING, `{POSITION}` BIGINT"

    @property
    def indexed(self) -> tuple[str, ...]:
        """The columns of which the log holds each file's smallest and largest value: readers ask for keys."""
        return self.key if self.storage == "keyed" else self.visible

    @property
    def properties(self) -> dict[str, str]:
        """The Delta properties of the table."""
        horizon = f"interval {RECOVERY_HORIZON_DAYS} days"
        # An update marks the old row in a deletion vector; without them it would rewrite the row's file.
        feature = {"keyed": "delta.enableDeletionVectors", "append": "delta.appendOnly"}[self.storage]
        return {
            "delta.enableChangeDataFeed": "true",
            feature: "true",
            "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
            "delta.deletedFileRetentionDuration": horizon,
            "delta.logRetentionDuration": horizon,
        }


def quoted(path: str) -> str:
    """A column, or a dotted path into `__state`, quoted for Spark SQL."""
    head, dot, rest = path.partition(".")
    parts = (head, rest) if dot and head == STATE else (path,)
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


ADDED: Final = "strandline.added"
"""Stands in the metadata of a column that the table was given later: files from before do not have it."""

_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")


@cache
def _plain_arrow() -> Mapping[str, pa.DataType]:
    """{type of the schema: Arrow's}, of those without parameters."""
    import pyarrow as pa

    return {
        "boolean": pa.bool_(),
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }


@lru_cache(maxsize=1 << 12)
def arrow_schema(text: str) -> pa.Schema:
    """The stored columns, from the `schemaString` of a `metaData` action.

    Raises:
        CorruptState: it is no such text, or has a type that is not known here (VARIANT, INTERVAL).
    """
    import pyarrow as pa

    try:
        return pa.schema(_arrow_fields(json.loads(text)))
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState(f"the schema of a table does not read back: {error}") from error


def columns_of(text: str) -> list[str]:
    """The names of the stored columns, from a `schemaString`. Raises CorruptState: it is no such text."""
    try:
        return [field["name"] for field in json.loads(text)["fields"]]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptState(f"the schema of a table does not read back: {error}") from error


def added_columns(text: str) -> list[str]:
    """The names of the columns that files may lack, from a `schemaString`. Raises CorruptState: it is no such text."""
    if ADDED not in text:
        return []
    try:
        return [field["name"] for field in json.loads(text)["fields"] if field["metadata"].get(ADDED)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptState(f"the schema of a table does not read back: {error}") from error


def widened(present: str, wanted: str) -> str:
    """The `schemaString` of a table that gets further columns.

    Args:
        present: of the table.
        wanted: of all columns that it is to have.

    Raises:
        CorruptState: a column would go, or have another type.
    """
    before = {field["name"]: field for field in json.loads(present)["fields"]}
    after = json.loads(wanted)
    types = {field["name"]: field["type"] for field in after["fields"]}
    lost = next((name for name, field in before.items() if types.get(name) != field["type"]), None)
    if lost is not None:
        raise CorruptState(f"the column '{lost}' would go, or have another type")
    after["fields"] = [before.get(f["name"]) or {**f, "metadata": {ADDED: True}} for f in after["fields"]]
    return json.dumps(after, separators=(",", ":"))


def _arrow_fields(struct: Mapping[str, Any]) -> list[pa.Field]:
    import pyarrow as pa

    return [pa.field(field["name"], _arrow_type(field["type"]), field["nullable"]) for field in struct["fields"]]


def _arrow_type(found: Any) -> pa.DataType:
    import pyarrow as pa

    if isinstance(found, str):
        decimal = _DECIMAL.fullmatch(found)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _plain_arrow()[found]
    match found["type"]:
        case "struct":
            return pa.struct(_arrow_fields(found))
        case "array":
            return pa.list_(pa.field("element", _arrow_type(found["elementType"]), found["containsNull"]))
        case "map":
            value = pa.field("value", _arrow_type(found["valueType"]), found["valueContainsNull"])
            return pa.map_(pa.field("key", _arrow_type(found["keyType"]), nullable=False), value)
        case other:
            raise ValueError(f"unknown type '{other}'")
