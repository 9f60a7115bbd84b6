"""The data files of a table of others: their columns in the types of the language, and their rows as such columns:
renamed, widened, filled with NULL.

| Arrow | here |
| --- | --- |
| int8, int16, int32 | INT |
| float, double | DOUBLE |
| timestamp with or without zone | TIMESTAMP: a time without zone is taken as UTC |
| unsigned numbers, times of day, durations, null, … | none: a source that declares such a column is refused |

A file has the columns that the table had when it was written, under physical names or field numbers where columns are
mapped, in types that may have been widened since. What the log says of a partition stands for a column of its files.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from strandline.jobs.ingest.formats.coerce import Misfit
from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType, SqlType
from strandline.state_store.row_lanes import row_lanes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path
    from typing import IO, Any

    from numpy.typing import NDArray


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


def partition_values(text: str | None, wanted: SqlType, rows: int, *, single: bool = False) -> pa.Array:
    """A column of which the log, or a folder's name, has the one value as text.

    Args:
        single: a DOUBLE is one of 32 bits over there, as those in its files are.

    Raises:
        Misfit: the text is no value of the column's type.
    """
    target = wanted.arrow()
    if not text:
        return pa.nulls(rows, target)
    found = _scalar(text, wanted, pa.float32() if single else target)
    return pa.repeat(found.cast(target), rows)


def _scalar(text: str, wanted: SqlType, target: pa.DataType) -> pa.Scalar:
    try:
        if wanted.base is BaseType.BOOLEAN:
            return pa.scalar(text.lower() == "true", target)
        if wanted.base is BaseType.BYTES:
            return pa.scalar(text.encode(), target)
        if wanted.base is BaseType.TIMESTAMP:
            return pa.scalar(_instant(text), pa.string()).cast(pa.timestamp("us")).cast(target)
        return pa.scalar(text, pa.string()).cast(target)
    except pa.ArrowInvalid as error:
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
        # A time without zone is UTC; of nanoseconds no more than microseconds are kept.
        return values.cast(pa.timestamp("us", values.type.tz), safe=False).cast(target)
    if pa.types.is_integer(values.type) and pa.types.is_decimal(target):
        return values.cast(pa.decimal128(20, 0)).cast(target)
    return values.cast(target)


def named(columns: Iterable[Node]) -> dict[str, t.SqlType]:
    """{column: its type} of the columns that the language has types for."""
    return {each.name: each.type for each in columns if each.type is not None}


def lost_names(before: Sequence[Node], after: Sequence[Node], identity: Callable[[Node], object]) -> frozenset[str]:
    """The columns that are no more, or are others of the same name, or have a field within them of which that holds.

    Args:
        identity: what tells a column, or field, from another one of its name.
    """
    now = {node.name: node for node in after}
    return frozenset(
        node.name
        for node in before
        if (found := now.get(node.name)) is None
        or identity(found) != identity(node)
        or lost_names(node.inner, found.inner, identity)
    )


def open_parquet(source: Path | IO[Any]) -> pq.ParquetFile:
    """A data file. Its pages are proven; the times that older writers store in twelve bytes (INT96) are read in
    microseconds, since those of 64 bits in nanoseconds end in 2262, and a year 9999 would be another one.

    Raises:
        OSError, pa.ArrowException: it is none.
    """
    return pq.ParquetFile(source, page_checksum_verification=True, coerce_int96_timestamp_unit="us")


def path_of(text: str) -> str:
    """The path in an action, which is an encoded URL."""
    return unquote(text)


def without_shared(gone: pa.Table, came: pa.Table) -> tuple[pa.Table, pa.Table]:
    """What goes and what comes, without the rows that they share: those with the same values, in columns of the same
    types."""
    if gone.schema != came.schema or not gone.num_rows or not came.num_rows:
        return gone, came
    keys = np.concatenate([_row_hashes(gone), _row_hashes(came)], axis=1)
    order = np.lexsort((keys[1], keys[0]))
    sign = np.concatenate([np.full(gone.num_rows, -1), np.full(came.num_rows, 1)])[order]
    ordered = keys[:, order]
    starts = np.flatnonzero(np.r_[True, (ordered[:, 1:] != ordered[:, :-1]).any(axis=0)])
    sizes = np.diff(np.r_[starts, len(order)])
    # Of each group of equal rows, those of the side that has fewer are all left out, and as many of the other.
    net = np.repeat(np.add.reduceat(sign, starts), sizes)
    kept = np.zeros(len(order), np.bool_)
    for weight in (-1, 1):
        of_side = sign == weight
        running = np.cumsum(of_side)
        before = np.repeat((running - of_side)[starts], sizes)
        kept |= of_side & (running - before <= weight * net)
    mask = np.zeros(len(order), np.bool_)
    mask[order] = kept
    return gone.filter(pa.array(mask[: gone.num_rows])), came.filter(pa.array(mask[gone.num_rows :]))


def _row_hashes(rows: pa.Table) -> NDArray[np.uint64]:
    """The two lanes of each row (`state_store.digest`), of shape (2, rows)."""
    parts = [row_lanes(batch) for batch in rows.to_batches() if batch.num_rows]
    return np.concatenate(parts, axis=1) if parts else np.zeros((2, 0), np.uint64)
