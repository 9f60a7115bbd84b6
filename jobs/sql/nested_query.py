"""A query inside an expression, and a value of the row around it, as nodes of the tree.

    s.a > (SELECT MAX(t.x) FROM t WHERE t.k = s.k)     s.a > __q0(s.k)
                                                       __q0: SELECT MAX(t.x) FROM t WHERE t.k = __q0.0

The query is a function of what it reads of the row around it, so clauses that rewrite an expression rewrite those
values and need to know nothing of the query. Only pull queries have such nodes: a view joins its subqueries.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

from sqlglot import exp, generator


class NestedQuery(exp.Expression):
    """A query by its name, with the type of its value.

    `form` says what is asked: its one `value`, whether it has a row (`exists`), or whether `member` is among its rows.
    `expressions` are the values that it reads of the row around it.
    """

    arg_types: ClassVar[dict[str, bool]] = {
        "this": True,
        "form": True,
        "to": True,
        "member": False,
        "expressions": False,
    }

    @property
    def form(self) -> str:
        """`value`, `exists` or `member`."""
        return str(self.args["form"])


class OuterValue(exp.Expression):
    """A value of the row around the query `this`, by its place among those that the query reads."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "place": True, "to": True}

    @property
    def place(self) -> str:
        """The place, from 0, as a name."""
        return str(self.args["place"])


def _nested_sql(self: generator.Generator, node: NestedQuery) -> str:
    values = [*([node.args["member"]] if node.args.get("member") is not None else []), *node.expressions]
    return f"{node.name}({', '.join(self.sql(each) for each in values)})"


TRANSFORMS: Final[dict[Any, Any]] = {
    NestedQuery: _nested_sql,
    OuterValue: lambda _self, node: f"{node.name}.{node.place}",
}
"""The functions by which our generator writes the nodes: for messages, and to tell one from another."""
