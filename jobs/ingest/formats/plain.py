"""The formats without a schema: DELIMITED, a line of values, and KAFKA, one value as Kafka's serializers write it.

DELIMITED is one line of separated values, in the order of the columns; an empty value is NULL.

A line may end before the columns that the source was given later: it was written by somebody who does not know them.

Many are read by columns: lines without quotes, cut at their delimiters, with no Python object for each value.

    bytes    17,Ann,2.5 18,Bo, …              one buffer with all records of a run
    pieces   17 │ Ann │ 2.5 │ 18 │ Bo │       a column each; an empty one is NULL

A line is read so if it holds no quote and no control character, has a value for each column, and each value is written
so that Arrow reads it as `formats.coerce` does. What is not so may be just as good, or broken: that is for the way
record by record to say.

KAFKA is one column: big-endian INT, BIGINT, DOUBLE; UTF-8 VARCHAR; raw BYTES.
"""

from __future__ import annotations

import csv
import io
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strandline.jobs.ingest.formats import columns
from strandline.jobs.ingest.formats.coerce import json_text
from strandline.jobs.ingest.formats.columns import Part, Unreadable, are_texts, in_text
from strandline.jobs.model.errors import EncodeFailed, OptionRefused
from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from strandline.jobs.ingest.formats.columns import Errors, Truth
    from strandline.jobs.model.definitions import Column


_MANY = 500
"""Records of a run from which on reading them by columns is worth its fixed cost, a millisecond."""
_NAMED = {"SPACE": " ", "TAB": "\t"}
# The module's own limit, 128 KiB, is below what a record may hold; the broker's limit is the one that counts.
csv.field_size_limit(2**31 - 1)


def delimiter_of(option: str | None) -> str:
    """The character of VALUE_DELIMITER or KEY_DELIMITER: one character, SPACE or TAB; a comma when not given.

    Raises:
        OptionRefused: it is not one character.
    """
    found = _NAMED.get((option or ",").upper(), option or ",")
    if len(found) != 1 or found in '"\r\n':
        raise OptionRefused(f"a delimiter is one character, SPACE or TAB, not '{option}'")
    return found


class DelimitedFormat:
    """Separated values for the key's or the value's columns.

    Args:
        added: how many of the last columns a line need not have.
    """

    def __init__(self, wanted: tuple[Column, ...], delimiter: str, added: int = 0) -> None:
        self._columns = wanted
        self._fewest = len(wanted) - added
        self._delimiter = delimiter
        nested = next((column.name for column in wanted if column.type.is_nested), None)
        if nested is not None:
            raise OptionRefused(f"DELIMITED cannot hold column '{nested}'", hint="use JSON or AVRO for nested types")

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """One array per column. A null payload gives nulls; a broken one nulls and an entry in `errors`.

        Lines without quotes are read by columns, when they are many (see `read_lines`); the rest one by one.
        """
        if len(payloads) < _MANY:
            return self.decode_each(payloads, errors)
        parts = read_lines(payloads, self._columns, self._delimiter)
        return columns.joined(parts, payloads, self.decode_each, errors)

    def decode_each(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """As `decode`, with each payload read by itself."""
        empty = [None] * len(self._columns)
        rows = [
            empty if payload is None else self._split(payload, row, errors) or empty
            for row, payload in enumerate(payloads)
        ]
        return [
            columns.build(column, [values[place] or None for values in rows], errors)
            for place, column in enumerate(self._columns)
        ]

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of wire values; null when all are."""
        values = [row[column.name] for column in self._columns]
        if all(value is None for value in values):
            return None
        text = ["" if value is None else value if isinstance(value, str) else _text(value) for value in values]
        if any(value == "" for value in values):
            raise EncodeFailed("DELIMITED cannot tell an empty string from NULL", hint="use JSON")
        line = io.StringIO()
        # csv quotes values that contain its line terminator; a record ends without one.
        csv.writer(line, delimiter=self._delimiter, lineterminator="\r\n").writerow(text)
        return line.getvalue().removesuffix("\r\n").encode()

    def _split(self, payload: bytes, row: int, errors: Errors) -> list[str] | None:
        try:
            lines = list(csv.reader([payload.decode()], delimiter=self._delimiter, strict=True))
        except UnicodeDecodeError:
            errors.setdefault(row, "not UTF-8")
            return None
        except csv.Error as error:
            errors.setdefault(row, f"not delimited text: {error}")
            return None
        values = lines[0] if len(lines) == 1 else []
        missing = len(self._columns) - len(values)
        if missing < 0 or len(values) < self._fewest:
            errors.setdefault(row, f"{len(values)} values for {len(self._columns)} columns")
            return None
        return [*values, *[""] * missing]


def _text(value: object) -> str:
    return json_text(value).strip('"')


_QUOTE, _CONTROL = ord('"'), 0x20
_ASCII: Final = 0x80


def read_lines(payloads: Sequence[bytes | None], wanted: Sequence[Column], delimiter: str) -> list[Part]:
    """What is read of a run of records: a part, or none."""
    mark = ord(delimiter)
    if mark >= _ASCII:
        return []
    joined = pa.array(payloads, type=pa.binary())
    _, offsets, buffer = joined.buffers()
    bounds = np.frombuffer(offsets, dtype=np.int32)[: len(payloads) + 1]
    data = np.frombuffer(buffer or b"", dtype=np.uint8)[: bounds[-1]]
    found = np.flatnonzero(data == mark).astype(np.int32)
    first = np.searchsorted(found, bounds)
    rows = np.flatnonzero(_plain(joined, payloads, data, bounds, mark) & (np.diff(first) == len(wanted) - 1))
    if not len(rows):
        return []
    marks = np.empty((len(rows), 2 * len(wanted)), dtype=np.int32)
    marks[:, 0], marks[:, -1] = bounds[:-1][rows], bounds[1:][rows]
    marks[:, 1:-1:2] = found[first[:-1][rows][:, None] + np.arange(len(wanted) - 1)]
    marks[:, 2:-1:2] = marks[:, 1:-1:2] + 1
    pieces = pa.StringArray.from_buffers(marks.size - 1, pa.py_buffer(marks.ravel()), buffer)
    good: Truth = np.ones(len(rows), dtype=bool)
    try:
        arrays = [
            _column(pieces.take(pa.array(np.arange(2 * place, marks.size, 2 * len(wanted)))), column, good)
            for place, column in enumerate(wanted)
        ]
    except Unreadable:
        return []
    if good.all():
        return [Part(rows, arrays)]
    kept = pa.array(good)
    return [Part(rows[good], [array.filter(kept) for array in arrays])]


def _plain(
    joined: pa.Array,
    payloads: Sequence[bytes | None],
    data: NDArray[np.uint8],
    bounds: NDArray[np.int32],
    mark: int,
) -> NDArray[Any]:
    """Which records are texts, of one line without quotes."""
    plain = (bounds[1:] > bounds[:-1]) & are_texts(joined, payloads)
    odd = np.flatnonzero((data == _QUOTE) | ((data < _CONTROL) & (data != mark)))
    if len(odd):
        plain[np.searchsorted(bounds[1:], odd, side="right")] = False
    return plain


def _column(texts: pa.Array, column: Column, good: Truth) -> pa.Array:
    """Raises Unreadable."""
    empty = pc.equal(texts, "")
    texts = pc.if_else(empty, None, texts) if pc.any(empty).as_py() else texts
    example = pc.first(texts).as_py()  # the first one that is not NULL
    if example is None:
        return pa.nulls(len(texts), column.type.arrow())
    read = in_text(example, column.type)(texts, good)
    return read if read.type == column.type.arrow() else read.cast(column.type.arrow())


_NUMBERS = {
    BaseType.INT: struct.Struct(">i"),
    BaseType.BIGINT: struct.Struct(">q"),
    BaseType.DOUBLE: struct.Struct(">d"),
}
_BASES = (*_NUMBERS, BaseType.VARCHAR, BaseType.BYTES)


class PrimitiveFormat:
    """The format of one primitive column. The constructor raises OptionRefused for columns it cannot hold."""

    def __init__(self, wanted: tuple[Column, ...]) -> None:
        if len(wanted) != 1 or wanted[0].type.base not in _BASES:
            shown = ", ".join(f"{column.name} {column.type}" for column in wanted)
            raise OptionRefused(
                f"format KAFKA holds one column of INT, BIGINT, DOUBLE, VARCHAR or BYTES, not ({shown})",
                hint="use JSON, DELIMITED or AVRO",
            )
        self._column = wanted[0]
        self._number = _NUMBERS.get(self._column.type.base)

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """The one column. A null payload gives null; a broken one null and an entry in `errors`."""
        if self._column.type.base is BaseType.BYTES:
            return [pa.array(payloads, type=pa.binary())]
        if self._column.type.base is BaseType.VARCHAR:
            return [self._texts(payloads, errors)]
        return [self._numbers(payloads, errors)]

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of a wire value."""
        value = row[self._column.name]
        if value is None or isinstance(value, bytes):
            return value
        return value.encode() if self._number is None and isinstance(value, str) else self._pack(value)

    def _pack(self, value: object) -> bytes:
        assert self._number is not None, "the constructor let no other type through"
        return self._number.pack(value)

    def _texts(self, payloads: Sequence[bytes | None], errors: Errors) -> pa.Array:
        try:
            return pa.array(payloads, type=pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            return columns.build(self._column, [self._text(p, row, errors) for row, p in enumerate(payloads)], errors)

    def _text(self, payload: bytes | None, row: int, errors: Errors) -> str | None:
        try:
            return None if payload is None else payload.decode()
        except UnicodeDecodeError:
            errors.setdefault(row, f"column '{self._column.name}': not UTF-8")
            return None

    def _numbers(self, payloads: Sequence[bytes | None], errors: Errors) -> pa.Array:
        assert self._number is not None, "texts and bytes are handled before"
        size = self._number.size
        if {len(payload) if payload is not None else -1 for payload in payloads} == {size}:
            joined = np.frombuffer(b"".join(payloads), dtype=self._number.format)  # type: ignore[arg-type]
            return pa.array(joined.astype(joined.dtype.newbyteorder("=")), type=self._column.type.arrow())
        values: list[object] = []
        for row, payload in enumerate(payloads):
            if payload is not None and len(payload) != size:
                sql_type = self._column.type
                errors.setdefault(row, f"column '{self._column.name}': {len(payload)} bytes, a {sql_type} has {size}")
                payload = None
            values.append(None if payload is None else self._number.unpack(payload)[0])
        return columns.build(self._column, values, errors)
