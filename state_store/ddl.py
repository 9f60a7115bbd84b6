"""The stored columns of a table, from Spark's DDL into the JSON that Delta's log has: without a JVM to parse it.

INT | BIGINT | STRING | …        "integer" | "long" | "string" | …
DECIMAL(p, s)                    "decimal(p,s)"
ARRAY<t>, MAP<k, v>              {"type": "array", …}, {"type": "map", …}
STRUCT<`name`: t, …>             {"type": "struct", "fields": […]}
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


def schema_json(columns: Sequence[tuple[str, str]]) -> str:
    """The schema of columns, (name, Spark DDL type) each, as Delta's `schemaString`; every value may be NULL.

    Raises:
        ValueError: a type is none that our tables have.
    """
    fields = [_field(name, _parsed(spark_type)) for name, spark_type in columns]
    return json.dumps({"type": "struct", "fields": fields}, separators=(",", ":"))


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
