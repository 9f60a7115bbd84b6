"""JSON: a value is an object whose members are the columns; a key of one column is that column's bare value.

JSON objects read by columns: those that look alike together, without a Python object for each.

    bytes   {"id":17,"name":"Ann"}{"id":18,"name":"Bo"} …            one buffer with all records of a run
    pieces  {"id": │17│ ,"name":" │Ann│ "}                           cut at the same marks in each of them
            alike in all    values: a column each

The records of a topic look alike: the same members in the same order, written by one program. A `Shape` is learned
from one record, as what stands between its values. Where the quotes of another record are says where its pieces would
be. It is of the shape if what should be alike is alike, byte for byte, and each value is written so that Arrow reads it
as `coerce` does: a text without escapes, a whole number as its digits, a decimal that fits. Then the record is
JSON with exactly these members, each once. What is not so may be just as good, or broken: that is for the way record by
record to say.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import orjson
import pyarrow as pa

from strandline.jobs.ingest.formats import columns
from strandline.jobs.ingest.formats.coerce import json_text, loads_exact
from strandline.jobs.ingest.formats.columns import Part, Unreadable, are_texts, ignored, nested
from strandline.jobs.model.types import BaseType, SqlType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from strandline.jobs.ingest.formats.columns import Errors, Truth, Value
    from strandline.jobs.model.definitions import Column


_MANY = 500
"""Records of a run from which on reading them by columns is worth its query, a millisecond."""
_ABSENT: dict[str, object] = {}
_WITH_NUMBERS = {float, dict, list}
_WRITTEN_PLAIN = frozenset(
    {
        BaseType.BOOLEAN,
        BaseType.INT,
        BaseType.BIGINT,
        BaseType.VARCHAR,
        BaseType.DATE,
        BaseType.TIME,
        BaseType.TIMESTAMP,
    }
)
"""Types whose wire values orjson writes as `json_text` does, in a tenth of the time: no NaN, decimal or bytes."""


class JsonFormat:
    """JSON for the key's or the value's columns. `bare`: the payload is one column's value, not an object.

    A bare NULL is no payload in a key, and the word null in a value, where no payload is a row that is deleted.
    """

    def __init__(self, wanted: tuple[Column, ...], *, bare: bool, key: bool = False) -> None:
        self._columns = wanted
        self._bare = bare
        self._null = None if key else b"null"
        self._plain = all(column.type.base in _WRITTEN_PLAIN for column in wanted)
        self._shapes: ShapeReader | None = None
        self._exact = any(_has(column.type, BaseType.DECIMAL) for column in wanted)

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """One array per column. A null payload gives nulls; a broken one nulls and an entry in `errors`.

        Objects that look alike are read by columns, when they are many (see `ShapeReader`); the rest one by one.
        """
        if self._bare or len(payloads) < _MANY:
            return self.decode_each(payloads, errors)
        if self._shapes is None:
            self._shapes = ShapeReader(self._columns)
        return columns.joined(self._shapes.read(payloads), payloads, self.decode_each, errors)

    def decode_each(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """As `decode`, with each payload read by itself."""
        documents = self._parse(payloads, errors)

        def exact(row: int) -> Any:
            payload = payloads[row]
            return documents[row] if payload is None else loads_exact(payload)

        if self._bare:
            values = [None if document is _ABSENT else document for document in documents]
            only = self._columns[0]
            return [columns.build(only, _with_text(only, values, exact), errors)]
        if set(map(type, documents)) != {dict}:
            for row, document in enumerate(documents):
                if not isinstance(document, dict):
                    errors.setdefault(row, f"not a JSON object but {_name(document)}")
                    documents[row] = _ABSENT
        return from_objects(self._columns, documents, errors, None if self._exact else exact)

    def encode(self, row: Mapping[str, object]) -> bytes | None:
        """The payload of coerced values (see `coerce.wire_value`)."""
        value = row[self._columns[0].name] if self._bare else dict(row)
        if value is None:
            return self._null
        return orjson.dumps(value) if self._plain else json_text(value).encode()

    def _parse(self, payloads: Sequence[bytes | None], errors: Errors) -> list[Any]:
        try:
            parsed = list(map(orjson.loads, payloads))  # type: ignore[arg-type]
        except orjson.JSONDecodeError:
            parsed = [_parse_one(payload, row, errors) for row, payload in enumerate(payloads)]
        if not self._exact:
            return parsed
        return [self._reparse(document, payloads[row], row, errors) for row, document in enumerate(parsed)]

    def _reparse(self, document: object, payload: bytes | None, row: int, errors: Errors) -> object:
        """The document parsed again, so that decimals do not pass through a float."""
        if document is _ABSENT or payload is None:
            return document
        try:
            return loads_exact(payload)
        except ValueError as error:
            errors.setdefault(row, f"not JSON: {error}")
            return _ABSENT


def from_objects(
    wanted: Sequence[Column],
    documents: Sequence[dict[str, Any]],
    errors: Errors,
    exact: Callable[[int], dict[str, Any]] | None = None,
) -> list[pa.Array]:
    """Columns from objects whose field names may differ from the columns' in case.

    Args:
        exact: parses a row's object again, with numbers as they were written; None when they are already.
    """
    # Objects of a topic have few shapes; each is folded once.
    shapes: dict[tuple[str, ...], dict[str, str]] = {}

    def value_of(document: dict[str, Any], name: str) -> Any:
        if name in document:
            return document[name]
        shape = tuple(document)
        folded = shapes.get(shape)
        if folded is None:
            folded = shapes[shape] = {field.lower(): field for field in reversed(shape)}
        found = folded.get(name.lower())
        return None if found is None else document[found]

    arrays = []
    for column in wanted:
        name = column.name
        values = [document.get(name) for document in documents]
        if None in values:
            values = [value_of(document, name) for document in documents]
        if exact is not None:
            values = _with_text(column, values, partial(_exact_value, exact, value_of, name))
        arrays.append(columns.build(column, values, errors))
    return arrays


def _exact_value(
    exact: Callable[[int], dict[str, Any]], value_of: Callable[[dict[str, Any], str], Any], name: str, row: int
) -> Any:
    return value_of(exact(row), name)


def _with_text(column: Column, values: list[Any], exact: Callable[[int], Any]) -> list[Any]:
    """The values, with numbers and objects in a VARCHAR parsed again: their text must be the one that was sent."""
    if _has(column.type, BaseType.VARCHAR) and set(map(type, values)) & _WITH_NUMBERS:
        return [exact(row) if type(value) in _WITH_NUMBERS else value for row, value in enumerate(values)]
    return values


def _parse_one(payload: bytes | None, row: int, errors: Errors) -> object:
    if payload is None:
        return _ABSENT
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        errors.setdefault(row, f"not JSON: {error.msg}")
        return _ABSENT


def _has(sql_type: SqlType, wanted: BaseType) -> bool:
    if sql_type.base is wanted:
        return True
    return any(_has(inner, wanted) for inner in (*sql_type.args, *(inner for _, inner in sql_type.fields)))


def _name(document: object) -> str:
    names = {list: "an array", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
    return names.get(type(document), "null")


_KNOWN: Final = 8
"""Shapes that are kept: each costs a look at the records that those before it did not match."""
_LEARNED: Final = 4
"""Records of a run that a shape is learned from."""
_SHARE: Final = 64
"""A shape that matches less than one in so many records of a run is dropped."""
_LONGEST_PAUSE: Final = 64
"""Runs without learning, where it has led to nothing."""
_QUOTE, _ESCAPE, _CONTROL = ord('"'), ord("\\"), 0x20
_TOKEN: Final = re.compile(rb'"([^"]*)"|([^\s{}\[\],:"]+)|([{}\[\]])')


class ShapeReader:
    """Reads the objects of a topic by the shapes that it has learned. For one thread."""

    def __init__(self, wanted: Sequence[Column]) -> None:
        self._wanted = wanted
        self._shapes: list[Shape] = []
        self._pause = self._paused = 0

    def read(self, payloads: Sequence[bytes | None]) -> list[Part]:
        """What is read of a run of records: parts, each of some of them."""
        run = Run(payloads)
        unread = np.flatnonzero(run.usable)
        parts: list[Part] = []
        found: list[tuple[int, Shape]] = []
        for shape in self._shapes:
            unread, count = _take(shape, run, unread, parts)
            found.append((count, shape))
        if len(unread) * _SHARE >= len(payloads) and not self._paused_now():
            unread, learned = self._learned(payloads, run, unread, parts)
            found += learned
        found.sort(key=lambda each: -each[0])
        self._shapes = [shape for count, shape in found[:_KNOWN] if count * _SHARE >= len(payloads)]
        return parts

    def _learned(
        self, payloads: Sequence[bytes | None], run: Run, unread: NDArray[np.intp], parts: list[Part]
    ) -> tuple[NDArray[np.intp], list[tuple[int, Shape]]]:
        """The rows that are left, and shapes of unread records, each with how many it matches of them."""
        found: list[tuple[int, Shape]] = []
        for _ in range(_LEARNED):
            if len(unread) * _SHARE < len(payloads) or not len(unread):
                return unread, found
            before, unread = unread, unread[1:]
            text = payloads[before[0]]
            assert text is not None, "it is usable"
            try:
                shape = Shape.of(text, self._wanted)
            except (Unreadable, orjson.JSONDecodeError):
                continue
            left, count = _take(shape, run, before, parts)
            found.append((count, shape))
            unread = left if count else unread
        gained = sum(count for count, _ in found)
        self._paused = 0 if gained * _SHARE >= len(payloads) else min(2 * self._paused + 1, _LONGEST_PAUSE)
        self._pause = self._paused
        return unread, found

    def _paused_now(self) -> bool:
        """True if nothing is to be learned from this run."""
        self._pause -= 1
        return self._pause >= 0


def _take(shape: Shape, run: Run, unread: NDArray[np.intp], parts: list[Part]) -> tuple[NDArray[np.intp], int]:
    """Read the records of a shape; the rows that are left, and how many were read."""
    if not len(unread):
        return unread, 0
    part, matched = shape.read(run, unread)
    if len(part.rows):
        parts.append(part)
    return unread[~matched], len(part.rows)


class Run:
    """The bytes of some records, and where the quotes are.

    Attributes:
        data: all of them.
        starts, ends: of each record.
        quotes: the places of all quotes; a record's are from `first` on, `counts` of them.
        usable: the records that hold no escape and no control character, and are UTF-8.
    """

    def __init__(self, payloads: Sequence[bytes | None]) -> None:
        joined = pa.array(payloads, type=pa.binary())
        _, offsets, self.buffer = joined.buffers()
        marks = np.frombuffer(offsets, dtype=np.int32)[: len(payloads) + 1]
        self.starts, self.ends = marks[:-1], marks[1:]
        self.data = np.frombuffer(self.buffer or b"", dtype=np.uint8)[: marks[-1]]
        self.quotes = np.flatnonzero(self.data == _QUOTE).astype(np.int32)
        firsts = np.searchsorted(self.quotes, marks)
        self.first, self.counts = firsts[:-1], np.diff(firsts)
        self.usable = self._usable(joined, payloads)

    def _usable(self, joined: pa.Array, payloads: Sequence[bytes | None]) -> Truth:
        usable = self.ends > self.starts
        escapes = self.data == _ESCAPE
        if len(self.data) and (self.data.min() < _CONTROL or escapes.any()):
            odd = np.flatnonzero(escapes | (self.data < _CONTROL))
            usable[np.searchsorted(self.ends, odd, side="right")] = False
        return usable & are_texts(joined, payloads)


@dataclass(frozen=True)
class _Slot:
    """Where a value stands in the records of a shape.

    Attributes:
        quoted: it is a text, whose quotes belong to what is alike.
        begin, end: each the number of a quote, and the bytes from there; the number after the last quote is the end of
            the record.
    """

    quoted: bool
    begin: tuple[int, int]
    end: tuple[int, int]


@dataclass(frozen=True)
class Shape:
    """Objects that are alike but for their values.

    Attributes:
        alike: what stands before the first value, between the values, and after the last one.
        quotes: how many there are.
        ignored: checks that values are JSON which no column wants, by their numbers.
        columns: how each wanted column is read.
    """

    alike: tuple[bytes, ...]
    quotes: int
    slots: tuple[_Slot, ...]
    ignored: tuple[int, ...]
    columns: tuple[Value, ...]

    @classmethod
    def of(cls, text: bytes, wanted: Sequence[Column]) -> Shape:
        """The shape of a record.

        Raises:
            Unreadable: it is no object, or one with values that are not read by columns.
            orjson.JSONDecodeError: it is no JSON.
        """
        document = orjson.loads(text)
        if not isinstance(document, dict):
            raise Unreadable
        found = _values(text)
        places = {path: number for number, (path, *_) in enumerate(found)}
        columns = tuple(nested(column.name, document, column.type, (), places) for column in wanted)
        read = {each.slot for column in columns for each in column.leaves()}
        marks = [0, *(mark for _, _, begin, end in found for mark in (begin, end)), len(text)]
        quotes = [match.start() for match in re.finditer(b'"', text)]
        slots = tuple(_slot(quotes, len(text), quoted, begin, end) for _, quoted, begin, end in found)
        return cls(
            tuple(text[begin:end] for begin, end in zip(marks[::2], marks[1::2], strict=True)),
            len(quotes),
            slots,
            tuple(number for number, slot in enumerate(slots) if not slot.quoted and number not in read),
            columns,
        )

    def read(self, run: Run, rows: NDArray[np.intp]) -> tuple[Part, Truth]:
        """Read the records that are of this shape.

        Args:
            rows: those that may be.

        Returns:
            Their columns, and which of the rows they are.
        """
        alike = run.counts[rows] == self.quotes
        marks = self._marks(run, rows[alike])
        whole = self._is_alike(run, marks)
        alike[alike] = whole
        marks = marks[whole]
        pieces, good = self._pieces(run, marks), np.ones(len(marks), dtype=bool)
        for number in self.ignored:
            good &= ignored(pieces(number))
        arrays = [value.read(pieces, good) for value in self.columns]
        if not good.all():
            kept = pa.array(good)
            arrays = [array.filter(kept) for array in arrays]
            alike[alike] = good
        return Part(rows[alike], arrays), alike

    def _marks(self, run: Run, rows: NDArray[np.intp]) -> NDArray[np.int32]:
        """A row for each record: its begin, begin and end of each value, its end."""
        ends = run.ends[rows]
        if len(run.quotes) == len(rows) * self.quotes:
            quotes = run.quotes.reshape(len(rows), self.quotes)
        else:
            quotes = run.quotes[run.first[rows][:, None] + np.arange(self.quotes)]
        marks = np.empty((len(rows), 2 * len(self.slots) + 2), dtype=np.int32)
        marks[:, 0], marks[:, -1] = run.starts[rows], ends
        for number, slot in enumerate(self.slots):
            for place, (quote, more) in ((2 * number + 1, slot.begin), (2 * number + 2, slot.end)):
                marks[:, place] = (ends if quote == self.quotes else quotes[:, quote]) + more
        return marks

    def _is_alike(self, run: Run, marks: NDArray[np.int32]) -> Truth:
        """True for records that have between their values what the shape has there, and values."""
        found: Truth = np.ones(len(marks), dtype=bool)
        for number, slot in enumerate(self.slots):
            if not slot.quoted:
                found &= marks[:, 2 * number + 2] > marks[:, 2 * number + 1]
        for number, text in enumerate(self.alike):
            found &= marks[:, 2 * number + 1] - marks[:, 2 * number] == len(text)
        for number, text in enumerate(self.alike):
            begins = marks[found, 2 * number]
            # Each place of the buffer as the begin of a text of that length; only those asked for are looked at.
            windows = np.ndarray((len(run.data) - len(text) + 1,), f"S{len(text)}", run.data, strides=(1,))
            texts = windows[begins]
            # Mostly all are alike, and to compare them as one is ten times faster.
            if texts.tobytes() != text * len(texts):
                found[found] = texts == text
        return found

    def _pieces(self, run: Run, marks: NDArray[np.int32]) -> Callable[[int], pa.Array]:
        """A function from the number of a value to the texts of all records."""
        wide = marks.shape[1]
        count = marks.size - 1
        cut = (
            pa.StringArray.from_buffers(max(count, 0), pa.py_buffer(marks.ravel()), run.buffer) if len(marks) else None
        )

        def texts(number: int) -> pa.Array:
            if cut is None:
                return pa.array([], type=pa.string())
            return cut.take(pa.array(np.arange(2 * number + 1, count, wide)))

        return texts


def _slot(quotes: Sequence[int], length: int, quoted: bool, begin: int, end: int) -> _Slot:
    before = max(number for number, at in enumerate(quotes) if at < begin)
    after = next((number for number, at in enumerate(quotes) if at >= end), len(quotes))
    return _Slot(quoted, (before, begin - quotes[before]), (after, end - [*quotes, length][after]))


_Found = tuple[tuple[str, ...], bool, int, int]
"""A value: the names that lead to it, whether it is quoted, and where it begins and ends."""


def _values(text: bytes) -> list[_Found]:
    """The values of an object in JSON, in the order in which they stand.

    Raises:
        Unreadable: it holds an array, an escape, or a member twice.
    """
    if b"\\" in text or b"[" in text:
        raise Unreadable
    found: list[_Found] = []
    path: list[str | None] = []
    seen: set[tuple[str | None, ...]] = set()
    for token in _TOKEN.finditer(text):
        mark = token.group(3)
        if mark == b"{":
            path.append(None)
        elif mark == b"}":
            path.pop()
            path[-1:] = [None] * bool(path)
        elif path[-1] is None:
            path[-1] = token.group(1).decode()
            if tuple(path) in seen:
                raise Unreadable
            seen.add(tuple(path))
        else:
            group = 1 if token.group(1) is not None else 2
            found.append((tuple(str(name) for name in path), group == 1, *token.span(group)))
            path[-1] = None
    return found
