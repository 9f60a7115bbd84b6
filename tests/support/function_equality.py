"""Expressions computed by both engines in every form that a path may run, and what differs between them.

    strict    what an epoch runs: a value, or a failure
    lenient   NULL where the strict form fails; never a failure
    guard     TRUE where the strict form fails; never a failure

Each engine is asked row by row whether a form fails: DuckDB by TRY, or one row at a time where that cannot be, Spark by
the node that its own try_… functions are made of.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import duckdb
import pyarrow as pa

from strandline.jobs.functions.failing import failing, lenient, strict
from strandline.jobs.functions.python import register_elementary
from strandline.jobs.functions.render import lower
from strandline.jobs.model import types as t
from strandline.jobs.query.expressions.scope import Typed
from tests.support.function_values import COLUMNS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FAILED = "fails"
"""Stands for the value of a form where it fails."""
# A query of Spark's over more columns takes longer than two queries.
_AT_ONCE = 100
_NAME = re.compile(r"[a-z]+[0-9]?")
# Subexpressions that are computed once are computed outside of what catches their failures.
_APART = "spark.sql.subexpressionElimination.enabled"


@dataclass(frozen=True)
class Forms:
    """The values of an expression's forms, row by row; FAILED where there is none."""

    strict: list[Any]
    lenient: list[Any]
    guard: list[Any]


def texts(typed: Typed, dialect: Literal["spark", "duckdb"]) -> dict[str, str]:
    """The forms of an expression as an engine's text, cast to the type that it says it has."""
    kind = typed.type.spark() if dialect == "spark" else typed.type.duckdb()
    condition = failing(typed.expression)
    return {
        "strict": f"CAST({lower(strict(typed.expression), dialect)} AS {kind})",
        "lenient": f"CAST({lower(lenient(typed.expression), dialect)} AS {kind})",
        "guard": f"COALESCE({lower(condition, dialect)}, FALSE)" if condition is not None else "FALSE",
    }


def by_duckdb(connection: duckdb.DuckDBPyConnection, rows: pa.Table, found: Mapping[str, Typed]) -> dict[str, Forms]:
    """Every form of the expressions, by DuckDB."""
    connection.register("rows", rows)
    connection.execute("CREATE OR REPLACE TABLE cases AS SELECT * FROM rows ORDER BY nr")
    return {name: _forms(connection, texts(typed, "duckdb")) for name, typed in found.items()}


def _forms(connection: duckdb.DuckDBPyConnection, text: Mapping[str, str]) -> Forms:
    instead, guard = _values(connection, text["lenient"], "FALSE"), _values(connection, text["guard"], "FALSE")
    return Forms(_values(connection, text["strict"], text["guard"]), instead, guard)


def _values(connection: duckdb.DuckDBPyConnection, text: str, guard: str) -> list[Any]:
    """The values of a text; where one fails, by TRY, or the rows by themselves of which the guard says so, or all."""
    with suppress(duckdb.Error):
        return _asked(connection, text)
    with suppress(duckdb.Error):
        values, is_null = _asked(connection, f"TRY({text})"), _asked(connection, f"TRY(({text}) IS NULL)")
        return [FAILED if null is None else value for value, null in zip(values, is_null, strict=True)]
    with suppress(duckdb.Error):
        sound = iter(_asked(connection, text, f"NOT ({guard})"))
        fails = _asked(connection, guard)
        return [_one(connection, text, nr) if each else next(sound) for nr, each in enumerate(fails, 1)]
    return [_one(connection, text, nr) for nr, _ in enumerate(_asked(connection, "nr"), 1)]


def _one(connection: duckdb.DuckDBPyConnection, text: str, nr: int) -> Any:
    try:
        return _asked(connection, text, f"nr = {nr}")[0]
    except duckdb.Error:
        return FAILED


def _asked(connection: duckdb.DuckDBPyConnection, value: str, where: str = "TRUE") -> list[Any]:
    # Filtered first: a condition beside an expression does not keep a row from it.
    rows = f"WITH cases AS MATERIALIZED (SELECT * FROM cases WHERE {where})" if where != "TRUE" else ""
    return _plain(connection.sql(f"{rows} SELECT {value} AS v FROM cases ORDER BY nr").to_arrow_table().column("v"))


def by_spark(spark: SparkSession, rows: pa.Table, found: Mapping[str, Typed]) -> dict[str, Forms]:
    """Every form of the expressions, by Spark."""
    frame = spark.createDataFrame(rows, schema=", ".join(f"`{name}` {kind.spark()}" for name, kind in COLUMNS))
    frame = frame.coalesce(1).cache()
    shared = str(spark.conf.get(_APART))
    spark.conf.set(_APART, "false")
    try:
        return _by_spark(spark, frame, found)
    finally:
        spark.conf.set(_APART, shared)
        frame.unpersist()


def _by_spark(spark: SparkSession, frame: DataFrame, found: Mapping[str, Typed]) -> dict[str, Forms]:
    made: dict[str, Forms] = {}
    names = list(found)
    register_elementary(spark, "".join(text for typed in found.values() for text in texts(typed, "spark").values()))
    for start in range(0, len(names), _AT_ONCE):
        part = names[start : start + _AT_ONCE]
        columns: list[Column] = []
        for number, name in enumerate(part):
            for form, text in texts(found[name], "spark").items():
                columns += [
                    _tried(spark, text).alias(f"{form}{number}"),
                    _tried(spark, f"({text}) IS NULL").alias(f"{form}{number}_is_null"),
                ]
        values = frame.select("nr", *columns).orderBy("nr").toArrow()
        for number, name in enumerate(part):
            made[name] = Forms(**{form: _failed(values, f"{form}{number}") for form in ("strict", "lenient", "guard")})
    return made


def _tried(spark: SparkSession, text: str) -> Column:
    """The value of a text, NULL where it fails."""
    from pyspark.sql import functions
    from pyspark.sql.classic.column import Column

    java: Any = spark._jvm
    utils = java.org.apache.spark.sql.classic.ExpressionUtils
    inner = utils.expression(functions.expr(text)._jc)
    return Column(utils.column(java.org.apache.spark.sql.catalyst.expressions.TryEval(inner)))


def _failed(values: pa.Table, name: str) -> list[Any]:
    is_null = values.column(f"{name}_is_null").to_pylist()
    return [FAILED if null is None else value for value, null in zip(_plain(values.column(name)), is_null, strict=True)]


def _plain(column: pa.ChunkedArray) -> list[Any]:
    """The values; dates and times as numbers, since Python knows the years 1 to 9999 alone."""
    return list(column.cast(_numbers(column.type)).to_pylist())


def _numbers(arrow: pa.DataType) -> pa.DataType:
    if pa.types.is_date32(arrow):
        return pa.int32()
    if pa.types.is_timestamp(arrow):
        return pa.int64()
    if pa.types.is_list(arrow):
        return pa.list_(_numbers(arrow.value_type))
    if pa.types.is_struct(arrow):
        return pa.struct([(field.name, _numbers(field.type)) for field in arrow])
    if pa.types.is_map(arrow):
        return pa.map_(_numbers(arrow.key_type), _numbers(arrow.item_type))
    return arrow


@dataclass(frozen=True)
class Difference:
    """Two values of one form of an expression that should be one, and in which row."""

    text: str
    what: str
    nr: int
    left: Any
    right: Any


def differences(
    found: Mapping[str, Typed], spark: Mapping[str, Forms], duck: Mapping[str, Forms]
) -> Iterator[Difference]:
    """What the engines disagree on: Spark's value, DuckDB's."""
    for text, typed in found.items():
        for form, sql_type in (("strict", typed.type), ("lenient", typed.type), ("guard", t.BOOLEAN)):
            values = zip(getattr(spark[text], form), getattr(duck[text], form), strict=True)
            for nr, (left, right) in enumerate(values, 1):
                if comparable(left, sql_type) != comparable(right, sql_type):
                    yield Difference(text, f"{form}: Spark's and DuckDB's", nr, left, right)


def contradictions(found: Mapping[str, Typed], forms: Mapping[str, Forms]) -> Iterator[Difference]:
    """Where one engine's forms contradict each other."""
    for text, typed in found.items():
        each = forms[text]
        for nr, (own, instead, guard) in enumerate(zip(each.strict, each.lenient, each.guard, strict=True), 1):
            if instead is FAILED or guard is FAILED:
                yield Difference(text, "lenient and guard: one fails", nr, instead, guard)
            elif (own is FAILED) != guard:
                yield Difference(text, "strict and guard", nr, own, guard)
            elif own is not FAILED and comparable(own, typed.type) != comparable(instead, typed.type):
                yield Difference(text, "strict and lenient", nr, own, instead)


def comparable(value: Any, sql_type: t.SqlType) -> Any:
    """A value in a form that is equal for the same value alone: DOUBLEs by their bits, MAPs by key."""
    if value is None or value is FAILED:
        return value
    match sql_type.base:
        case t.BaseType.DOUBLE if isinstance(value, float):
            return "NaN" if math.isnan(value) else struct.pack(">d", value)
        case t.BaseType.ARRAY:
            return [comparable(item, sql_type.args[0]) for item in value]
        case t.BaseType.MAP:
            pairs = [(comparable(k, sql_type.args[0]), comparable(v, sql_type.args[1])) for k, v in value]
            return sorted(pairs, key=repr)
        case t.BaseType.STRUCT:
            return [(name, comparable(value[name], inner)) for name, inner in sql_type.fields]
        case _:
            return value


def shown(found: Sequence[Difference], rows: pa.Table) -> str:
    """The first difference of each expression, with its row's values of the columns that it names."""
    lines = []
    for each in {one.text: one for one in reversed(found)}.values():
        row = rows.slice(each.nr - 1, 1).to_pylist()[0]
        inputs = {name: row[name] for name in sorted(set(_NAME.findall(each.text)) & row.keys())}
        lines.append(f"{each.text}  {each.what}: {each.left!r:.200}, {each.right!r:.200}  row {each.nr}: {inputs}")
    return f"{len(found)} values of {len(lines)} expressions differ\n" + "\n".join(lines)
