"""The columns of a table of others, and those of a Parquet file in the types of the language.

| Arrow | here |
| --- | --- |
| int8, int16, int32 | INT |
| float, double | DOUBLE |
| timestamp with or without zone | TIMESTAMP: a time without zone is taken as UTC |
| unsigned numbers, times of day, durations, null, … | none: a source that declares such a column is refused |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from strandline.jobs.model import types as t
from strandline.jobs.model.types import SqlType

_PLAIN: Final[tuple[tuple[Callable[[pa.DataType], bool], SqlType], ...]] = (
    (pa.types.is_boolean, t.BOOLEAN),
    (pa.types.is_int64, t.BIGINT),
    (pa.types.is_signed_integer, t.INT),
    (pa.types.is_floating, t.DOUBLE),
    (pa.types.is_string, t.VARCHAR),
    (pa.types.is_large_string, t.VARCHAR),
    (pa.types.is_string_view, t.VARCHAR),
    (pa.types.is_binary, t.BYTES),
    (pa.types.is_large_binary, t.BYTES),
    (pa.types.is_binary_view, t.BYTES),
    (pa.types.is_fixed_size_binary, t.BYTES),
    (pa.types.is_date32, t.DATE),
    (pa.types.is_timestamp, t.TIMESTAMP),
)


@dataclass(frozen=True)
class Node:
    """A column, a field of a struct, or the inside of an array or map, and where it lies in a data file.

    Attributes:
        name: lower case.
        type: None where the language has none for it.
        said: its type as the schema over there says it, for messages.
        physical: the name in data files.
        id: the number of its field in data files, where columns are mapped by id.
        inner: of a struct its fields; of an array its element; of a map its key and value.
    """

    name: str
    type: SqlType | None
    said: str
    physical: str
    id: int | None = None
    inner: tuple[Node, ...] = field(default=())


PATH: Final = "text in its path"
"""What the type of a column is over there that only the names of folders say."""


def columns_in(schema: pa.Schema) -> tuple[Node, ...]:
    """The columns of a file, in order; of names that differ only in case the first."""
    found: dict[str, Node] = {}
    for each in schema:
        found.setdefault(each.name.lower(), _node(each.name, each.type))
    return tuple(found.values())


def _node(name: str, found: pa.DataType) -> Node:
    lower = name.lower()
    if pa.types.is_dictionary(found):
        return _node(name, found.value_type)
    if pa.types.is_decimal(found):
        fits = found.precision <= 38 and found.scale >= 0
        return Node(lower, t.decimal(found.precision, found.scale) if fits else None, str(found), name)
    if pa.types.is_struct(found):
        inner = tuple(_node(each.name, each.type) for each in found.fields)
        types = [(each.name, each.type) for each in inner if each.type is not None]
        made = t.struct(*types) if types and len(types) == len(inner) else None
        return Node(lower, made, "struct", name, inner=inner)
    if pa.types.is_map(found):
        key, value = _node("key", found.key_type), _node("value", found.item_type)
        plain = key.type is not None and not key.type.is_nested
        made = t.map_of(key.type, value.type) if plain and key.type and value.type else None
        return Node(lower, made, "map", name, inner=(key, value))
    if pa.types.is_list(found) or pa.types.is_large_list(found):
        element = _node("element", found.value_type)
        made = t.array(element.type) if element.type is not None else None
        return Node(lower, made, "array", name, inner=(element,))
    return Node(lower, next((own for fits, own in _PLAIN if fits(found)), None), str(found), name)
