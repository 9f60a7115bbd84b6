"""The rows of an Arrow table as JSON text, column by column: a column of plain values is never made of Python objects.

objects   {"town": "Rome", "n": 3}      the text of `jobs.serve.values.RowText`, in a sixth of its time
arrays    ["Rome", 3]                   that of `jobs.serve.format.to_json`
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.jobs.model.types import BaseType
from strandline.jobs.serve.format import to_json
from strandline.jobs.serve.values import writer_of
from strandline.state_store.python_values import python_values

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.model.types import SqlType

_ESCAPED: Final = r'["\\\x00-\x1f]'
"""What a text in JSON cannot have as it is."""
_NULL: Final = "null"


def object_texts(table: pa.Table, types: Sequence[SqlType], names: Sequence[str]) -> Iterator[bytes]:
    """The rows as JSON objects on one line each.

    Args:
        types, names: one for each column.
    """
    labels = [f"{', ' if place else ''}{to_json(name)}: " for place, name in enumerate(names)]
    return _texts(table, types, labels, "{}")


def array_texts(table: pa.Table, types: Sequence[SqlType]) -> Iterator[bytes]:
    """The rows as JSON arrays on one line each; `types` has one for each column."""
    return _texts(table, types, [", " if place else "" for place in range(len(types))], "[]")


def _texts(table: pa.Table, types: Sequence[SqlType], labels: Sequence[str], brackets: str) -> Iterator[bytes]:
    import pyarrow.compute as pc

    for batch in table.to_batches():
        parts: list[pa.Array | str] = [brackets[0]]
        for label, column, sql_type in zip(labels, batch.columns, types, strict=True):
            parts += [label, _column(column, sql_type)]
        rows = pc.binary_join_element_wise(*parts, brackets[1], "")
        yield from rows.cast("binary").to_pylist()


def _column(column: pa.Array, sql_type: SqlType) -> pa.Array:
    """The text of each value."""
    import pyarrow as pa
    import pyarrow.compute as pc

    match sql_type.base:
        case BaseType.INT | BaseType.BIGINT | BaseType.BOOLEAN:
            return pc.fill_null(column.cast(pa.string()), _NULL)
        case BaseType.VARCHAR if not pc.any(pc.match_substring_regex(column, _ESCAPED)).as_py():
            return pc.fill_null(pc.binary_join_element_wise('"', column, '"', ""), _NULL)
        case _:
            write = writer_of(sql_type)
            values = python_values(column, None)
            return pa.array([_NULL if value is None else write(value) for value in values], pa.string())
