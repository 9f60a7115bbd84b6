"""What an engine cannot bind is refused at CREATE, by both engines and in every text, and leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from strandline.jobs.functions.python import Library
from strandline.jobs.ivm import binding
from strandline.jobs.ivm.binding import Binding, BoundText, EmptyTables
from strandline.jobs.model.errors import ConditionLost, NotBound
from strandline.jobs.model.settings import FunctionSettings, Settings
from strandline.jobs.model.types import INT
from strandline.jobs.session.interpreter import Interpreter
from tests.properties.picker import Picker
from tests.properties.scenario import Tally, scenario
from tests.support.bound_texts import PIPELINES, all_texts, pipeline
from tests.support.memory_catalog import MemoryCatalog
from tests.support.python_function_stage import MODULE
from tests.unit.session.statements import run

SOURCES = """
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT) WITH (KAFKA_TOPIC='t', VALUE_FORMAT='JSON');
CREATE STREAM s (k VARCHAR KEY, n INT) WITH (KAFKA_TOPIC='s', VALUE_FORMAT='JSON');
"""
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT k, SUM(10 / n) AS x FROM t GROUP BY k;"


@pytest.fixture
def session(settings: Settings) -> Interpreter:
    made = Interpreter(settings.model_copy(update={"functions": FunctionSettings(modules=(MODULE,))}))
    run(made, SOURCES)
    return made


@pytest.mark.parametrize("path", PIPELINES, ids=lambda path: path.stem)
def test_the_pipelines_that_come_with_the_project_are_bound(path: Path) -> None:
    catalog, bound = pipeline(path), Binding()
    for definition in catalog.definitions():
        bound.check(definition, catalog)
    for text in all_texts(catalog, "spark"):
        binding.bind_on_spark(text)


@pytest.mark.parametrize("seed", range(3))
def test_random_views_are_bound(seed: int) -> None:
    catalog, bound = MemoryCatalog(), Binding()
    scenario(Picker.seeded(seed), 8, Tally(), catalog=catalog)
    for definition in catalog.definitions():
        bound.check(definition, catalog)


@pytest.mark.parametrize(
    "what",
    [
        "the changes of 'v'",
        "the changes of 'v__dead_letters'",
        "the first refresh of 'v'",
        "the comparison of 'v'",
        "the recomputation of 'v'",
    ],
)
def test_duckdb_binds_each_text(what: str, session: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    bind = binding.bind_on_duckdb

    def sabotaged(db: EmptyTables, found: Iterable[BoundText], functions: Library) -> None:
        bind(db, [replace(each, text=wrong(each.text)) if each.what == what else each for each in found], functions)

    monkeypatch.setattr(binding, "bind_on_duckdb", sabotaged)
    with pytest.raises(NotBound, match=f"DuckDB cannot bind {what}: Binder Error") as raised:
        run(session, VIEW)
    assert raised.value.line == 1
    assert session.catalog.find("v") is None


def wrong(text: str) -> str:
    """The text with a column that is not there."""
    return text.replace('"k"', '"m"')


def test_a_text_that_only_spark_cannot_bind_is_refused(session: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    bind = binding.bind_on_spark
    monkeypatch.setattr(
        binding, "bind_on_spark", lambda text: bind(replace(text, text=text.text.replace("`t`.`n`", "`t`.`m`")))
    )
    with pytest.raises(NotBound, match="Spark cannot bind the changes of 'v'"):
        run(session, VIEW)
    assert session.catalog.find("v") is None


@pytest.mark.parametrize(
    "statement",
    [
        VIEW.replace("CREATE", "CREATE OR REPLACE").replace("10", "20"),
        "INSERT INTO o SELECT k, n FROM s WHERE n > 1;",
        "ALTER TABLE t ADD COLUMN m INT;",
        "CREATE TABLE u (id INT PRIMARY KEY) WITH (KAFKA_TOPIC='u', VALUE_FORMAT='JSON');",
    ],
)
def test_whatever_changes_rules_is_bound(statement: str, session: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    run(session, VIEW + "CREATE STREAM o AS SELECT k, n FROM s;")
    before = session.catalog.definitions()

    def refuse(*_: object) -> None:
        raise NotBound.by("DuckDB", "it", "no")

    monkeypatch.setattr(binding, "bind_on_duckdb", refuse)
    with pytest.raises(NotBound):
        run(session, statement)
    assert session.catalog.definitions() == before
    run(session, VIEW)  # what is there is not bound again


def test_a_rule_without_a_condition_is_refused(session: Interpreter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.jobs.ivm.rules.delta_join.where_text", lambda condition, engine: "")
    with pytest.raises(ConditionLost, match="n > 41"):
        run(session, "CREATE MATERIALIZED VIEW v AS SELECT k FROM t WHERE n > 41;")
    assert session.catalog.find("v") is None


def test_users_functions_are_bound_by_their_types(session: Interpreter) -> None:
    run(
        session,
        f"""CREATE FUNCTION fails(value BIGINT) RETURNS BIGINT LANGUAGE PYTHON AS '{MODULE}:fails';
        CREATE MATERIALIZED VIEW v AS SELECT k, SUM(fails(0) + fails(n)) AS x FROM t GROUP BY k;""",
    )
    assert session.catalog.find("v") is not None


def test_a_table_of_the_text_before_is_no_relation_of_this_one() -> None:
    """The tables stay between texts; what one text may read, the next one may not."""
    tables, none = EmptyTables(binding._new_engine()), Library((), ())
    first = BoundText("the first", 'SELECT k, n FROM "delta_t" JOIN self_old USING (k)', {})
    relations = {"delta_t": (("k", INT),), "self_old": (("k", INT), ("n", INT))}
    binding.bind_on_duckdb(tables, [replace(first, relations=relations)], none)
    with pytest.raises(NotBound, match="self_old"):
        binding.bind_on_duckdb(tables, [replace(first, relations={"delta_t": relations["delta_t"]})], none)
    binding.bind_on_duckdb(tables, [replace(first, relations=relations)], none)
    with pytest.raises(NotBound, match='"n" not found'):
        binding.bind_on_duckdb(tables, [replace(first, relations={**relations, "self_old": (("k", INT),)})], none)
