"""Records of AVRO and PROTOBUF read by columns: all records of a run go forward together, field by field.

    run      0e 04 41 6e │ 10 04 42 6f │ …     one buffer; of each record where it is read next
    field    17, 18, …                         a whole number of every record, in a few steps of numpy
    field    "An", "Bo", …

A record is read so if it is in the form in which programs write it; then its values are those of reading it by itself.
What is not so may be just as good, or broken: a number out of its column's range, a text that is no UTF-8, a field that
the schema has not, an end too early. That is for the way record by record to say (see `confluent` and
`protobuf_format`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
import pyarrow as pa

from strandline.jobs.ingest.formats.coerce import FIRST_MICROSECOND, LAST_MICROSECOND, find
from strandline.jobs.ingest.formats.columns import Part
from strandline.jobs.model.types import BaseType, SqlType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from numpy.typing import NDArray

    from strandline.jobs.model.definitions import Column

MANY: Final = 200
"""Records of a run from which on reading them by columns is worth its start, some tenths of a millisecond."""

_MORE, _BITS, _MOST_BYTES = 0x80, 0x7F, 10
_PADDING: Final = 16
"""Bytes behind the last record: who reads past an end finds it out afterwards."""
_FIRST_DAY, _LAST_DAY = FIRST_MICROSECOND // 86_400_000_000, LAST_MICROSECOND // 86_400_000_000
_DAY_MILLIS: Final = 86_400_000
_INT64_DIGITS: Final = 18
"""Digits that every number of 64 bits can have."""

Kind = Literal["bool", "whole", "float", "double", "text", "bytes", "date", "time", "millis", "micros", "decimal"]
"""What a field's bytes stand for: `whole` is a number, `date` days, `time` milliseconds of a day, `millis` and `micros`
a moment."""

_FITS: Final[dict[Kind, tuple[BaseType, ...]]] = {
    "bool": (BaseType.BOOLEAN,),
    "whole": (BaseType.INT, BaseType.BIGINT, BaseType.DATE, BaseType.TIME, BaseType.TIMESTAMP),
    "float": (BaseType.DOUBLE,),
    "double": (BaseType.DOUBLE,),
    "text": (BaseType.VARCHAR,),
    "bytes": (BaseType.BYTES,),
    "date": (BaseType.DATE,),
    "time": (BaseType.TIME,),
    "millis": (BaseType.TIMESTAMP,),
    "micros": (BaseType.TIMESTAMP,),
    "decimal": (BaseType.DECIMAL,),
}
"""The types of columns that take a kind's value as it is, or refuse it for its range alone."""


class Unreadable(Exception):
    """The schema has a field that is not read by columns."""


class Run:
    """The bytes of some records, and where the reading of each of them stands.

    Attributes:
        data: all of them, and some zeros.
        at: where each is read next; `ends` where it ends.
        good: the records that are in the expected form so far.
    """

    def __init__(self, payloads: Sequence[bytes | None]) -> None:
        joined = pa.array(payloads, type=pa.binary())
        _, offsets, buffer = joined.buffers()
        marks = np.frombuffer(offsets, dtype=np.int32)[: len(payloads) + 1].astype(np.int64)
        data = np.frombuffer(buffer or b"", dtype=np.uint8)[: marks[-1]]
        self.data = np.concatenate([data, np.zeros(_PADDING, dtype=np.uint8)])
        self.at, self.ends = marks[:-1].copy(), marks[1:]
        self.good: NDArray[np.bool_] = np.asarray(joined.is_valid())

    def bytes_at(self, place: int) -> NDArray[np.uint8]:
        """The byte of each record at this place from its begin; of one that is shorter any."""
        found: NDArray[np.uint8] = self.data[np.minimum(self.at + place, len(self.data) - 1)]
        return found

    def varints(self, rows: NDArray[np.intp]) -> NDArray[np.uint64]:
        """A number of up to 64 bits, seven of them a byte, the lowest first."""
        at = self.at[rows]
        found = np.zeros(len(rows), dtype=np.uint64)
        open_ = np.arange(len(rows))
        for number in range(_MOST_BYTES):
            byte = self.data[np.minimum(at[open_], len(self.data) - 1)]
            found[open_] |= (byte & _BITS).astype(np.uint64) << np.uint64(7 * number)
            at[open_] += 1
            if number == _MOST_BYTES - 1:
                self.good[rows[open_[byte > 1]]] = False  # more than 64 bits
            open_ = open_[byte >= _MORE]
            if not len(open_):
                break
        self._moved(rows, at)
        return found

    def zigzags(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """A number whose lowest bit is its sign."""
        return _unzigzagged(self.varints(rows))

    def fixed(self, rows: NDArray[np.intp], of: str) -> NDArray[Any]:
        """A number in as many bytes as its type has.

        Args:
            of: numpy's name of the type, such as `<f8`.
        """
        size = np.dtype(of).itemsize
        places = np.minimum(self.at[rows], len(self.data) - size)[:, None] + np.arange(size)
        self._moved(rows, self.at[rows] + size)
        return np.ascontiguousarray(self.data[places]).view(of).ravel()

    def spans(self, rows: NDArray[np.intp], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where so many bytes of each record begin; those that a record does not have are none."""
        begins = self.at[rows]
        short = (lengths < 0) | (lengths > self.ends[rows] - begins)
        self.good[rows[short]] = False
        lengths[short] = 0
        self._moved(rows, begins + lengths)
        return begins

    def _moved(self, rows: NDArray[np.intp], at: NDArray[np.int64]) -> None:
        self.good[rows] &= at <= self.ends[rows]
        self.at[rows] = np.minimum(at, self.ends[rows])


def _unzigzagged(found: NDArray[np.uint64]) -> NDArray[np.int64]:
    return (found >> np.uint64(1)).view(np.int64) ^ -(found & np.uint64(1)).view(np.int64)


@dataclass
class _Values:
    """The values of one field, of some rows of a run.

    Attributes:
        numbers: of all rows; of a text where it begins.
        lengths: of texts.
        there: the rows that have a value.
    """

    kind: Kind
    numbers: NDArray[Any]
    lengths: NDArray[np.int64]
    there: NDArray[np.bool_]

    @classmethod
    def none(cls, kind: Kind, rows: int) -> _Values:
        of = {"float": np.float32, "double": np.float64}.get(kind, np.int64)
        return cls(kind, np.zeros(rows, dtype=of), np.zeros(rows, dtype=np.int64), np.zeros(rows, dtype=bool))


def _array(run: Run, rows: NDArray[np.intp], values: _Values, of: SqlType | None, scale: int) -> pa.Array | None:
    """The column of these values; a row whose value it cannot have is no longer good.

    Args:
        rows: all of the values.
        of: the column's type; None: none wants it, and it is only looked at.
        scale: of a decimal; without digits in excess, as the schema says.
    """
    match values.kind:
        case "text" | "bytes":
            return _texts(run, rows, values)
        case "decimal":
            return None if of is None else _decimals(run, rows, values, of, scale)
        case "float" | "double":
            # Among the bytes of a broken record are NaNs of every kind.
            with np.errstate(invalid="ignore"):
                numbers = values.numbers.astype(np.float64)
            return pa.array(numbers, mask=~values.there)
        case "bool":
            _check(run, rows, values, 0, 1)
            return pa.array(values.numbers.astype(bool), mask=~values.there)
        case "micros":
            _check(run, rows, values, FIRST_MICROSECOND, LAST_MICROSECOND)
            return pa.array(values.numbers, mask=~values.there).cast(pa.timestamp("us", tz="UTC"))
        case _:
            return _wholes(run, rows, values, of)


def _wholes(run: Run, rows: NDArray[np.intp], values: _Values, of: SqlType | None) -> pa.Array | None:
    stands_for: dict[str, BaseType] = {"date": BaseType.DATE, "time": BaseType.TIME, "millis": BaseType.TIMESTAMP}
    base = stands_for.get(values.kind) or (of.base if of is not None else BaseType.BIGINT)
    if base is BaseType.BIGINT:
        return pa.array(values.numbers, mask=~values.there)
    least, most = {
        BaseType.INT: (-(1 << 31), (1 << 31) - 1),
        BaseType.DATE: (_FIRST_DAY, _LAST_DAY),
        BaseType.TIME: (0, _DAY_MILLIS - 1),
        BaseType.TIMESTAMP: (FIRST_MICROSECOND // 1000, LAST_MICROSECOND // 1000),
    }[base]
    _check(run, rows, values, least, most)
    if base is BaseType.TIMESTAMP:
        return pa.array(values.numbers * 1000, mask=~values.there).cast(pa.timestamp("us", tz="UTC"))
    narrow = pa.array(values.numbers.astype(np.int32), mask=~values.there)
    return narrow.cast(pa.date32()) if base is BaseType.DATE else narrow


def _check(run: Run, rows: NDArray[np.intp], values: _Values, least: int, most: int) -> None:
    """A number out of a range is left to the way record by record."""
    odd = (values.numbers < least) | (values.numbers > most)
    run.good[rows[odd]] = False
    values.numbers[odd] = least if least > 0 else 0


def _texts(run: Run, rows: NDArray[np.intp], values: _Values) -> pa.Array:
    offsets = np.zeros(len(rows) + 1, dtype=np.int64)
    np.cumsum(values.lengths, out=offsets[1:])
    places = np.repeat(values.numbers - offsets[:-1], values.lengths) + np.arange(offsets[-1])
    held = pa.py_buffer(run.data[places])
    there = pa.array(values.there).buffers()[1] if not values.there.all() else None
    made = pa.BinaryArray.from_buffers(pa.binary(), len(rows), [there, pa.py_buffer(offsets.astype(np.int32)), held])
    if values.kind == "bytes":
        return made
    try:
        return made.cast(pa.string())
    except pa.ArrowInvalid:
        whole = np.array([_is_text(each) for each in made.to_pylist()])
        run.good[rows[~whole]] = False
        values.lengths[~whole] = 0
        return _texts(run, rows, values)


def _is_text(found: bytes | None) -> bool:
    try:
        return found is None or found.decode() is not None
    except UnicodeDecodeError:
        return False


def _decimals(run: Run, rows: NDArray[np.intp], values: _Values, of: SqlType, digits: int) -> pa.Array:
    """Numbers of up to eight bytes, the highest first.

    Args:
        digits: that a number has at most, by its schema.
    """
    run.good[rows[values.there & ((values.lengths < 1) | (values.lengths > 8))]] = False
    lengths = np.clip(values.lengths, 1, 8)
    column = np.arange(8)
    before = 8 - lengths[:, None]
    places = np.minimum(np.maximum(values.numbers[:, None] + column - before, 0), len(run.data) - 1)
    found = run.data[places]
    sign = np.where(run.data[np.minimum(values.numbers, len(run.data) - 1)] >= _MORE, 0xFF, 0).astype(np.uint8)
    raw = np.where(column >= before, found, sign[:, None]).astype(np.uint8)
    numbers = np.ascontiguousarray(raw).view(">i8").ravel().astype(np.int64)
    numbers[~values.there] = 0
    most = min(digits, of.precision)
    if most <= _INT64_DIGITS:
        odd = np.abs(numbers) >= 10**most
        run.good[rows[odd]] = False
        numbers[odd] = 0
    wide = np.stack([numbers, numbers >> 63], axis=1)
    there = pa.array(values.there).buffers()[1] if not values.there.all() else None
    return pa.Array.from_buffers(of.arrow(), len(rows), [there, pa.py_buffer(np.ascontiguousarray(wide))])


def _part(run: Run, rows: NDArray[np.intp], wanted: Sequence[Column], arrays: Mapping[str, pa.Array | None]) -> Part:
    """The columns of the rows that are good.

    Args:
        arrays: by the names of the columns; one that is not there is NULL.
    """
    good = run.good[rows]
    kept = pa.array(good)
    columns = []
    for column in wanted:
        array = arrays.get(column.name)
        array = pa.nulls(len(rows), column.type.arrow()) if array is None else array
        columns.append(array if good.all() else array.filter(kept))
    return Part(rows[good], columns)


def _by_field(wanted: Iterable[Column], fields: Mapping[str, object]) -> dict[str, Column]:
    """{field: the column that it belongs to}.

    Raises:
        Unreadable: two columns take the same field.
    """
    found: dict[str, Column] = {}
    for column in wanted:
        field = find(column.name, fields)
        if field in found:
            raise Unreadable
        if field is not None:
            found[field] = column
    return found


def _fitting(kind: Kind, column: Column | None, scale: int | None = None) -> None:
    """Raise Unreadable if the column does not take what the field has as it is."""
    if column is None:
        return
    if column.type.base not in _FITS[kind] or (kind == "decimal" and column.type.scale != scale):
        raise Unreadable


# AVRO: the fields of a record follow each other in the order of the schema, without a mark between them.

_AVRO: Final[dict[str, Kind]] = {
    "boolean": "bool",
    "int": "whole",
    "long": "whole",
    "float": "float",
    "double": "double",
    "string": "text",
    "bytes": "bytes",
}
_LOGICAL: Final[dict[tuple[str, str], Kind]] = {
    ("int", "date"): "date",
    ("int", "time-millis"): "time",
    ("long", "timestamp-millis"): "millis",
    ("long", "timestamp-micros"): "micros",
    ("bytes", "decimal"): "decimal",
}


@dataclass(frozen=True)
class _AvroField:
    """A field of a record.

    Attributes:
        null: the branch of its union that is null; None: it is no union.
        column: the column that wants it.
        digits: of a decimal.
    """

    kind: Kind
    null: int | None
    column: Column | None
    digits: int = 0


class AvroRecords:
    """Reads the records of one schema.

    Args:
        schema: the schema as its JSON says it.

    Raises:
        Unreadable: it is no record, or has a field that is not read by columns.
    """

    def __init__(self, schema: Any, wanted: Sequence[Column]) -> None:
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise Unreadable
        fields = {field["name"]: field["type"] for field in schema["fields"]}
        columns = _by_field(wanted, fields)
        self._wanted = wanted
        self._fields = [_avro_field(of, columns.get(name)) for name, of in fields.items()]

    def read(self, run: Run, rows: NDArray[np.intp]) -> Part:
        """Read these records, from where each of them stands."""
        arrays: dict[str, pa.Array | None] = {}
        for field in self._fields:
            values = _Values.none(field.kind, len(rows))
            there = self._present(run, rows, field)
            values.there[there] = True
            self._values(run, rows[there], there, field.kind, values)
            of = field.column.type if field.column is not None else None
            made = _array(run, rows, values, of, field.digits)
            if field.column is not None:
                arrays[field.column.name] = made
        return _part(run, rows, self._wanted, arrays)

    def _present(self, run: Run, rows: NDArray[np.intp], field: _AvroField) -> NDArray[np.intp]:
        if field.null is None:
            return np.arange(len(rows))
        branch = run.zigzags(rows)
        run.good[rows[(branch < 0) | (branch > 1)]] = False
        return np.flatnonzero(branch != field.null)

    def _values(self, run: Run, rows: NDArray[np.intp], there: NDArray[np.intp], kind: Kind, values: _Values) -> None:
        match kind:
            case "bool":
                values.numbers[there] = run.fixed(rows, "u1")
            case "float":
                values.numbers[there] = run.fixed(rows, "<f4")
            case "double":
                values.numbers[there] = run.fixed(rows, "<f8")
            case "text" | "bytes" | "decimal":
                lengths = run.zigzags(rows)
                values.numbers[there] = run.spans(rows, lengths)
                values.lengths[there] = lengths
            case _:
                values.numbers[there] = run.zigzags(rows)


def _avro_field(of: Any, column: Column | None) -> _AvroField:
    null = None
    if isinstance(of, list):
        if len(of) != 2 or "null" not in of:
            raise Unreadable
        null = of.index("null")
        of = of[1 - null]
    plain = of if isinstance(of, str) else of.get("type") if isinstance(of, dict) else None
    logical = of.get("logicalType") if isinstance(of, dict) else None
    if not isinstance(plain, str):
        raise Unreadable
    kind = _AVRO.get(plain) if logical is None else _LOGICAL.get((plain, str(logical)))
    if kind is None:
        raise Unreadable
    if kind != "decimal":
        _fitting(kind, column)
        return _AvroField(kind, null, column)
    if column is None:
        raise Unreadable  # a number with more digits than it says is an error of the record
    _fitting(kind, column, of.get("scale", 0))
    return _AvroField(kind, null, column, of["precision"])


# PROTOBUF: each field comes with its number, in any order; of a field that comes twice the last one counts, and one
# that has no presence of its own has its default where it is missing.

_PROTOBUF: Final[dict[str, tuple[Kind, int]]] = {
    "BOOL": ("bool", 0),
    "INT32": ("whole", 0),
    "INT64": ("whole", 0),
    "UINT32": ("whole", 0),
    "UINT64": ("whole", 0),
    "SINT32": ("whole", 0),
    "SINT64": ("whole", 0),
    "FIXED32": ("whole", 5),
    "FIXED64": ("whole", 1),
    "SFIXED32": ("whole", 5),
    "SFIXED64": ("whole", 1),
    "FLOAT": ("float", 5),
    "DOUBLE": ("double", 1),
    "STRING": ("text", 2),
    "BYTES": ("bytes", 2),
}
"""{type of a field: what it stands for, and how its bytes are cut}."""
_FIXED: Final = {
    "FIXED32": "<u4",
    "FIXED64": "<i8",
    "SFIXED32": "<i4",
    "SFIXED64": "<i8",
    "FLOAT": "<f4",
    "DOUBLE": "<f8",
}
_RANGES: Final = {"INT32": (-(1 << 31), (1 << 31) - 1), "UINT32": (0, (1 << 32) - 1), "SINT32": (0, (1 << 32) - 1)}
"""Numbers of more bits than their field has are cut by its readers."""


@dataclass(frozen=True)
class _ProtobufField:
    """A field of a message.

    Attributes:
        type: Protobuf's name of it.
        optional: it is NULL where it is missing.
        column: the column that wants it.
    """

    kind: Kind
    type: str
    optional: bool
    column: Column | None


class ProtobufRecords:
    """Reads the messages of one class.

    Raises:
        Unreadable: it has a field that is not read by columns.
    """

    def __init__(self, descriptor: Descriptor, wanted: Sequence[Column]) -> None:
        columns = _by_field(wanted, {field.name: field for field in descriptor.fields})
        self._wanted = wanted
        self._fields: dict[int, _ProtobufField] = {}
        """By the mark before the field's bytes: its number, and how they are cut."""
        for field in descriptor.fields:
            made, cut = _protobuf_field(field, columns.get(field.name))
            self._fields[field.number << 3 | cut] = made

    def read(self, run: Run, rows: NDArray[np.intp]) -> Part:
        """Read these messages, from where each of them stands."""
        found = {mark: _Values.none(field.kind, len(rows)) for mark, field in self._fields.items()}
        left = np.arange(len(rows))
        # A message has each of its fields once, and some once more.
        for _ in range(2 * len(self._fields) + 1):
            left = left[(run.at[rows[left]] < run.ends[rows[left]]) & run.good[rows[left]]]
            if not len(left):
                break
            marks = run.varints(rows[left])
            for mark in np.unique(marks).tolist():
                there = left[marks == mark]
                field = self._fields.get(mark)
                if field is None:
                    run.good[rows[there]] = False
                else:
                    self._take(run, rows[there], there, field, found[mark])
        run.good[rows[left]] = False
        arrays: dict[str, pa.Array | None] = {}
        for mark, field in self._fields.items():
            values = found[mark]
            values.there |= not field.optional
            of = field.column.type if field.column is not None else None
            made = _array(run, rows, values, of, 0)
            if field.column is not None:
                arrays[field.column.name] = made
        return _part(run, rows, self._wanted, arrays)

    def _take(
        self, run: Run, rows: NDArray[np.intp], there: NDArray[np.intp], field: _ProtobufField, values: _Values
    ) -> None:
        if field.kind == "text":
            # The former text is nobody's, and must be one all the same.
            run.good[rows[values.there[there]]] = False
        values.there[there] = True
        if field.type in _FIXED:
            numbers: NDArray[Any] = run.fixed(rows, _FIXED[field.type])
            if field.type == "FIXED64":
                run.good[rows[numbers < 0]] = False
            values.numbers[there] = numbers
            return
        plain = run.varints(rows)
        if field.kind in ("text", "bytes"):
            lengths = plain.view(np.int64)
            values.numbers[there] = run.spans(rows, lengths)
            values.lengths[there] = lengths
            return
        numbers = plain.view(np.int64)
        if field.type in _RANGES:
            least, most = _RANGES[field.type]
            run.good[rows[(numbers < least) | (numbers > most)]] = False
        if field.type == "UINT64":
            run.good[rows[numbers < 0]] = False
        values.numbers[there] = _unzigzagged(plain) if field.type.startswith("SINT") else numbers


def _protobuf_field(field: FieldDescriptor, column: Column | None) -> tuple[_ProtobufField, int]:
    """The field, and how its bytes are cut."""
    names = {number: name.removeprefix("TYPE_") for name, number in _types(field).items()}
    found = _PROTOBUF.get(names.get(field.type, ""))
    oneof = field.containing_oneof
    if found is None or field.is_repeated or field.has_default_value or (oneof is not None and len(oneof.fields) > 1):
        raise Unreadable
    kind, cut = found
    _fitting(kind, column)
    return _ProtobufField(kind, names[field.type], field.has_presence, column), cut


def _types(field: FieldDescriptor) -> dict[str, int]:
    """{`TYPE_INT32`, …: its number}."""
    of = type(field)
    return {name: getattr(of, name) for name in dir(of) if name.startswith("TYPE_")}
