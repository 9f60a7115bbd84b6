"""The columns of a table in Arrow form, from the schema in Delta's log (JSON, the same as Spark's)."""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.state_store.errors import CorruptState

if TYPE_CHECKING:
    from collections.abc import Mapping

ADDED: Final = "strandline.added"
"""Stands in the metadata of a column that the table was given later: files from before do not have it."""

_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_PLAIN: Final[Mapping[str, pa.DataType]] = {
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
    try:
        return pa.schema(_fields(json.loads(text)))
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


def _fields(struct: Mapping[str, Any]) -> list[pa.Field]:
    return [pa.field(field["name"], _type(field["type"]), field["nullable"]) for field in struct["fields"]]


def _type(found: Any) -> pa.DataType:
    if isinstance(found, str):
        decimal = _DECIMAL.fullmatch(found)
        return pa.decimal128(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN[found]
    match found["type"]:
        case "struct":
            return pa.struct(_fields(found))
        case "array":
            return pa.list_(pa.field("element", _type(found["elementType"]), found["containsNull"]))
        case "map":
            value = pa.field("value", _type(found["valueType"]), found["valueContainsNull"])
            return pa.map_(pa.field("key", _type(found["keyType"]), nullable=False), value)
        case other:
            raise ValueError(f"unknown type '{other}'")
