"""The rows of Arrow tables: as Python values, as results hold them, and as JSON text.

The text is made column by column, so that a column of plain values never becomes Python objects:

objects   {"town": "Rome", "n": 3}      the text of `RowText`, in a sixth of its time
arrays    ["Rome", 3]                   that of `jobs.serve.format.to_json`
"""

from __future__ import annotations

import datetime as dt
from json.encoder import encode_basestring
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.serve.format import to_json
from strandline.state_store.python_values import python_values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa


_MIDNIGHT = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def python_rows(table: pa.Table, types: Sequence[SqlType]) -> list[tuple[object, ...]]:
    """The rows of `table` as tuples, MAP as dict and TIME as time of day.

    Args:
        types: the type of each column.
    """
    columns = [_values(table.column(place), sql_type) for place, sql_type in enumerate(types)]
    return list(zip(*columns, strict=True))


def _values(column: pa.ChunkedArray, sql_type: SqlType) -> list[Any]:
    values = python_values(column)
    return [shown(value, sql_type) for value in values] if _has_time(sql_type) else values


def _has_time(sql_type: SqlType) -> bool:
    inner = (*sql_type.args, *(field for _, field in sql_type.fields))
    return sql_type.base is BaseType.TIME or any(_has_time(each) for each in inner)


def shown(value: Any, sql_type: SqlType) -> Any:
    """A value with its MAPs as dicts and its TIMEs as times of day: those are stored as milliseconds, and only the type
    tells them apart."""
    if value is None:
        return None
    match sql_type.base:
        case BaseType.TIME:
            return (_MIDNIGHT + dt.timedelta(milliseconds=value)).time()
        case BaseType.ARRAY:
            return [shown(item, sql_type.args[0]) for item in value]
        case BaseType.MAP:
            pairs = value.items() if isinstance(value, dict) else value
            return {shown(key, sql_type.args[0]): shown(item, sql_type.args[1]) for key, item in pairs}
        case BaseType.STRUCT:
            return {name: shown(value[name], inner) for name, inner in sql_type.fields}
        case _:
            return value


# Rows as JSON text, for many rows of the same columns: how a column is written is chosen once.
#
# The text is that of `jobs.serve.format.json_line` over `jobs.serve.values.shown`, in a third of the time.


class RowText:
    """The writer of some columns.

    Args:
        columns: those that are wanted, in their order: each by its name in a row, or by its place.
        names: what they are called in the text, where that is not their name in a row.
    """

    def __init__(self, columns: Iterable[tuple[str | int, SqlType]], names: Sequence[str] | None = None) -> None:
        wanted = list(columns)
        shown = names or [str(name) for name, _ in wanted]
        self._members = [
            (name, f"{to_json(called)}: ", writer_of(sql_type))
            for (name, sql_type), called in zip(wanted, shown, strict=True)
        ]

    def of(self, row: Any) -> str:
        """One row, a mapping or a sequence, whose MAPs are lists of pairs, as a JSON object on one line."""
        members = [label + ("null" if row[name] is None else write(row[name])) for name, label, write in self._members]
        return f"{{{', '.join(members)}}}"


def writer_of(sql_type: SqlType) -> Callable[[Any], str]:
    """What writes a value that is not NULL, with its MAPs as lists of pairs, as JSON text."""
    match sql_type.base:
        case BaseType.INT | BaseType.BIGINT:
            return str
        case BaseType.VARCHAR:
            return encode_basestring
        case BaseType.BOOLEAN | BaseType.DOUBLE | BaseType.DECIMAL:
            return to_json
        case _:
            return lambda value: to_json(shown(value, sql_type))


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
