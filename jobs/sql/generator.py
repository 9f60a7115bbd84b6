"""The generator of our dialect: it writes trees as text, the other direction of `jobs.sql.dialect`."""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp, generator

from strandline.jobs.sql import intervals, nested_query, time_clauses


class StrandlineGenerator(generator.Generator):
    """Writes trees of our dialect; what it writes reads back as the same tree."""

    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **generator.Generator.TRANSFORMS,
        **time_clauses.TRANSFORMS,
        **intervals.TRANSFORMS,
        **nested_query.TRANSFORMS,
        exp.Array: lambda self, e: f"ARRAY[{self.expressions(e, flat=True)}]",
        exp.Dot: lambda self, e: f"{self.sql(e, 'this')}->{self.sql(e, 'expression')}",
        exp.Lambda: lambda self, e: self.lambda_sql(e, arrow_sep="=>"),
        exp.Not: lambda self, e: (
            f"{self.sql(e.this, 'this')} IS NOT NULL" if _is_null(e.this) else f"NOT {self.sql(e, 'this')}"
        ),
    }
    TYPE_MAPPING: ClassVar[dict[Any, Any]] = {
        **generator.Generator.TYPE_MAPPING,
        exp.DType.TEXT: "VARCHAR",
        exp.DType.VARBINARY: "BYTES",
    }
    AFTER_HAVING_MODIFIER_TRANSFORMS: ClassVar[dict[str, Any]] = {
        "qualify": lambda self, e: self.sql(e, "qualify"),
        "partition_by": lambda self, e: _clause("PARTITION BY", self.expressions(e.args.get("partition_by"))),
        "emit": lambda self, e: _clause("EMIT", self.sql(e, "emit")),
    }

    def table_sql(self, expression: exp.Table, sep: str = " AS ") -> str:
        return super().table_sql(expression, sep) + _clause("", self.sql(expression, "within"))

    def subquery_sql(self, expression: exp.Subquery, sep: str = " AS ") -> str:
        return super().subquery_sql(expression, sep) + _clause("", self.sql(expression, "within"))

    def query_modifiers(self, expression: exp.Expr, *sqls: str) -> str:
        window = self.sql(expression, "time_window")
        if not window:
            return super().query_modifiers(expression, *sqls)
        # WINDOW stands between the joins and WHERE, where sqlglot has no place for it.
        joins = [self.sql(join) for join in expression.args.get("joins") or ()]
        rest = expression.copy()
        rest.set("joins", None)
        return super().query_modifiers(rest, *sqls, *joins, f" {window}")


def _clause(word: str, text: str) -> str:
    """A clause after its keyword; an empty text when the clause was not given."""
    return f" {word} {text}".replace("  ", " ", 1) if text else ""


def _is_null(node: exp.Expr) -> bool:
    return isinstance(node, exp.Is) and isinstance(node.expression, exp.Null)
