"""The columns of a foreign Delta table in the types of the language, and where they lie in its data files.

| Delta | here |
| --- | --- |
| byte, short, integer | INT |
| float, double | DOUBLE |
| timestamp, timestamp_ntz | TIMESTAMP: a time without zone is taken as UTC |
| variant, interval, geometry, geography, void | none: a source that declares such a column is refused |

Names are in lower case, as unquoted names are everywhere in the language; Delta has no two that differ only in case.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from strandline.jobs.ingest.foreign.columns import Node
from strandline.jobs.model import types as t
from strandline.jobs.model.types import SqlType

_DECIMAL: Final = re.compile(r"decimal\((\d+),\s*(\d+)\)")
_PLAIN: Final[Mapping[str, SqlType]] = {
    "boolean": t.BOOLEAN,
    "byte": t.INT,
    "short": t.INT,
    "integer": t.INT,
    "long": t.BIGINT,
    "float": t.DOUBLE,
    "double": t.DOUBLE,
    "string": t.VARCHAR,
    "binary": t.BYTES,
    "date": t.DATE,
    "timestamp": t.TIMESTAMP,
    "timestamp_ntz": t.TIMESTAMP,
}
_PHYSICAL: Final = "delta.columnMapping.physicalName"
_ID: Final = "delta.columnMapping.id"


def columns_of(schema: str, mode: str) -> tuple[Node, ...]:
    """The columns of a `schemaString`.

    Args:
        mode: of column mapping: `none`, `name` or `id`.
    """
    return _fields(json.loads(schema)["fields"], mode)


def _fields(fields: Iterable[Mapping[str, Any]], mode: str) -> tuple[Node, ...]:
    return tuple(_field(each, mode) for each in fields)


def _field(found: Mapping[str, Any], mode: str) -> Node:
    about = found.get("metadata") or {}
    name = str(found["name"])
    physical = str(about.get(_PHYSICAL, name)) if mode != "none" else name
    number = int(about[_ID]) if mode == "id" and _ID in about else None
    return _node(name.lower(), found["type"], physical, number, mode)


def _node(name: str, found: Any, physical: str, number: int | None, mode: str) -> Node:
    if isinstance(found, str):
        decimal = _DECIMAL.fullmatch(found)
        known = t.decimal(int(decimal[1]), int(decimal[2])) if decimal else _PLAIN.get(found)
        return Node(name, known, found, physical, number)
    match found.get("type"):
        case "struct":
            inner = _fields(found["fields"], mode)
            types = [(each.name, each.type) for each in inner if each.type is not None]
            made = t.struct(*types) if types and len(types) == len(inner) else None
            return Node(name, made, "struct", physical, number, inner)
        case "array":
            element = _node("element", found["elementType"], "element", None, mode)
            made = t.array(element.type) if element.type is not None else None
            return Node(name, made, "array", physical, number, (element,))
        case "map":
            key = _node("key", found["keyType"], "key", None, mode)
            value = _node("value", found["valueType"], "value", None, mode)
            plain = key.type is not None and not key.type.is_nested
            made = t.map_of(key.type, value.type) if plain and key.type and value.type else None
            return Node(name, made, "map", physical, number, (key, value))
        case other:
            return Node(name, None, str(other), physical, number)
