"""Upper and lower case of every letter that has one: the same on both engines, alone and beside others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import duckdb
import pyarrow as pa

from strandline.jobs.functions.render import lower
from strandline.jobs.model import types as t
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Scope
from tests.support.parsed import parse_expression

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

_SCOPE = Scope(Relation("letters", (("c", t.VARCHAR),), "keyed", ("c",)), ("letters",))
_EVERY = 1009
"""Of the letters without case, one in so many is asked: a million rows are more than the JVM has room for."""
_AT_ONCE = 500
_CASES = ("UCASE(c)", "LCASE(c)", "UCASE('ß' || c || 'Σ')", "LCASE('AΣ' || c || 'Σ')", "INITCAP('a' || c)")


def _asked(dialect: Literal["spark", "duckdb"]) -> str:
    columns = (lower(infer(parse_expression(text), _SCOPE).expression, dialect) for text in _CASES)
    return f"SELECT c, {', '.join(columns)} FROM letters"


def _letters() -> Iterator[str]:
    """Every letter that has another case, by Python's own tables, and others between them."""
    for code in range(1, 0x110000):
        letter = chr(code)
        if 0xD800 <= code <= 0xDFFF:
            continue  # halves of pairs are no characters
        if {letter.upper(), letter.lower(), letter.title()} != {letter} or code % _EVERY == 0:
            yield letter


def test_every_letter_has_one_upper_and_one_lower_case(spark: SparkSession) -> None:
    letters = list(_letters())
    assert len(letters) > 2_500
    for first in range(0, len(letters), _AT_ONCE):
        some = pa.table({"c": letters[first : first + _AT_ONCE]})
        spark.createDataFrame(some).createOrReplaceTempView("letters")
        with duckdb.connect() as duck:
            duck.register("letters", some)
            expected = {row[0]: row for row in duck.execute(_asked("duckdb")).fetchall()}
        found = zip(*(column.to_pylist() for column in spark.sql(_asked("spark")).toArrow().columns), strict=True)
        assert [(row, expected[row[0]]) for row in found if row != expected[row[0]]] == []
