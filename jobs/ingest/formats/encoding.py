"""The inverse of decoding, for INSERT: SQL values become the values that the formats write.

As ksqlDB writes them: DATE as days, TIME as milliseconds of the day, TIMESTAMP as milliseconds since the epoch.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest.formats import json_text
from strandline.jobs.ingest.formats.coerce import Misfit, coerce
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.model.types import BaseType, SqlType

if TYPE_CHECKING:
    import pyarrow as pa


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
    return plain if isinstance(plain, str) else json_text.dumps(plain)


# Columns of a table as the formats write them: `encoding.wire_value` for whole Arrow columns at once.


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
