"""Expected records as rows of a view, and when two values are the same."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from strandline.jobs.ingest.formats.coerce import Misfit, coerce, microseconds
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.types import BaseType, SqlType
from tests.conformance.proto import without_defaults
from tests.conformance.wire import Wire

Row = dict[str, Any]

# Sums of doubles depend on the order of adding.
_RELATIVE = 1e-9


class Unreadable(Exception):
    """An expected record does not fit the view's columns: the view has others than ksqlDB's."""


@dataclass(frozen=True)
class Expected:
    """An expected record.

    Attributes:
        key: what tells it from others: the record's key and window, as text.
        row: the view's visible columns; None for a null value.
        timestamp: milliseconds since 1970, when the case says it.
    """

    key: str
    row: Row | None
    timestamp: int | None = None


@dataclass(frozen=True)
class ComparedRelation:
    """A stream or table whose records are compared.

    Attributes:
        keys, values: its visible columns, in the order in which ksqlDB writes them.
        table: later records of a key replace earlier ones.
        taken_back: an outer join of streams, which sends a row without a partner and takes it back later.
        held_back: ksqlDB sends such a row when no partner can come any more: the join has a GRACE PERIOD.
        keeps_empty: a group stays, with its zeros, when its last row goes.
    """

    name: str
    keys: tuple[Column, ...]
    values: tuple[Column, ...]
    wire: Wire
    table: bool
    taken_back: bool = False
    held_back: bool = False
    keeps_empty: bool = False

    def expected(self, record: Mapping[str, Any]) -> Expected:
        """Read a record that must come out.

        Raises:
            Unreadable: it has columns that the relation has not, or values of other types.
        """
        wire, key, value = self.wire, record.get("key"), record.get("value")
        window = record.get("window") or {}
        identity = repr((_folded(key), window.get("start"), window.get("end")))
        stated = record.get("timestamp")
        timestamp = None if stated is None else int(stated)
        if value is None:
            return Expected(identity, None, timestamp)
        given = {
            **_split(key, self.keys, wire.key_format, wire.key_delimiter, bare=not wire.key_defaults),
            **_split(value, self.values, wire.value_format, wire.value_delimiter, bare=not wire.wrapped),
        }
        for column in (*self.keys, *self.values):
            try:
                given[column.name] = canonical(given.get(column.name), column.type)
            except (Misfit, ValueError, TypeError) as error:
                stands = f"'{column.name}' is {column.type}"
                raise Unreadable(f"column {stands}, expected {given[column.name]!r}") from error
        return Expected(identity, self._comparable(given), timestamp)

    def rows(self, stored: Sequence[Row]) -> list[Row]:
        """Stored rows in the form of the expected ones."""
        columns = (*self.keys, *self.values)
        rows = [self._comparable({c.name: canonical(row[c.name], c.type) for c in columns}) for row in stored]
        if self.wire.wrapped or self.table or len(self.values) != 1:
            return rows
        # A bare NULL is a record without a value, which is not expected of a stream.
        return [row for row in rows if row[self.values[0].name] is not None]

    def is_empty_group(self, row: Row) -> bool:
        """Whether nothing but the group itself is in a row."""
        group = [row[column.name] for column in self.keys]
        return all(not row[c.name] or any(same(row[c.name], each) for each in group) for c in self.values)

    def _comparable(self, row: Row) -> Row:
        return {
            **{c.name: _folded_null(row[c.name], c, self.wire.key_defaults) for c in self.keys},
            **{c.name: _folded_null(row[c.name], c, self.wire.value_defaults) for c in self.values},
        }


def _folded_null(value: Any, column: Column, defaults: bool) -> Any:
    return without_defaults(value, column.type) if defaults else value


def _split(payload: Any, columns: Sequence[Column], form: str, delimiter: str, *, bare: bool) -> dict[str, Any]:
    """{column: value} of a key or value."""
    if payload is None or not columns:
        return {}
    if form == "DELIMITED":
        values: list[str] = next(csv.reader([str(payload)], delimiter=delimiter), [])
        if len(values) != len(columns):
            listed = ", ".join(column.name for column in columns)
            raise Unreadable(f"{len(values)} values for the columns {listed}: {payload!r}")
        return {column.name: value or None for column, value in zip(columns, values, strict=True)}
    if not isinstance(payload, Mapping) or (bare and len(columns) == 1 and columns[0].type.is_nested):
        if len(columns) != 1:
            raise Unreadable(f"{payload!r} for the columns {', '.join(column.name for column in columns)}")
        return {columns[0].name: payload}
    names = {column.name for column in columns}
    folded = {name.lower(): name for name in names}
    found = {field: field if field in names else folded.get(field.lower()) for field in payload}
    unknown = [field for field, name in found.items() if name is None and payload[field] is not None]
    if unknown:
        raise Unreadable(f"no column for {', '.join(unknown)} among {', '.join(sorted(names))}")
    return {name: payload[field] for field, name in found.items() if name is not None}


def canonical(value: Any, kind: SqlType) -> Any:
    """A value, expected or stored, in one form: dates as days, times as numbers, maps as dicts.

    Raises:
        Misfit: it is not a value of the type.
    """
    if value is None:
        return None
    match kind.base:
        case BaseType.ARRAY:
            return [canonical(item, kind.args[0]) for item in value]
        case BaseType.MAP:
            pairs = value.items() if isinstance(value, Mapping) else value
            return {canonical(k, kind.args[0]): canonical(v, kind.args[1]) for k, v in pairs}
        case BaseType.STRUCT:
            if not isinstance(value, Mapping):
                raise Misfit(f"{value!r} is not an object")
            folded = {str(name).lower(): item for name, item in value.items()}
            return {name: canonical(value.get(name, folded.get(name.lower())), inner) for name, inner in kind.fields}
        case BaseType.DOUBLE if isinstance(value, str | float):
            return float(value)
        case BaseType.TIMESTAMP if isinstance(value, datetime):
            return microseconds(value if value.tzinfo else value.replace(tzinfo=UTC))
        case _:
            return coerce(value, kind)


def same(left: Any, right: Any) -> bool:
    """Whether two canonical values are equal; doubles up to the last digits."""
    match left, right:
        case (float(), float() | int() | Decimal()) | (int() | Decimal(), float()):
            if math.isnan(left) or math.isnan(right):
                return math.isnan(left) and math.isnan(right)
            return math.isclose(left, right, rel_tol=_RELATIVE)
        case list(), list():
            return len(left) == len(right) and all(map(same, left, right))
        case dict(), dict():
            return left.keys() == right.keys() and all(same(value, right[name]) for name, value in left.items())
        case _:
            return bool(left == right)


def difference(wanted: Sequence[Row], found: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """What is missing and what is too much, when both are multisets."""
    left, missing = list(found), []
    for row in wanted:
        at = next((place for place, other in enumerate(left) if same(row, other)), None)
        if at is None:
            missing.append(row)
        else:
            del left[at]
    return missing, left


def _folded(value: Any) -> Any:
    """A key as text that does not depend on the order of its members."""
    if isinstance(value, Mapping):
        return sorted((str(name).lower(), repr(_folded(item))) for name, item in value.items())
    return str(value)
