"""Our sources in the place of a suite's tables, and histories that bring them to the suite's rows.

A table with a primary key is a table of ours. One without is a view that shows all columns but the key of a table whose
rows are numbered: `SELECT *` shows what it shows there, and equal rows stay several.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from tests.outside.sqllogic.plain import PlainTable

_TYPES: Final[Mapping[str, str]] = {
    "boolean": "BOOLEAN",
    "tinyint": "INT",
    "smallint": "INT",
    "integer": "INT",
    "utinyint": "INT",
    "usmallint": "INT",
    "bigint": "BIGINT",
    "uinteger": "BIGINT",
    "ubigint": "DECIMAL(20, 0)",
    "hugeint": "DECIMAL(38, 0)",
    "uhugeint": "DECIMAL(38, 0)",
    "float": "DOUBLE",
    "double": "DOUBLE",
    "varchar": "VARCHAR",
    "uuid": "VARCHAR",
    "blob": "BYTES",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamp_s": "TIMESTAMP",
    "timestamp_ms": "TIMESTAMP",
    "timestamp_ns": "TIMESTAMP",
    "timestamp with time zone": "TIMESTAMP",
}
_KEYS: Final = frozenset(("INT", "BIGINT", "VARCHAR"))
_HIDDEN: Final = "hidden_key"
MOST_ROWS: Final = 3000
"""A table of more rows is left out: here answers are compared, not speed."""

# Of a large table not every row makes a detour.
_MOST_DETOURS: Final = 200
_BEGIN: Final = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY: Final = dt.date(1970, 1, 1)

Row = tuple[Any, ...]
Event = dict[str, Any]


class NoType(Exception):
    """A column has a type that the language has not; the type."""


def type_of(found: Any) -> str:
    """Our type in the place of DuckDB's.

    Raises:
        NoType: there is none.
    """
    match found.id:
        case "decimal":
            (_, precision), (_, scale) = found.children
            return f"DECIMAL({precision}, {scale})"
        case "list" | "array":
            return f"ARRAY<{type_of(found.children[0][1])}>"
        case "map":
            (_, key), (_, value) = found.children
            return f"MAP<{type_of(key)}, {type_of(value)}>"
        case "struct":
            return f"STRUCT<{', '.join(f'`{name.lower()}` {type_of(kind)}' for name, kind in found.children)}>"
        case name if name in _TYPES and str(found) != "JSON":
            return _TYPES[name]
        case _:
            raise NoType(str(found).split("(")[0])


@dataclass(frozen=True)
class FedTable:
    """A table of a suite as the engine has it.

    Attributes:
        source: the name of the source that is fed.
        key: the places of the columns of its primary key; empty: the key is hidden.
        statements: what defines it.
    """

    source: str
    names: tuple[str, ...]
    types: tuple[str, ...]
    key: tuple[int, ...]
    statements: tuple[str, ...]

    @classmethod
    def of(cls, table: PlainTable) -> FedTable:
        """The definition in the place of a table. Raises NoType: a column cannot be."""
        names = tuple(name.lower() for name, _ in table.columns)
        types = tuple(type_of(kind) for _, kind in table.columns)
        name, listed = table.name.lower(), [f'"{each}" {kind}' for each, kind in zip(names, types, strict=True)]
        key = tuple(names.index(each.lower()) for each in table.key)
        # `*` shows the columns of a key first.
        if key and key == tuple(range(len(key))) and all(types[place] in _KEYS for place in key):
            listed = [f"{text} PRIMARY KEY" if place in key else text for place, text in enumerate(listed)]
            return cls(name, names, types, key, (f'CREATE TABLE "{name}" ({", ".join(listed)});',))
        rows, shown = f"rows_of_{name}", ", ".join(f'"{each}"' for each in names)
        made = f'CREATE TABLE "{rows}" ({_HIDDEN} INT PRIMARY KEY, {", ".join(listed)});'
        view = f'CREATE MATERIALIZED VIEW "{name}" AS SELECT {shown} FROM "{rows}";'
        return cls(rows, names, types, (), (made, view))

    def events(self, rows: Sequence[Row], before: Sequence[Row], pick: random.Random) -> list[Event]:
        """A history that ends with these rows: in any order, with rows that come and go, and later corrections.

        Args:
            before: rows that may have been there, and are not in the end.
        """
        rows, before = [self._stored(row) for row in rows], [self._stored(row) for row in before]
        waiting = [self._life(key, row, [*rows, *before], pick) for key, row in self._keyed(rows)]
        if not self.key:
            ghosts = [*before, *rows][: min(_MOST_DETOURS, 2 + len(rows) // 3)]
            waiting += [self._ghost((-1 - place,), row) for place, row in enumerate(ghosts)]
        else:
            kept = {key for key, _ in self._keyed(rows)}
            waiting += [self._ghost(key, row) for key, row in dict(self._keyed(before)).items() if key not in kept]
        made = list(_interleaved(waiting, pick))
        for offset, event in enumerate(made):
            at = _BEGIN + dt.timedelta(seconds=offset)
            event |= {"_partition": 0, "_offset": offset, "_timestamp": at, "_stream_time": at}
        return made

    def _keyed(self, rows: Sequence[Row]) -> list[tuple[Row, Row]]:
        if self.key:
            return [(tuple(row[place] for place in self.key), row) for row in rows]
        return [((number,), row) for number, row in enumerate(rows, 1)]

    def _life(self, key: Row, row: Row, others: Sequence[Row], pick: random.Random) -> list[Event]:
        right, chance = self._event(key, row), pick.random()
        if chance > 0.5 or len(others) > _MOST_DETOURS:
            return [right]
        wrong = tuple(pick.choice(others)[place] for place in range(len(row)))
        wrong = tuple(row[place] if place in self.key else value for place, value in enumerate(wrong))
        if chance > 0.25:
            return [self._event(key, wrong), right]
        if chance > 0.1:
            return [dict(right), self._gone(key), right]
        return [self._event(key, wrong), self._gone(key), right]

    def _ghost(self, key: Row, row: Row) -> list[Event]:
        return [self._event(key, row), self._gone(key)]

    def _event(self, key: Row, row: Row) -> Event:
        own = dict(zip(self.names, row, strict=True))
        return {**own, "_tombstone": False} if self.key else {_HIDDEN: key[0], **own, "_tombstone": False}

    def _gone(self, key: Row) -> Event:
        names = [self.names[place] for place in self.key] if self.key else [_HIDDEN]
        return {**dict(zip(names, key, strict=True)), "_tombstone": True}

    def _stored(self, row: Row) -> Row:
        return tuple(stored(value, kind) for value, kind in zip(row, self.types, strict=True))


def stored(value: Any, kind: str) -> Any:
    """A value of Python as event logs take it in."""
    match value:
        case None:
            return None
        case dt.datetime():
            return value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        case dt.time():
            return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
        case tuple():
            return [stored(each, "") for each in value]
        case list():
            return [stored(each, "") for each in value]
        case dict() if kind.startswith("MAP"):
            return [(stored(each, ""), stored(inner, "")) for each, inner in value.items()]
        case dict():
            return {name.lower(): stored(inner, "") for name, inner in value.items()}
        case int() if kind.startswith("DECIMAL"):
            return Decimal(value)
        case bool() | int() | float() | Decimal() | bytes() | dt.date() | str():
            return value
        case _:
            return str(value)


def cut(events: Sequence[Event], epochs: int, pick: random.Random) -> list[Sequence[Event]]:
    """The events in that many epochs, cut anywhere."""
    places = sorted(pick.randint(0, len(events)) for _ in range(epochs - 1))
    return [events[begin:end] for begin, end in zip([0, *places], [*places, len(events)], strict=True)]


def _interleaved(lives: list[list[Event]], pick: random.Random) -> Iterator[Event]:
    """All events, those of one life in their order, otherwise in any."""
    drawn = [place for place, life in enumerate(lives) for _ in life]
    pick.shuffle(drawn)
    rest = [iter(life) for life in lives]
    for place in drawn:
        yield dict(next(rest[place]))
