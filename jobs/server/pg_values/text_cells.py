"""A column's values in the text format, as bytes: what PostgreSQL prints with `DateStyle = ISO`, `TimeZone = UTC`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.serve.format import to_json
from strandline.jobs.serve.values import python_rows
from strandline.jobs.server.pg_values.wire_types import element_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

_PLAIN_SCALE: Final = 6
"""Arrow writes a decimal of a larger scale with an exponent when it is small."""
_QUOTED: Final = frozenset('{}",\\ \t\n\r\v\f')
"""An array's element that has one of these stands in quotes."""


def text_cells(values: pa.Array, sql_type: SqlType) -> pa.Array:
    """The values as a binary array; null for NULL."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match sql_type.base:
        case BaseType.BOOLEAN:
            found = pc.if_else(values, "t", "f")
        case BaseType.DOUBLE:
            found = _doubles(values)
        case BaseType.TIME:
            found = pc.cast(pc.cast(values, pa.time32("ms")), pa.string())
        case BaseType.TIMESTAMP:
            naive = pc.cast(pc.cast(values, pa.timestamp("us")), pa.string())
            found = pc.binary_join_element_wise(pc.replace_substring_regex(naive, r"\.?0+$", ""), "+00", "")
        case BaseType.DECIMAL if sql_type.scale > _PLAIN_SCALE:
            found = _each(None if value is None else f"{value:f}" for value in values.to_pylist())
        case BaseType.BYTES:
            found = _each(None if value is None else f"\\x{value.hex()}" for value in values.to_pylist())
        case BaseType.ARRAY if (element := element_of(sql_type)) is not None:
            found = _each(_arrays(values, element))
        case BaseType.ARRAY | BaseType.MAP | BaseType.STRUCT:
            rows = python_rows(pa.table([values], names=["value"]), [sql_type])
            found = _each(None if value is None else to_json(value) for (value,) in rows)
        case _:
            found = values
    return pc.cast(pc.cast(found, pa.string()), pa.binary())


def _doubles(values: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    endless = pc.if_else(pc.greater(values, 0.0), "Infinity", "-Infinity")
    odd = pc.if_else(pc.is_nan(values), "NaN", endless)
    return pc.if_else(pc.is_finite(values), pc.cast(values, pa.string()), odd)


def _each(texts: Iterable[str | None]) -> pa.Array:
    import pyarrow as pa

    return pa.array(texts, pa.string())


def _arrays(values: pa.Array, element: SqlType) -> Iterable[str | None]:
    texts = iter(text_cells(values.flatten(), element).to_pylist())
    for size in values.value_lengths().to_pylist():
        yield None if size is None else "{" + ",".join(_element(next(texts)) for _ in range(size)) + "}"


def _element(value: Any) -> str:
    if value is None:
        return "NULL"
    text: str = value.decode()
    if text and text.upper() != "NULL" and _QUOTED.isdisjoint(text):
        return text
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
