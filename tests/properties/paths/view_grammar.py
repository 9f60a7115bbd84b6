"""Random sources and views over them: the queries of `block_grammar`, and those that stand in one another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from tests.properties.paths.aggregate_grammar import ORDERED
from tests.properties.paths.block_grammar import (
    Blocks,
    has_rows_of_its_own,
    joins_events,
    pairs_of,
)
from tests.properties.paths.correlated import Subqueries
from tests.properties.paths.expression_grammar import Expressions
from tests.properties.paths.expressions import Call, Column, Constant, Expression, columns_of, parts_of
from tests.properties.paths.values import (
    BIGINT,
    BOOLEAN,
    BYTES,
    COMMON,
    DATE,
    INT,
    INTS,
    TIME,
    TIMESTAMP,
    VARCHAR,
)
from tests.properties.paths.views import (
    CLOCK,
    POLICIES,
    Aggregate,
    Block,
    Having,
    Input,
    InWindows,
    Items,
    Lateral,
    Over,
    Query,
    Relation,
    SetOperation,
    Subquery,
    Value,
    ViewOf,
    relations_of,
)
from tests.properties.paths.written import Texts
from tests.properties.picker import Picker

_KEYED_BY: Final = (INT, VARCHAR)


def relations(pick: Picker) -> tuple[Relation, ...]:
    """Streams and tables. Each has a text, a whole number and a time, to join, divide, convert and group by."""
    kinds = pick.one([("stream", "table"), ("stream", "table", "table"), ("table", "table"), ("stream", "stream")])
    made = [_relation(pick, f"{kind[0]}{number}", kind) for number, kind in enumerate(kinds)]
    return (*made, CLOCK) if pick.chance(40) else tuple(made)


def _relation(pick: Picker, name: str, kind: str) -> Relation:
    types = [pick.one(_KEYED_BY), VARCHAR, INT, pick.one((DATE, TIMESTAMP))]
    types += [pick.one(list(COMMON)) for _ in range(pick.count(0, 2))]
    types += [INTS] if pick.chance(40) else []
    columns = tuple((f"{name[0]}{place}", each) for place, each in enumerate(types))
    return Relation(name, "table" if kind == "table" else "stream", columns)


class Views(Blocks):
    """The grammar of views over some relations."""

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
            self.having,
            self.sets,
            self.first_rows,
            self.joined_by_what_fails,
            self.with_scalars,
            self.places,
            self.ranges,
            self.asof,
            self.joined_queries,
            self.joined_queries,
            self.set_of_groups,
            self.lateral,
            self.correlated,
            self.correlated,
            self.by_offset,
            self.written,
            self.written,
        ]
        if any(each.kind == "stream" for each in self.known):
            forms += [self.windowed, self.windowed]
        if any(INTS in dict(each.columns).values() for each in self.known):
            forms.append(self.items)
        if any(TIMESTAMP in dict(each.columns).values() for each in self.sources):
            forms.append(self.in_windows)
        if sum(each.kind == "stream" for each in self.known) > 1:
            forms.append(self.within)
        form = self.pick.one(forms)
        policy = self.pick.one(POLICIES[:1] * 2 + POLICIES)
        # Stages that are shared have dead letters, whatever the views say.
        shared = policy == "dead_letter" and self.pick.chance(15)
        made = ViewOf(name, self._asked(self._in_time(form())), policy, shared=shared)
        if form in (self.grouped, self.windowed, self.by_offset) and self.pick.chance(30):
            made = self._as_in_ksql(made)
        made = self._kept(made)
        if policy != "stop" and _can_be_read(made) and self.pick.chance(40):
            self.known.append(made.as_relation)
        return form.__name__, made

    def changed(self, view: ViewOf) -> ViewOf:
        """The view with another condition, so that it has the same columns."""
        query = view.query
        if isinstance(query, SetOperation):
            other: Query = replace(query, left=self._filtered(query.left))
        elif isinstance(query, Having):
            values = self.expressions(query.outer.inputs, parts=False)
            other = Having(replace(query.outer, where=values.condition()))
        else:
            other = self._filtered(query)
        return replace(view, query=other)

    def _filtered(self, block: Block) -> Block:
        if any(isinstance(each.of, Items) for each in block.inputs):
            return block
        if not all(map(has_rows_of_its_own, block.queries)):
            return block
        return replace(block, where=self.where_of(self.expressions(block.inputs, parts=False), percent=70))

    def _in_time(self, query: Query) -> Query:
        """The query, perhaps with a condition that rows leave by as time passes."""
        if isinstance(query, SetOperation):
            return replace(query, left=self._block_in_time(query.left))
        if isinstance(query, Having):
            return replace(query, outer=self._block_in_time(query.outer))
        return self._block_in_time(query)

    def _block_in_time(self, block: Block) -> Block:
        # Rows of a stream that are in several windows cannot be told apart.
        if any(isinstance(each.of, InWindows) and each.of.step is not None for each in block.inputs):
            return block
        if not all(map(has_rows_of_its_own, block.queries)):
            return block
        aged = self.aged([column for each in block.inputs for column in each.columns], 50)
        if aged is None:
            return block
        return replace(block, where=aged if block.where is None else Call("AND", (aged, block.where), BOOLEAN))

    def _asked(self, query: Query) -> Query:
        """The query, perhaps with its inner ones in WITH, and with QUALIFY."""
        if not isinstance(query, Block):
            return query
        if query.queries and self.pick.chance(50):
            query = replace(query, named=True)
        plain = query.group is None and not (query.distinct or query.order or query.window)
        # Of rows that tie, and differ in what nobody sees, another might get the place.
        shown = [value for _, value in query.items]
        placed = any(isinstance(each, Aggregate) or (isinstance(each, Over) and each.how) for each in shown)
        if plain and not placed and self.pick.chance(15):
            values = self.expressions(query.inputs)
            over = self.over_rows(values, (self.flat(values),), (self.pick.one(values.of(*ORDERED)),))
            asked = self.pick.one(["= 1", "<= 2", "> 1"]) if over.type in (INT, BIGINT) else "IS NOT NULL"
            query = replace(query, qualify=(over, asked))
        return query

    def _kept(self, view: ViewOf) -> ViewOf:
        """The view, perhaps with a time after which its rows leave."""
        query = view.query
        if not self.clock or view.ksql or isinstance(query, Having) or not self.pick.chance(25):
            return view
        if not isinstance(query, Block) or (query.group is None and not query.distinct and not query.is_plain):
            return view
        names = [name for name, value in query.items if value.type == TIMESTAMP]
        if query.is_plain:  # what it filters by must not fail, nor stand between it and a query inside
            own = all(map(has_rows_of_its_own, query.queries))
            names = [name for name in names if own and isinstance(dict(query.items)[name], Column)]
        names += [""] if query.window is not None else []
        if not names:
            return view
        name = self.pick.one(names)
        return replace(view, retention=(name, self.pick.one(["1 MINUTE", "90 seconds", "1 DAY"])))

    def _as_in_ksql(self, view: ViewOf) -> ViewOf:
        """The view with ksqlDB's meaning, if no row of what it reads ever goes: a group that is empty would stay."""
        query = view.query
        assert isinstance(query, Block)
        streams = {each.name for each in self.sources if each.kind == "stream"}
        zeros = any(isinstance(each, Aggregate) and each.function in ("SUM", "AVG") for _, each in query.items)
        timed = "NOW()" in query.sql or "CURRENT_DATE" in query.sql
        if query.group is None or query.having or zeros or timed or not relations_of(query) <= streams:
            return view  # SUM and AVG of no values are 0 there
        read = [
            each for value in (*query.row_expressions(), query.where) if value is not None for each in parts_of(value)
        ]
        asked = any(isinstance(each, Aggregate) and each.function.startswith("BOOL") for _, each in query.items)
        if asked or any(isinstance(each, Call) and each.operator == "NOT" for each in read):
            return view  # a comparison with NULL is FALSE there
        return replace(view, query=replace(query, keys_are_there=True), errors="null", shared=False, ksql=True)

    def set_operation(self) -> SetOperation:
        """Two branches whose columns have the same types."""
        inputs = (self.input("a"),), (self.input("b"),)
        left, right = (self.expressions(each) for each in inputs)
        sides: list[list[Value]] = [[], []]
        for _ in range(self.pick.count(1, 3)):
            one = self.flat(left)
            while one.type in (TIME, BYTES):  # NULL of those is not the same text to DuckDB
                one = self.flat(left)
            sides[0].append(one)
            sides[1].append(self.like(right, one.type))
        blocks = [
            Block(each, self.named(items), where=self.where_of(values))
            for each, items, values in zip(inputs, sides, (left, right), strict=True)
        ]
        operator = self.pick.one(["UNION ALL", "UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL"])
        return SetOperation(operator, *blocks)

    def semi(self) -> Block:
        """IN, EXISTS and their negations, beside what fails."""
        inputs = (self.input("a"),)
        other = self.pick.one(self.sources)
        inner = Input("z", other)
        pairs = pairs_of(inputs[0].columns, inner.columns)
        one, its = self.pick.one(pairs) if pairs else (inputs[0].columns[1], inner.columns[1])
        made = self.pick.one(
            [
                f"{one.sql} IN (SELECT {its.sql} FROM {other.name} AS z)",
                f"{one.sql} NOT IN (SELECT {its.sql} FROM {other.name} AS z)",
                f"EXISTS (SELECT 1 FROM {other.name} AS z WHERE {its.sql} = {one.sql})",
                f"NOT EXISTS (SELECT 1 FROM {other.name} AS z WHERE {its.sql} = {one.sql})",
            ]
        )
        return self.projected(inputs, first=Subquery(made))

    def nested(self) -> Block:
        """A query over a query in brackets; every column of the inner one is used."""
        forms: list[Callable[[], Block | SetOperation]] = [self.plain, self.grouped, self.distinct, self.joined]
        inner = self.pick.one([*forms, self.set_operation, self.set_of_groups])()
        inputs = (Input("d", inner),)
        values = self.expressions(inputs)
        items: list[Value] = [*inputs[0].columns, values.any()]
        where = self.where_of(values, percent=20)
        return Block(inputs, self.named(items), where=where if has_rows_of_its_own(inner) else None)

    def joined_queries(self) -> Block:
        """A join of which one side at least is a query with rows of its own, or the same one on both sides."""
        left = Input("a", self._query())
        of = self.pick.one([left.of, self._query(), self.pick.one(self.known), self.pick.one(self.known)])
        inputs = [left, Input("b", of)]
        if self.pick.chance(40):
            inputs.reverse()
        left, right = Input("a", inputs[0].of), Input("b", inputs[1].of)
        pairs = pairs_of(left.columns, right.columns)
        if not pairs:
            return self.projected((left, Input("b", right.of, "CROSS JOIN")))
        on: Expression = Call("=", self.pick.one(pairs), BOOLEAN)
        if self.pick.chance(20):
            both = [*left.columns, *right.columns]
            on = Call("AND", (on, Expressions(self.pick, both, fails=False).comparison()), BOOLEAN)
        join = self.pick.one(["JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        second = Input("b", right.of, join, on)
        return self.grouped_by((left, second)) if self.pick.chance(40) else self.projected((left, second))

    def _query(self) -> Block | SetOperation:
        """A query in FROM with rows of its own, and a column to join by."""
        forms: list[Callable[[], Block | SetOperation]] = [self.grouped, self.grouped, self.grouped_join]
        forms += [self.distinct, self.by_time, self.set_operation, self.set_of_groups]
        forms += [self.shown_windows] if any(each.kind == "stream" for each in self.known) else []
        while True:
            made = self.pick.one(forms)()
            if has_rows_of_its_own(made) and any(kind in ORDERED for _, kind in made.types):
                return made

    def shown_windows(self) -> Block:
        """The windows of a stream as they are before any is over."""
        made = self.windowed()
        assert made.window is not None
        return replace(made, window=replace(made.window, final=False))

    def lateral(self) -> Block:
        """For each row the first rows of a source that meet it, or what they add up to."""
        left = self.input("a")
        of = self.pick.one(self.sources)
        other = Input("z", of)
        pairs = pairs_of(left.columns, other.columns)
        if not pairs:
            return self.plain()
        one, its = self.pick.one(pairs)
        meet: list[Expression] = [Call("=", (its, one), BOOLEAN)]
        values = Expressions(self.pick, other.columns, fails=False)
        if self.pick.chance(30):
            meet.append(
                self.pick.one([values, Expressions(self.pick, [one, *other.columns], fails=False)]).comparison()
            )
        flat = [each for each in other.columns if each.type in ORDERED]
        shown = self.pick.some(flat, 1, 2)
        if self.pick.chance(40):
            counted = [("COUNT(*)", BIGINT), *((f"MAX({each.sql})", each.type) for each in shown)]
            lateral = Lateral(of, tuple(counted), tuple(meet))
        else:
            order = ", ".join(f"{each.sql}{self.pick.one(['', ' DESC'])}" for each in shown)
            lateral = Lateral(
                of,
                tuple((each.sql, each.type) for each in shown),
                tuple(meet),
                f" ORDER BY {order} LIMIT {self.pick.count(1, 3)}",
            )
        join, on = self.pick.one([(",", None), ("CROSS JOIN", None), ("LEFT JOIN", Constant(True, BOOLEAN))])
        inputs = (left, Input("l", lateral, join, on))
        return self.grouped_by(inputs) if self.pick.chance(30) else self.projected(inputs)

    def correlated(self) -> Block:
        """Conditions over subqueries that read the row around them, in queries of several forms."""
        inputs = (self.input("a"),) if self.pick.chance(60) else self.joins(2)
        columns = self.pick.one(inputs).columns  # of several inputs only equalities are taken
        asked = Subqueries(self.pick, self.sources, columns).condition()
        made = self.grouped_by(inputs) if self.pick.chance(35) else self.projected(inputs)
        return replace(made, first=Subquery(asked))

    def written(self) -> Block:
        """PIVOT, UNPIVOT or WITH RECURSIVE in FROM, perhaps joined."""
        made = Input("a", Texts(self.pick, self.sources).any())
        inputs: tuple[Input, ...] = (made,)
        right = self.input("b")
        pairs = pairs_of(made.columns, right.columns)
        if pairs and self.pick.chance(35):
            join = self.pick.one(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
            on = Call("=", self.pick.one(pairs), BOOLEAN)
            inputs = (
                (made, Input("b", right.of, join, on))
                if self.pick.chance(50)
                else (Input("b", right.of), Input("a", made.of, join, on))
            )
        return self.grouped_by(inputs) if self.pick.chance(40) else self.projected(inputs)

    def set_of_groups(self) -> SetOperation:
        """Two branches with GROUP BY, or one with it and one without."""
        left = self.grouped_by((self.input("a"),))
        flat = [(name, value) for name, value in left.items if "<" not in value.type]
        left = replace(left, items=tuple((f"c{place}", value) for place, (_, value) in enumerate(flat)))
        inputs = (self.input("b"),)
        values = self.expressions(inputs)
        keys = tuple(self.like(values, each.type) for each in left.group or ())
        if not keys or not all(map(columns_of, keys)) or {each.type for each in keys} & {TIME, BYTES}:
            return self.set_operation()
        items: list[Value] = [*keys]
        grouped = self.pick.chance(70)
        for _, value in left.items[len(keys) :]:
            argument = self.like(values, value.type)
            if not grouped:
                items.append(argument)
            elif value.type == BIGINT and self.pick.chance(60):
                items.append(Aggregate("COUNT", None, BIGINT))
            elif value.type in ORDERED:
                items.append(Aggregate(self.pick.one(["MIN", "MAX"]), argument, value.type))
            else:
                items.append(Constant(None, value.type))
        right = Block(inputs, self.named(items), where=self.where_of(values), group=keys if grouped else None)
        operator = self.pick.one(["UNION ALL", "UNION", "INTERSECT", "EXCEPT", "EXCEPT ALL", "INTERSECT ALL"])
        sides = [left, right] if self.pick.chance(60) else [right, left]
        return SetOperation(operator, *sides)


def _can_be_read(view: ViewOf) -> bool:
    """True if the grammar finds the types that it looks for, and rows can be told apart: pairs of events cannot."""
    types = [kind for _, kind in view.query.types]
    return INT in types and VARCHAR in types and len(types) > 2 and not joins_events(view.query)
