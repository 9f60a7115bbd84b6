"""Stored form of a table: its columns, its key, their schema as Delta's JSON, and the table's Delta properties."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


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
