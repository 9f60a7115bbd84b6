"""JSON: a value is an object whose members are the columns; a key of one column is that column's bare value."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pyarrow as pa

from strandline.jobs.ingest.formats import columns, json_text
from strandline.jobs.model.types import BaseType, SqlType

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.ingest.formats.json_shapes import ShapeReader
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
    """JSON for the key's or the value's columns. `bare`: the payload is one column's value, not an object."""

    def __init__(self, wanted: tuple[Column, ...], *, bare: bool) -> None:
        self._columns = wanted
        self._bare = bare
        self._plain = all(column.type.base in _WRITTEN_PLAIN for column in wanted)
        self._shapes: ShapeReader | None = None
        self._exact = any(_has(column.type, BaseType.DECIMAL) for column in wanted)

    def decode(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """One array per column. A null payload gives nulls; a broken one nulls and an entry in `errors`.

        Objects that look alike are read by columns, when they are many (see `json_shapes`); the rest one by one.
        """
        if self._bare or len(payloads) < _MANY:
            return self.decode_each(payloads, errors)
        if self._shapes is None:
            from strandline.jobs.ingest.formats.json_shapes import ShapeReader

            self._shapes = ShapeReader(self._columns)
        return columns.joined(self._shapes.read(payloads), payloads, self.decode_each, errors)

    def decode_each(self, payloads: Sequence[bytes | None], errors: Errors) -> list[pa.Array]:
        """As `decode`, with each payload read by itself."""
        documents = self._parse(payloads, errors)

        def exact(row: int) -> Any:
            payload = payloads[row]
            return documents[row] if payload is None else json_text.loads_exact(payload)

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
        """The payload of coerced values (see `formats.encoding`)."""
        value = row[self._columns[0].name] if self._bare else dict(row)
        if value is None:
            return None
        return orjson.dumps(value) if self._plain else json_text.dumps(value).encode()

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
            return json_text.loads_exact(payload)
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
