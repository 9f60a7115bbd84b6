"""The views of an example: a small tree of queries, and its text as a user would write it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from tests.properties.paths.expressions import Call, Column, Constant, Expression, Shown, can_fail, text
from tests.properties.paths.values import BIGINT, INT, INTS, MAP, STRUCT, TIMESTAMP, VARCHAR

Policy = Literal["dead_letter", "stop", "null"]
POLICIES: Final[tuple[Policy, ...]] = ("dead_letter", "stop", "null")


@dataclass(frozen=True)
class Relation:
    """A stream, table or view that a query reads. The first column of a table is its key."""

    name: str
    kind: Literal["stream", "table", "view"]
    columns: tuple[tuple[str, str], ...]

    @property
    def statement(self) -> str:
        key = {"stream": "", "table": " PRIMARY KEY"}[self.kind]
        columns = [f"{name} {kind}{key if place == 0 else ''}" for place, (name, kind) in enumerate(self.columns)]
        ticks = ", TICK_EVERY = '1 MINUTE'" if self == CLOCK else ""
        return (
            f"CREATE {self.kind.upper()} {self.name} ({', '.join(columns)})"
            f" WITH (KAFKA_TOPIC = '{self.name}', PARTITIONS = 1{ticks});"
        )


CLOCK: Final = Relation("clock", "table", (("id", INT), ("now", TIMESTAMP)))
"""The lake's, where there is one: views read it by NOW() and CURRENT_DATE."""
_NOW: Final = f"(SELECT MAX(now) FROM {CLOCK.name})"


@dataclass(frozen=True)
class Items:
    """The items of an array of an input before, a row each: `UNNEST(a.s4)`.

    Attributes:
        numbered: WITH ORDINALITY.
    """

    array: Column
    numbered: bool = False

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return (("item", INT), *((("place", INT),) if self.numbered else ()))


@dataclass(frozen=True)
class InWindows:
    """The rows of a relation in windows of time, in seconds: `TUMBLE(s0, s3, …)`, `HOP(s0, s3, …)`.

    Attributes:
        step: of HOP; None for TUMBLE.
    """

    of: Relation
    time: str
    size: int
    step: int | None = None

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return (*self.of.columns, ("window_start", TIMESTAMP), ("window_end", TIMESTAMP))


@dataclass(frozen=True)
class Lateral:
    """A query in FROM over one relation, computed for each row of the inputs before. It cannot fail.

    Attributes:
        shown: what it selects, with its type.
        meet: the terms of its WHERE.
        rest: what stands behind them.
    """

    of: Relation
    shown: tuple[tuple[str, str], ...]
    meet: tuple[Expression, ...]
    rest: str = ""

    @property
    def columns(self) -> tuple[tuple[str, str], ...]:
        return tuple((f"l{place}", kind) for place, (_, kind) in enumerate(self.shown))

    @property
    def sql(self) -> str:
        """In our language and in DuckDB alike."""
        items = ", ".join(f"{each} AS l{place}" for place, (each, _) in enumerate(self.shown))
        return (
            f"LATERAL (SELECT {items} FROM {self.of.name} AS z WHERE {' AND '.join(map(text, self.meet))}{self.rest})"
        )


@dataclass(frozen=True)
class Written:
    """What stands in FROM as a text, in our language and in DuckDB alike. It cannot fail.

    Attributes:
        reads: the relation in it.
    """

    sql: str
    reads: str
    columns: tuple[tuple[str, str], ...]


From = Relation | Items | InWindows | Lateral | Written


@dataclass(frozen=True)
class Input:
    """One input of a block; all but the first are joined to those before.

    Attributes:
        of: a relation, a query that stands in brackets, or what is made of either.
        join: as JOIN is written, a comma, or empty for the first one.
        on: None for CROSS JOIN, and for a comma.
        within: of two streams, the seconds between partners; None without WITHIN.
    """

    alias: str
    of: From | Block | SetOperation
    join: str = ""
    on: Expression | None = None
    within: int | None = None

    @property
    def is_asof(self) -> bool:
        return self.join.startswith("ASOF")

    @property
    def columns(self) -> tuple[Column, ...]:
        known = self.of.types if isinstance(self.of, Block | SetOperation) else self.of.columns
        return tuple(Column(self.alias, name, kind) for name, kind in known)


@dataclass(frozen=True)
class Subquery:
    """A condition over another relation: `… [NOT] IN (SELECT …)`, `[NOT] EXISTS (SELECT …)`. It cannot fail."""

    sql: str


@dataclass(frozen=True)
class Scalar(Column):
    """A subquery, or another text, that stands for a value of a row. It cannot fail."""

    query: str

    @property
    def sql(self) -> str:
        return f"({self.query})"


def by_the_clock(sql: str) -> str:
    """A query of a view as one that gives the same rows at any time."""
    return sql.replace("CURRENT_DATE", f"CAST({_NOW} AS DATE)").replace("NOW()", _NOW)


def parts_in(column: Column) -> list[Scalar]:
    """What a nested column is asked for: an item, a field, its length. NULL where there is none; it cannot fail."""
    asked = {
        INTS: [("{}[1]", INT), ("{}[-1]", INT), ("ARRAY_LENGTH({})", INT)],
        MAP: [("{}['a']", INT), ("CARDINALITY({})", INT)],
        STRUCT: [("{}.f", INT), ("{}.g", VARCHAR)],
    }
    return [
        Scalar("", f"{column.alias}_{column.name}_{place}", kind, form.format(column.sql))
        for place, (form, kind) in enumerate(asked.get(column.type, ()))
    ]


@dataclass(frozen=True)
class Bound(Column):
    """WINDOWSTART or WINDOWEND."""

    @property
    def sql(self) -> str:
        return self.name


BOUNDS: Final = tuple(Bound("", name, BIGINT) for name in ("WINDOWSTART", "WINDOWEND"))


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function of a group's rows.

    Attributes:
        filter: the condition of FILTER.
        form: how it is written, if it is not `function(argument)`: with `{0}` for the argument.
        by_order: how DuckDB is asked for it, over rows that are numbered in the order of events, `{1}`; empty: as it is
            written. With `filter`: of one that leaves NULLs out.
    """

    function: str
    argument: Expression | None
    type: str
    distinct: bool = False
    filter: Expression | None = None
    form: str = ""
    by_order: str = ""

    @property
    def computed(self) -> Expression | None:
        """What is computed of each row: the argument where the filter holds."""
        if self.filter is None:
            return self.argument
        counted = self.argument or Constant(1, INT)
        return Call("CASE", (self.filter, counted, Constant(None, counted.type)), counted.type)


@dataclass(frozen=True)
class Over:
    """A window function over the rows of a partition.

    Attributes:
        how: what stands behind each of `order`; empty: nothing.
        frame: `ROWS …`, or `RANGE …`.
        form: how the call is written, if it is not `function(argument)`: with `{0}` for the argument.
    """

    function: str
    argument: Expression | None
    type: str
    partition: tuple[Expression, ...]
    order: tuple[Expression, ...]
    how: tuple[str, ...] = ()
    frame: str = ""
    form: str = ""

    @property
    def in_steps(self) -> bool:
        """True if the frame is by a distance between values."""
        return self.frame.startswith("RANGE") and any(letter.isdigit() for letter in self.frame)


Value = Expression | Aggregate | Over


WindowKind = Literal["TUMBLING", "HOPPING", "SESSION"]
WINDOWS: Final[tuple[WindowKind, ...]] = ("TUMBLING", "HOPPING", "SESSION")


@dataclass(frozen=True)
class Window:
    """The WINDOW clause over the events of a stream, in seconds.

    Attributes:
        step: of HOPPING windows; their size otherwise.
        grace: None for a day, or 0 with EMIT FINAL.
        final: EMIT FINAL.
    """

    kind: WindowKind
    size: int
    step: int
    grace: int | None = None
    final: bool = False

    @property
    def sql(self) -> str:
        size = {"SESSION": "", "TUMBLING": "SIZE ", "HOPPING": "SIZE "}[self.kind] + f"{self.size} SECONDS"
        step = f", ADVANCE BY {self.step} SECONDS" if self.kind == "HOPPING" else ""
        grace = f", GRACE PERIOD {self.grace} SECONDS" if self.grace is not None else ""
        return f"WINDOW {self.kind} ({size}{step}{grace})"


@dataclass(frozen=True)
class Block:
    """One SELECT.

    Attributes:
        first: a condition that cannot fail; `where` one that perhaps can. Both must hold, in this order.
        items: names and values.
        group: the expressions of GROUP BY; None without the clause.
        sets: how GROUP BY is written, if it has grouping sets: with a place for each expression.
        having: a text over aggregates that cannot fail.
        order: the expressions of ORDER BY, each with what stands behind it; with `limit`. The last ones are all items,
            so that no rows tie that are not the same.
        limit: `LIMIT …`.
        first_of: by how many of the expressions of `order` rows are told apart by DISTINCT ON.
        qualify: a window function, and what is asked of it.
        named: queries in FROM stand in WITH.
        keys_are_there: rows of which a key of the group is NULL are left out, as `SEMANTICS = 'ksql'` has it.
    """

    inputs: tuple[Input, ...]
    items: tuple[tuple[str, Value], ...]
    first: Expression | Subquery | None = None
    where: Expression | None = None
    distinct: bool = False
    group: tuple[Expression, ...] | None = None
    having: str = ""
    sets: str = ""
    order: tuple[tuple[Expression, str], ...] = ()
    limit: str = ""
    first_of: int = 0
    window: Window | None = None
    qualify: tuple[Over, str] | None = None
    named: bool = False
    keys_are_there: bool = False

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return tuple((name, value.type) for name, value in self.items)

    @property
    def sql(self) -> str:
        window = f" {self.window.sql}" if self.window is not None else ""
        final = " EMIT FINAL" if self.window is not None and self.window.final else ""
        parts = f"{self.selected()} {self.source()}{window}{self.condition()}{self.grouped()}{final}"
        return f"{self._names()}SELECT {parts}"

    @property
    def is_plain(self) -> bool:
        """True if it only joins, filters and computes."""
        made = self.distinct or self.group is not None or self.window or self.order or self.qualify
        return not made and not any(isinstance(value, Aggregate | Over) for _, value in self.items)

    def _names(self) -> str:
        """WITH, and the queries that FROM names."""
        parts = [f"{name} AS ({each.sql})" for each, name in self._named().items()]
        return f"WITH {', '.join(parts)} " if parts else ""

    @property
    def queries(self) -> list[Block | SetOperation]:
        """The queries in FROM."""
        return [each.of for each in self.inputs if isinstance(each.of, Block | SetOperation)]

    def _named(self) -> dict[Block | SetOperation, str]:
        queries = dict.fromkeys(self.queries) if self.named else {}
        return {each: f"q{place}" for place, each in enumerate(queries)}

    def selected(self, shown: Shown = lambda _: None) -> str:
        """The SELECT list."""
        items = ", ".join(f"{value_text(value, shown)} AS {name}" for name, value in self.items)
        if self.first_of:
            return f"DISTINCT ON ({', '.join(text(each, shown) for each, _ in self.order[: self.first_of])}) {items}"
        return f"DISTINCT {items}" if self.distinct else items

    def source(self) -> str:
        """The FROM clause."""
        names = self._named()
        return "FROM " + " ".join(_input(each, names) for each in self.inputs)

    def condition(self) -> str:
        """The WHERE clause, with the space before it."""
        first = self.first.sql if isinstance(self.first, Subquery) else text(self.first) if self.first else ""
        parts = [each for each in (first, text(self.where) if self.where is not None else "") if each]
        return f" WHERE {' AND '.join(parts)}" if parts else ""

    def grouped(self, shown: Shown = lambda _: None) -> str:
        """The clauses from GROUP BY on, with the space before them."""
        group = [text(each, shown) for each in self.group or ()]
        by = f" GROUP BY {self.sets.format(*group) if self.sets else ', '.join(group)}" if group else ""
        having = f" HAVING {self.having}" if self.having else ""
        if self.qualify is not None:
            having += f" QUALIFY {value_text(self.qualify[0], shown)} {self.qualify[1]}"
        order = ", ".join(f"{text(each, shown)}{how}" for each, how in self.order)
        return f"{by}{having}{f' ORDER BY {order}' if order else ''}{f' {self.limit}' if self.limit else ''}"

    def row_expressions(self) -> Iterator[Expression]:
        """What is computed of each row that WHERE lets through: its own values, and what is grouped by or added up."""
        asked = [self.qualify[0]] if self.qualify is not None else []
        for value in (*(value for _, value in self.items), *asked):
            match value:
                case Aggregate():
                    yield from () if value.computed is None else (value.computed,)
                case Over():
                    yield from () if value.argument is None else (value.argument,)
                    yield from (*value.partition, *value.order)
                case _:
                    yield value
        yield from self.group or ()
        yield from (each for each, _ in self.order)

    @property
    def in_words_of_its_own(self) -> bool:
        """True if DuckDB has no clause for some part of it, or one that means something else."""
        values = [value for _, value in self.items]
        inside = any(each.in_words_of_its_own for each in self.queries)
        by_order = any(isinstance(value, Aggregate) and value.by_order for value in values)
        in_steps = any(isinstance(value, Over) and value.in_steps for value in values)
        joins = any(each.within is not None or each.is_asof for each in self.inputs)
        windows = any(isinstance(each.of, InWindows) for each in self.inputs)
        return self.window is not None or inside or joins or windows or by_order or in_steps or self.keys_are_there

    @property
    def can_fail(self) -> bool:
        inside = any(each.can_fail for each in self.queries)
        on = any(each.on is not None and can_fail(each.on) for each in self.inputs)
        where = self.where is not None and can_fail(self.where)
        return inside or on or where or any(map(can_fail, self.row_expressions()))


@dataclass(frozen=True)
class Having:
    """Values and a condition over the groups of a block, written as one query: each may fail of a group.

    Attributes:
        outer: over the groups as the one input.
    """

    outer: Block

    @property
    def groups(self) -> Block:
        (only,) = self.outer.inputs
        assert isinstance(only.of, Block)
        return only.of

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return self.outer.types

    @property
    def sql(self) -> str:
        groups = self.groups
        values = dict(groups.items)

        def shown(expression: Expression) -> str | None:
            if not isinstance(expression, Column) or isinstance(expression, Scalar):
                return None
            return value_text(values[expression.name], lambda _: None)

        assert self.outer.where is not None
        items = ", ".join(f"{value_text(value, shown)} AS {name}" for name, value in self.outer.items)
        return (
            f"SELECT {items} {groups.source()}{groups.condition()}{groups.grouped()}"
            f" HAVING {text(self.outer.where, shown)}"
        )

    @property
    def can_fail(self) -> bool:
        return self.outer.can_fail


@dataclass(frozen=True)
class SetOperation:
    """Two blocks with columns of the same types: UNION, INTERSECT, EXCEPT, each perhaps with ALL."""

    operator: str
    left: Block
    right: Block

    @property
    def types(self) -> tuple[tuple[str, str], ...]:
        return self.left.types

    @property
    def sql(self) -> str:
        return f"{self.left.sql} {self.operator} {self.right.sql}"

    @property
    def in_words_of_its_own(self) -> bool:
        return self.left.in_words_of_its_own or self.right.in_words_of_its_own

    @property
    def can_fail(self) -> bool:
        return self.left.can_fail or self.right.can_fail


Query = Block | Having | SetOperation


@dataclass(frozen=True)
class ViewOf:
    """A view: its name, its query and its options.

    Attributes:
        shared: `STATE = 'shared'`.
        ksql: `SEMANTICS = 'ksql'`, which has `ERRORS = 'null'`.
        retention: the column that says how old a row is, or none for that of its window, and how old it may get.
    """

    name: str
    query: Query
    errors: Policy = "dead_letter"
    options: tuple[tuple[str, str], ...] = ()
    shared: bool = False
    ksql: bool = False
    retention: tuple[str, str] | None = None

    @property
    def statement(self) -> str:
        """The statement that makes it."""
        options = [f"{name} = '{value}'" for name, value in self.all_options]
        said = f" WITH ({', '.join(options)})" if options else ""
        return f"CREATE MATERIALIZED VIEW {self.name}{said} AS {self.query.sql};"

    @property
    def again(self) -> str:
        """The statement that makes it in the place of another one."""
        return self.statement.replace("CREATE", "CREATE OR REPLACE", 1)

    @property
    def all_options(self) -> tuple[tuple[str, str], ...]:
        errors = () if self.errors == "dead_letter" else (("ERRORS", self.errors),)
        state = (("STATE", "shared"),) if self.shared and "STATE" not in dict(self.options) else ()
        semantics = (("SEMANTICS", "ksql"),) if self.ksql else ()
        retention: tuple[tuple[str, str], ...] = ()
        if self.retention is not None:
            named = (("TIMESTAMP", self.retention[0]),) if self.retention[0] else ()
            retention = (("RETENTION", self.retention[1]), *named)
        return (*errors, *state, *semantics, *retention, *self.options)

    @property
    def meant(self) -> Query:
        """The query with what RETENTION says: a row that is too old is not there."""
        query = self.query
        if self.retention is None or isinstance(query, Having):
            return query
        name, length = self.retention
        item = dict(query.items).get(name) if isinstance(query, Block) and query.is_plain else None
        moment = Scalar("", "kept_since", TIMESTAMP, f"NOW() - INTERVAL '{length}'")
        if isinstance(query, Block) and isinstance(item, Column):  # a query that filters is one with that around it
            kept = Call(">", (item, moment), "BOOLEAN")
            return replace(query, where=kept if query.where is None else Call("AND", (kept, query.where), "BOOLEAN"))
        rows = Input("kept", query)
        time = Column("kept", name, TIMESTAMP)
        if not name:
            time = Scalar("", "kept_end", TIMESTAMP, f"FROM_UNIXTIME({rows.alias}.{BOUNDS[1].name.lower()})")
        items = tuple((each.name, each) for each in rows.columns)
        return Block((rows,), items, where=Call(">", (time, moment), "BOOLEAN"))

    @property
    def pipeline(self) -> str:
        """Views that share stages share a pipeline; any other has its own."""
        return "shared" if self.shared else self.name

    @property
    def as_relation(self) -> Relation:
        """What views over it read."""
        return Relation(self.name, "view", self.query.types)

    def made(self, name: str, **options: str) -> ViewOf:
        """The same view by another name and with other options beside ERRORS."""
        return replace(self, name=name, options=tuple(options.items()))


def value_text(value: Value, shown: Shown) -> str:
    """The text of an item."""
    match value:
        case Aggregate():
            computed = shown(value.computed) if value.computed is not None else None
            argument = computed or (text(value.argument, shown) if value.argument is not None else "*")
            called = f"{value.function}({'DISTINCT ' if value.distinct else ''}{argument})"
            if value.form:
                called = value.form.format(argument)
            filtered = value.filter is not None and computed is None
            return f"{called} FILTER (WHERE {text(value.filter, shown)})" if filtered and value.filter else called
        case Over():
            argument = text(value.argument, shown) if value.argument is not None else ""
            called = value.form.format(argument) if value.form else f"{value.function}({argument})"
            by = ", ".join(text(each, shown) for each in value.partition)
            how = value.how or ("",) * len(value.order)
            order = ", ".join(f"{text(each, shown)}{way}" for each, way in zip(value.order, how, strict=True))
            clauses = [f"PARTITION BY {by}" if by else "", f"ORDER BY {order}" if order else "", value.frame]
            return f"{called} OVER ({' '.join(each for each in clauses if each)})"
        case _:
            return text(value, shown)


def _input(each: Input, names: Mapping[Block | SetOperation, str]) -> str:
    on = f" ON {text(each.on)}" if each.on is not None else ""
    within = f" WITHIN {each.within} SECONDS" if each.within is not None else ""
    columns = ""
    match each.of:
        case Relation():
            of = each.of.name
        case Items():
            of, columns = items_text(each.of), f" ({', '.join(name for name, _ in each.of.columns)})"
        case Lateral() | Written():
            of = each.of.sql
        case InWindows():
            sizes = [each.of.size] if each.of.step is None else [each.of.step, each.of.size]
            parts = [each.of.of.name, each.of.time, *(f"INTERVAL '{size}' SECOND" for size in sizes)]
            of = f"{'TUMBLE' if each.of.step is None else 'HOP'}({', '.join(parts)})"
        case Block() | SetOperation():
            of = names.get(each.of) or f"({each.of.sql})"
    return f"{each.join} {of} AS {each.alias}{columns}{within}{on}".strip()


def items_text(items: Items) -> str:
    """What stands in FROM, in our language and in DuckDB alike."""
    return f"UNNEST({items.array.sql}){' WITH ORDINALITY' if items.numbered else ''}"


def relations_of(query: Query) -> set[str]:
    """The names of the relations that stand in FROM."""
    if isinstance(query, Having):
        return relations_of(query.outer)
    if isinstance(query, SetOperation):
        return relations_of(query.left) | relations_of(query.right)
    found: set[str] = set()
    for each in query.inputs:
        match each.of:
            case Block() | SetOperation():
                found |= relations_of(each.of)
            case InWindows() | Lateral():
                found.add(each.of.of.name)
            case Written():
                found.add(each.of.reads)
            case Relation():
                found.add(each.of.name)
    return found
