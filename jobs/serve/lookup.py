"""Look-ups: rows of one view by key, key list, range or window, as a request asks for them.

values of key columns ──> keys, or a range of keys ──> a replica's reading ──> rows
                      └─> WHERE … of a SELECT      ──> the table, while there is no replica
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from strandline.jobs.model.tables import WINDOW_END, WINDOW_START
from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.results import cell
from strandline.jobs.sql.from_text import data_type
from strandline.jobs.sql.syntax import Select
from strandline.state_store.replicas.row_bytes import KeyRange
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.jobs.model.tables import Relation
    from strandline.state_store.replicas.state import ReplicaReading, Row

KeyValues = tuple[Any, ...]
"""The values of a key's columns, or of the first of them, as Arrow's `to_pylist` gives them."""


@dataclass(frozen=True)
class Windows:
    """Bounds of the windows that are wanted, milliseconds since the epoch, both ends included; None: open."""

    start_from: int | None = None
    start_to: int | None = None
    end_from: int | None = None
    end_to: int | None = None

    @property
    def terms(self) -> list[tuple[str, type[exp.GTE] | type[exp.LTE], int]]:
        """Each bound that is given: its column, how it compares, and its value."""
        named = (
            (WINDOW_START, exp.GTE, self.start_from),
            (WINDOW_START, exp.LTE, self.start_to),
            (WINDOW_END, exp.GTE, self.end_from),
            (WINDOW_END, exp.LTE, self.end_to),
        )
        return [(column, compare, value) for column, compare, value in named if value is not None]

    def holds(self, row: Row) -> bool:
        """True if a row's window is within the bounds."""
        return all(
            row[column] >= value if compare is exp.GTE else row[column] <= value
            for column, compare, value in self.terms
        )


@dataclass(frozen=True)
class Lookup:
    """What is wanted of one view.

    Attributes:
        keys: rows whose key begins with any of these; None: a range.
        low, high: the range, both ends included, by the first columns of the key; None: open.
        columns: shown, in this order; none: all.
        limit: the most rows.
    """

    keys: tuple[KeyValues, ...] | None = None
    low: KeyValues | None = None
    high: KeyValues | None = None
    windows: Windows = Windows()
    columns: tuple[str, ...] = ()
    limit: int = 1000

    def check(self, relation: Relation) -> None:
        """Check that the relation has the columns that are asked for.

        Raises:
            RequestRefused: it has not; or it has no key, or no windows.
        """
        names = [name for name, _ in relation.columns]
        unknown = [name for name in self.columns if name not in names]
        if unknown:
            raise RequestRefused(
                sentence("'{}' has no column '{}'", Name(relation.name), unknown[0]), hint=f"it has {', '.join(names)}"
            )
        if self.windows.terms and WINDOW_START not in names:
            raise RequestRefused(sentence("'{}' has no windows", Name(relation.name)))
        if self._by_key and not relation.key:
            raise RequestRefused(
                sentence("'{}' has no visible key", Name(relation.name)),
                hint="ask with POST /v1/query: SELECT … WHERE …",
            )
        longest = max((len(key) for key in (*(self.keys or ()), self.low or (), self.high or ())), default=0)
        if longest > len(relation.key):
            raise RequestRefused(
                sentence("a key of '{}' has {} columns", Name(relation.name), len(relation.key)), hint=_listed(relation)
            )

    @property
    def _by_key(self) -> bool:
        return self.keys is not None or self.low is not None or self.high is not None

    def most_rows(self, relation: Relation) -> int:
        """How many rows there are to read at the most."""
        if self.keys is not None and all(len(key) == len(relation.key) for key in self.keys):
            return min(len(self.keys), self.limit)
        # Rows whose window is not wanted are read all the same.
        return 1 << 62 if self.windows.terms else self.limit

    def rows(self, reading: ReplicaReading, key: tuple[str, ...]) -> list[Row]:
        """The rows, from a replica, with all their columns, in the order of the keys that are asked for.

        Args:
            key: the columns of the view's key.

        Raises:
            KeyRefused: a bound of a range is longer than keys are ordered by.
        """
        found = (row for row in self._found(reading, key) if self.windows.holds(row))
        return list(islice(found, self.limit))

    def _found(self, reading: ReplicaReading, key: tuple[str, ...]) -> Iterator[Row]:
        if self.keys is None:
            yield from reading.range(KeyRange(self.low, self.high, with_high=True))
            return
        if all(len(values) == len(key) for values in self.keys):
            yield from (row for row in reading.multi_get(self.keys) if row is not None)
            return
        for values in self.keys:
            if len(values) == len(key):
                row = reading.get(values)
                if row is not None:
                    yield row
            else:
                yield from reading.range(KeyRange.of_prefix(*values))

    def select(self, relation: Relation) -> Select:
        """The same as a SELECT over the table."""
        query = exp.select(*(exp.column(name) for name in self.columns or self._all(relation)))
        conditions = [
            *self._conditions(relation),
            *(
                compare(this=exp.column(name), expression=exp.Literal.number(v))
                for name, compare, v in self.windows.terms
            ),
        ]
        query = query.from_(exp.to_table(relation.name))
        if conditions:
            query = query.where(exp.and_(*conditions))
        return Select(query=query, limit=self.limit)

    def _all(self, relation: Relation) -> list[str]:
        return [name for name, _ in relation.columns]

    def _conditions(self, relation: Relation) -> Iterator[exp.Expr]:
        if self.keys is not None:
            if all(len(key) == 1 and key[0] is not None for key in self.keys):
                column = relation.key[0]
                values = [_literal(relation, column, key[0]) for key in self.keys]
                yield exp.In(this=exp.column(column), expressions=values)
            else:
                yield exp.or_(*(exp.and_(*_equal(relation, key)) for key in self.keys))
        for bound, compare in ((self.low, exp.GTE), (self.high, exp.LTE)):
            if bound is not None:
                yield _compared(relation, bound, compare)


def _equal(relation: Relation, key: KeyValues) -> Iterable[exp.Expr]:
    for name, value in zip(relation.key, key, strict=False):
        column = exp.column(name)
        if value is None:
            yield exp.Is(this=column, expression=exp.Null())
        else:
            yield exp.EQ(this=column, expression=_literal(relation, name, value))


def _compared(relation: Relation, bound: KeyValues, compare: type[exp.GTE] | type[exp.LTE]) -> exp.Expr:
    """`(a, b) >= (x, y)` spelled out: a > x OR (a = x AND b >= y)."""
    strict = exp.GT if compare is exp.GTE else exp.LT
    name, value = relation.key[len(bound) - 1], bound[-1]
    found: exp.Expr = compare(this=exp.column(name), expression=_literal(relation, name, value))
    for place in range(len(bound) - 2, -1, -1):
        name, literal = relation.key[place], _literal(relation, relation.key[place], bound[place])
        same = exp.EQ(this=exp.column(name), expression=literal.copy())
        found = exp.or_(strict(this=exp.column(name), expression=literal), exp.and_(same, found))
    return found


def _literal(relation: Relation, column: str, value: Any) -> exp.Expr:
    match value:
        case bool():
            return exp.Boolean(this=value)
        case int():
            return exp.Literal.number(value)
        case str():
            return exp.Literal.string(value)
        case None:
            raise RequestRefused("NULL has no place in a range")
        case _:
            return exp.Cast(this=exp.Literal.string(cell(value)), to=data_type(relation.type_of(column)))


def _listed(relation: Relation) -> str:
    return f"they are {', '.join(relation.key)}"
