"""Python values of Arrow's columns, also where Python has none: its years end at 9999, those of instants do not.

The end of a window, or a sum of an instant and an interval, may lie behind Python's last year. Such a value is
computed, stored and compared like any other; where it has to become a Python value, it becomes its text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pyarrow as pa

Maps = Literal["lossy", "strict"] | None


def python_values(column: pa.Array | pa.ChunkedArray, maps: Maps = "lossy") -> list[Any]:
    """The values as Arrow's `to_pylist` gives them; one with an instant that Python has not is text.

    Within an ARRAY, MAP or STRUCT with such an instant all instants of that value are texts.

    Args:
        maps: `to_pylist`'s `maps_as_pydicts`; a MAP is a dict unless it says otherwise.
    """
    try:
        return list(column.to_pylist(maps_as_pydicts=maps))
    except OverflowError:
        return [_value(scalar, maps) for scalar in column]


def instant_text(count: int, arrow_type: pa.DataType) -> str:
    """The text of a DATE or TIMESTAMP that Python has not.

    Args:
        count: days or microseconds since 1970.
    """
    import pyarrow as pa

    counted = pa.scalar(count, pa.int32() if pa.types.is_date32(arrow_type) else pa.int64())
    return str(counted.cast(arrow_type).cast(pa.string()))


def _value(scalar: pa.Scalar, maps: Maps) -> Any:
    try:
        return scalar.as_py(maps_as_pydicts=maps)
    except OverflowError:
        return scalar.cast(_with_texts(scalar.type)).as_py(maps_as_pydicts=maps)


def _with_texts(found: pa.DataType) -> pa.DataType:
    """The type with texts in the place of instants and dates."""
    import pyarrow as pa

    if pa.types.is_timestamp(found) or pa.types.is_date(found):
        return pa.string()
    if pa.types.is_struct(found):
        return pa.struct(_fields(found.field(place) for place in range(found.num_fields)))
    if pa.types.is_map(found):
        return pa.map_(*_fields((found.key_field, found.item_field)))
    if pa.types.is_list(found):
        return pa.list_(*_fields([found.value_field]))
    return found


def _fields(fields: Iterable[pa.Field]) -> list[pa.Field]:
    return [field.with_type(_with_texts(field.type)) for field in fields]
