"""Rows as DataRow messages, thousands at a time: Arrow lays out the bytes of a whole batch, no row is a Python object.

┌ D ┬ length ┬ columns ┬ length ┬ value ┬ length ┬ value ┐
│1 B│  4 B   │   2 B   │  4 B   │       │  4 B   │       │   a length of −1: NULL, without a value
└───┴────────┴─────────┴────────┴───────┴────────┴───────┘

Rows as the data of COPY … TO STDOUT: text, CSV or binary, a message for each row, thousands at a time.

Lines and values are joined by Arrow, as DataRow messages are. A binary row has the bytes of a DataRow.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.serve.results import python_rows, to_json
from strandline.jobs.server.postgres.wire_types import BINARY_FORMAT, TEXT_FORMAT, element_of, oid_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.server.postgres.wire_types import WireColumn


# A column's values in the text format, as bytes: what PostgreSQL prints with `DateStyle = ISO`, `TimeZone = UTC`.

_PLAIN_SCALE: Final = 6
"""Arrow writes a decimal of a larger scale with an exponent when it is small."""
_QUOTED: Final = frozenset('{}",\\ \t\n\r\v\f')
"""An array's element that has one of these stands in quotes."""


def _text_cells(values: pa.Array, sql_type: SqlType) -> pa.Array:
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
            found = _each(_array_texts(values, element))
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


def _array_texts(values: pa.Array, element: SqlType) -> Iterable[str | None]:
    texts = iter(_text_cells(values.flatten(), element).to_pylist())
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


# A column's values in the binary format: what the `*send` functions of PostgreSQL's source write.

EPOCH_DAYS: Final = 10_957
"""From 1970-01-01 to 2000-01-01, where PostgreSQL's calendar begins."""
EPOCH_MICROSECONDS: Final = EPOCH_DAYS * 86_400_000_000
NUMERIC_BASE_DIGITS: Final = 4
"""Decimal digits of each digit of a numeric, which counts in ten thousands."""
_NEGATIVE: Final = 0x4000


@dataclass(frozen=True)
class _Layout:
    """A number of fixed size: the integer that Arrow casts the value to, what is done to that, its form in bytes."""

    arrow: str
    form: str
    minus: int = 0
    times: int = 1


_LAYOUTS: Final = {
    BaseType.BOOLEAN: _Layout("uint8", "u1"),
    BaseType.INT: _Layout("int32", ">i4"),
    BaseType.BIGINT: _Layout("int64", ">i8"),
    BaseType.DOUBLE: _Layout("float64", ">f8"),
    BaseType.DATE: _Layout("int32", ">i4", minus=EPOCH_DAYS),
    BaseType.TIME: _Layout("int64", ">i8", times=1000),
    BaseType.TIMESTAMP: _Layout("int64", ">i8", minus=EPOCH_MICROSECONDS),
}


def _fixed(values: Any, form: str) -> pa.Array:
    """Numbers as a binary array, each of the same size.

    Args:
        values: a NumPy array.
        form: of each in bytes, as NumPy writes it: `>i4`.
    """
    import pyarrow as pa

    packed = values.astype(form)
    size = packed.dtype.itemsize
    found = pa.Array.from_buffers(pa.binary(size), len(packed), [None, pa.py_buffer(packed.tobytes())])
    return found.cast(pa.binary())


def _binary_cells(values: pa.Array, sql_type: SqlType) -> pa.Array:
    """The values as a binary array; null for NULL."""
    import pyarrow as pa

    layout = _LAYOUTS.get(sql_type.base)
    if layout is not None:
        return _numbers(values, layout)
    match sql_type.base:
        case BaseType.BYTES:
            return values.cast(pa.binary())
        case BaseType.DECIMAL:
            return pa.array((None if each is None else numeric(each) for each in values.to_pylist()), pa.binary())
        case BaseType.ARRAY if (element := element_of(sql_type)) is not None:
            return pa.array(_arrays(values, element), pa.binary())
        case _:
            return _text_cells(values, sql_type)


def _numbers(values: pa.Array, layout: _Layout) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    numbers = pc.fill_null(values.cast(layout.arrow), 0).to_numpy(zero_copy_only=False)
    if (layout.minus, layout.times) != (0, 1):
        numbers = numbers * layout.times - layout.minus
    found = _fixed(numbers, layout.form)
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.binary())) if values.null_count else found


def numeric(value: Decimal) -> bytes:
    """A numeric: the number of its digits, the weight of the first, sign and scale, then the digits."""
    sign, _, exponent = value.as_tuple()
    scale = max(-int(exponent), 0)
    whole, _, fraction = f"{value.copy_abs():f}".partition(".")
    whole = whole.zfill(-(-len(whole) // NUMERIC_BASE_DIGITS) * NUMERIC_BASE_DIGITS)
    fraction = fraction.ljust(-(-len(fraction) // NUMERIC_BASE_DIGITS) * NUMERIC_BASE_DIGITS, "0")
    text = whole + fraction
    digits = [int(text[place : place + NUMERIC_BASE_DIGITS]) for place in range(0, len(text), NUMERIC_BASE_DIGITS)]
    weight = len(whole) // NUMERIC_BASE_DIGITS - 1
    while digits and digits[0] == 0:
        digits, weight = digits[1:], weight - 1
    while digits and digits[-1] == 0:
        digits.pop()
    mark = _NEGATIVE if sign and digits else 0
    return struct.pack(f"!hhHh{len(digits)}h", len(digits), weight if digits else 0, mark, scale, *digits)


def _arrays(values: pa.Array, element: SqlType) -> Iterable[bytes | None]:
    """Arrays of one dimension: whether there are NULLs, the elements' oid, how many, the first index, the elements."""
    cells = iter(_binary_cells(values.flatten(), element).to_pylist())
    for size in values.value_lengths().to_pylist():
        if size is None:
            yield None
            continue
        taken = [next(cells) for _ in range(size)]
        head = struct.pack("!iiI", 1 if size else 0, int(None in taken), oid_of(element))
        bounds = struct.pack("!ii", size, 1) if size else b""
        yield (
            head
            + bounds
            + b"".join(struct.pack("!i", -1) if each is None else struct.pack("!i", len(each)) + each for each in taken)
        )


_BATCH_ROWS: Final = 4096
"""A few hundred kilobytes, made in a few milliseconds: the event loop belongs to all clients."""
_KIND: Final = b"D"
_HEAD_BYTES: Final = 6
"""The length itself and the number of columns, which the length of the message counts."""
_LENGTH_BYTES: Final = 4


def data_rows(
    rows: pa.Table, columns: Sequence[WireColumn], formats: Sequence[int], kind: bytes = _KIND
) -> Iterator[memoryview]:
    """The rows as messages, several thousand in each piece.

    Args:
        formats: of each column, text (0) or binary (1).
        kind: of the messages.
    """
    for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
        if batch.num_rows:
            yield _messages(batch, columns, formats, kind)


def few_rows(
    rows: Sequence[Sequence[Any]], columns: Sequence[WireColumn], formats: Sequence[int], kind: bytes = _KIND
) -> bytes:
    """The same of a few rows of Python values, as Arrow's `to_pylist` gives them: for one row Arrow takes longer."""
    found: list[bytes] = []
    count = _TWO_BYTES.pack(len(columns))
    writers = [_writer(column.type, form) for column, form in zip(columns, formats, strict=True)]
    for row in rows:
        cells = [count]
        size = _HEAD_BYTES
        for value, write in zip(row, writers, strict=True):
            if value is None:
                cells.append(_NULL)
                size += _LENGTH_BYTES
            else:
                cell = write(value)
                cells += (_FOUR_BYTES.pack(len(cell)), cell)
                size += _LENGTH_BYTES + len(cell)
        found += (kind, _FOUR_BYTES.pack(size), *cells)
    return b"".join(found)


def _writer(sql_type: SqlType, form: int) -> Callable[[Any], bytes]:
    """What writes a value that is not NULL as a cell."""
    plain = _PLAIN.get((sql_type.base, form))
    if plain is not None:
        return plain
    cells = _text_cells if form == TEXT_FORMAT else _binary_cells

    def write(value: Any) -> bytes:
        import pyarrow as pa

        found: bytes = cells(pa.array([value], sql_type.arrow()), sql_type)[0].as_py()
        return found

    return write


def _double(value: float) -> bytes:
    """As Arrow writes it, which spells exponents in another way than Python."""
    import pyarrow as pa

    if not math.isfinite(value):
        return b"NaN" if math.isnan(value) else b"Infinity" if value > 0 else b"-Infinity"
    text: str = pa.scalar(value, pa.float64()).cast(pa.string()).as_py()
    return text.encode()


_TWO_BYTES: Final = struct.Struct("!h")
_FOUR_BYTES: Final = struct.Struct("!i")
_EIGHT_BYTES: Final = struct.Struct("!q")
_NULL: Final = _FOUR_BYTES.pack(-1)
_PLAIN: Final[dict[tuple[BaseType, int], Callable[[Any], bytes]]] = {
    (BaseType.VARCHAR, TEXT_FORMAT): str.encode,
    (BaseType.VARCHAR, BINARY_FORMAT): str.encode,
    (BaseType.INT, TEXT_FORMAT): lambda value: b"%d" % value,
    (BaseType.INT, BINARY_FORMAT): _FOUR_BYTES.pack,
    (BaseType.BIGINT, TEXT_FORMAT): lambda value: b"%d" % value,
    (BaseType.BIGINT, BINARY_FORMAT): _EIGHT_BYTES.pack,
    (BaseType.DOUBLE, TEXT_FORMAT): _double,
    (BaseType.DOUBLE, BINARY_FORMAT): struct.Struct("!d").pack,
    (BaseType.BOOLEAN, TEXT_FORMAT): lambda value: b"t" if value else b"f",
    (BaseType.BOOLEAN, BINARY_FORMAT): lambda value: b"\x01" if value else b"\x00",
}
"""{type and format: what writes it}, of the types that keys and counts have; Arrow writes the others."""


def _messages(batch: pa.RecordBatch, columns: Sequence[WireColumn], formats: Sequence[int], kind: bytes) -> memoryview:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    parts: list[Any] = []
    sizes = np.full(batch.num_rows, _HEAD_BYTES, dtype=np.int64)
    for values, column, form in zip(batch.columns, columns, formats, strict=True):
        cells = _text_cells(values, column.type) if form == TEXT_FORMAT else _binary_cells(values, column.type)
        lengths = pc.fill_null(pc.binary_length(cells), -1).to_numpy(zero_copy_only=False)
        sizes += np.maximum(lengths, 0) + _LENGTH_BYTES
        parts += [_fixed(lengths, ">i4"), pc.fill_null(cells, b"")]
    count = len(columns).to_bytes(2, "big")
    head = [pa.scalar(kind), _fixed(sizes, ">i4"), pa.scalar(count)]
    joined = pc.binary_join_element_wise(*head, *parts, pa.scalar(b""))
    return memoryview(joined.buffers()[2])[: int(sizes.sum()) + batch.num_rows]


TEXT: Final = "text"
CSV: Final = "csv"
BINARY: Final = "binary"

_DATA: Final = b"d"
_BEGIN: Final = b"H"
_DONE: Final = b"c"
_BINARY_HEAD: Final = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_BINARY_END: Final = struct.pack("!h", -1)
_ESCAPED: Final = (
    ("\\", "\\\\"),
    ("\n", "\\n"),
    ("\r", "\\r"),
    ("\t", "\\t"),
    ("\b", "\\b"),
    ("\f", "\\f"),
    ("\v", "\\v"),
)
"""What text has a backslash for, and how; the backslash first."""


@dataclass(frozen=True)
class CopyForm:
    """How rows are written.

    Attributes:
        kind: TEXT, CSV or BINARY.
        null: what stands for NULL.
        header: the names of the columns come first.
        quote, escape: of CSV; without an escape a quote is doubled.
    """

    kind: str
    delimiter: str = "\t"
    null: str = "\\N"
    header: bool = False
    quote: str = '"'
    escape: str = ""


def copied_rows(rows: pa.Table, columns: Sequence[WireColumn], form: CopyForm) -> Iterator[bytes | memoryview]:
    """The messages of a COPY, from its beginning to its end."""
    code = BINARY_FORMAT if form.kind == BINARY else TEXT_FORMAT
    yield _message(_BEGIN, struct.pack(f"!bh{len(columns)}h", code, len(columns), *[code] * len(columns)))
    if form.kind == BINARY:
        yield from _binary(rows, columns)
    else:
        if form.header:
            yield _message(_DATA, _line([column.name for column in columns], form))
        for batch in rows.to_batches(max_chunksize=_BATCH_ROWS):
            if batch.num_rows:
                yield _lines(batch, columns, form)
    yield _message(_DONE)


def _binary(rows: pa.Table, columns: Sequence[WireColumn]) -> Iterator[bytes | memoryview]:
    """As PostgreSQL cuts it: what comes before all rows is in the message of the first one."""
    formats = [BINARY_FORMAT] * len(columns)
    if not rows.num_rows:
        yield _message(_DATA, _BINARY_HEAD + _BINARY_END)
        return
    (first,) = data_rows(rows.slice(0, 1), columns, formats)
    yield _message(_DATA, _BINARY_HEAD + bytes(first[1 + _LENGTH_BYTES :]))
    yield from data_rows(rows.slice(1), columns, formats, _DATA)
    yield _message(_DATA, _BINARY_END)


def _lines(batch: pa.RecordBatch, columns: Sequence[WireColumn], form: CopyForm) -> memoryview:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    cells = [_cells(values, column, form) for values, column in zip(batch.columns, columns, strict=True)]
    lines = pc.binary_join_element_wise(*cells, pa.scalar(form.delimiter.encode())) if len(cells) > 1 else cells[0]
    sizes = pc.binary_length(lines).to_numpy(zero_copy_only=False).astype(np.int64) + _LENGTH_BYTES + 1
    parts = [pa.scalar(_DATA), _fixed(sizes, ">i4"), lines, pa.scalar(b"\n")]
    joined = pc.binary_join_element_wise(*parts, pa.scalar(b""))
    return memoryview(joined.buffers()[2])[: int(sizes.sum()) + batch.num_rows]


def _cells(values: pa.Array, column: WireColumn, form: CopyForm) -> pa.Array:
    """The values as they stand in a line."""
    import pyarrow as pa
    import pyarrow.compute as pc

    written = _written(_text_cells(values, column.type), form)
    return pc.fill_null(written, pa.scalar(form.null.encode(), pa.binary()))


def _line(names: Sequence[str], form: CopyForm) -> bytes:
    import pyarrow as pa

    cells = _written(pa.array([name.encode() for name in names], pa.binary()), form)
    return form.delimiter.encode().join(cells.to_pylist()) + b"\n"


def _written(cells: pa.Array, form: CopyForm) -> pa.Array:
    """Texts with what would be read as a delimiter, a line's end or NULL marked; null stays."""
    import pyarrow.compute as pc

    def replaced(found: Any, old: str, new: str) -> Any:
        return pc.replace_substring(found, old.encode(), new.encode())

    if form.kind == TEXT:
        for character, mark in _ESCAPED:
            cells = replaced(cells, character, mark)
        return cells if form.delimiter == "\t" else replaced(cells, form.delimiter, f"\\{form.delimiter}")
    escape = form.escape or form.quote
    doubled = cells if escape == form.quote else replaced(cells, escape, escape * 2)
    doubled = replaced(doubled, form.quote, escape + form.quote)
    marked = pc.equal(cells, form.null.encode())
    for character in (form.delimiter, form.quote, "\n", "\r", "\\."):
        marked = pc.or_(marked, pc.match_substring(cells, character.encode()))
    quoted = pc.binary_join_element_wise(form.quote.encode(), doubled, form.quote.encode(), b"")
    return pc.if_else(marked, quoted, cells)


def _message(kind: bytes, body: bytes = b"") -> bytes:
    return kind + struct.pack("!i", len(body) + _LENGTH_BYTES) + body
