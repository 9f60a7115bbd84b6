"""Columns of a table as the formats write them: `encoding.wire_value` for whole Arrow columns at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest.formats.encoding import wire_value
from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.model.definitions import Column


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
