"""Upper and lower case of every letter there is: the same on both engines, alone and beside others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import duckdb
import pyarrow as pa

from jobs.functions.render import lower
from jobs.model import types as t
from jobs.model.relation import Relation
from jobs.query.expressions.infer import infer
from jobs.query.expressions.scope import Scope
from tests.support.parsed import parse_expression

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCOPE = Scope(Relation("letters", (("c", t.VARCHAR),), "keyed", ("c",)), ("letters",))
_CASES = ("UCASE(c)", "LCASE(c)", "UCASE('ß' || c || 'Σ')", "LCASE('AΣ' || c || 'Σ')", "INITCAP('a' || c)")


def _asked(dialect: Literal["spark", "duckdb"]) -> str:
    columns = (lower(infer(parse_expression(text), _SCOPE).expression, dialect) for text in _CASES)
    return f"SELECT c, {', '.join(columns)} FROM letters"


def test_every_letter_has_one_upper_and_one_lower_case(spark: SparkSession) -> None:
    letters = pa.table({"c": [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code <= 0xDFFF]})
    spark.createDataFrame(letters).createOrReplaceTempView("letters")
    with duckdb.connect() as duck:
        duck.register("letters", letters)
        expected = {row[0]: row for row in duck.execute(_asked("duckdb")).fetchall()}
    found = zip(*(column.to_pylist() for column in spark.sql(_asked("spark")).toArrow().columns), strict=True)
    assert [(row, expected[row[0]]) for row in found if row != expected[row[0]]] == []
