"""The values of a foreign table's data files as columns of the language's types: renamed, widened, filled with NULL.

A file has the columns that the table had when it was written, under physical names or field numbers where columns are
mapped, in types that may have been widened since. What the log says of a partition stands for a column of its files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from strandline.jobs.ingest.formats.coerce import Misfit
from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType, SqlType

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from strandline.jobs.ingest.foreign.columns import Node

_FIELD_ID = b"PARQUET:field_id"


def found_in(schema: pa.Schema | pa.StructType, node: Node) -> pa.Field | None:
    """The field of a file, or of a struct in it, that holds a column; None where the file has none."""
    fields = [schema.field(place) for place in range(len(schema))]
    if node.id is not None:
        numbers = ((each, (each.metadata or {}).get(_FIELD_ID)) for each in fields)
        found = next((each for each, number in numbers if number is not None and int(number) == node.id), None)
        if found is not None:
            return found
    named = next((each for each in fields if each.name == node.physical), None)
    return named or next((each for each in fields if each.name.lower() == node.physical.lower()), None)


def conformed(values: pa.Array, node: Node) -> pa.Array:
    """The values of a file's column as those of the table's column.

    Raises:
        Misfit: they are of a type that the column has never had.
    """
    assert node.type is not None, "columns of other types are not read"
    match node.type.base:
        case BaseType.STRUCT:
            return _struct(values, node.inner, node.type)
        case BaseType.ARRAY:
            return _array(values, node.inner[0], node.type)
        case BaseType.MAP:
            return _map(values, node.inner[0], node.inner[1], node.type)
        case _:
            return as_type(values, node.type)


def as_type(values: pa.Array, wanted: SqlType) -> pa.Array:
    """The values in a type that is the same or wider; fields that a struct lacks are NULL, others are left out.

    Raises:
        Misfit: not all values of their type are values of the wanted one.
    """
    target = wanted.arrow()
    if values.type == target:
        return values
    match wanted.base:
        case BaseType.STRUCT if pa.types.is_struct(values.type):
            names = {values.type.field(place).name: place for place in range(values.type.num_fields)}
            parts = [
                as_type(_child(values, names[name]), inner) if name in names else pa.nulls(len(values), inner.arrow())
                for name, inner in wanted.fields
            ]
            return pa.StructArray.from_arrays(parts, fields=list(target), mask=values.is_null())
        case BaseType.ARRAY if pa.types.is_list(values.type):
            return _list_of(values, as_type(values.flatten(), wanted.args[0]), target)
        case BaseType.MAP if pa.types.is_map(values.type):
            keys, items = _entries(values)
            return _map_of(values, as_type(keys, wanted.args[0]), as_type(items, wanted.args[1]), target)
    if not _widens(values.type, wanted):
        raise Misfit(f"{values.type} is not {wanted}")
    try:
        return _flat(values, target)
    except pa.ArrowInvalid as error:
        raise Misfit(str(error)) from error


def partition_values(text: str | None, wanted: SqlType, rows: int) -> pa.Array:
    """A column of which the log, or a folder's name, has the one value as text.

    Raises:
        Misfit: the text is no value of the column's type.
    """
    target = wanted.arrow()
    return pa.repeat(_scalar(text, wanted, target), rows) if text else pa.nulls(rows, target)


def _scalar(text: str, wanted: SqlType, target: pa.DataType) -> pa.Scalar:
    try:
        if wanted.base is BaseType.BOOLEAN:
            return pa.scalar(text.lower() == "true", target)
        if wanted.base is BaseType.BYTES:
            return pa.scalar(text.encode("latin-1"), target)
        if wanted.base is BaseType.TIMESTAMP:
            return pa.scalar(_instant(text), pa.string()).cast(pa.timestamp("us")).cast(target)
        return pa.scalar(text, pa.string()).cast(target)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        raise Misfit(f"'{text}' is not {wanted}") from error


def _instant(text: str) -> str:
    """A time as the log has it (`2026-01-02 03:04:05.5`, or ISO 8601 with Z) without its zone, which is UTC."""
    return text.removesuffix("Z").replace("T", " ")


def _struct(values: pa.Array, inner: Sequence[Node], wanted: SqlType) -> pa.Array:
    if not pa.types.is_struct(values.type):
        raise Misfit(f"{values.type} is not {wanted}")
    parts = []
    for node in inner:
        assert node.type is not None, "the struct has a type, so each field has"
        found = found_in(values.type, node)
        if found is None:
            parts.append(pa.nulls(len(values), node.type.arrow()))
        else:
            parts.append(conformed(_child(values, values.type.get_field_index(found.name)), node))
    return pa.StructArray.from_arrays(parts, fields=list(wanted.arrow()), mask=values.is_null())


def _array(values: pa.Array, element: Node, wanted: SqlType) -> pa.Array:
    if not (pa.types.is_list(values.type) or pa.types.is_large_list(values.type)):
        raise Misfit(f"{values.type} is not {wanted}")
    return _list_of(values, conformed(values.flatten(), element), wanted.arrow())


def _map(values: pa.Array, key: Node, value: Node, wanted: SqlType) -> pa.Array:
    if not pa.types.is_map(values.type):
        raise Misfit(f"{values.type} is not {wanted}")
    keys, items = _entries(values)
    return _map_of(values, conformed(keys, key), conformed(items, value), wanted.arrow())


def _child(values: pa.Array, place: int) -> pa.Array:
    """A field of a struct; NULL where the struct is."""
    return values.flatten()[place]


def _list_of(values: pa.Array, elements: pa.Array, target: pa.DataType) -> pa.Array:
    """The lists of `values` with other elements: those of `values.flatten()`, one by one."""
    return pa.ListArray.from_arrays(_offsets(values), elements, type=target, mask=_mask(values))


def _entries(values: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Keys and items of all maps, as far as these are not NULL."""
    kept = values.filter(values.is_valid())
    offsets = kept.offsets.to_pylist() if len(kept) else [0, 0]
    first, last = offsets[0], offsets[-1]
    return kept.keys.slice(first, last - first), kept.items.slice(first, last - first)


def _map_of(values: pa.Array, keys: pa.Array, items: pa.Array, target: pa.DataType) -> pa.Array:
    return pa.MapArray.from_arrays(_offsets(values), keys, items, type=target, mask=_mask(values))


def _offsets(values: pa.Array) -> pa.Array:
    """Where each list or map begins once those that are NULL are empty; one more than there are values."""
    lengths = np.where(values.is_valid().to_numpy(zero_copy_only=False), np.diff(values.offsets.to_numpy()), 0)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _mask(values: pa.Array) -> pa.Array | None:
    return values.is_null() if values.null_count else None


_WIDER = {
    BaseType.INT: (pa.types.is_int8, pa.types.is_int16, pa.types.is_int32),
    BaseType.BIGINT: (pa.types.is_signed_integer,),
    BaseType.DOUBLE: (pa.types.is_floating, pa.types.is_int8, pa.types.is_int16, pa.types.is_int32),
    BaseType.VARCHAR: (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    BaseType.BYTES: (
        *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
        pa.types.is_fixed_size_binary,
    ),
    BaseType.BOOLEAN: (pa.types.is_boolean,),
    BaseType.DATE: (pa.types.is_date32,),
    BaseType.TIMESTAMP: (pa.types.is_timestamp, pa.types.is_date32),
}


def _widens(found: pa.DataType, wanted: SqlType) -> bool:
    if pa.types.is_dictionary(found):
        return _widens(found.value_type, wanted)
    if wanted.base is BaseType.DECIMAL:
        if pa.types.is_decimal(found):
            whole = wanted.precision - wanted.scale
            return bool(found.scale <= wanted.scale and found.precision - found.scale <= whole)
        digits = {8: 3, 16: 5, 32: 10, 64: 20}.get(found.bit_width, 99) if pa.types.is_signed_integer(found) else 99
        return digits <= wanted.precision - wanted.scale
    return any(each(found) for each in _WIDER.get(wanted.base, ()))


def _flat(values: pa.Array, target: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if pa.types.is_timestamp(target):
        if pa.types.is_date32(values.type):
            return values.cast(pa.timestamp("us")).cast(target)
        # A time without zone is UTC; INT96 is read in nanoseconds, of which Delta keeps no more than microseconds.
        return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(target)
    if pa.types.is_integer(values.type) and pa.types.is_decimal(target):
        return values.cast(pa.decimal128(20, 0)).cast(target)
    return values.cast(target)


def named(columns: Iterable[Node]) -> dict[str, t.SqlType]:
    """{column: its type} of the columns that the language has types for."""
    return {each.name: each.type for each in columns if each.type is not None}


def path_of(text: str) -> str:
    """The path in an action, which is an encoded URL."""
    return unquote(text)
