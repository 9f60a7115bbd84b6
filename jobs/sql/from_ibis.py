"""From an Ibis expression to a query of the language: what a view that is written in Python becomes.

    orders.join(customers, "customer_id").group_by("country").agg(largest=orders.amount.max())

    SELECT t2.country, MAX(t2.amount) AS largest FROM (SELECT …) AS t2 GROUP BY 1

Ibis writes its own SQL for some twenty engines, and functions of one name differ among them. So an operation is taken
only if it stands here with its words in the language; any other is refused by its name. What the words mean is the
language's: division by zero fails on its row, `ROUND` takes halves up.
"""

from __future__ import annotations

import string
from typing import Any, ClassVar, Final

import ibis
import ibis.expr.datatypes as dt
import ibis.expr.operations as ops
from ibis.backends.sql.compilers.base import AggGen, SQLGlotCompiler
from ibis.backends.sql.datatypes import SqlglotType
from ibis.expr.operations.udf import InputType
from sqlglot import exp

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.sql.dialect import Strandline, fold

_TYPES: Final = {
    BaseType.BOOLEAN: dt.boolean,
    BaseType.INT: dt.int32,
    BaseType.BIGINT: dt.int64,
    BaseType.DOUBLE: dt.float64,
    BaseType.VARCHAR: dt.string,
    BaseType.BYTES: dt.binary,
    BaseType.DATE: dt.date,
    BaseType.TIME: dt.time,
    BaseType.TIMESTAMP: dt.timestamp,
    BaseType.NULL: dt.null,
}
_AS_THEY_ARE: Final = frozenset(
    {
        # Relations.
        *("UnboundTable", "SelfReference", "JoinReference", "JoinChain", "CTE", "Select"),
        *("DropColumns", "Aggregate", "Union", "Intersection", "Difference", "Limit", "SortKey"),
        # Values.
        *("Field", "Literal", "Cast", "TryCast", "ScalarSubquery", "InSubquery", "ExistsSubquery"),
        *(
            "IsNull",
            "NotNull",
            "Between",
            "InValues",
            "SimpleCase",
            "SearchedCase",
            "Coalesce",
            "NullIf",
            "Greatest",
            "Least",
        ),
        *("Add", "Subtract", "Multiply", "Modulus", "Negate", "Abs", "Ceil", "Floor", "Round", "Sqrt", "Exp", "Ln"),
        *("Sign", "Equals", "NotEquals", "Greater", "GreaterEqual", "Less", "LessEqual", "And", "Or", "Not"),
        *("StringReplace", "StringSQLLike", "StringSQLILike", "StartsWith", "Reverse", "Repeat", "StrRight"),
        *("DateAdd", "DateSub", "TimestampAdd", "TimestampSub", "StructField", "Array"),
        # Aggregates and window functions.
        *("Count", "CountStar", "CountDistinct", "Sum", "Mean", "Min", "Max", "Any", "All"),
        *("WindowFunction", "WindowBoundary", "RowNumber", "MinRank", "DenseRank", "PercentRank", "CumeDist"),
        *("Lag", "Lead"),
    }
)
"""Operations for which the words of Ibis's own base compiler are those of the language."""
_UNITS: Final = {"Y": "year", "Q": "quarter", "M": "month", "W": "week", "D": "day", "h": "hour", "m": "minute"}
_WITHOUT_FRAME: Final = (ops.RankBase, ops.PercentRank, ops.CumeDist, ops.NTile, ops.Lag, ops.Lead)


def relation(name: str, columns: tuple[tuple[str, SqlType], ...]) -> Any:
    """A stream, table or view of the lake as a table of Ibis, which has no rows."""
    return ibis.table({column: _ibis_type(sql_type) for column, sql_type in columns}, name=name)


def is_table(value: object) -> bool:
    """True if a value is a table of Ibis."""
    return isinstance(value, ibis.Table)


def query_text(table: Any) -> str:
    """The query that computes a table, in the language.

    Raises:
        NotSupported: an operation of it has no words in the language.
    """
    tree = _Compiler().to_sqlglot(table)
    text: str = fold(tree).sql(dialect=Strandline, comments=False, pretty=True)
    return text


def _ibis_type(sql_type: SqlType) -> Any:
    match sql_type.base:
        case BaseType.DECIMAL:
            return dt.Decimal(sql_type.precision, sql_type.scale)
        case BaseType.ARRAY:
            return dt.Array(_ibis_type(sql_type.args[0]))
        case BaseType.MAP:
            return dt.Map(_ibis_type(sql_type.args[0]), _ibis_type(sql_type.args[1]))
        case BaseType.STRUCT:
            return dt.Struct({name: _ibis_type(inner) for name, inner in sql_type.fields})
        case base:
            return _TYPES[base]


class _Types(SqlglotType):  # type: ignore[misc]
    dialect = "strandline"


class _Compiler(SQLGlotCompiler):  # type: ignore[misc]
    """Ibis's compiler, with the words of the language."""

    __slots__ = ()

    dialect = Strandline
    type_mapper = _Types
    agg = AggGen(supports_filter=True)
    UNSUPPORTED_OPS = ()
    SIMPLE_OPS: ClassVar[dict[Any, str]] = {
        ops.Lowercase: "lcase",
        ops.Uppercase: "ucase",
        ops.StringLength: "len",
        ops.EndsWith: "ends_with",
        ops.RegexSearch: "regexp_like",
        ops.StringSplit: "split",
        ops.ArrayLength: "array_length",
        ops.Unnest: "explode",
        ops.Power: "power",
    }

    def visit_node(self, op: Any, **kwargs: Any) -> Any:
        if isinstance(op, ops.ScalarUDF | ops.AggUDF):
            if op.__input_type__ != InputType.BUILTIN:
                raise NotSupported(
                    f"'{op.__func_name__}' is a function of Ibis in Python",
                    hint="CREATE FUNCTION registers it with the lake; declare it here with @ibis.udf.scalar.builtin",
                )
        elif (name := type(op).__name__) not in _MEANT:
            raise NotSupported(
                f"the operation {name} of Ibis has no words in the language",
                hint="docs/python.md lists what has; or write the view in SQL",
            )
        return super().visit_node(op, **kwargs)

    # --- relations ----------------------------------------------------------------------------------------------

    def visit_JoinLink(self, op: Any, *, how: str, table: Any, predicates: Any) -> exp.Join:
        sides = {"inner": (None, "inner"), "left": ("left", None), "right": ("right", None), "outer": ("full", None)}
        kinds = {**sides, "cross": (None, "cross"), "semi": (None, "semi"), "anti": (None, "anti")}
        if how not in kinds:
            raise NotSupported(f"the join '{how}' of Ibis has no words in the language", hint="ASOF JOIN in SQL")
        side, kind = kinds[how]
        on = exp.and_(*predicates, copy=False) if predicates else None
        return exp.Join(this=table, side=side, kind=kind, on=on)

    @staticmethod
    def _generate_groups(groups: Any) -> list[exp.Expr]:
        """The groups as they are: a constant among them would be the number of a column."""
        return [
            exp.Literal.number(place) if isinstance(each, exp.Literal) else each.copy()
            for place, each in enumerate(groups, 1)
        ]

    # --- values ---------------------------------------------------------------------------------------------------

    def visit_DefaultLiteral(self, op: Any, *, value: Any, dtype: Any) -> exp.Expr:
        if dtype.is_floating():
            text = repr(float(value))  # with an exponent it is a DOUBLE, without one a DECIMAL
            return exp.Literal.number(text if "e" in text or "n" in text else f"{text}e0")
        if dtype.is_date():
            return self.cast(value.isoformat(), dt.date)  # type: ignore[no-any-return]
        if not any(
            (
                dtype.is_integer(),
                dtype.is_decimal(),
                dtype.is_interval(),
                dtype.is_boolean(),
                dtype.is_string(),
                dtype.is_timestamp(),
                dtype.is_array(),
            )
        ):
            raise NotSupported(f"a value of Ibis's type {dtype} has no words in the language")
        return super().visit_DefaultLiteral(op, value=value, dtype=dtype)  # type: ignore[no-any-return]

    def visit_Divide(self, op: Any, *, left: Any, right: Any) -> exp.Expr:
        if op.left.dtype.is_integer() and op.right.dtype.is_integer():
            left = self.cast(left, dt.float64)
        return self.binop(exp.Div, left, right)  # type: ignore[no-any-return]

    def visit_FloorDivide(self, op: Any, *, left: Any, right: Any) -> exp.Expr:
        return self.cast(self.f.floor(self.visit_Divide(op, left=left, right=right)), op.dtype)  # type: ignore[no-any-return]

    def visit_Log10(self, op: Any, *, arg: Any) -> exp.Expr:
        return self.f.log(10, arg)  # type: ignore[no-any-return]

    def visit_Log2(self, op: Any, *, arg: Any) -> exp.Expr:
        return self.f.log(2, arg)  # type: ignore[no-any-return]

    def visit_IfElse(self, op: Any, *, bool_expr: Any, true_expr: Any, false_null_expr: Any) -> exp.Expr:
        return exp.Case(ifs=[self.if_(bool_expr, true_expr)], default=false_null_expr)

    def visit_IdenticalTo(self, op: Any, *, left: Any, right: Any) -> exp.Expr:
        return exp.NullSafeEQ(this=left, expression=right)

    def visit_Substring(self, op: Any, *, arg: Any, start: Any, length: Any) -> exp.Expr:
        if not isinstance(op.start, ops.Literal) or op.start.value < 0:
            raise NotSupported("a part of a text begins at a constant of at least 0", hint="SUBSTRING in SQL")
        begin = op.start.value + 1
        return self.f.substring(arg, begin, *([] if length is None else [length]))  # type: ignore[no-any-return]

    def visit_StringContains(self, op: Any, *, haystack: Any, needle: Any) -> exp.Expr:
        found = exp.GT(this=self.f.instr(haystack, needle), expression=exp.Literal.number(0))
        return _known(found, haystack, needle)

    def visit_ArrayContains(self, op: Any, *, arg: Any, other: Any) -> exp.Expr:
        return _known(self.f.array_contains(arg, other), arg, other)

    def visit_StringConcat(self, op: Any, *, arg: Any) -> exp.Expr:
        first, *rest = map(self._add_parens, arg)
        for each in rest:
            first = exp.DPipe(this=first, expression=each)
        return first  # type: ignore[no-any-return]

    def visit_Strip(self, op: Any, *, arg: Any) -> exp.Expr:
        return self.f.ltrim(self.f.rtrim(arg, string.whitespace), string.whitespace)  # type: ignore[no-any-return]

    # --- time -------------------------------------------------------------------------------------------------------

    def visit_Date(self, op: Any, *, arg: Any) -> exp.Expr:
        return self.cast(arg, dt.date)  # type: ignore[no-any-return]

    def visit_DateFromYMD(self, op: Any, *, year: Any, month: Any, day: Any) -> exp.Expr:
        if not all(isinstance(each, ops.Literal) for each in (op.year, op.month, op.day)):
            raise NotSupported("a date of three values", hint="CAST of a text to DATE")
        return self.cast(f"{op.year.value:04d}-{op.month.value:02d}-{op.day.value:02d}", dt.date)  # type: ignore[no-any-return]

    def _extract(self, op: Any, *, arg: Any) -> exp.Expr:
        return exp.Extract(this=exp.var(type(op).__name__.removeprefix("Extract").upper()), expression=arg)

    visit_ExtractYear = visit_ExtractQuarter = visit_ExtractMonth = visit_ExtractDay = _extract
    visit_ExtractHour = visit_ExtractMinute = visit_ExtractSecond = _extract

    def visit_ExtractDayOfYear(self, op: Any, *, arg: Any) -> exp.Expr:
        return exp.Extract(this=exp.var("DOY"), expression=arg)

    def visit_DayOfWeekIndex(self, op: Any, *, arg: Any) -> exp.Expr:
        return exp.Sub(this=exp.Extract(this=exp.var("ISODOW"), expression=arg), expression=exp.Literal.number(1))

    def visit_TimestampTruncate(self, op: Any, *, arg: Any, unit: Any) -> exp.Expr:
        return self.f.date_trunc(_unit(unit), arg)  # type: ignore[no-any-return]

    def visit_DateTruncate(self, op: Any, *, arg: Any, unit: Any) -> exp.Expr:
        return self.cast(self.visit_TimestampTruncate(op, arg=arg, unit=unit), dt.date)  # type: ignore[no-any-return]

    def visit_TimestampBucket(self, op: Any, *, arg: Any, interval: Any, offset: Any) -> exp.Expr:
        if offset is not None:
            raise NotSupported("buckets of time with an offset", hint="DATE_BIN(step, at, origin) in SQL")
        return self.f.date_bin(interval, arg, self.cast("1970-01-01", dt.timestamp))  # type: ignore[no-any-return]

    def visit_TimestampDelta(self, op: Any, *, part: Any, left: Any, right: Any) -> exp.Expr:
        return self.f.date_diff(part, right, left)  # type: ignore[no-any-return]

    visit_DateDelta = visit_TimestampDelta

    # --- aggregates and window functions ----------------------------------------------------------------------------

    def _spread(self, op: Any, *, how: str, where: Any, **kw: Any) -> exp.Expr:
        name = {
            (ops.StandardDev, "sample"): "stddev_sample",
            (ops.StandardDev, "pop"): "stddev_pop",
            (ops.Variance, "sample"): "var_samp",
            (ops.Variance, "pop"): "var_pop",
        }[type(op), how]
        return self.agg[name](*kw.values(), where=where)  # type: ignore[no-any-return]

    visit_Variance = visit_StandardDev = _spread

    def visit_Median(self, op: Any, *, arg: Any, where: Any) -> exp.Expr:
        order = exp.Order(expressions=[exp.Ordered(this=arg, nulls_first=True)])
        found = exp.WithinGroup(this=self.f.percentile_cont(0.5), expression=order)
        return found if where is None else exp.Filter(this=found, expression=exp.Where(this=where))

    @staticmethod
    def _minimize_spec(op: Any, spec: exp.WindowSpec) -> exp.WindowSpec | None:
        if isinstance(op.func, _WITHOUT_FRAME):
            return None
        whole = (spec.args["start"], spec.args["end"]) == ("UNBOUNDED", "UNBOUNDED")
        return None if whole and not op.order_by else spec


def _known(found: Any, *values: Any) -> exp.Expr:
    """A value that is NULL where one of these is: of an unknown text the language says that it does not contain one."""
    unknown = [value for value in values if not isinstance(value, exp.Literal)]
    if not unknown:
        return found  # type: ignore[no-any-return]
    all_known = exp.and_(*(value.copy().is_(exp.not_(exp.null())) for value in unknown))
    return exp.Case(ifs=[exp.If(this=all_known, true=found)])


def _unit(unit: Any) -> str:
    if unit.short not in _UNITS:
        raise NotSupported(f"DATE_TRUNC to {unit.name.lower()}s", hint="year, quarter, month, week, day, hour, minute")
    return _UNITS[unit.short]


_MEANT: Final = _AS_THEY_ARE | {
    name.removeprefix("visit_")
    for name in vars(_Compiler)
    if name.startswith("visit_") and name not in ("visit_node", "visit_DefaultLiteral")
}
"""Operations that have words in the language."""
