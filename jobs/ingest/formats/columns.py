"""Arrow columns of decoded values: from Python values, and from texts of JSON and DELIMITED that Arrow itself may read.

Python values become a column at once where every one already has the column's type. A run of records, some of which
were read by columns, is joined from parts.

Arrow reads the texts that it reads as `formats.coerce` reads the values that they are, and nothing that is not certain:
a number must be written as its digits are, or as a pattern (RE2) says that both read alike.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from strandline.jobs.ingest.formats.coerce import FIRST_MICROSECOND, LAST_MICROSECOND, Misfit, coerce, find
from strandline.jobs.model import types as t
from strandline.jobs.model.types import BaseType, SqlType

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

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


Truth = NDArray[np.bool_]
Pieces = Callable[[int], pa.Array]
"""From the number of a value to the texts of it in all records."""
Read = Callable[[pa.Array, Truth], pa.Array]
"""From texts to a column; what is not read with certainty is marked as not good, and is anything in the column."""

_INT: Final = r"(?:0|-?[1-9][0-9]{0,8})"
_BIGINT: Final = r"(?:0|-?[1-9][0-9]{0,17})"
_DOUBLE: Final = (
    r"(?:0|-?[1-9][0-9]{0,17}|-?(?:0|[1-9][0-9]{0,17})\.[0-9]{1,20}(?:[eE][+-]?[0-9]{1,2})?"
    r"|-?[1-9][0-9]{0,17}[eE][+-]?[0-9]{1,2})"
)
_DAY: Final = r"[12][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
_MOMENT: Final = _DAY + r"[T ](?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{3}|\.[0-9]{6})?"
_DAYS: Final = 100_000
"""From 1970, either way: within the years that there are."""


class Unreadable(Exception):
    """Records that look like this one are not read by columns."""


@dataclass(frozen=True)
class Leaf:
    """A value that is a column, or a field of one."""

    slot: int
    type: SqlType
    read_texts: Read

    def read(self, pieces: Pieces, good: Truth) -> pa.Array:
        """The column; rows that are not certain are taken out of `good`."""
        found = self.read_texts(pieces(self.slot), good)
        return found if found.type == self.type.arrow() else found.cast(self.type.arrow())

    def leaves(self) -> Iterator[Leaf]:
        yield self


@dataclass(frozen=True)
class Absent:
    """A column that the records do not have."""

    type: SqlType

    def read(self, _pieces: Pieces, good: Truth) -> pa.Array:
        return pa.nulls(len(good), self.type.arrow())

    def leaves(self) -> Iterator[Leaf]:
        return iter(())


@dataclass(frozen=True)
class Members:
    """A STRUCT, by its fields."""

    type: SqlType
    fields: tuple[Value, ...]

    def read(self, pieces: Pieces, good: Truth) -> pa.Array:
        arrays = [each.read(pieces, good) for each in self.fields]
        return pa.StructArray.from_arrays(arrays, fields=list(self.type.arrow()))

    def leaves(self) -> Iterator[Leaf]:
        return (leaf for each in self.fields for leaf in each.leaves())


Value = Leaf | Absent | Members


def nested(
    name: str,
    document: Mapping[str, object],
    wanted: SqlType,
    path: tuple[str, ...],
    places: Mapping[tuple[str, ...], int],
) -> Value:
    """How a member of an object is read.

    Args:
        document: the object, as an example.
        path: the names of the members that lead to it.
        places: {path: number} of the values.

    Raises:
        Unreadable: it is not read by columns.
    """
    field = find(name, document)
    if field is None:
        return Absent(wanted)
    value, at = document[field], (*path, field)
    if not isinstance(value, dict):
        return Leaf(places[at], wanted, leaf(value, wanted))
    if wanted.base is not BaseType.STRUCT:
        raise Unreadable
    return Members(wanted, tuple(nested(inner, value, of, at, places) for inner, of in wanted.fields))


def leaf(example: object, wanted: SqlType) -> Read:
    """How values like the example are read. Raises Unreadable."""
    if isinstance(example, str):
        return _quoted(example, wanted)
    number = isinstance(example, (int, float)) and not isinstance(example, bool)
    match wanted.base:
        case BaseType.BOOLEAN if not number:
            return _booleans
        case BaseType.INT | BaseType.BIGINT if number or example is None:
            return lambda texts, good: _whole(_without_null(texts), wanted, good)
        case BaseType.DOUBLE if number or example is None:
            return lambda texts, good: _matching(_without_null(texts), _DOUBLE, good).cast(pa.float64())
        case BaseType.DECIMAL if number or example is None:
            return lambda texts, good: _decimals(_without_null(texts), wanted, good)
        case BaseType.TIMESTAMP if number:
            return lambda texts, good: _milliseconds(_without_null(texts), good)
        case BaseType.DATE if number:
            return lambda texts, good: _days(_without_null(texts), good)
        case _ if example is None:
            return lambda texts, good: _nothing(texts, wanted, good)
    raise Unreadable


def _quoted(example: str, wanted: SqlType) -> Read:
    match wanted.base:
        case BaseType.VARCHAR:
            return lambda texts, _good: texts
        case BaseType.INT | BaseType.BIGINT:
            return lambda texts, good: _whole(texts, wanted, good)
        case BaseType.DECIMAL:
            return lambda texts, good: _decimals(texts, wanted, good)
        case BaseType.DATE:
            return lambda texts, good: _times(texts, _DAY, pa.date32(), good)
        case BaseType.TIMESTAMP if example.endswith("Z"):
            return lambda texts, good: _times(texts, _MOMENT + "Z", wanted.arrow(), good)
        case BaseType.TIMESTAMP:
            return lambda texts, good: _times(texts, _MOMENT, pa.timestamp("us"), good)
    raise Unreadable


def in_text(example: str, wanted: SqlType) -> Read:
    """How texts like the example are read, of a format whose numbers are texts. Raises Unreadable."""
    number = example.removeprefix("-").isdecimal()
    match wanted.base:
        case BaseType.DOUBLE:
            return lambda texts, good: _matching(texts, _DOUBLE, good).cast(pa.float64())
        case BaseType.BOOLEAN:
            return _words
        case BaseType.DATE if number:
            return _days
        case BaseType.TIMESTAMP if number:
            return _milliseconds
    return _quoted(example, wanted)


def ignored(texts: pa.Array) -> Truth:
    """Which texts are JSON: true, false, null or a number."""
    words = pc.is_in(texts, value_set=pa.array(["null", "true", "false"]))
    if pc.all(words).as_py():
        return _truth(words)
    return _truth(pc.or_(words, pc.match_substring_regex(texts, rf"\A{_DOUBLE}\z")))


def _truth(found: pa.Array) -> Truth:
    truth: Truth = found.to_numpy(zero_copy_only=False)
    return truth


def _without_null(texts: pa.Array) -> pa.Array:
    """The texts, NULL for `null`."""
    nulls = pc.equal(texts, "null")
    return pc.if_else(nulls, None, texts) if pc.any(nulls).as_py() else texts


def _keep(texts: pa.Array, certain: pa.Array, good: Truth) -> pa.Array:
    """The texts that are certain, NULL for the others, which are not good; a text that is NULL is."""
    if pc.all(certain).as_py() is not False:
        return texts
    good &= _truth(pc.fill_null(certain, True))
    return pc.if_else(certain, texts, None)


def _matching(texts: pa.Array, pattern: str, good: Truth) -> pa.Array:
    return _keep(texts, pc.match_substring_regex(texts, rf"\A(?:{pattern})\z"), good)


def _whole(texts: pa.Array, wanted: SqlType, good: Truth) -> pa.Array:
    """Whole numbers that are written as their digits, and as nothing else."""
    try:
        found = texts.cast(wanted.arrow())
    except pa.ArrowInvalid:
        texts = _matching(texts, _INT if wanted.base is BaseType.INT else _BIGINT, good)
        return texts.cast(wanted.arrow())
    same = pc.equal(found.cast(pa.string()), texts)
    if pc.all(same).as_py() is False:
        good &= _truth(pc.fill_null(same, True))
    return found


def _booleans(texts: pa.Array, good: Truth) -> pa.Array:
    yes = pc.equal(texts, "true")
    if pc.all(pc.or_(yes, pc.equal(texts, "false"))).as_py():
        return yes
    return _words(_without_null(texts), good)


def _words(texts: pa.Array, good: Truth) -> pa.Array:
    good &= _truth(pc.fill_null(pc.is_in(texts, value_set=pa.array(["true", "false", None])), True))
    return pc.equal(texts, "true")


def _decimals(texts: pa.Array, wanted: SqlType, good: Truth) -> pa.Array:
    before = wanted.precision - wanted.scale
    whole = f"(?:0|[1-9][0-9]{{0,{before - 1}}})" if before else "0"
    fraction = rf"(?:\.[0-9]{{1,{wanted.scale}}})?" if wanted.scale else ""
    return _matching(texts, f"-?{whole}{fraction}", good).cast(wanted.arrow())


def _milliseconds(texts: pa.Array, good: Truth) -> pa.Array:
    found = _whole(texts, t.BIGINT, good)
    first, last = -(-FIRST_MICROSECOND // 1000), LAST_MICROSECOND // 1000
    return _keep(found, _between(found, first, last), good).cast(pa.timestamp("ms", tz="UTC"))


def _days(texts: pa.Array, good: Truth) -> pa.Array:
    found = _whole(texts, t.INT, good)
    return _keep(found, _between(found, -_DAYS, _DAYS), good).cast(pa.date32())


def _between(numbers: pa.Array, first: int, last: int) -> pa.Array:
    return pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))


def _times(texts: pa.Array, pattern: str, wanted: pa.DataType, good: Truth) -> pa.Array:
    """Days and moments; none of them, where one is a day that its month does not have."""
    texts = _matching(texts, pattern, good)
    try:
        return texts.cast(wanted)
    except pa.ArrowInvalid:
        good[:] = False
        return pa.nulls(len(texts), wanted)


def _nothing(texts: pa.Array, wanted: SqlType, good: Truth) -> pa.Array:
    good &= _truth(pc.equal(texts, "null"))
    return pa.nulls(len(texts), wanted.arrow())
