"""Functions that users wrote, epoch after epoch in one DuckDB engine: each epoch has a connection of its own."""

from __future__ import annotations

from strandline.jobs.model.errors import FunctionFailed
from strandline.jobs.model.settings import FunctionSettings, Settings
from strandline.jobs.run.pipeline import opened
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout
from tests.support import lake_tables
from tests.support.python_function_stage import MODULE

STATEMENTS = f"""
CREATE FUNCTION inverse(a INT) RETURNS INT LANGUAGE PYTHON AS '{MODULE}:fails';
CREATE AGGREGATE FUNCTION longest(a VARCHAR) RETURNS VARCHAR LANGUAGE PYTHON AS '{MODULE}:Longest';
CREATE STREAM s (k INT KEY, word VARCHAR, v INT) WITH (KAFKA_TOPIC = 's');
CREATE TABLE words AS SELECT k, longest(word) AS word FROM s GROUP BY k;
CREATE STREAM inverted AS SELECT k, inverse(v) AS i FROM s;
"""


def test_a_function_outlives_the_connection_that_used_it_first(settings: Settings, lake: LakeLayout) -> None:
    allowed = settings.model_copy(update={"functions": FunctionSettings(modules=(MODULE,))})
    list(Interpreter(allowed, "words").run(STATEMENTS))
    events = [("fig", 1), ("banana", 1), ("kiwi", 1), ("cherry", 0)]
    lake_tables.events(lake, "s", [])
    with opened(allowed, "words", None) as (stream, _):
        for number, (word, v) in enumerate(events):
            assert not stream.failures
            lake_tables.events(lake, "s", [{"k": number % 2, "word": word, "v": v}], first=number, epoch=number + 1)
            stream.refresh()
    assert isinstance(stream.failures["inverted"], FunctionFailed)
    rows = reader.read_rows(lake.table("words"), columns=["k", "word"]).to_pylist()
    assert sorted((row["k"], row["word"]) for row in rows) == [(0, "kiwi"), (1, "banana")]


def test_what_is_not_allowed_any_more_stops_the_view(settings: Settings, lake: LakeLayout) -> None:
    allowed = settings.model_copy(update={"functions": FunctionSettings(modules=(MODULE,))})
    list(Interpreter(allowed, "words").run(STATEMENTS))
    lake_tables.events(lake, "s", [{"k": 1, "word": "fig", "v": 1}])
    with opened(settings, "words", None) as (stream, _):
        stream.refresh()
    assert stream.failures["inverted"].code == "sql.function_refused"
