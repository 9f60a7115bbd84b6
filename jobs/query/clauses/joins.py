"""Joins: the type of each, its condition, the order in which inputs join, and what is refused.

    FROM a JOIN b ON a.x = b.x AND b.y > 1          b: inner, on a.x = b.x AND b.y > 1
    FROM a, b WHERE a.x = b.x AND a.z > 1           b: inner, on a.x = b.x; the rest stays in WHERE
    FROM a RIGHT JOIN b ON …                        b, then a: left
    FROM a LEFT JOIN b WITHIN 1 HOUR ON …           b: left, on … AND the times are at most an hour apart
    FROM stream JOIN table ON … (CREATE STREAM)     table: frozen, over its event log as of the event's time
    FROM s JOIN table FOR SYSTEM_TIME AS OF …       the same, in any statement
    FROM a LEFT JOIN b ON … AND a.x IN (SELECT …)   a, the count of the subquery's rows that are a.x: left, then b: left

By an equality between its sides the engine finds the rows that a change touches. A materialized view may do without:
then a changed row is compared with all rows of the other side, and EXPLAIN says so. Inputs of inner joins are joined in
the order in which conditions link them, wherever they stand in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError
from strandline.jobs.model.stage import JoinType, Output
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.clauses.correlation import raised
from strandline.jobs.query.clauses.dependent_joins import applied
from strandline.jobs.query.clauses.from_clause import (
    ASOF,
    NATURAL,
    Context,
    Joined,
    join_type,
)
from strandline.jobs.query.clauses.from_functions import read_unnest
from strandline.jobs.query.clauses.ksql import check_join
from strandline.jobs.query.clauses.subqueries import Subqueries
from strandline.jobs.query.clauses.time_joins import (
    asof_block,
    check_streams,
    kept_events,
    lookup_time,
    within_condition,
)
from strandline.jobs.query.expressions.infer import condition, infer
from strandline.jobs.query.expressions.scope import Typed, column
from strandline.jobs.query.inputs import (
    FromItem,
    Inputs,
    ReadableColumns,
    aliases,
    columns_equated,
    conjoined,
    expressions_of,
    is_equality,
    places_in,
    row_identity,
)
from strandline.jobs.query.logical import Block, From, one_row, outputs_of, padded_in
from strandline.jobs.sql.dialect import position_of, sql_of
from strandline.jobs.sql.trees import Place, all_of, conjuncts, replaced
from strandline.state_store.wording import Name, sentence


def with_subqueries_in_where(select: exp.Select) -> exp.Select:
    """The SELECT with the conditions of inner joins that have subqueries in WHERE, where they mean the same: no later
    join keeps the rows that they leave out.

    FROM a JOIN b ON a.k = b.k AND b.x IN (SELECT …)     FROM a JOIN b ON a.k = b.k WHERE b.x IN (SELECT …)
    """
    joins = select.args.get("joins") or []
    places = [place for place, each in enumerate(joins) if each.side in ("RIGHT", "FULL")]
    last = places[-1] if places else -1
    if not any(_asks(each) for each in joins[last + 1 :]):
        return select
    made = select.copy()
    for join in made.args["joins"][last + 1 :]:
        if not _asks(join):
            continue
        terms = conjuncts(join.args["on"])
        moved = [each for each in terms if each.find(exp.Query)]
        kept = [each for each in terms if not each.find(exp.Query)]
        join.set("on", all_of(*kept) or exp.true())
        where = made.args.get("where")
        made.set("where", exp.Where(this=all_of(where.this if where is not None else None, *moved)))
    return made


def _asks(join: exp.Join) -> bool:
    """True if a condition of an inner join has a subquery."""
    on = join.args.get("on")
    plain = not join.side and not join.method and join.kind in ("", "INNER")
    return plain and on is not None and on.find(exp.Query) is not None


class Joins:
    """The joins of one SELECT.

    Attributes:
        froms: an input each, in the order of the text.
        inputs: the names they bring.
        expand: the arrays of an UNNEST that nothing is joined with.
        outside: conditions of its queries that read the query around, which are conditions of this one.
    """

    def __init__(self, parts: Sequence[Joined], context: Context, *, windowed: bool, grouped: bool) -> None:
        """Read them; `windowed` and `grouped` say whether the SELECT has WINDOW and GROUP BY.

        Raises:
            SqlError: a join that cannot be; with the place.
        """
        self._context = context
        self._grouped = grouped
        self.inputs = Inputs((), windowed=windowed, outer=context.outer)
        self.froms: list[From] = []
        self.expand: tuple[Output, ...] = ()
        self.outside: list[exp.Expression] = []
        self._order: list[int] = []
        self._nested = 0
        self._found: dict[str, tuple[exp.Expression, ...]] = {}
        self._asked = 0
        for joined in parts:
            if self.expand:
                self.nest_items()
            before = self.inputs
            if joined.inside and joined.node is not None:
                self._join_brackets(joined.inside, joined.node, before)
                continue
            if joined.unnest is not None:
                found = read_unnest(joined.unnest, joined.node, before)
                self.inputs, self.expand = replace(before, parts=(*before.parts, found.part)), found.expand
                continue
            if joined.lateral is not None:
                joined = self._lateral(joined, joined.lateral)
            elif not context.pulls and context.outer is not None:
                joined = self._without_outside(joined)
            self.inputs = replace(before, parts=(*before.parts, joined.part))
            if joined.node is None:
                self.froms.append(From(joined.part.alias, joined.part.source))
            else:
                self._join(joined, joined.node, before)

    def _lateral(self, joined: Joined, tree: exp.Query) -> Joined:
        """What follows LATERAL, with the condition by which a row before it finds its own."""
        node = joined.node
        if self._context.kind is not None or node is None or node.side in ("RIGHT", "FULL") or node.args.get("using"):
            raise NotSupported(
                "LATERAL follows a comma, CROSS JOIN, JOIN … ON or LEFT JOIN … ON in a materialized view",
                hint="CREATE MATERIALIZED VIEW … AS SELECT … FROM a LEFT JOIN LATERAL (SELECT …) AS l ON TRUE",
            ).placed(*position_of(tree))
        query = self._context.read(tree, self._context.within(self.inputs, self.padded))
        alias = node.this.args["alias"]
        try:
            made = applied(query, [each.name for each in alias.columns], self._in_text_order(), joined.part.alias)
        except SqlError as error:
            raise error.placed(*position_of(tree)) from None
        part = FromItem(joined.part.alias, joined.part.name, made.query, made.columns, {})
        self._found[part.alias] = made.on
        return replace(joined, part=part)

    def _without_outside(self, joined: Joined) -> Joined:
        """A query in FROM without its conditions that read the query around this one."""
        part, outer = joined.part, self._context.outer
        if isinstance(part.source, Relation) or not isinstance(outer, Inputs):
            return joined
        made = raised(part.source, part.alias, outer, self._context.padded)
        if made is None:
            return joined
        kind = join_type(joined.node) if joined.node is not None else "inner"
        if kind == "left":
            self._found[part.alias] = made.on
        else:
            self.outside += made.on
        if kind in ("right", "full"):
            raise _padded_outside(joined)
        columns = tuple((each.expression.name, each.type) for each in made.outputs)
        return replace(joined, part=replace(part, source=made.source, columns=columns, key=(), row_key=()))

    def nest_items(self) -> None:
        """Make one query of the inputs so far and the items of UNNEST.

        Raises:
            NotSupported: a join before UNNEST has its condition in WHERE, or the statement needs a record key.
        """
        self._nest(Block(self._in_text_order(), None, (), expand=self.expand))
        self.expand = ()

    def place(self, found: list[exp.Expression]) -> list[exp.Expression]:
        """Move the terms of WHERE that join inputs to the joins that have no condition; return the other terms.

        Raises:
            InvalidQuery: a join of CREATE STREAM or TABLE is left without an equality.
        """
        rest = found = [*found, *self.outside]
        if self.outside and any(each.join in ("right", "full") for each in self.froms):
            raise _padded_outside(None)
        self._order = join_order(self.froms, found)
        for place, number in enumerate(self._order):
            each = self.froms[number]
            if place == 0 or each.on is not None or each.one_row:
                continue
            known = {self.froms[before].alias for before in self._order[:place]}
            linking = [term for term in rest if is_equality(term, each.alias, known)]
            if not linking:
                if self._context.kind is not None:
                    raise without_equality(each.alias, None)
                continue
            padded = any(later.join in ("right", "full") for later in self.froms[number + 1 :])
            # What an outer join pads later has to meet the condition too.
            rest = rest if padded else [term for term in rest if not any(term is link for link in linking)]
            self.froms[number] = replace(each, on=conjoined(term.copy() for term in linking))
        return rest

    @property
    def padded(self) -> set[str]:
        """The inputs whose columns are NULL where an outer join found nothing."""
        return padded_in(self.froms)

    @property
    def written(self) -> list[From]:
        """The inputs that stand in FROM, without those that stand for a value in an ON."""
        return [each for each in self.froms if not each.alias.startswith(_ASKED)]

    def in_order(self) -> tuple[From, ...]:
        """The inputs in the order in which they join."""
        return self._in_text_order() if self._is_turned else tuple(self.froms[number] for number in self._order)

    @property
    def _is_turned(self) -> bool:
        return len(self.froms) > 1 and self.froms[1].join == "right"

    def _in_text_order(self) -> tuple[From, ...]:
        """The inputs as they stand: a RIGHT JOIN of the first two is a LEFT JOIN the other way."""
        if not self._is_turned:
            return tuple(self.froms)
        first, second, *rest = self.froms
        return (replace(second, join="inner", on=None), replace(first, join="left", on=second.on), *rest)

    def _nest(self, block: Block) -> None:
        if any(each.on is None and not each.one_row for each in self.froms[1:]):
            raise NotSupported(
                "joins before ASOF JOIN, or before UNNEST when more stands after it, need ON", hint="write JOIN … ON"
            )
        if self._context.kind is not None and not self._grouped:
            raise NotSupported(
                "what is joined after UNNEST or ASOF JOIN has no record key", hint="CREATE MATERIALIZED VIEW … AS"
            )
        source, self.inputs = nested(block, self.inputs, self._nested)
        self.froms, self._nested = [source], self._nested + 1

    def _join(self, joined: Joined, node: exp.Join, before: Inputs) -> None:
        part = joined.part
        time = lookup_time(joined, before, self._context.catalog)
        kind = join_type(node)
        if self._asks_outside(joined, node):
            self._join_asking(part, node, before, kind)
            return
        on = self._condition(node, part, before, kind)
        if self._found.get(part.alias):
            on = conjoined([*self._found[part.alias], *conjuncts(on)])
        if node.method == ASOF:
            self._nest(asof_block(self._in_text_order(), From(part.alias, part.source, kind, on), node))
            return
        if self._context.strict and self._context.kind is not None:
            check_join(node, part, self.inputs, before)
        check_streams(joined, before, self._context.kind)
        source: From = From(part.alias, part.source, kind, on)
        if on is None:
            single = not isinstance(part.source, Relation) and one_row(part.source)
            self.froms.append(replace(source, one_row=single))
            return
        self._remember_key(on, part, before, kind)
        if joined.within is not None:
            apart = within_condition(joined.within, part, before)
            on = conjoined((on, apart, *kept_events(joined.within, part, before)))
            source = replace(source, on=on)
        if time is not None or self._looks_up(part, before):
            check_lookup(part, on, kind, node)
            log = part.log if time != "arrival" else None
            source = replace(source, frozen=True, as_of=log is not None, source=log or part.source)
        elif self._context.kind == "table" and not part.stream and not self._grouped:
            # The rows of GROUP BY are known by its expressions, however many rows of a table were joined.
            check_table(part, on, node)
        self.froms.append(source)

    def _join_brackets(self, inside: Sequence[Joined], node: exp.Join, before: Inputs) -> None:
        """Join what brackets hold as one input, in which the inputs keep their names.

        Raises:
            NotSupported: in CREATE STREAM and TABLE, where events look rows up, or joined by USING.
        """
        kind = join_type(node)
        inner = Joins(inside, self._context, windowed=False, grouped=False)
        asks = not self._context.pulls and node.args.get("on") is not None and node.args["on"].find(exp.Query)
        if self._context.kind is not None or self._context.frozen or node.method or node.args.get("using") or asks:
            raise NotSupported(
                f"joins in brackets are joined by ON without subqueries, in a materialized view: {sql_of(node)}",
                hint="put them into a subquery: (SELECT … FROM … JOIN …) AS name",
            ).placed(*position_of(node))
        if inner.outside:
            raise _padded_outside(inside[0])
        if inner.expand:
            inner.nest_items()
        source, moved = nested(Block(inner._in_text_order(), None, ()), inner.inputs, self._nested)
        self._nested += 1
        self.inputs = replace(
            before,
            parts=(*before.parts, *moved.parts),
            merged={**before.merged, **moved.merged},
            equated={**before.equated, **moved.equated},
            rowkey=None,
        )
        part = FromItem(source.alias, source.alias, source.source, (), {})
        self.froms.append(replace(source, join=kind, on=self._condition(node, part, before, kind)))

    def _condition(self, node: exp.Join, part: FromItem, before: Inputs, kind: JoinType) -> exp.Expression | None:
        using = [identifier.name for identifier in node.args.get("using") or ()]
        if node.method == NATURAL:
            held = {name for each in before.parts for name, _ in each.columns}
            using = [name for name, _ in part.columns if name in held]
        if using:
            return self._using(using, part, before, kind)
        tree = node.args.get("on")
        if tree is None:
            if kind != "inner":
                raise InvalidQuery(f"the join with '{part.alias}' needs ON").placed(*position_of(node))
            return None
        nested = self._context.nested_in(self.inputs)
        found = condition(tree, self.inputs, "ON", nested.read if nested is not None else None)
        terms = conjuncts(found)
        known = before.aliases
        single = not isinstance(part.source, Relation) and one_row(part.source)
        free = single or self._context.kind is None
        if not free and not any(is_equality(term, part.alias, known) for term in terms):
            raise without_equality(part.alias, tree)
        return conjoined(terms)

    def _asks_outside(self, joined: Joined, node: exp.Join) -> bool:
        """True if ON has subqueries that have not become conditions of WHERE, in a join that reads its sides as they
        are."""
        on = node.args.get("on")
        plain = self._context.kind is None and not self._context.frozen and not self._context.pulls
        at_once = joined.within is None and joined.system_time is None and not node.method
        return plain and at_once and joined.lateral is None and on is not None and on.find(exp.Query) is not None

    def _join_asking(self, part: FromItem, node: exp.Join, before: Inputs, kind: JoinType) -> None:
        """Join an input by an ON with subqueries: each stands for a value, beside the input that it reads.

        Those that read the new input, or nothing, make one query with it, as `nested`.

        Raises:
            NotSupported: a subquery reads both sides.
        """
        asked = Subqueries(self.inputs, self._context, self.padded, f"{_ASKED}{self._asked}_")
        terms = asked.on(node.args["on"])
        self._asked += 1
        inside: list[From] = []
        for each in asked.froms:
            read = aliases(each.on) - {each.alias} if each.on is not None else set()
            if read & before.aliases and read - before.aliases:
                raise NotSupported(
                    f"a subquery in ON of a {kind.upper()} JOIN reads one of its sides: {sql_of(node.args['on'])}",
                    hint="join in a subquery in FROM what it reads of the other side",
                ).placed(*position_of(node.args["on"]))
            (inside if read - before.aliases else self.froms).append(each)
        source = From(part.alias, part.source)
        if inside:
            values = [column(name, each.alias) for each in inside for name, _ in _columns_of(each)]
            source, read_from = gathered(Block((source, *inside), None, ()), Inputs((part,)), self._nested, values)
            (moved,) = _moved(Inputs((part,)), read_from).parts
            self.inputs = replace(self.inputs, parts=(*before.parts, moved))
            self._nested += 1
            terms = [replaced(each, read_from) for each in terms]
        else:
            self._remember_key(conjoined(terms), part, before, kind)
        self.froms.append(replace(source, join=kind, on=conjoined(terms)))

    def _using(self, names: list[str], part: FromItem, before: Inputs, kind: JoinType) -> exp.Expression:
        """USING (a, b): an equality each; the name alone means both columns from here on."""
        merged, equated = dict(self.inputs.merged), dict(self.inputs.equated)
        tests: list[exp.Expression] = []
        for name in names:
            left = before.resolve(column(name))
            right = Typed(part.column(name), left.type)
            equal = exp.EQ(this=left.expression.copy(), expression=right.expression.copy())
            tests.append(condition(equal, self.inputs, "USING"))
            both = exp.Anonymous(this="COALESCE", expressions=[left.expression, right.expression])
            merged[name] = {"right": right, "full": Typed(both, left.type)}.get(kind, left)
            holders = (each.alias for each in before.parts if name in dict(each.columns))
            equated[name] = frozenset({*(before.equated.get(name) or holders), part.alias})
        self.inputs = replace(self.inputs, merged=merged, equated=equated)
        return conjoined(tests)

    def _looks_up(self, part: FromItem, before: Inputs) -> bool:
        return self._context.frozen and not part.stream and any(each.stream for each in before.parts)

    def _remember_key(self, on: exp.Expression, part: FromItem, before: Inputs, kind: JoinType) -> None:
        """ksqlDB's ROWKEY: the value that the last join is on."""
        known = before.aliases
        for term in conjuncts(on):
            if not is_equality(term, part.alias, known):
                continue
            assert isinstance(term, exp.EQ)
            left, right = term.this, term.expression
            if part.alias in {node.table for node in left.find_all(exp.Column)}:
                left, right = right, left
            made: exp.Expression = left.copy()
            if kind == "full":
                made = exp.Anonymous(this="COALESCE", expressions=[left.copy(), right.copy()])
            elif kind == "right":
                made = right.copy()
            synthetic = kind == "full" or not any(isinstance(side, exp.Column) for side in (left, right))
            self.inputs = replace(self.inputs, rowkey=infer(made, self.inputs), synthetic_key=synthetic)
            return


# The order in which the inputs of inner joins are joined: each after those that a condition links it with.
#
# FROM a, z, b WHERE a.id = b.id AND z.v = b.n        a, b, z
# FROM a JOIN z ON a.x = z.x, b                       a, z, b: what ON reads stands before it


def join_order(froms: Sequence[From], where: Sequence[exp.Expression]) -> list[int]:
    """Places of the inputs in the order in which they join: that of the text if an outer join is among them.

    Args:
        where: the conditions between the ANDs of WHERE.
    """
    places = list(range(len(froms)))
    if any(each.join != "inner" or each.frozen for each in froms):
        return places
    chosen, rest = places[:1], places[1:]
    while rest:
        known = {froms[place].alias for place in chosen}
        ready = [place for place in rest if _reads_only(froms[place], known)]
        linked = [place for place in ready if _is_linked(froms[place], known, where)]
        # What nothing links yet is joined with every row: it waits while another can go before it.
        following = (linked or ready)[0]
        chosen.append(following)
        rest.remove(following)
    return chosen


def _reads_only(each: From, known: set[str]) -> bool:
    return each.on is None or aliases(each.on) <= {*known, each.alias}


def _is_linked(each: From, known: set[str], where: Sequence[exp.Expression]) -> bool:
    return each.one_row or each.on is not None or any(is_equality(term, each.alias, known) for term in where)


# What FROM has so far, as a query of its own, in which the inputs keep their names.
#
#     FROM a JOIN b ON a.x = b.x, UNNEST(a.tags) AS u (tag) JOIN c ON c.id = u.tag
#
#     __from0  SELECT a.x AS __n0, …, __u0 AS __n5 FROM a JOIN b ON a.x = b.x     with the items of a.tags
#     outside  FROM __from0 JOIN c ON c.id = __from0.__n5                         a.x reads __from0.__n0
#
# In a stage joins come before the items of an array, and both before functions OVER a window: what is joined with
# those reads them from a stage below.

_ALIAS = "__from"
_ASKED = "__on"
"""How the name of an input begins that stands for a value in ON."""


def nested(block: Block, inputs: Inputs, number: int) -> tuple[From, Inputs]:
    """Make a block the only input so far; return it, and the inputs whose columns are now read from it.

    Args:
        block: without outputs; it gets all columns that a name of `inputs` means, and those that tell its rows apart.
        number: of the query among those of one FROM.
    """
    source, read = gathered(block, inputs, number, ())
    return source, _moved(inputs, read)


def gathered(
    block: Block, inputs: Inputs, number: int, more: Sequence[exp.Expression]
) -> tuple[From, dict[Place, exp.Column]]:
    """The same, and where the columns of its inputs, also those of `more`, are read from."""
    alias = f"{_ALIAS}{number}"
    columns = [(part, name) for part in inputs.parts for name in (*dict(part.columns), *part.hidden)]
    row = places_in(row_identity(block))
    scope = ReadableColumns(block)
    made: dict[Place, Output] = {}
    for place in (*places_in([*(part.column(name) for part, name in columns), *more]), *row):
        found = column(place[1], place[0] or None)
        made.setdefault(place, Output(f"__n{len(made)}", found, scope.resolve(found).type))
    read = {place: column(output.name, alias) for place, output in made.items()}
    inner = replace(block, outputs=tuple(made.values()), key=tuple(made[place].name for place in row))
    return From(alias, inner), read


def _columns_of(each: From) -> tuple[tuple[str, SqlType], ...]:
    """The columns of an input that is a query."""
    assert not isinstance(each.source, Relation)
    return outputs_of(each.source)


def _moved(inputs: Inputs, read: dict[Place, exp.Column]) -> Inputs:
    parts = []
    for part in inputs.parts:
        names = (*dict(part.columns), *part.hidden)
        found = {name: part.column(name) for name in names}
        parts.append(replace(part, read={name: read[node.table, node.name] for name, node in found.items()}))
    merged = {name: Typed(replaced(each.expression, read), each.type) for name, each in inputs.merged.items()}
    return replace(inputs, parts=tuple(parts), merged=merged, rowkey=None)


def without_unread(block: Block) -> Block:
    """Drop the columns of a nested FROM that nothing reads, since a stage stores every column."""
    trees = [*expressions_of(block), *block.partition_by, *([block.time] if block.time is not None else [])]
    read = set(places_in(trees))
    return replace(block, inputs=tuple(_pruned(each, read) for each in block.inputs))


def _pruned(source: From, read: set[Place]) -> From:
    if not source.alias.startswith(_ALIAS) or not isinstance(source.source, Block):
        return source
    inner = source.source
    kept = tuple(each for each in inner.outputs if (source.alias, each.name) in read or each.name in inner.key)
    return replace(source, source=without_unread(replace(inner, outputs=kept or inner.outputs[:1])))


def _padded_outside(joined: Joined | None) -> NotSupported:
    """Error for a query in FROM that reads the query around, beside an outer join that pads its rows."""
    line, place = position_of(joined.node.this) if joined is not None and joined.node is not None else (None, None)
    return NotSupported(
        "a query in FROM that reads the query around it stands in no RIGHT or FULL JOIN",
        line=line,
        column=place,
        hint="read it in WHERE",
    )


def check_lookup(part: FromItem, on: exp.Expression, kind: JoinType, node: exp.Join) -> None:
    """Check the join of a stream with a table whose row each event looks up.

    Raises:
        InvalidQuery: it keeps rows of the table, or is not on its primary key.
    """
    if kind in ("right", "full"):
        raise InvalidQuery(
            f"a stream and a table are joined by JOIN or LEFT JOIN, not {kind.upper()} JOIN",
            hint="an event looks up a row; a row does not wait for events",
        ).placed(*position_of(node.this))
    check_table(part, on, node)


def check_table(part: FromItem, on: exp.Expression, node: exp.Join) -> None:
    """Check that a table is found by its primary key, so that a row joins at most one.

    Raises:
        InvalidQuery: it is joined on other columns.
    """
    if part.row_key and not columns_equated(on, part.alias).issuperset(part.row_key):
        raise InvalidQuery(
            sentence(
                "the join with the table '{}' must be on its primary key: {}", Name(part.name), ", ".join(part.row_key)
            ),
            hint="CREATE MATERIALIZED VIEW … AS, without FOR SYSTEM_TIME AS OF, takes joins on any columns",
        ).placed(*position_of(node.args.get("on") or node))


def without_equality(alias: str, tree: exp.Expr | None) -> InvalidQuery:
    """Error for a join without an equality between its sides."""
    line, place = position_of(tree) if tree is not None else (None, None)
    shown = f": {sql_of(tree)}" if tree is not None else ""
    return InvalidQuery(
        f"the join with '{alias}' has no equality between its sides{shown}",
        line=line,
        column=place,
        hint="ON one_side.x = other_side.y, where each side names columns of its own inputs",
    )
