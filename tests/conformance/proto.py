"""What PROTOBUF does to NULL: version 3 of it has none for plain values; what is not there reads as a default.

| type | default |
| --- | --- |
| INT, BIGINT, DOUBLE, BOOLEAN, VARCHAR, BYTES | 0, false, empty |
| ARRAY, MAP | empty |
| STRUCT, DECIMAL, DATE, TIME, TIMESTAMP | NULL: these are messages, and a message can be missing |

So records of such a topic are read with defaults, and records that must come out are compared without telling a
default from NULL: the table of the lake keeps the NULL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from strandline.jobs.ingest.formats.coerce import find
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.types import BaseType, SqlType

_DEFAULTS: Mapping[BaseType, object] = {
    BaseType.INT: 0,
    BaseType.BIGINT: 0,
    BaseType.DOUBLE: 0,
    BaseType.BOOLEAN: False,
    BaseType.VARCHAR: "",
    BaseType.BYTES: "",
    BaseType.ARRAY: [],
    BaseType.MAP: {},
}


def with_defaults(payload: Any, columns: Sequence[Column]) -> Any:
    """An object as a reader of PROTOBUF gets it: with a value for every field that can have one."""
    if not isinstance(payload, Mapping):
        return payload
    return _filled(payload, tuple((column.name, column.type) for column in columns))


def without_defaults(value: Any, kind: SqlType) -> Any:
    """A canonical value, NULL where it is the default."""
    if kind.base is BaseType.STRUCT and isinstance(value, Mapping):
        return {name: without_defaults(value[name], inner) for name, inner in kind.fields}
    return None if kind.base in _DEFAULTS and not value else value


def _filled(payload: Mapping[str, Any], fields: Sequence[tuple[str, SqlType]]) -> dict[str, Any]:
    filled: dict[str, Any] = {}
    for name, kind in fields:
        found = find(name, payload)
        value = None if found is None else payload[found]
        if value is None:
            value = _DEFAULTS.get(kind.base)
        elif kind.base is BaseType.STRUCT and isinstance(value, Mapping):
            value = _filled(value, kind.fields)
        filled[name] = value
    return filled
