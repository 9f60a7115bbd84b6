"""Generators of SQL text for Spark and DuckDB: sqlglot's own, with our meaning where theirs differs.

Names are always quoted. A division by zero is NULL, an element or key that is not there is NULL.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ClassVar, Literal

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.generators.duckdb import DuckDBGenerator
from sqlglot.generators.spark import SparkGenerator

from strandline.jobs.functions.registry import find
from strandline.jobs.functions.scalars.arrays import OF_ARRAY
from strandline.jobs.functions.scalars.contract import quoted
from strandline.jobs.functions.scalars.decimals import OPERANDS, in_duckdb, in_spark
from strandline.jobs.functions.scalars.maps import LAST_WINS
from strandline.jobs.model.types import MAX_PRECISION, SqlType, decimal
from strandline.jobs.sql.from_text import type_of

_SPARK, _DUCKDB = Spark(), DuckDB()
_Write = Callable[[Any, Any], str]


def _call(dialect: str) -> _Write:
    """A function call. STRUCT and MAP take pairs, all others values."""

    def write(self: Any, node: exp.Anonymous) -> str:
        name = node.name.upper()
        pairs = node.expressions
        if name in ("STRUCT", "MAP") and all(isinstance(pair, exp.PropertyEQ) for pair in pairs):
            return str(self.struct_text(pairs) if name == "STRUCT" else self.map_text(pairs))
        # A template may put an argument beside an operator that binds more tightly than its own.
        arguments = [f"({self.sql(each)})" if _is_operation(each) else self.sql(each) for each in node.expressions]
        scalar = find(name)
        if scalar is not None:
            return scalar.write(dialect, arguments)
        return f"{node.name}({', '.join(arguments)})"

    return write


def _divide(operator: str) -> _Write:
    def write(self: Any, node: exp.Binary) -> str:
        divisor = self.sql(node, "expression")
        known = isinstance(node.expression, exp.Literal) and float(node.expression.name) != 0
        return f"({self.sql(node, 'this')}) {operator} {divisor if known else f'nullif({divisor}, 0)'}"

    return write


def _remainder(self: Any, node: exp.Mod) -> str:
    """DuckDB's remainder: it fails on the smallest number and -1, although all that 1 and -1 leave is 0."""
    divisor = self.sql(node, "expression")
    if isinstance(node.expression, exp.Literal):
        return str(_divide("%")(self, node))
    return f"({self.sql(node, 'this')}) % CASE WHEN ({divisor}) = -1 THEN 1 ELSE nullif({divisor}, 0) END"


def _arithmetic(dialect: str, otherwise: _Write) -> _Write:
    """An operator between DECIMALs by its types; between other numbers as it stands."""

    def write(self: Any, node: exp.Binary) -> str:
        marked = node.meta.get(OPERANDS)
        if marked is None:
            return otherwise(self, node)
        left, right = self.sql(node, "this"), self.sql(node, "expression")
        if dialect == "spark":
            return in_spark(type(node), left, right)
        return in_duckdb(type(node), left, right, marked)

    return write


def _operators(dialect: str) -> dict[Any, Any]:
    plain: dict[Any, _Write] = {
        exp.Add: lambda self, node: self.binary(node, "+"),
        exp.Sub: lambda self, node: self.binary(node, "-"),
        exp.Mul: lambda self, node: self.binary(node, "*"),
        exp.Div: _divide("/"),
        exp.Mod: _divide("%") if dialect == "spark" else _remainder,
    }
    return {each: _arithmetic(dialect, write) for each, write in plain.items()}


def _cast(word: str) -> _Write:
    def write(self: Any, node: exp.Cast) -> str:
        return f"{word}({self.sql(node, 'this')} AS {self.type_text(type_of(node.to))})"

    return write


def _field(self: Any, node: exp.Dot) -> str:
    return f"({self.sql(node, 'this')}).{self.sql(node, 'expression')}"


def _of_bits(sign: str) -> _Write:
    """In parentheses: the engines do not bind & and | alike."""
    return lambda self, node: f"(({self.sql(node, 'this')}) {sign} ({self.sql(node, 'expression')}))"


_SHARED: dict[Any, Any] = {
    exp.BitwiseAnd: _of_bits("&"),
    exp.BitwiseOr: _of_bits("|"),
    exp.Dot: _field,
    exp.DPipe: lambda self, node: self.binary(node, "||"),
    exp.Filter: lambda self, node: f"{self.sql(node, 'this')} FILTER ({self.sql(node, 'expression').strip()})",
}


class SparkSqlGenerator(SparkGenerator):
    """Spark SQL 4.2, in ANSI mode."""

    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **SparkGenerator.TRANSFORMS,
        **_SHARED,
        **_operators("spark"),
        exp.Anonymous: _call("spark"),
        # The argument of FIRST_VALUE and LAST_VALUE after the value; Spark takes the words only outside of the call.
        exp.IgnoreNulls: lambda self, node: f"{self.sql(node, 'this')}, TRUE",
        exp.Cast: _cast("CAST"),
        exp.TryCast: _cast("try_cast"),
        exp.Array: lambda self, node: f"array({self.expressions(node, flat=True)})",
        exp.Bracket: lambda self, node: self.element_text(node),
        exp.Like: lambda self, node: self.like_text(node),
        exp.Literal: lambda self, node: self.literal_text(node),
        exp.Lambda: lambda self, node: self.lambda_sql(node),
    }

    def type_text(self, sql_type: SqlType) -> str:
        return sql_type.spark()

    def struct_text(self, pairs: list[exp.PropertyEQ]) -> str:
        return f"named_struct({', '.join(f'{_string(p.this.name)}, {self.sql(p.expression)}' for p in pairs)})"

    def map_text(self, pairs: list[exp.PropertyEQ]) -> str:
        texts = [(self.sql(pair.this), self.sql(pair.expression)) for pair in pairs]
        if _can_clash(pairs):
            entries = ", ".join(f"named_struct('k', {key}, 'v', {value})" for key, value in texts)
            return LAST_WINS["spark"].format(f"filter(array({entries}), __y -> __y.k IS NOT NULL)", "k")
        return f"map({', '.join(f'{key}, {value}' for key, value in texts)})"

    def element_text(self, node: exp.Bracket) -> str:
        place = self.expressions(node, flat=True)
        if node.meta.get(OF_ARRAY):
            # Spark takes the place's magnitude, which the smallest INT has none of: it would read beyond the array.
            place = f"nullif({place}, {-(2**31)})"
        return f"try_element_at({self.sql(node, 'this')}, {place})"

    def literal_text(self, node: exp.Literal) -> str:
        return _string(node.name) if node.is_string else node.name

    def like_text(self, node: exp.Like) -> str:
        # Spark's LIKE takes a backslash as escape unless told otherwise; ours has none unless told.
        if isinstance(node.parent, exp.Escape):
            return f"{self.sql(node, 'this')} {_like(node)} {self.sql(node, 'expression')}"
        return f"{self.sql(node, 'this')} {_like(node)} replace({self.sql(node, 'expression')}, '\\\\', '\\\\\\\\')"

    @classmethod
    def text(cls, tree: exp.Expr) -> str:
        return str(cls(dialect=_SPARK, identify=True, comments=False).generate(tree))


_WIDEST = decimal(MAX_PRECISION, 0)
_READ = ("FRACTION_TEXT", "DIGITS")
"""Functions whose value is the text of a number."""


class DuckDbSqlGenerator(DuckDBGenerator):
    """DuckDB 2.0."""

    TRANSFORMS: ClassVar[dict[Any, Any]] = {
        **DuckDBGenerator.TRANSFORMS,
        **_SHARED,
        **_operators("duckdb"),
        exp.Anonymous: _call("duckdb"),
        # sqlglot's own leaves the words out where it does not know the function.
        exp.IgnoreNulls: lambda self, node: f"{self.sql(node, 'this')} IGNORE NULLS",
        exp.Cast: _cast("CAST"),
        exp.TryCast: lambda self, node: self.read_text(node),
        exp.Array: lambda self, node: f"[{self.expressions(node, flat=True)}]",
        exp.Bracket: lambda self, node: f"({self.sql(node, 'this')})[{self.expressions(node, flat=True)}]",
        exp.Like: lambda self, node: f"{self.sql(node, 'this')} {_like(node)} {self.sql(node, 'expression')}",
        exp.Lambda: lambda self, node: f"lambda {self.expressions(node, flat=True)}: {self.sql(node, 'this')}",
    }

    def type_text(self, sql_type: SqlType) -> str:
        return sql_type.duckdb()

    def read_text(self, node: exp.TryCast) -> str:
        made = _cast("TRY_CAST")(self, node)
        if isinstance(node.this, exp.Anonymous) and node.this.name in _READ and type_of(node.to) == _WIDEST:
            # '1.7e38' gives a number of 39 digits; as a text of digits it gives none.
            return f"TRY_CAST(CAST({made} AS VARCHAR) AS {self.type_text(_WIDEST)})"
        return made

    def struct_text(self, pairs: list[exp.PropertyEQ]) -> str:
        return f"struct_pack({', '.join(f'{_quoted(p.this.name)} := {self.sql(p.expression)}' for p in pairs)})"

    def map_text(self, pairs: list[exp.PropertyEQ]) -> str:
        texts = [(self.sql(pair.this), self.sql(pair.expression)) for pair in pairs]
        if _can_clash(pairs):
            entries = ", ".join(f'struct_pack("k" := {key}, "v" := {value})' for key, value in texts)
            return LAST_WINS["duckdb"].format(f"list_filter([{entries}], lambda __y: __y.k IS NOT NULL)", "k")
        return f"MAP {{{', '.join(f'{key}: {value}' for key, value in texts)}}}"

    @classmethod
    def text(cls, tree: exp.Expr) -> str:
        return str(cls(dialect=_DUCKDB, identify=True, comments=False).generate(tree))


_GENERATORS: dict[str, type[SparkSqlGenerator] | type[DuckDbSqlGenerator]] = {
    "spark": SparkSqlGenerator,
    "duckdb": DuckDbSqlGenerator,
}


def lower(expression: exp.Expression, dialect: Literal["spark", "duckdb"]) -> str:
    """An elaborated expression as text for an engine; functions that are not ours are written as they are."""
    if type(expression) is exp.Column:  # two of three: the generator takes longer to be made than to write it
        parts = expression.parts
        if all(type(part) is exp.Identifier for part in parts):
            return _column(dialect, tuple((part.name, bool(part.args.get("quoted"))) for part in parts))
    return _GENERATORS[dialect].text(expression)


@lru_cache(maxsize=4096)
def _column(dialect: Literal["spark", "duckdb"], parts: tuple[tuple[str, bool], ...]) -> str:
    names = [exp.Identifier(this=name, quoted=is_quoted) for name, is_quoted in reversed(parts)]
    column = exp.Column(**dict(zip(("this", "table", "db", "catalog"), names, strict=False)))
    return _GENERATORS[dialect].text(column)


def _can_clash(pairs: list[exp.PropertyEQ]) -> bool:
    """True if two keys of a MAP could be equal, of which the later one is meant, or one NULL, which is left out.

    The engines refuse both.
    """
    keys = [pair.this for pair in pairs]
    return not (all(isinstance(key, exp.Literal) for key in keys) and len(set(keys)) == len(keys))


def _is_operation(node: exp.Expr) -> bool:
    return isinstance(node, exp.Binary | exp.Not | exp.Between | exp.In) and not isinstance(node, exp.Dot)


def _like(node: exp.Like) -> str:
    return "NOT LIKE" if node.args.get("negate") else "LIKE"


def _string(text: str) -> str:
    return quoted(text, "spark")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
