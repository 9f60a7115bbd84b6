"""Subqueries in the expressions of a pull query: they stay where they stand, as functions of the row around them.

    (SELECT MAX(x) FROM t WHERE t.k = s.k)      __q0(s.k)              any query of one column, read where it stands
    EXISTS (SELECT 1 FROM t WHERE t.k = s.k)    __q0(s.k)              true if it has a row
    s.a IN (SELECT x FROM t)                    __q0(s.a)              true if one of its rows is s.a

Nothing is maintained of a pull query, so a subquery may read the query around it anywhere, and at any depth.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import InvalidQuery, TypeMismatch
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.desugar.counted_subqueries import is_quantified, membership, quantified
from strandline.jobs.query.expressions.casts import widened
from strandline.jobs.query.expressions.infer import condition, infer
from strandline.jobs.query.expressions.scope import Infer, Typed
from strandline.jobs.query.logical.inputs import Inputs, Outer
from strandline.jobs.query.logical.keys import outputs_of
from strandline.jobs.query.logical.pull import NestedFound
from strandline.jobs.query.logical.query import From, Query
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.nested_query import NestedQuery, OuterValue
from strandline.jobs.sql.trees import conjuncts, row_values
from strandline.jobs.sql.types_text import data_type


@dataclass
class RowAround:
    """The row around a nested query, which reads values of it.

    Attributes:
        name: of the query.
        values: what it has read so far, as expressions of the query around it.
    """

    inputs: Inputs
    name: str
    values: list[exp.Expression] = field(default_factory=list)

    def find(self, column: exp.Column) -> Typed | None:
        """The meaning of a name in the query around, as a value by its place. Raises as `Inputs.find`."""
        found = self.inputs.find(column)
        if found is None:
            return None
        if found.expression not in self.values:
            self.values.append(found.expression)
        place = str(self.values.index(found.expression))
        node = OuterValue(this=exp.to_identifier(self.name), place=place, to=data_type(found.type))
        return Typed(node, found.type)


class NestedQueries:
    """The subqueries in the expressions of one SELECT of a pull query."""

    def __init__(self, inputs: Inputs, found: NestedFound, read: Callable[[exp.Expr, Outer], Query]) -> None:
        """Begin with none; `found` takes them, `read` reads one inside the row around it."""
        self._inputs = inputs
        self._nested = found
        self._read_inside = read
        self._read: dict[str, Typed] = {}

    @property
    def froms(self) -> list[From]:
        """The inputs that they become: none."""
        return []

    @property
    def values(self) -> list[From]:
        """Those of the inputs that stand for a value: none."""
        return []

    def where(self, tree: exp.Expr) -> list[exp.Expression]:
        """The conditions of a WHERE, elaborated. Raises as `condition`."""
        return conjuncts(condition(tree, self._inputs, "WHERE", self.read))

    def read(self, node: exp.Expression, _typed: Infer) -> Typed | None:
        """A subquery as a value; None for anything else.

        Raises:
            InvalidQuery: it has several columns.
            TypeMismatch: IN looks for what cannot be among its rows.
        """
        asked = isinstance(node, exp.Exists | exp.Subquery) or (isinstance(node, exp.In) and node.args.get("query"))
        if is_quantified(node):
            value = infer(node.this, self._inputs, self.read).expression
            return infer(quantified(node, value), self._inputs, self.read)
        if not asked:
            return None
        if isinstance(node, exp.In) and len(row_values(node.this)) > 1:
            values = [infer(each, self._inputs, self.read).expression for each in row_values(node.this)]
            return infer(membership(node, *values), self._inputs, self.read)
        text = sql_of(node)
        if text not in self._read:
            self._read[text] = self._made(node)
        found = self._read[text]
        return Typed(found.expression.copy(), found.type)

    def _made(self, node: exp.Expression) -> Typed:
        match node:
            case exp.Exists():
                around, _ = self._query(node.this)
                return self._value(around, "exists", t.BOOLEAN)
            case exp.In():
                return self._member(node)
            case _:
                around, query = self._query(node)
                return self._value(around, "value", _only_column(query, "a subquery that stands for a value has"))

    def _member(self, node: exp.In) -> Typed:
        value = infer(node.this, self._inputs, self.read)
        around, query = self._query(node.args["query"])
        own = _only_column(query, "IN takes a subquery with")
        shared = t.common_type(value.type, own)
        if shared is None:
            raise TypeMismatch(
                f"cannot look for {value.type} among {own}: {sql_of(node)}", hint="convert one with CAST(… AS …)"
            )
        return self._value(around, "member", t.BOOLEAN, widened(value, shared))

    def _query(self, tree: exp.Expr) -> tuple[RowAround, Query]:
        """A query read inside the row around it, and noted."""
        while isinstance(tree, exp.Subquery):
            tree = tree.this
        around = RowAround(self._inputs, self._nested.name())
        query = self._read_inside(tree, around)
        self._nested.queries[around.name] = query
        return around, query

    def _value(self, around: RowAround, form: str, sql_type: SqlType, member: Typed | None = None) -> Typed:
        node = NestedQuery(
            this=exp.to_identifier(around.name),
            form=form,
            to=data_type(sql_type),
            member=member.expression if member is not None else None,
            expressions=around.values,
        )
        return Typed(node, sql_type)


def _only_column(query: Query, words: str) -> SqlType:
    columns = outputs_of(query)
    if len(columns) != 1:
        raise InvalidQuery(f"{words} one column, not {len(columns)}")
    return columns[0][1]
