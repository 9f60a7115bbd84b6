"""Random conditions over subqueries that read the row around them. None of them can fail."""

from __future__ import annotations

from collections.abc import Sequence

from tests.properties.paths.expression_grammar import Expressions
from tests.properties.paths.expressions import Column, text
from tests.properties.paths.values import BIGINT, DATE, INT, TIMESTAMP, VARCHAR
from tests.properties.paths.views import Relation
from tests.properties.picker import Picker

_MEET = (INT, BIGINT, VARCHAR, DATE, TIMESTAMP)
_ALIASES = "zyx"


class Subqueries:
    """The grammar over some columns, as text in our language and in DuckDB alike.

    Args:
        relations: what subqueries read.
        columns: of the queries around.
        depth: of subqueries around.
    """

    def __init__(self, pick: Picker, relations: Sequence[Relation], columns: Sequence[Column], depth: int = 0) -> None:
        self.pick, self.relations, self.columns, self.depth = pick, relations, list(columns), depth

    def condition(self) -> str:
        """One subquery, its negation, or two."""
        made = self._one()
        if self.depth == 0 and self.pick.chance(30):
            other = self.pick.one([self._one, self._sound])()
            return f"({made} {self.pick.one(['AND', 'OR'])} {other})"
        return f"(NOT {made})" if self.pick.chance(15) else made

    def _sound(self) -> str:
        return text(Expressions(self.pick, self.columns, fails=False).comparison())

    def _one(self) -> str:
        of = self.pick.one(self.relations)
        alias = _ALIASES[self.depth]
        own = [Column(alias, name, kind) for name, kind in of.columns]
        pairs = [(one, its) for one in self.columns for its in own if one.type == its.type and one.type in _MEET]
        if not pairs:
            return self._sound()
        self._from, self._own = f"FROM {of.name} AS {alias}", own
        one, its = self.pick.one(pairs)
        others = [pair for pair in pairs if pair != (one, its)]
        again, also = self.pick.one(others or pairs)
        form = self.pick.one([self._exists, self._exists, self._among, self._of_groups, self._value, self._compared])
        return form((one, its), (again, also))

    def _exists(self, pair: tuple[Column, Column], _: tuple[Column, Column]) -> str:
        return f"{self._negated()}EXISTS (SELECT 1 {self._from} WHERE {self._meet(pair)})"

    def _among(self, pair: tuple[Column, Column], other: tuple[Column, Column]) -> str:
        (one, its), (again, also) = pair, other
        where = f" WHERE {self._meet(other)}" if self.pick.chance(60) else ""
        if self.pick.chance(25) and other != pair:
            return f"({one.sql}, {again.sql}) IN (SELECT {its.sql}, {also.sql} {self._from})"
        return f"{one.sql} {self._negated()}IN (SELECT {its.sql} {self._from}{where})"

    def _of_groups(self, pair: tuple[Column, Column], other: tuple[Column, Column]) -> str:
        its = other[1].sql
        having = self.pick.one(["COUNT(*) > 1", f"MAX({its}) = MIN({its})", "COUNT(*) < 3"])
        groups = f"SELECT {its} {self._from} WHERE {self._meet(pair)} GROUP BY {its} HAVING {having}"
        return f"{self._negated()}EXISTS ({groups})"

    def _value(self, pair: tuple[Column, Column], other: tuple[Column, Column]) -> str:
        sign = self.pick.one(["=", "<>", "<", ">="])
        one, its = other
        rows = f"{self._from} WHERE {self._meet(pair)}"
        if self.pick.chance(40):
            return f"(SELECT COUNT(*) {rows}) {sign} {self.pick.count(0, 2)}"
        return f"{one.sql} {sign} (SELECT {self.pick.one(['MIN', 'MAX'])}({its.sql}) {rows})"

    def _compared(self, pair: tuple[Column, Column], other: tuple[Column, Column]) -> str:
        one, its = other
        how = self.pick.one(["= ANY", "<> ALL", ">= ALL", "< ANY", "<= ALL", "> ANY"])
        return f"{one.sql} {how} (SELECT {its.sql} {self._from} WHERE {self._meet(pair)})"

    def _negated(self) -> str:
        return "NOT " if self.pick.chance(35) else ""

    def _meet(self, pair: tuple[Column, Column]) -> str:
        one, its = pair
        found = [f"{its.sql} = {one.sql}"]
        if self.pick.chance(30):
            columns = [*self._own, one] if self.pick.chance(50) else self._own
            found.append(text(Expressions(self.pick, columns, fails=False).comparison()))
        if self.depth == 0 and self.pick.chance(25):
            own, around = self._own, self._from
            inner = Subqueries(self.pick, self.relations, own, 1)
            found.append(inner.condition())
            self._own, self._from = own, around
        return " AND ".join(found)
