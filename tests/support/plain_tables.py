"""Plain DuckDB tables beside the sources of views: a row for each event of a stream, the newest one of each key.

They are kept by hand, so a query asked of them knows nothing of our front end, our rules or our recompute texts. Values
are those at which engines differ: NULL, NaN, both zeros, whole numbers that a DOUBLE does not hold, days before 1970.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any, Final

import duckdb

SOURCES: Final = """
CREATE STREAM s (sid INT, k VARCHAR, v INT, w BIGINT, x DOUBLE, d DECIMAL(8, 2), b BOOLEAN, dt DATE, ts TIMESTAMP,
  arr ARRAY<INT>, st STRUCT<a INT, c VARCHAR>);
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, v INT, w BIGINT, x DOUBLE, d DECIMAL(8, 2), b BOOLEAN, dt DATE,
  ts TIMESTAMP, arr ARRAY<INT>, st STRUCT<a INT, c VARCHAR>);
CREATE TABLE u (id INT PRIMARY KEY, k VARCHAR, v INT, w BIGINT, x DOUBLE, d DECIMAL(8, 2));
CREATE TABLE n (k VARCHAR PRIMARY KEY, v INT);
"""
"""The statements of the sources."""

_DUCKDB: Final = {
    "sid": "INT",
    "id": "INT",
    "k": "VARCHAR",
    "v": "INT",
    "w": "BIGINT",
    "x": "DOUBLE",
    "d": "DECIMAL(8, 2)",
    "b": "BOOLEAN",
    "dt": "DATE",
    "ts": "TIMESTAMPTZ",
    "arr": "INT[]",
    "st": "STRUCT(a INT, c VARCHAR)",
}
_MORE: Final = ("k", "v", "w", "x", "d", "b", "dt", "ts", "arr", "st")
_COLUMNS: Final = {"s": ("sid", *_MORE), "t": ("id", *_MORE), "u": ("id", *_MORE[:5]), "n": ("k", "v")}
_PLACE: Final = "rowtime BIGINT, o INT"
_BEGIN: Final = datetime(2024, 1, 1, tzinfo=UTC)


def _at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


_VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "id": range(1, 7),
    "k": ("a", "A", "", "a_b", None),
    "v": (1, 2, 3, 1, -2, None),
    "w": (1, 2**63 - 1, -(2**63), 2**53, 2**53 + 1, None),
    "x": (0.0, -0.0, 1.0, -2.5, 2.0**53, math.nan, math.inf, -math.inf, None),
    "d": (Decimal("1.25"), Decimal("-0.01"), Decimal("2.00"), None),
    "b": (True, False, None),
    "dt": (date(1969, 12, 31), date(2024, 2, 29), date(1, 1, 1), None),
    "ts": (_at("1969-12-31T23:59:59.999"), _at("1900-03-01T12:00:00.000001"), _at("2024-12-30T05:06:07"), None),
    "arr": ([1, 2], [], [None], [3, 3, None], None),
    "st": ({"a": 1, "c": "x"}, {"a": None, "c": None}, None),
}
_KEYS: Final = {"t": "id", "u": "id", "n": "k"}
_TOMBSTONES: Final = 0.25

Events = dict[str, list[dict[str, Any]]]
"""Events by event log, as `DuckLake.feed` takes them."""


class PlainTables:
    """The tables, in a database of their own, and the events that bring them there.

    A stream has a column `rowtime` (milliseconds) and `o`, its offset, beside its own.
    """

    def __init__(self, seed: int) -> None:
        self._pick = Random(seed)
        self._db = duckdb.connect(config={"threads": 1})
        # NULL is the least of all values, as it is to the language.
        self._db.execute("SET TimeZone = 'UTC'; SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        for name, columns in _COLUMNS.items():
            typed = ", ".join(f"{each} {_DUCKDB[each]}" for each in columns)
            self._db.execute(f"CREATE TABLE {name} ({typed}, {_PLACE})")
        self._offsets = dict.fromkeys(_COLUMNS, 0)
        self._clocks = dict.fromkeys(_COLUMNS, datetime.min.replace(tzinfo=UTC))

    def close(self) -> None:
        """Forget the tables."""
        self._db.close()

    def rows(self, sql: str) -> Counter[tuple[Any, ...]]:
        """The rows of a query, as `told_apart` gives them."""
        return told_apart(self._db.execute(sql).fetchall())

    def in_order(self, sql: str) -> list[Counter[tuple[Any, ...]]]:
        """The rows of a query with ORDER BY, each as `told_apart` gives it."""
        return [told_apart([row]) for row in self._db.execute(sql).fetchall()]

    def epochs(self, count: int, most: int) -> Iterator[Events]:
        """Events, up to `most` of each source at a time; the tables have them when they are given."""
        for _ in range(count):
            batch: Events = {}
            for name in _COLUMNS:
                rows = [self._event(name) for _ in range(self._pick.randint(0, most))]
                if rows:
                    batch[f"{name}__log" if name in _KEYS else name] = rows
            yield batch

    def _event(self, name: str) -> dict[str, Any]:
        offset = self._offsets[name]
        self._offsets[name] += 1
        row = {each: offset if each == "sid" else self._pick.choice(_VALUES[each]) for each in _COLUMNS[name]}
        at = _BEGIN + timedelta(seconds=7 * offset + self._pick.randint(-20, 20))
        self._clocks[name] = max(self._clocks[name], at)
        place = {"_partition": 0, "_offset": offset, "_timestamp": at, "_stream_time": self._clocks[name]}
        stored = [*row.values(), int(at.timestamp() * 1000), offset]
        key = _KEYS.get(name)
        if key is None:
            self._insert(name, stored)
            return {**row, **place}
        row[key] = row[key] if row[key] is not None else "none"
        self._db.execute(f"DELETE FROM {name} WHERE {key} = ?", [row[key]])
        if self._pick.random() < _TOMBSTONES:
            return {key: row[key], **place, "_tombstone": True}
        self._insert(name, [*row.values(), *stored[-2:]])
        return {**row, **place, "_tombstone": False}

    def _insert(self, name: str, values: Sequence[Any]) -> None:
        self._db.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)


def told_apart(rows: Iterable[Sequence[Any]]) -> Counter[tuple[Any, ...]]:
    """Rows as a multiset: TRUE is not 1, doubles have nine digits, both zeros are one."""
    return Counter(tuple(_comparable(value) for value in row) for row in rows)


def _comparable(value: Any) -> Any:
    match value:
        case bool():
            return "true" if value else "false"
        case float():
            return "NaN" if math.isnan(value) else float(f"{value:.9g}") + 0.0
        case Decimal():
            return value.normalize() + 0
        case dict():
            return tuple((name, _comparable(each)) for name, each in value.items())
        case list():
            return tuple(_comparable(each) for each in value)
        case _:
            return value
