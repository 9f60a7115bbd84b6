"""Random queries over some relations: every clause, most of them over expressions that fail on some row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tests.properties.paths.aggregate_grammar import ORDERED, Aggregates
from tests.properties.paths.expression_grammar import Expressions
from tests.properties.paths.expressions import Call, Column, Constant, Expression, columns_of
from tests.properties.paths.values import (
    BIGINT,
    BOOLEAN,
    COMMON,
    DATE,
    DOUBLE,
    INT,
    INTS,
    TIMESTAMP,
)
from tests.properties.paths.views import (
    BOUNDS,
    CLOCK,
    WINDOWS,
    Aggregate,
    Block,
    From,
    Having,
    Input,
    InWindows,
    Items,
    Over,
    Query,
    Relation,
    Scalar,
    SetOperation,
    Subquery,
    Value,
    Window,
    parts_in,
)
from tests.properties.picker import Picker

NESTED: Final = tuple(kind for kind in COMMON if "<" in kind)

_FRAMES: Final = (
    "",
    "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING",
    "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
    "ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING",
    "ROWS 2 PRECEDING",
    "ROWS UNBOUNDED PRECEDING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING",
    "GROUPS BETWEEN 1 PRECEDING AND CURRENT ROW",
    "ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING EXCLUDE CURRENT ROW",
    "GROUPS BETWEEN UNBOUNDED PRECEDING AND 1 FOLLOWING EXCLUDE GROUP",
)
_PLAIN_FRAMES: Final = tuple(each for each in _FRAMES if "GROUP" not in each and "EXCLUDE" not in each)
"""NTH_VALUE has no others yet."""
_OF_PLACES: Final = (
    *("ROW_NUMBER", "NTILE", "PERCENT_RANK", "CUME_DIST", "LAG", "LEAD", "FIRST_VALUE", "LAST_VALUE", "NTH_VALUE"),
    *("SUM", "COUNT", "MIN", "MAX", "OTHERS", "OTHERS"),
)
_OTHERS: Final[tuple[tuple[str, str], ...]] = (
    ("COUNT(DISTINCT {0})", BIGINT),
    ("AVG({0})", DOUBLE),
    ("BIT_XOR({0})", INT),
    ("MEDIAN({0})", DOUBLE),
    ("SUM(DISTINCT {0})", BIGINT),
    ("ANY_VALUE({0} ORDER BY {0})", INT),
)
"""Aggregates of whole numbers over a window."""
_RANGES: Final = (
    "RANGE BETWEEN 1 PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING",
    "RANGE BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN 2 FOLLOWING AND UNBOUNDED FOLLOWING",
    "RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
)
_RANGES_OF_TIME: Final = (
    "RANGE BETWEEN INTERVAL '1' MINUTE PRECEDING AND CURRENT ROW",
    "RANGE BETWEEN INTERVAL '59' DAY PRECEDING AND INTERVAL '2' HOUR FOLLOWING",
    "RANGE BETWEEN CURRENT ROW AND INTERVAL '60' DAY FOLLOWING",
    "RANGE BETWEEN INTERVAL '90' SECOND FOLLOWING AND UNBOUNDED FOLLOWING",
)


class Blocks(Aggregates):
    """The grammar of queries over some relations."""

    def __init__(self, pick: Picker, known: Sequence[Relation]) -> None:
        super().__init__(pick, clock=CLOCK in known)
        known = [each for each in known if each != CLOCK]
        self.sources = tuple(known)
        self.known = list(known)

    def plain(self) -> Block:
        """A filter and a projection."""
        made = self.input("a")
        return self.projected((made,))

    def joined(self) -> Block:
        """Two inputs, of any kind of join, or three."""
        return self.projected(self.joins(self.pick.one([2, 2, 2, 3])))

    def grouped(self) -> Block:
        """GROUP BY over one input."""
        return self.grouped_by((self.input("a"),))

    def grouped_join(self) -> Block:
        """GROUP BY over a join."""
        return self.grouped_by(self.joins(2))

    def having(self) -> Having:
        """GROUP BY with a HAVING, and values of groups, that can fail."""
        groups = replace(self.pick.one([self.grouped, self.grouped, self.grouped_join])(), having="")
        inputs = (Input("g", groups),)
        values = self.expressions(inputs, parts=False)
        items: list[Value] = [*inputs[0].columns]
        items += [values.any() for _ in range(self.pick.count(0, 1))]
        return Having(Block(inputs, self.named(items), where=values.condition()))

    def sets(self) -> Block:
        """ROLLUP, CUBE or GROUPING SETS over one input."""
        inputs = (self.input("a"),)
        values = self.expressions(inputs)
        flat = [self.flat(values) for _ in range(self.pick.count(1, 3))]
        group = tuple(each for each in dict.fromkeys(flat) if columns_of(each)) or (inputs[0].columns[1],)
        places = [f"{{{place}}}" for place in range(len(group))]
        whole = ", ".join(places)
        some = [", ".join(self.pick.some(places, 0, 2)) for _ in range(self.pick.count(1, 3))]
        listed = ", ".join(f"({each})" for each in dict.fromkeys([*some, whole]))
        written = self.pick.one([f"ROLLUP ({whole})", f"CUBE ({whole})", f"GROUPING SETS ({listed})"])
        items: list[Value] = [*group, *(self.aggregate(values, lists=False) for _ in range(self.pick.count(1, 2)))]
        if self.pick.chance(40):
            items.append(Aggregate("GROUPING", self.pick.one(group), BIGINT))
        return Block(inputs, self.named(items), None, self.where_of(values), group=group, sets=written)

    def first_rows(self) -> Block:
        """ORDER BY … LIMIT, and DISTINCT ON: by some expressions, then by all that is shown."""
        inputs = (self.input("a"),) if self.pick.chance(60) else self.joins(2)
        values = self.expressions(inputs)
        items = list(dict.fromkeys(self.flat(values) for _ in range(self.pick.count(1, 3))))
        by = [self.flat(values) for _ in range(self.pick.count(0, 2))]
        by = [each for each in dict.fromkeys([*by, *items]) if columns_of(each)] or [inputs[0].columns[1]]
        order = tuple((each, self.pick.one(["", " DESC", " NULLS LAST", " DESC NULLS FIRST"])) for each in by)
        limit = f"LIMIT {self.pick.count(1, 4)}" + self.pick.one(["", "", " OFFSET 1"])
        first_of = self.pick.count(1, min(2, len(by))) if self.pick.chance(35) else 0
        return Block(
            inputs,
            self.named(items),
            where=self.where_of(values),
            order=order,
            limit="" if first_of else limit,
            first_of=first_of,
        )

    def joined_by_what_fails(self) -> Block:
        """Two inputs, and ON with a side of an equality, or a further term, that can fail."""
        left, right = self.input("a"), self.input("b")
        one, other = (self.expressions((each,), parts=False) for each in (left, right))
        equal = Call("=", (self._key(one), self._key(other)), BOOLEAN)
        pairs = pairs_of(left.columns, right.columns)
        on: Expression = Call("=", self.pick.one(pairs), BOOLEAN) if pairs and self.pick.chance(30) else equal
        if self.pick.chance(50):
            on = Call("AND", (on, self.expressions((left, right), parts=False).computed()), BOOLEAN)
        join = self.pick.one(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        return self.projected((left, Input("b", right.of, join, on)), parts=False)

    def _key(self, values: Expressions) -> Expression:
        """A whole number to join by."""
        made = values.whole()
        return made if made.type == INT and columns_of(made) else self.pick.one(values.of(INT))

    def with_scalars(self) -> Block:
        """Subqueries that stand for values, as they are and inside of what can fail."""
        made = self.input("a")
        other = self.pick.one(self.sources)
        pairs = pairs_of(made.columns, Input("z", other).columns)
        of = [each for each in Input("z", other).columns if each.type == INT]
        meet = ""
        if pairs and self.pick.chance(60):
            one, its = self.pick.one(pairs)
            meet = f" WHERE {its.sql} = {one.sql}"
        query = self.pick.one([("COUNT(*)", BIGINT), (f"MAX({self.pick.one(of).sql})", INT)])
        scalar = Scalar("", "scalar", query[1], f"SELECT {query[0]} FROM {other.name} AS z{meet}")
        values = Expressions(self.pick, [*made.columns, scalar])
        items: list[Value] = [*self._columns((made,)), scalar]
        items += [Call(self.pick.one(["/", "%", "+"]), (self.pick.one(values.of(INT)), scalar), scalar.type)]
        return Block((made,), self.named(items), None, self.where_of(Expressions(self.pick, made.columns)))

    def windowed(self) -> Block:
        """GROUP BY over the windows of a stream."""
        streams = [each for each in self.known if each.kind == "stream"]
        source = Input("a", self.pick.one(streams))
        right = Input("b", self.pick.one(self.sources))
        pairs = pairs_of(source.columns, right.columns) if right.of not in streams else []
        inputs: tuple[Input, ...] = (source,)
        if pairs and self.pick.chance(25):
            on = Call("=", self.pick.one(pairs), BOOLEAN)
            inputs = (source, replace(right, join=self.pick.one(["JOIN", "LEFT JOIN"]), on=on))
        made = self.grouped_by(inputs, (self.pick.one(source.columns[1:3]),))
        kind = self.pick.one(WINDOWS)
        size = self.pick.one([2, 5, 60])
        step = max(size // 2, 1) if kind == "HOPPING" else size
        final = len(inputs) == 1 and self.pick.chance(25)
        window = Window(kind, size, step, self.pick.one([None, 0, 2, 10]), final)
        items = tuple((bound.name.lower(), bound) for bound in BOUNDS)
        return replace(made, items=(*made.items, *items), having="", window=window)

    def within(self) -> Block:
        """A stream that is joined to a stream in time."""
        streams = [each for each in self.known if each.kind == "stream"]
        left, right = (Input(alias, self.pick.one(streams)) for alias in "ab")
        pairs = pairs_of(left.columns, right.columns)
        join = self.pick.one(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        on = Call("=", self.pick.one(pairs), BOOLEAN)
        return self.projected((left, Input("b", right.of, join, on, self.pick.one([1, 5, 20]))))

    def by_time(self) -> Block:
        """GROUP BY a time, perhaps beside something else: rows that a backfill can tell apart."""
        inputs = (self.input("a"),)
        values = self.expressions(inputs)
        times: list[Expression] = [*values.of(DATE, TIMESTAMP)]
        group = (self.pick.one(times) if times else values.date_cast(),)
        return self.grouped_by(inputs, group)

    def distinct(self) -> Block:
        """SELECT DISTINCT."""
        inputs = (self.input("a"),)
        values = self.expressions(inputs)
        items = self.named([self.flat(values) for _ in range(self.pick.count(1, 2))])
        return Block(inputs, items, where=self.where_of(values), distinct=True)

    def over(self) -> Block:
        """Window functions beside columns."""
        inputs = (self.input("a"),)
        values = self.expressions(inputs)
        partition = tuple(self.flat(values) for _ in range(self.pick.count(0, 1)))
        items: list[Value] = [*self._columns(inputs)]
        for _ in range(self.pick.count(1, 2)):
            order = tuple(values.pick.one(values.of(*ORDERED)) for _ in range(self.pick.count(0, 1)))
            items.append(self.over_rows(values, partition, order))
        return Block(inputs, self.named(items), where=self.where_of(values))

    def over_rows(self, values: Expressions, partition: tuple[Expression, ...], order: tuple[Expression, ...]) -> Over:
        function = self.pick.one(["COUNT", "MIN", "MAX", "SUM", *(("RANK", "DENSE_RANK") if order else ())])
        if function in ("RANK", "DENSE_RANK"):
            return Over(function, None, BIGINT, partition, order)
        argument = self.summed(values) if function == "SUM" else self.ordered(values)
        kind = {"COUNT": BIGINT, "SUM": BIGINT}.get(function, argument.type)
        return Over(function, argument, kind, partition, order)

    def places(self) -> Block:
        """Window functions that ask for the place of a row, over an order in which only rows tie that are the same."""
        inputs = (self.input("a"),)
        columns = [each for each in inputs[0].columns if each.type in ORDERED]
        shown = self.pick.some(columns, 2, 4)
        values = Expressions(self.pick, shown)
        partition = tuple(self.flat(values) for _ in range(self.pick.count(0, 1)))
        how = tuple(self.pick.one(["", "", " DESC", " NULLS LAST"]) for _ in shown)
        items: list[Value] = [*shown]
        for _ in range(self.pick.count(1, 3)):
            items.append(replace(self._placed(values), partition=partition, order=tuple(shown), how=how))
        qualify = None
        if self.pick.chance(25):
            qualify = (Over("ROW_NUMBER", None, BIGINT, partition, tuple(shown), how), self.pick.one(["= 1", "<= 2"]))
        return Block(inputs, self.named(items), where=self.where_of(values), qualify=qualify)

    def _placed(self, values: Expressions) -> Over:
        """A call without its partition and order."""
        function = self.pick.one(_OF_PLACES)
        frame = self.pick.one(_FRAMES if function != "NTH_VALUE" else _PLAIN_FRAMES)
        match function:
            case "ROW_NUMBER":
                return Over(function, None, BIGINT, (), ())
            case "NTILE":
                return Over(function, None, BIGINT, (), (), form=f"NTILE({self.pick.count(1, 3)})")
            case "PERCENT_RANK" | "CUME_DIST":
                return Over(function, None, DOUBLE, (), ())
            case "LAG" | "LEAD":
                argument: Expression = self.flat(values)
                form = self.pick.one([f"{function}({{0}})", f"{function}({{0}}, 2)", f"{function}({{0}}, 0)"])
                return Over(function, argument, argument.type, (), (), form=form)
            case "FIRST_VALUE" | "LAST_VALUE" | "NTH_VALUE":
                argument = self.flat(values)
                form = f"{function}({{0}}{', 2' if function == 'NTH_VALUE' else ''})"
                if function != "NTH_VALUE" and self.pick.chance(30):
                    form = f"{function}({{0}} IGNORE NULLS)"
                    frame = self.pick.one([each for each in _FRAMES if each.startswith("ROWS")])
                return Over(function, argument, argument.type, (), (), frame=frame, form=form)
            case "OTHERS":
                form, kind = self.pick.one(_OTHERS)
                return Over(form.partition("(")[0], self.summed(values), kind, (), (), frame=frame, form=form)
            case "SUM":
                return Over(function, self.summed(values), BIGINT, (), (), frame=frame)
            case "COUNT":
                return Over(function, self.ordered(values), BIGINT, (), (), frame=frame)
            case _:
                argument = self.ordered(values)
                return Over(function, argument, argument.type, (), (), frame=frame)

    def ranges(self) -> Block:
        """Window functions over frames in RANGE, where rows tie."""
        inputs = (self.input("a"),)
        values = self.expressions(inputs)
        partition = tuple(self.flat(values) for _ in range(self.pick.count(0, 1)))
        items: list[Value] = [*self._columns(inputs)]
        for _ in range(self.pick.count(1, 2)):
            order = (self.pick.one(values.of(INT, DATE, TIMESTAMP)),)
            over = self.over_rows(values, partition, order)
            how = (self.pick.one(["", "", " DESC"]),)
            ranges = _RANGES if order[0].type == INT else _RANGES_OF_TIME
            frame = "" if "RANK" in over.function else self.pick.one(ranges)
            items.append(replace(over, how=how, frame=frame))
        return Block(inputs, self.named(items), where=self.where_of(values))

    def items(self) -> Block:
        """UNNEST of an array of a relation."""
        of = self.pick.one([each for each in self.known if INTS in dict(each.columns).values()])
        first = Input("a", of)
        array = self.pick.one([each for each in first.columns if each.type == INTS])
        items = Items(array, self.pick.chance(40))
        join, on = self.pick.one([(",", None), ("CROSS JOIN", None), ("LEFT JOIN", Constant(True, BOOLEAN))])
        inputs = (first, Input("u", items, join, on))
        other = self.pick.one(self.sources)
        its = self.pick.one([each for each in Input("z", other).columns if each.type == INT])
        asked = f"u.item {self.pick.one(['IN', 'IN', 'NOT IN'])} (SELECT {its.sql} FROM {other.name} AS z)"
        asks = Subquery(asked) if self.pick.chance(30) else None
        if self.pick.chance(30):
            return replace(self.grouped_by(inputs), first=asks)
        return self.projected(inputs, asks)

    def asof(self) -> Block:
        """ASOF JOIN: the nearest row of a source by a number or a time, beside an equality."""
        left, right = self.input("a"), Input("b", self.pick.one(self.sources))
        pairs = pairs_of(left.columns, right.columns)
        near = [pair for pair in pairs if pair[0].type in (INT, BIGINT, DATE, TIMESTAMP)]
        if not near or joins_events(left.of):
            return self.plain()
        one, other = self.pick.one(near)
        equal = self.pick.one([pair for pair in pairs if pair[1] != other] or pairs)
        sign = self.pick.one([">=", ">=", ">", "<", "<="])
        on = Call("AND", (Call("=", equal, BOOLEAN), Call(sign, (one, other), BOOLEAN)), BOOLEAN)
        join = self.pick.one(["ASOF JOIN", "ASOF LEFT JOIN"])
        return self.projected((left, Input("b", right.of, join, on)))

    def in_windows(self) -> Block:
        """TUMBLE and HOP over a source; Python has no time for some windows of the first and the last year."""
        of = self.pick.one([each for each in self.sources if TIMESTAMP in dict(each.columns).values()])
        time = self.pick.one([name for name, kind in of.columns if kind == TIMESTAMP])
        size, step = self.pick.one([(5, None), (60, None), (3600, None), (5, 1), (60, 20), (3600, 3600)])
        inputs = (Input("w", InWindows(of, time, size, step)),)
        first = Subquery(f"w.{time} > TIMESTAMP '0002-01-01 00:00:00' AND w.{time} < TIMESTAMP '9998-01-01 00:00:00'")
        if self.pick.chance(60):
            bounds = [each for each in inputs[0].columns if each.name.startswith("window_")]
            return replace(self.grouped_by(inputs, (self.pick.one(bounds),)), first=first)
        return self.projected(inputs, first)

    def by_offset(self) -> Block:
        """Aggregates of the events of a group in their order; of a table each row has the place of its newest event."""
        made = self.grouped_by((Input("a", self.pick.one(self.sources)),))
        values = self.expressions(made.inputs)
        items: list[Value] = [value for _, value in made.items]
        items += [self.of_events(values, lists=bool(made.group)) for _ in range(self.pick.count(1, 2))]
        return replace(made, items=self.named(items))

    def projected(
        self, inputs: tuple[Input, ...], first: Expression | Subquery | None = None, *, parts: bool = True
    ) -> Block:
        values = self.expressions(inputs, parts=parts)
        items: list[Value] = [*self._columns(inputs)]
        items += [values.any() for _ in range(self.pick.count(1, 2))]
        aged = self.aged(values.columns, 15)
        items += [Call("CASE", (aged, values.whole_like(Constant(1, INT)), Constant(0, INT)), INT)] if aged else []
        return Block(inputs, self.named(items), first, self.where_of(values))

    def grouped_by(self, inputs: tuple[Input, ...], first: tuple[Expression, ...] = ()) -> Block:
        values = self.expressions(inputs)
        more = [self.flat(values) for _ in range(self.pick.count(0, 1 if first else 2))]
        group = tuple(each for each in dict.fromkeys([*first, *more]) if columns_of(each))  # no constants
        items: list[Value] = [*group]
        for _ in range(self.pick.count(1, 3)):
            items.append(self.aggregate(values, lists=bool(group)))
        having = self.pick.one(["", "", "COUNT(*) > 1", "COUNT(*) < 3"]) if group else ""
        return Block(inputs, self.named(items), None, self.where_of(values), group=group or None, having=having)

    def like(self, values: Expressions, kind: str) -> Expression:
        """A value of a type: a column of it, or NULL."""
        for _ in range(4):
            made = values.any()
            if made.type == kind:
                return made
        columns = values.of(kind)
        return self.pick.one(columns) if columns else Constant(None, kind)

    def where_of(self, values: Expressions, percent: int = 35) -> Expression | None:
        return values.condition() if self.pick.chance(percent) else None

    def input(self, alias: str) -> Input:
        return Input(alias, self.pick.one(self.known))

    def joins(self, count: int) -> tuple[Input, ...]:
        made = [self.input("a")]
        for alias in "bc"[: count - 1]:
            right = self.input(alias)
            join = self.pick.one(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
            commas = [place for place, each in enumerate(made) if each.join == ","]
            # A comma binds less than JOIN: ON does not read what stands before it.
            seen = made[commas[-1] :] if commas and join in ("RIGHT JOIN", "FULL JOIN") else made
            pairs = pairs_of([column for each in seen for column in each.columns], right.columns)
            if not pairs:
                break
            if self.pick.chance(8):
                made.append(Input(alias, right.of, self.pick.one(["CROSS JOIN", ","])))
                continue
            on: Expression = Call("=", self.pick.one(pairs), BOOLEAN)
            if self.pick.chance(20):
                both = [column for each in (*seen, right) for column in each.columns]
                on = Call("AND", (on, Expressions(self.pick, both, fails=False).comparison()), BOOLEAN)
            aged = self.aged(right.columns, 15)
            made.append(Input(alias, right.of, join, Call("AND", (on, aged), BOOLEAN) if aged else on))
        return tuple(made)

    def _columns(self, inputs: Sequence[Input]) -> list[Column]:
        """Some columns; of each input the first."""
        columns = [column for each in inputs for column in each.columns]
        chosen = [each.columns[0] for each in inputs]
        return [*chosen, *(each for each in self.pick.some(columns, 0, 2) if each not in chosen)]

    def expressions(self, inputs: Sequence[Input], *, parts: bool = True) -> Expressions:
        """The grammar over the columns of some inputs, and over parts of one that is nested."""
        columns = [column for each in inputs for column in each.columns]
        nested = [column for column in columns if column.type in NESTED]
        return Expressions(self.pick, [*columns, *(parts_in(self.pick.one(nested)) if parts and nested else ())])

    def named(self, values: Sequence[Value]) -> tuple[tuple[str, Value], ...]:
        return tuple((f"c{place}", value) for place, value in enumerate(values))


def has_rows_of_its_own(inner: Block | SetOperation) -> bool:
    """False for a query that only filters and projects, and for UNION ALL: it is one with that around it, whose WHERE
    counts first."""
    if isinstance(inner, SetOperation):
        return inner.operator != "UNION ALL"
    return inner.distinct or inner.group is not None


def joins_events(query: Query | From) -> bool:
    """True if its rows may be pairs of events."""
    if isinstance(query, SetOperation):
        return query.operator.endswith("ALL") and (joins_events(query.left) or joins_events(query.right))
    if not isinstance(query, Block) or query.group is not None or query.distinct:
        return False
    return len(query.inputs) > 1 or any(joins_events(each.of) for each in query.inputs)


def pairs_of(left: Sequence[Column], right: Sequence[Column]) -> list[tuple[Column, Column]]:
    """The columns of both sides that can be equal."""
    return [(one, other) for one in left for other in right if one.type == other.type and one.type in ORDERED]
