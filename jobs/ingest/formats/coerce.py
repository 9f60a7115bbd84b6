"""Coercion of decoded values (JSON, Avro, SQL literals) to a column's type, by ksqlDB's rules where safe.

Where ksqlDB would cut or wrap silently (a fraction into BIGINT, 2^31 into INT) the value is refused: the record goes to
the dead letters, and nothing is lost.

    type                  accepted                                             result for Arrow
    BOOLEAN               true, false, 'true', 'false'                         bool
    INT BIGINT            whole numbers in range, as number or text            int
    DOUBLE                finite numbers, as number or text                    float
    DECIMAL(p, s)         numbers that fit without rounding                    Decimal
    VARCHAR               text; numbers, booleans, objects as their JSON text  str
    BYTES                 bytes; text is base64                                bytes
    DATE                  days since 1970-01-01, 'yyyy-mm-dd'                  date
    TIME                  milliseconds of the day, 'hh:mm:ss'                  int, milliseconds
    TIMESTAMP             milliseconds since 1970, ISO text (UTC unless said)  int, microseconds
    ARRAY MAP STRUCT      lists, objects; STRUCT fields as columns (see find)  list, list of pairs, dict

The inverse of decoding, for INSERT: SQL values become the values that the formats write.

As ksqlDB writes them: DATE as days, TIME as milliseconds of the day, TIMESTAMP as milliseconds since the epoch.

JSON text is written and read without loss: numbers keep every digit.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from math import isfinite
from typing import TYPE_CHECKING, Any
from uuid import UUID

from strandline.jobs.model.definitions import Column
from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.model.types import MAX_PRECISION, BaseType, SqlType

if TYPE_CHECKING:
    import pyarrow as pa


_string = json.JSONEncoder(ensure_ascii=False).encode


def json_text(value: object) -> str:
    """Compact JSON: decimals as plain numbers, bytes as base64, values of other types as their text.

    Raises:
        ValueError: a float is NaN or infinite: JSON has no such number.
    """
    match value:
        case None | bool() | int():
            return json.dumps(value)
        case float() if not isfinite(value):
            raise ValueError("NaN and Infinity are not JSON numbers")
        case float():
            return repr(value)
        case Decimal():
            # A huge exponent written out in full would be gigabytes of zeros.
            return format(value, "f") if -100 < value.adjusted() < 100 else str(value)
        case bytes():
            return _string(b64encode(value).decode())
        case dict():
            members = (f"{_string(str(name))}:{json_text(inner)}" for name, inner in value.items())
            return "{" + ",".join(members) + "}"
        case list() | tuple():
            return "[" + ",".join(json_text(inner) for inner in value) + "]"
        case _:
            return _string(str(value))


def loads_exact(text: bytes) -> object:
    """The parsed text; numbers with a fraction or exponent are Decimals.

    Only for text that orjson accepted: it is the stricter parser, and decides what is JSON.

    Raises:
        ValueError: a number too long to be one, or nested too deeply.
    """
    try:
        return json.loads(text.decode(), parse_float=Decimal)
    except RecursionError:
        raise ValueError("nested too deeply") from None


_WHOLE = re.compile(r"[+-]?[0-9]{1,40}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS = 86_400_000
# Spark and Parquet readers agree on the years 1 to 9999.
FIRST_MICROSECOND = -62_135_596_800_000_000
LAST_MICROSECOND = 253_402_300_799_999_999
# Python's own context rounds to 28 digits; a DECIMAL has up to 38.
_WIDE = Context(prec=2 * MAX_PRECISION)
_BITS = {BaseType.INT: 31, BaseType.BIGINT: 63}


class Misfit(ValueError):
    """A value does not fit its column; the text says why, and shows at most 40 characters of it."""


def coerce(value: object, wanted: SqlType) -> Any:
    """The value for Arrow, see the table above; None stays None.

    Raises:
        Misfit: the value is not one of the type.
    """
    return None if value is None else _RULES[wanted.base](value, wanted)


def find(name: str, fields: Mapping[str, object]) -> str | None:
    """The field of an object that belongs to a column: the same name, else the same but for case."""
    if name in fields:
        return name
    folded = name.lower()
    return next((field for field in fields if field.lower() == folded), None)


def misfit(value: object, wanted: SqlType) -> Misfit:
    try:
        shown = repr(value) if isinstance(value, str) else json_text(value)
    except ValueError:  # NaN and Infinity, which AVRO and PROTOBUF have
        shown = str(value)
    return Misfit(f"{shown if len(shown) <= 40 else shown[:37] + '...'} is not a {wanted}")


def _boolean(value: object, wanted: SqlType) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise misfit(value, wanted)


def _integer(value: object, wanted: SqlType) -> int:
    number: int | None = None
    if isinstance(value, int):
        number = None if isinstance(value, bool) else value
    elif isinstance(value, str):
        number = int(value) if _WHOLE.fullmatch(value.strip()) else None
    elif isinstance(value, (float, Decimal)) and _is_whole(value):
        number = int(value)
    limit = 1 << _BITS[wanted.base]
    if number is None:
        raise misfit(value, wanted)
    if not -limit <= number < limit:
        raise Misfit(f"number out of the range of {wanted}")
    return number


def _is_whole(value: float | Decimal) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    # 1E+999999999 is a whole number too, of a gigabyte of digits.
    return value.is_finite() and value.adjusted() < 20 and value == value.to_integral_value()


def _double(value: object, wanted: SqlType) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise misfit(value, wanted)
    try:
        number = float(value)
    except (ValueError, OverflowError):
        raise misfit(value, wanted) from None
    # A value that is a float already (Avro) may be NaN; text and overflowing decimals may not.
    if not isinstance(value, float) and not isfinite(number):
        raise misfit(value, wanted)
    return number


def _decimal(value: object, wanted: SqlType) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal, str)):
        raise misfit(value, wanted)
    try:
        number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    except (InvalidOperation, ValueError):
        raise misfit(value, wanted) from None
    if not number.is_finite():
        raise misfit(value, wanted)
    if not number:
        return Decimal(0).scaleb(-wanted.scale)
    if number.adjusted() >= wanted.precision - wanted.scale:
        raise Misfit(f"number out of the range of {wanted}")
    fitted = number.quantize(Decimal(1).scaleb(-wanted.scale), context=_WIDE)
    if fitted != number:
        raise Misfit(f"number has more than {wanted.scale} decimal places")
    return fitted


def _varchar(value: object, wanted: SqlType) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float, Decimal, list, dict)):
        try:
            return json_text(value)
        except ValueError:
            raise misfit(value, wanted) from None
    if isinstance(value, UUID):  # a logical type of Avro
        return str(value)
    raise misfit(value, wanted)


def _bytes(value: object, wanted: SqlType) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        try:
            return base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            raise Misfit("text is not base64") from None
    raise misfit(value, wanted)


def _number_in_text(value: object) -> object:
    """The value, or the number that its text holds: in DELIMITED, numbers are text."""
    return int(value) if isinstance(value, str) and _WHOLE.fullmatch(value.strip()) else value


def _date(value: object, wanted: SqlType) -> date:
    value = _number_in_text(value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    try:
        if isinstance(value, int) and not isinstance(value, bool):
            return date(1970, 1, 1) + timedelta(days=value)
        if isinstance(value, str):
            return date.fromisoformat(value.strip())
    except (ValueError, OverflowError):
        pass
    raise misfit(value, wanted)


def _time(value: object, wanted: SqlType) -> int:
    value = _number_in_text(value)
    if isinstance(value, str):
        try:
            value = time.fromisoformat(value.strip())
        except ValueError:
            raise misfit(value, wanted) from None
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _DAY_MS:
        return value
    raise misfit(value, wanted)


def _timestamp(value: object, wanted: SqlType) -> int:
    value = _number_in_text(value)
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            raise misfit(value, wanted) from None
    if isinstance(value, datetime):
        return microseconds(value)
    if isinstance(value, int) and not isinstance(value, bool) and FIRST_MICROSECOND <= value * 1000 <= LAST_MICROSECOND:
        return value * 1000
    raise misfit(value, wanted)


def microseconds(moment: datetime) -> int:
    """Microseconds since the epoch, exactly; a moment without zone is in UTC."""
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (zoned - _EPOCH) // timedelta(microseconds=1)


def _array(value: object, wanted: SqlType) -> list[object]:
    if not isinstance(value, (list, tuple)):
        raise misfit(value, wanted)
    return [coerce(item, wanted.args[0]) for item in value]


def _map(value: object, wanted: SqlType) -> list[tuple[object, object]]:
    if not isinstance(value, Mapping):
        raise misfit(value, wanted)
    pairs = {coerce(key, wanted.args[0]): coerce(item, wanted.args[1]) for key, item in value.items()}
    if None in pairs:
        raise Misfit("a MAP has a null key")
    return list(pairs.items())


def _struct(value: object, wanted: SqlType) -> dict[str, object]:
    if not isinstance(value, Mapping):
        raise misfit(value, wanted)
    fields: dict[str, object] = {}
    for name, inner in wanted.fields:
        found = find(name, value)
        try:
            fields[name] = None if found is None else coerce(value[found], inner)
        except Misfit as error:
            raise Misfit(f"field '{name}': {error}") from None
    return fields


_RULES: Mapping[BaseType, Callable[[object, SqlType], object]] = {
    BaseType.BOOLEAN: _boolean,
    BaseType.INT: _integer,
    BaseType.BIGINT: _integer,
    BaseType.DOUBLE: _double,
    BaseType.DECIMAL: _decimal,
    BaseType.VARCHAR: _varchar,
    BaseType.BYTES: _bytes,
    BaseType.DATE: _date,
    BaseType.TIME: _time,
    BaseType.TIMESTAMP: _timestamp,
    BaseType.ARRAY: _array,
    BaseType.MAP: _map,
    BaseType.STRUCT: _struct,
}


_EPOCH_DAY = date(1970, 1, 1).toordinal()


def wire_value(value: object, column: Column) -> Any:
    """A Python value of the column as the formats write it.

    Raises:
        EncodeFailed: it is not a value of the column's type, or topics cannot carry it.
    """
    try:
        return _wire(coerce(value, column.type), column.type)
    except Misfit as error:
        raise EncodeFailed(f"column '{column.name}': {error}", hint=f"the column is {column.type}") from None


def _wire(value: Any, sql_type: SqlType) -> Any:
    """The value to write for `value`, which is a result of `coerce`."""
    if value is None:
        return None
    match sql_type.base:
        case BaseType.DATE:
            return value.toordinal() - _EPOCH_DAY
        case BaseType.TIMESTAMP:
            if value % 1000:
                raise Misfit("records carry times in whole milliseconds")
            return value // 1000
        case BaseType.ARRAY:
            return [_wire(item, sql_type.args[0]) for item in value]
        case BaseType.MAP:
            return {_member(key, sql_type.args[0]): _wire(item, sql_type.args[1]) for key, item in value}
        case BaseType.STRUCT:
            return {name: _wire(value[name], inner) for name, inner in sql_type.fields}
        case _:
            return value


def _member(key: object, sql_type: SqlType) -> str:
    """A MAP's key as the name of a member."""
    plain = _wire(key, sql_type)
    return plain if isinstance(plain, str) else json_text(plain)


# Columns of a table as the formats write them: `wire_value` for whole Arrow columns at once.


def wire_column(values: pa.ChunkedArray, column: Column) -> list[Any]:
    """The values of a column of the store, one by one as the formats write them.

    Raises:
        EncodeFailed: topics cannot carry one of them.
    """
    import pyarrow as pa

    match column.type.base:
        case BaseType.TIMESTAMP:
            return _milliseconds(values, column)
        case BaseType.DATE:
            return list(values.cast(pa.int32()).to_pylist())
        case BaseType.ARRAY | BaseType.MAP | BaseType.STRUCT:
            return [wire_value(value, column) for value in values.to_pylist(maps_as_pydicts="strict")]
        case _:
            return list(values.to_pylist())


def _milliseconds(values: pa.ChunkedArray, column: Column) -> list[int | None]:
    import pyarrow as pa
    import pyarrow.compute as pc

    micros = values.cast(pa.int64())
    millis = pc.divide(micros, 1000)
    if pc.all(pc.equal(pc.multiply(millis, 1000), micros)).as_py() is False:
        raise EncodeFailed(
            f"column '{column.name}' has a time with microseconds: records carry times in whole milliseconds",
            hint="have the view round it",
        )
    return list(millis.to_pylist())
