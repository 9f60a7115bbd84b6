"""Random sources and views over them: every clause, most of them over expressions that fail on some row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tests.properties.paths.expression_grammar import Expressions
from tests.properties.paths.expressions import Call, Column, Constant, Expression, columns_of, is_number
from tests.properties.paths.values import (
    BIGINT,
    BOOLEAN,
    COMMON,
    DATE,
    DOUBLE,
    INT,
    SMALL_DECIMAL,
    TIMESTAMP,
    VARCHAR,
)
from tests.properties.paths.views import (
    POLICIES,
    Aggregate,
    Block,
    Input,
    Over,
    Query,
    Relation,
    SetOperation,
    Subquery,
    Value,
    ViewOf,
)
from tests.properties.picker import Picker

_KEYED_BY: Final = (INT, VARCHAR)
_NESTED: Final = tuple(kind for kind in COMMON if "<" in kind)
_ORDERED: Final = (INT, BIGINT, VARCHAR, DATE, TIMESTAMP, SMALL_DECIMAL, DOUBLE)


def relations(pick: Picker) -> tuple[Relation, ...]:
    """Streams and tables. Each has a text, a whole number and a time, to join, divide, convert and group by."""
    kinds = pick.one([("stream", "table"), ("stream", "table", "table"), ("table", "table"), ("stream", "stream")])
    return tuple(_relation(pick, f"{kind[0]}{number}", kind) for number, kind in enumerate(kinds))


def _relation(pick: Picker, name: str, kind: str) -> Relation:
    types = [pick.one(_KEYED_BY), VARCHAR, INT, pick.one((DATE, TIMESTAMP))]
    types += [pick.one(list(COMMON)) for _ in range(pick.count(0, 2))]
    columns = tuple((f"{name[0]}{place}", each) for place, each in enumerate(types))
    return Relation(name, "table" if kind == "table" else "stream", columns)


class Views:
    """The grammar of views over some relations."""

    def __init__(self, pick: Picker, known: Sequence[Relation]) -> None:
        self.pick = pick
        self.known = list(known)

    def view(self, name: str) -> tuple[str, ViewOf]:
        """A view of any form, and the form."""
        forms: list[Callable[[], Query]] = [
            self.plain,
            self.plain,
            self.joined,
            self.joined,
            self.grouped,
            self.grouped,
            self.grouped_join,
            self.by_time,
            self.distinct,
            self.over,
            self.set_operation,
            self.semi,
            self.nested,
        ]
        form = self.pick.one(forms)
        return form.__name__, ViewOf(name, form(), self.pick.one(POLICIES[:1] * 2 + POLICIES))

    def plain(self) -> Block:
        """A filter and a projection."""
        made = self._input("a")
        return self._projected((made,))

    def joined(self) -> Block:
        """Two inputs, of any kind of join, or three."""
        return self._projected(self._joins(self.pick.one([2, 2, 2, 3])))

    def grouped(self) -> Block:
        """GROUP BY over one input."""
        return self._grouped((self._input("a"),))

    def grouped_join(self) -> Block:
        """GROUP BY over a join."""
        return self._grouped(self._joins(2))

    def by_time(self) -> Block:
        """GROUP BY a time, perhaps beside something else: rows that a backfill can tell apart."""
        inputs = (self._input("a"),)
        values = self._expressions(inputs)
        times: list[Expression] = [*values.of(DATE, TIMESTAMP)]
        group = (self.pick.one(times) if times else values.date_cast(),)
        return self._grouped(inputs, group)

    def distinct(self) -> Block:
        """SELECT DISTINCT."""
        inputs = (self._input("a"),)
        values = self._expressions(inputs)
        items = self._named([self._flat(values) for _ in range(self.pick.count(1, 2))])
        return Block(inputs, items, where=self._where(values), distinct=True)

    def over(self) -> Block:
        """Window functions beside columns."""
        inputs = (self._input("a"),)
        values = self._expressions(inputs)
        partition = tuple(self._flat(values) for _ in range(self.pick.count(0, 1)))
        items: list[Value] = [*self._columns(inputs)]
        for _ in range(self.pick.count(1, 2)):
            order = tuple(values.pick.one(values.of(*_ORDERED)) for _ in range(self.pick.count(0, 1)))
            items.append(self._over(values, partition, order))
        return Block(inputs, self._named(items), where=self._where(values))

    def _over(self, values: Expressions, partition: tuple[Expression, ...], order: tuple[Expression, ...]) -> Over:
        function = self.pick.one(["COUNT", "MIN", "MAX", "SUM", *(("RANK", "DENSE_RANK") if order else ())])
        if function in ("RANK", "DENSE_RANK"):
            return Over(function, None, BIGINT, partition, order)
        argument = self._summed(values) if function == "SUM" else self._ordered(values)
        kind = {"COUNT": BIGINT, "SUM": BIGINT}.get(function, argument.type)
        return Over(function, argument, kind, partition, order)

    def set_operation(self) -> SetOperation:
        """Two branches whose columns have the same types."""
        inputs = (self._input("a"),), (self._input("b"),)
        left, right = (self._expressions(each) for each in inputs)
        sides: list[list[Value]] = [[], []]
        for _ in range(self.pick.count(1, 3)):
            one = self._flat(left)
            sides[0].append(one)
            sides[1].append(self._like(right, one.type))
        blocks = [
            Block(each, self._named(items), where=self._where(values))
            for each, items, values in zip(inputs, sides, (left, right), strict=True)
        ]
        operator = self.pick.one(["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL"])
        return SetOperation(operator, *blocks)

    def semi(self) -> Block:
        """IN, EXISTS and their negations, beside what fails."""
        inputs = (self._input("a"),)
        other = self.pick.one(self.known)
        inner = Input("z", other)
        pairs = _pairs(inputs[0].columns, inner.columns)
        one, its = self.pick.one(pairs) if pairs else (inputs[0].columns[1], inner.columns[1])
        made = self.pick.one(
            [
                f"{one.sql} IN (SELECT {its.sql} FROM {other.name} AS z)",
                f"{one.sql} NOT IN (SELECT {its.sql} FROM {other.name} AS z)",
                f"EXISTS (SELECT 1 FROM {other.name} AS z WHERE {its.sql} = {one.sql})",
                f"NOT EXISTS (SELECT 1 FROM {other.name} AS z WHERE {its.sql} = {one.sql})",
            ]
        )
        return self._projected(inputs, first=Subquery(made))

    def nested(self) -> Block:
        """A query over a query in brackets; every column of the inner one is used."""
        inner = self.pick.one([self.plain, self.grouped, self.distinct, self.joined])()
        inputs = (Input("d", inner),)
        values = self._expressions(inputs)
        items: list[Value] = [*inputs[0].columns, values.any()]
        return Block(inputs, self._named(items), where=self._where(values, percent=20))

    def _projected(self, inputs: tuple[Input, ...], first: Expression | Subquery | None = None) -> Block:
        values = self._expressions(inputs)
        items: list[Value] = [*self._columns(inputs)]
        items += [values.any() for _ in range(self.pick.count(1, 2))]
        return Block(inputs, self._named(items), first, self._where(values))

    def _grouped(self, inputs: tuple[Input, ...], first: tuple[Expression, ...] = ()) -> Block:
        values = self._expressions(inputs)
        more = [self._flat(values) for _ in range(self.pick.count(0, 1 if first else 2))]
        group = tuple(each for each in dict.fromkeys([*first, *more]) if columns_of(each))  # no constants
        items: list[Value] = [*group]
        for _ in range(self.pick.count(1, 3)):
            items.append(self._aggregate(values))
        having = self.pick.one(["", "", "COUNT(*) > 1", "COUNT(*) < 3"]) if group else ""
        return Block(inputs, self._named(items), None, self._where(values), group=group or None, having=having)

    def _aggregate(self, values: Expressions) -> Aggregate:
        function = self.pick.one(["COUNT", "COUNT", "SUM", "MIN", "MAX"])
        if function == "COUNT":
            argument = self.pick.one([None, values.any()])
            distinct = argument is not None and argument.type in _ORDERED and self.pick.chance(30)
            return Aggregate("COUNT", argument, BIGINT, distinct)
        argument = self._summed(values) if function == "SUM" else self._ordered(values)
        return Aggregate(function, argument, BIGINT if function == "SUM" else argument.type)

    def _summed(self, values: Expressions) -> Expression:
        """An INT: the sum of so few cannot leave BIGINT."""
        made = values.whole()
        columns = values.of(INT)
        return made if made.type == INT else self.pick.one(columns) if columns else Constant(1, INT)

    def _ordered(self, values: Expressions) -> Expression:
        """A value that MIN and MAX take."""
        made = values.any()
        return made if made.type in _ORDERED or is_number(made.type) else self.pick.one(values.of(*_ORDERED))

    def _flat(self, values: Expressions) -> Expression:
        """A value that rows are grouped by: of no nested type."""
        made = values.any()
        return made if made.type not in _NESTED else self.pick.one(values.of(INT, VARCHAR))

    def _like(self, values: Expressions, kind: str) -> Expression:
        """A value of a type: a column of it, or NULL."""
        for _ in range(4):
            made = values.any()
            if made.type == kind:
                return made
        columns = values.of(kind)
        return self.pick.one(columns) if columns else Constant(None, kind)

    def _where(self, values: Expressions, percent: int = 35) -> Expression | None:
        return values.condition() if self.pick.chance(percent) else None

    def _input(self, alias: str) -> Input:
        return Input(alias, self.pick.one(self.known))

    def _joins(self, count: int) -> tuple[Input, ...]:
        made = [self._input("a")]
        for alias in "bc"[: count - 1]:
            right = self._input(alias)
            pairs = _pairs([column for each in made for column in each.columns], right.columns)
            if not pairs:
                break
            join = self.pick.one(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
            on: Expression = Call("=", self.pick.one(pairs), BOOLEAN)
            if self.pick.chance(20):
                both = [column for each in (*made, right) for column in each.columns]
                on = Call("AND", (on, Expressions(self.pick, both, fails=False).comparison()), BOOLEAN)
            made.append(Input(alias, right.of, join, on))
        return tuple(made)

    def _columns(self, inputs: Sequence[Input]) -> list[Column]:
        """Some columns; of each input the first."""
        columns = [column for each in inputs for column in each.columns]
        chosen = [each.columns[0] for each in inputs]
        return [*chosen, *(each for each in self.pick.some(columns, 0, 2) if each not in chosen)]

    def _expressions(self, inputs: Sequence[Input]) -> Expressions:
        return Expressions(self.pick, [column for each in inputs for column in each.columns])

    def _named(self, values: Sequence[Value]) -> tuple[tuple[str, Value], ...]:
        return tuple((f"c{place}", value) for place, value in enumerate(values))


def _pairs(left: Sequence[Column], right: Sequence[Column]) -> list[tuple[Column, Column]]:
    """The columns of both sides that can be equal."""
    return [(one, other) for one in left for other in right if one.type == other.type and one.type in _ORDERED]
