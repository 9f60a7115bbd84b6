"""Functions written in Python, inside Spark: the rule's text runs there as it does in DuckDB."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from strandline.jobs.functions.python import Library, registered
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.ivm.rules.stored import stored_columns
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import FunctionFailed, ViewsStopped, revive
from strandline.jobs.model.settings import FunctionSettings, Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from tests.support.python_function_stage import LONGEST, MODULE, WEIGHTED, WORDS_STAGE, function

ROWS = [(1, 1, "fig", 2), (2, 1, "pear", -1), (3, 1, None, None), (4, 2, "kiwi", 3), (5, 2, "plum", 1)]


def test_aggregates_are_computed_first_and_then_from_changes(spark: SparkSession) -> None:
    session = spark.newSession()
    library = Library([LONGEST, WEIGHTED], [MODULE])
    columns = "id INT, k INT, word STRING, v INT"
    stored = ", ".join(f"`{name}` {kind.spark()}" for name, kind in stored_columns(WORDS_STAGE))
    session.createDataFrame(ROWS, columns).createOrReplaceTempView("new_s")
    placed = f"{stored}, __file STRING, __position BIGINT"
    session.createDataFrame([], placed).createOrReplaceTempView("self_old")
    first = maintenance(WORDS_STAGE, "spark", None)
    library.register_spark(session, first)
    kept = session.sql(first).drop("__exists", "__old").collect()
    assert sorted(tuple(row)[:5] for row in kept) == [(1, "pear", 2, "fig", 2), (2, "kiwi", 8, "kiwi", 8)]

    rows = session.createDataFrame(kept, stored)
    rows.selectExpr("*", "'a file' AS __file", "0L AS __position").createOrReplaceTempView("self_old")
    changes = [(*ROWS[1], -1), (*ROWS[3], -1), (6, 2, "banana", 5, 1)]
    session.createDataFrame(changes, f"{columns}, __weight BIGINT").createOrReplaceTempView("delta_s")
    left = [row for row in ROWS if row[0] not in (2, 4)] + [(6, 2, "banana", 5)]
    session.createDataFrame(left, columns).createOrReplaceTempView("new_s")
    later = maintenance(WORDS_STAGE, "spark", ["s"])
    library.register_spark(session, later)
    settled = session.sql(later).collect()
    assert sorted(tuple(row)[:5] for row in settled) == [(1, "fig", 4, "fig", 2), (2, "banana", 12, "banana", 12)]


def test_scalars_see_nulls_and_their_faults_come_back_typed(spark: SparkSession) -> None:
    session = spark.newSession()
    initials = function("INITIALS", [t.VARCHAR], t.VARCHAR, "initials")
    fails = function("F", [t.INT], t.INT, "fails")
    library = Library([initials, fails], [MODULE])
    asked = f"SELECT {registered(initials)}(name) FROM VALUES ('Ada Lovelace'), (NULL) AS v(name)"
    library.register_spark(session, asked)
    assert sorted(row[0] for row in session.sql(asked).collect()) == ["?", "AL"]
    failing = f"SELECT {registered(fails).upper()}(x) FROM VALUES (0) AS v(x)"
    library.register_spark(session, failing)
    with pytest.raises(Exception, match="the function F failed") as failed:
        session.sql(failing).collect()
    assert isinstance(revive(str(failed.value)), FunctionFailed)


def test_a_pipeline_calls_functions_from_statement_to_row(settings: Settings, spark: SparkSession) -> None:
    """One view fails on a value, typed; its neighbour goes on. Without the operator's leave both would stop."""
    allowed = settings.model_copy(update={"functions": FunctionSettings(modules=(MODULE,))})
    interpreter = Interpreter(allowed, "words")
    statements = f"""
        CREATE FUNCTION inverse(a INT) RETURNS INT LANGUAGE PYTHON AS '{MODULE}:fails';
        CREATE AGGREGATE FUNCTION longest(a VARCHAR) RETURNS VARCHAR LANGUAGE PYTHON AS '{MODULE}:Longest';
        CREATE STREAM s (k INT KEY, word VARCHAR, v INT);
        CREATE TABLE words AS SELECT k, longest(word) AS word FROM s GROUP BY k;
        CREATE STREAM inverted AS SELECT k, inverse(v) AS i FROM s;
    """
    list(interpreter.run(statements))
    list(interpreter.run("INSERT INTO s VALUES (1, 'fig', 1), (1, 'banana', 1), (2, 'kiwi', 1)"))
    drain(allowed, "words", spark)
    list(interpreter.run("INSERT INTO s VALUES (2, 'cherry', 0)"))
    with pytest.raises(ViewsStopped, match="the function INVERSE failed") as stopped:
        drain(allowed, "words", spark)
    assert isinstance(stopped.value.failures["inverted"], FunctionFailed)
    rows = reader.read_rows(interpreter.lake.table("words"), columns=["k", "word"]).to_pylist()
    assert sorted((row["k"], row["word"]) for row in rows) == [(1, "banana"), (2, "cherry")]
