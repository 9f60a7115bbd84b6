"""Joins: what each is, and the condition by which it joins what stands left of it.

    FROM a JOIN b ON a.x = b.x AND b.y > 1          b: inner, on a.x = b.x AND b.y > 1
    FROM a, b WHERE a.x = b.x AND a.z > 1           b: inner, on a.x = b.x; the rest stays in WHERE
    FROM a RIGHT JOIN b ON …                        b, then a: left
    FROM a LEFT JOIN b WITHIN 1 HOUR ON …           b: left, on … AND the times are at most an hour apart
    FROM stream JOIN table ON … (CREATE STREAM)     table: frozen, over its event log as of the event's time

By an equality between its sides the engine finds the rows that a change touches. A materialized view may do without:
then a changed row is compared with all rows of the other side, and EXPLAIN says so. Inputs of inner joins are joined in
the order in which conditions link them, wherever they stand in the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from jobs.model.errors import InvalidQuery, NotSupported
from jobs.model.relation import Relation
from jobs.model.stage import JoinType
from jobs.query.clauses.conditions import columns_equated, conjoined, is_equality
from jobs.query.clauses.from_clause import Context, Joined
from jobs.query.clauses.inputs import Inputs, Part
from jobs.query.clauses.join_order import join_order
from jobs.query.clauses.keys import one_row
from jobs.query.clauses.logical import From
from jobs.query.clauses.within import check_streams, late_rows, within_condition
from jobs.query.expressions.infer import condition, infer
from jobs.query.expressions.scope import Typed, column
from jobs.sql.dialect import position_of, sql_of
from jobs.sql.trees import conjuncts

_SIDES: dict[str, JoinType] = {"": "inner", "LEFT": "left", "RIGHT": "right", "FULL": "full"}


class Joins:
    """The joins of one SELECT.

    Attributes:
        froms: an input each, in the order of the text.
        inputs: the names they bring.
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
        self._order: list[int] = []
        for joined in parts:
            before = self.inputs
            self.inputs = replace(before, parts=(*before.parts, joined.part))
            if joined.node is None:
                self.froms.append(From(joined.part.alias, joined.part.source))
            else:
                self._join(joined, joined.node, before)

    def place(self, found: list[exp.Expression]) -> list[exp.Expression]:
        """Move what joins inputs from WHERE to the join that waits for a condition; what stays in WHERE.

        Raises:
            InvalidQuery: a join of CREATE STREAM or TABLE is left without an equality.
        """
        rest = found
        self._order = join_order(self.froms, found)
        for place, number in enumerate(self._order):
            each = self.froms[number]
            if place == 0 or each.on is not None or each.one_row:
                continue
            known = {self.froms[before].alias for before in self._order[:place]}
            linking = [term for term in rest if is_equality(term, each.alias, known)]
            if not linking:
                if self._context.kind is not None:
                    raise _without_equality(each.alias, None)
                continue
            padded = any(later.join in ("right", "full") for later in self.froms[number + 1 :])
            # What an outer join pads later has to meet the condition too.
            rest = rest if padded else [term for term in rest if not any(term is link for link in linking)]
            self.froms[number] = replace(each, on=conjoined(term.copy() for term in linking))
        return rest

    @property
    def padded(self) -> set[str]:
        """The inputs whose columns are NULL where an outer join found nothing."""
        found: set[str] = set()
        for number, each in enumerate(self.froms):
            if each.join in ("left", "full"):
                found.add(each.alias)
            if each.join in ("right", "full"):
                found |= {before.alias for before in self.froms[:number]}
        return found

    def in_order(self) -> tuple[From, ...]:
        """The inputs in the order in which they join: a RIGHT JOIN of the first two is a LEFT JOIN the other way."""
        if len(self.froms) > 1 and self.froms[1].join == "right":
            first, second, *rest = self.froms
            return (replace(second, join="inner", on=None), replace(first, join="left", on=second.on), *rest)
        return tuple(self.froms[number] for number in self._order)

    def _join(self, joined: Joined, node: exp.Join, before: Inputs) -> None:
        part = joined.part
        kind = _kind(node)
        on = self._condition(node, part, before, kind)
        check_streams(joined, before, self._context.kind)
        source: From = From(part.alias, part.source, kind, on)
        if on is None:
            single = not isinstance(part.source, Relation) and one_row(part.source)
            self.froms.append(replace(source, one_row=single))
            return
        self._remember_key(on, part, before, kind)
        if joined.within is not None:
            apart = within_condition(joined.within, part, before)
            late = late_rows(joined.within, part, before)
            # An event that came too late finds no partner. On the kept side it is a row all the same, padded.
            on = conjoined((on, apart, *late))
            source = replace(source, on=on)
        if self._looks_up(part, before):
            self._check_lookup(part, on, kind, node)
            source = replace(source, frozen=True, as_of=part.log is not None, source=part.log or part.source)
        elif self._context.kind == "table" and not part.stream and not self._grouped:
            # The rows of GROUP BY are known by its expressions, however many rows of a table were joined.
            self._check_table(part, on, node)
        self.froms.append(source)

    def _condition(self, node: exp.Join, part: Part, before: Inputs, kind: JoinType) -> exp.Expression | None:
        using = node.args.get("using")
        if using:
            return self._using([identifier.name for identifier in using], part, before, kind)
        tree = node.args.get("on")
        if tree is None:
            if kind != "inner":
                line, place = position_of(node)
                raise InvalidQuery(f"the join with '{part.alias}' needs ON", line=line, column=place)
            return None
        found = condition(tree, self.inputs, "ON")
        terms = conjuncts(found)
        known = {each.alias for each in before.parts}
        single = not isinstance(part.source, Relation) and one_row(part.source)
        free = single or self._context.kind is None
        if not free and not any(is_equality(term, part.alias, known) for term in terms):
            raise _without_equality(part.alias, tree)
        return conjoined(terms)

    def _using(self, names: list[str], part: Part, before: Inputs, kind: JoinType) -> exp.Expression:
        """USING (a, b): an equality each; the name alone means both columns from here on."""
        merged = dict(self.inputs.merged)
        tests: list[exp.Expression] = []
        for name in names:
            left = before.resolve(column(name))
            right = Typed(part.column(name), left.type)
            equal = exp.EQ(this=left.expression.copy(), expression=right.expression.copy())
            tests.append(condition(equal, self.inputs, "USING"))
            both = exp.Anonymous(this="COALESCE", expressions=[left.expression, right.expression])
            merged[name] = {"right": right, "full": Typed(both, left.type)}.get(kind, left)
        self.inputs = replace(self.inputs, merged=merged)
        return conjoined(tests)

    def _looks_up(self, part: Part, before: Inputs) -> bool:
        return self._context.frozen and not part.stream and any(each.stream for each in before.parts)

    def _check_lookup(self, part: Part, on: exp.Expression, kind: JoinType, node: exp.Join) -> None:
        if kind in ("right", "full"):
            line, place = position_of(node.this)
            raise InvalidQuery(
                f"a stream and a table are joined by JOIN or LEFT JOIN, not {kind.upper()} JOIN",
                line=line,
                column=place,
                hint="an event looks up a row; a row does not wait for events",
            )
        self._check_table(part, on, node)

    def _check_table(self, part: Part, on: exp.Expression, node: exp.Join) -> None:
        """A table is found by its primary key, so that a row joins at most one."""
        if part.row_key and not columns_equated(on, part.alias).issuperset(part.row_key):
            line, place = position_of(node.args.get("on") or node)
            raise InvalidQuery(
                f"the join with the table '{part.name}' must be on its primary key: {', '.join(part.row_key)}",
                line=line,
                column=place,
                hint="CREATE MATERIALIZED VIEW … AS takes joins on any columns",
            )

    def _remember_key(self, on: exp.Expression, part: Part, before: Inputs, kind: JoinType) -> None:
        """ksqlDB's ROWKEY: the value that the last join is on."""
        known = {each.alias for each in before.parts}
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


def _kind(node: exp.Join) -> JoinType:
    if node.method or node.kind not in ("", "INNER", "OUTER", "CROSS"):
        line, place = position_of(node)
        word = node.method or node.kind
        raise NotSupported(
            f"{word} JOIN is not supported", line=line, column=place, hint="write JOIN … ON or USING (…)"
        )
    if node.kind == "OUTER" and not node.side:
        line, place = position_of(node)
        raise NotSupported(
            "OUTER JOIN does not say whose rows stay", line=line, column=place, hint="LEFT, RIGHT or FULL OUTER JOIN"
        )
    return _SIDES[node.side]


def _without_equality(alias: str, tree: exp.Expr | None) -> InvalidQuery:
    line, place = position_of(tree) if tree is not None else (None, None)
    shown = f": {sql_of(tree)}" if tree is not None else ""
    return InvalidQuery(
        f"the join with '{alias}' has no equality between its sides{shown}",
        line=line,
        column=place,
        hint="ON one_side.x = other_side.y, where each side names columns of its own inputs",
    )
