"""Arrow columns from Python values: a whole column at once where every value already has the column's type; and from
parts of a run of records, some of which were read by columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.jobs.ingest.formats.coerce import FIRST_MICROSECOND, LAST_MICROSECOND, Misfit, coerce
from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from strandline.jobs.model.definitions import Column

Errors = dict[int, str]
"""{row of the run of records: its first error}."""

# Python types whose values Arrow takes for a base type without changing them. It would also take 1.5 for an integer and
# True for a double, so the types are checked first.
_NONE = type(None)
_PLAIN: dict[BaseType, frozenset[type]] = {
    BaseType.BOOLEAN: frozenset({bool, _NONE}),
    BaseType.INT: frozenset({int, _NONE}),
    BaseType.BIGINT: frozenset({int, _NONE}),
    BaseType.DOUBLE: frozenset({int, float, _NONE}),
    BaseType.VARCHAR: frozenset({str, _NONE}),
}
_MILLISECONDS = frozenset({int, _NONE})


def build(column: Column, values: Sequence[object], errors: Errors) -> pa.Array:
    """The column's Arrow array, one entry per value. A value that does not fit is null, and noted in `errors`."""
    base = column.type.base
    found = set(map(type, values))
    try:
        if found <= _PLAIN.get(base, frozenset()):
            return pa.array(values, type=column.type.arrow())
        if base is BaseType.TIMESTAMP and found <= _MILLISECONDS:
            milliseconds = pa.array(values, type=pa.int64())
            if _are_moments(milliseconds):
                return milliseconds.cast(pa.timestamp("ms", tz="UTC")).cast(column.type.arrow())
    except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
        # One of the values is out of range: find it below.
        pass
    return pa.array(_each(column, values, errors), type=column.type.arrow())


def _are_moments(milliseconds: pa.Array) -> bool:
    """True if none is before the year 1, or after 9999."""
    found = pc.min_max(milliseconds).as_py()
    return found["min"] is None or (
        found["min"] * 1000 >= FIRST_MICROSECOND and found["max"] * 1000 <= LAST_MICROSECOND
    )


def nulls(column: Column, count: int) -> pa.Array:
    return pa.nulls(count, type=column.type.arrow())


def _each(column: Column, values: Sequence[object], errors: Errors) -> list[object]:
    fitted: list[object] = []
    for row, value in enumerate(values):
        try:
            fitted.append(coerce(value, column.type))
        except Misfit as error:
            errors.setdefault(row, f"column '{column.name}': {error}")
            fitted.append(None)
    return fitted


def are_texts(joined: pa.Array, payloads: Sequence[bytes | None]) -> NDArray[np.bool_]:
    """Which payloads are UTF-8. Args: `joined`: the same, in Arrow form."""
    try:
        joined.cast(pa.string())
    except pa.ArrowInvalid:
        return np.array([_is_utf8(payload) for payload in payloads])
    return np.ones(len(payloads), dtype=bool)


def _is_utf8(payload: bytes | None) -> bool:
    try:
        return payload is not None and payload.decode() is not None
    except UnicodeDecodeError:
        return False


@dataclass(frozen=True)
class Part:
    """Records of a run that were read together: their rows, and the wanted columns."""

    rows: NDArray[np.intp]
    columns: list[pa.Array]


def joined(
    parts: Sequence[Part],
    payloads: Sequence[bytes | None],
    decode_each: Callable[[Sequence[bytes | None], Errors], list[pa.Array]],
    errors: Errors,
) -> list[pa.Array]:
    """The columns of a run: those of its parts, and of the records that are in none, which are read one by one."""
    if not parts:
        return decode_each(payloads, errors)
    unread = np.ones(len(payloads), dtype=bool)
    for part in parts:
        unread[part.rows] = False
    rows, arrays = [part.rows for part in parts], [part.columns for part in parts]
    left: list[int] = np.flatnonzero(unread).tolist()
    if left:
        found: Errors = {}
        rows.append(np.array(left))
        arrays.append(decode_each([payloads[row] for row in left], found))
        errors.update((left[place], what) for place, what in found.items() if left[place] not in errors)
    if len(arrays) == 1:
        return arrays[0]
    places = pa.array(np.argsort(np.concatenate(rows), kind="stable"))
    return [pa.concat_arrays(pieces).take(places) for pieces in zip(*arrays, strict=True)]
