"""Calls over different values: each value has a row in an inner stage, and the view stays what its SELECT gives."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lineage import column_origins
from strandline.jobs.catalog.stored_definition import from_json, to_json
from strandline.jobs.functions.aggregates import of_values
from strandline.jobs.functions.aggregates.of_values import LEVEL
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.guarded_stage import guarded
from strandline.jobs.ivm.rules.computed_again import recomputed
from strandline.jobs.ivm.rules.maintenance import looks_back
from strandline.jobs.ivm.rules.stored import form_of, reads_values
from strandline.jobs.model.definitions import View, same
from strandline.jobs.model.stage import AggregateStage, Stage, body_of
from strandline.jobs.sql.dialect import sql_of
from tests.support.catalog_from_sql import run
from tests.support.duck_lake import DuckLake
from tests.support.lake_tables import NOON
from tests.unit.ivm.plan.planned import only, planned

if TYPE_CHECKING:
    from collections.abc import Sequence

    import duckdb

    from strandline.jobs.model.stage import Plan

DISTINCT = "COUNT(DISTINCT n) AS d"


def view_over(select: str, catalog: Catalog, rest: str = "FROM readings GROUP BY area") -> Plan:
    return planned(f"CREATE MATERIALIZED VIEW v AS SELECT {select} {rest}", catalog)


def wheres(stage: Stage) -> list[str]:
    return ["" if core.where is None else sql_of(core.where) for core in body_of(stage)]


def calls(stage: Stage) -> list[tuple[str, str]]:
    assert isinstance(stage, AggregateStage)
    return [(each.function, sql_of(each.filter)) for each in stage.aggregates if each.filter is not None]


def test_a_value_is_a_row_of_an_inner_stage(catalog: Catalog) -> None:
    inner, outer = view_over(f"area, COUNT(*) AS c, {DISTINCT}, MAX(reading) AS m", catalog).stages
    assert isinstance(inner, AggregateStage)
    assert (inner.table, inner.key, inner.aggregates) == ("v__stage_1", ("__g0", "__v0"), ())
    assert wheres(inner) == ["readings.n IS NOT NULL"]
    assert calls(outer) == [("COUNT", "__part = 0"), ("COUNT", "__part = 1"), ("MAX", "__part = 0")]
    assert reads_values(outer)
    assert form_of((inner, outer)) > form_of((inner,)), "an array of before is not misread"


def test_a_stream_whose_values_are_kept_is_not_read_again(catalog: Catalog) -> None:
    """Though the values change, MAX takes rows that only come: no event is kept for it."""
    inner, outer = view_over(f"area, {DISTINCT}, MAX(reading) AS m", catalog).stages
    assert isinstance(outer, AggregateStage)
    assert recomputed(outer) == ()
    assert not looks_back(inner) | looks_back(outer)


def test_calls_with_values_of_one_type_share_a_stage(catalog: Catalog) -> None:
    made = view_over(
        "area, COUNT(DISTINCT n) AS a, SUM(DISTINCT n) AS s, COUNT(DISTINCT sensor) AS t,"
        " COUNT(DISTINCT n) FILTER (WHERE reading > 1 AND n > 2) AS f",
        catalog,
    )
    numbers, texts, outer = made.stages
    assert wheres(numbers) == [
        "readings.n IS NOT NULL",
        "readings_2.reading > 1 AND readings_2.n > 2 AND readings_2.n IS NOT NULL",
    ]
    assert wheres(texts) == ["readings.sensor IS NOT NULL"]
    assert calls(outer) == [
        ("COUNT", "__part = 1 AND __of_1 = 1"),
        ("SUM", "__part = 1 AND __of_1 = 1"),
        ("COUNT", "__part = 2"),
        ("COUNT", "__part = 1 AND __of_1 = 2"),
    ]


@pytest.mark.parametrize(
    "select",
    [
        "SUM(DISTINCT reading) AS s",  # a sum of DOUBLE is of its values in one order
        "COUNT(DISTINCT ARRAY[n]) AS c",  # no key
        "COLLECT_SET(n) AS c",  # shows all values in any case
    ],
)
def test_what_stays_in_the_row_of_the_group(select: str, catalog: Catalog) -> None:
    only(f"CREATE MATERIALIZED VIEW v AS SELECT area, {select} FROM readings GROUP BY area", catalog)


def test_sessions_are_computed_from_their_rows(catalog: Catalog) -> None:
    text = f"CREATE TABLE v AS SELECT area, {DISTINCT} FROM readings WINDOW SESSION (10 SECONDS) GROUP BY area"
    only(text, catalog)


def test_rows_that_fail_are_dead_letters_of_the_view_alone(catalog: Catalog) -> None:
    made = view_over("area, COUNT(*) AS c, COUNT(DISTINCT 100 / n) AS d", catalog)
    inner, outer = made.stages
    assert guarded(inner, "letters").aside is None, "what fails is left out already"
    aside = guarded(outer, "letters").aside
    assert aside is not None
    assert [each.relation.name for core in aside.body for each in core.inputs] == ["readings"]
    assert isinstance(outer, AggregateStage)
    assert "__read0_0" in [each.name for each in outer.aggregates]


def test_a_view_of_before_keeps_its_plan(catalog: Catalog) -> None:
    text = f"CREATE MATERIALIZED VIEW v AS SELECT area, {DISTINCT} FROM readings GROUP BY area"
    made = run(text, catalog)
    assert isinstance(made, View)
    former = replace(made, by_value=False)
    assert same(former, made), "the same statement does not replace it"
    assert "by_value" not in to_json(1, former)
    (stage,) = plan(former, catalog).stages
    assert not reads_values(stage)
    catalog.replace(former)
    assert run(text, catalog) == former


def test_a_view_of_between_keeps_its_percentiles_and_lists_in_arrays(catalog: Catalog) -> None:
    """Made when only COUNT, SUM, AVG and MODE had their values in rows."""
    text = f"CREATE MATERIALIZED VIEW v AS SELECT area, {DISTINCT}, MEDIAN(n) AS m, COLLECT_LIST(n) AS l FROM readings"
    made = run(f"{text} GROUP BY area", catalog)
    assert isinstance(made, View)
    former = replace(made, by_value=1)
    assert same(former, made)
    as_it_was_written = to_json(1, replace(made, by_value=True))
    assert from_json(as_it_was_written.encode(), "here").definition == former
    (values, _), new = plan(former, catalog).stages, plan(made, catalog)
    assert values.table == "v__stage_1"
    assert [function for function, _ in calls(plan(former, catalog).stages[-1])] == [
        "COUNT",
        "PERCENTILE_CONT",
        "COLLECT_LIST",
    ]
    assert form_of(new.stages) > form_of(plan(former, catalog).stages)
    assert len(new.stages) == 3


def test_the_lineage_of_a_value_leads_through_its_stage(catalog: Catalog) -> None:
    made = view_over("area, COUNT(DISTINCT n, sensor) AS d, MODE(reading) AS m", catalog)
    found = {name: [each.column for each in origins] for name, origins in column_origins(made).items()}
    assert found == {"area": ["area"], "d": ["n", "sensor"], "m": ["reading"]}


def test_the_most_frequent_value_is_found_among_the_values(catalog: Catalog) -> None:
    inner, outer = view_over("area, MODE(n) AS m", catalog).stages
    assert isinstance(inner, AggregateStage)
    assert isinstance(outer, AggregateStage)
    assert [each.name for each in inner.outputs] == ["__g0", "__v0", "__n"]
    assert [each.name for each in recomputed(outer)] == ["__a0"]
    assert not looks_back(outer) - {"v__stage_1"}, "of its values, not of the stream"


CALLS = (
    "COUNT(*) AS c, COUNT(DISTINCT age) AS d, SUM(DISTINCT age) AS s, AVG(DISTINCT age) AS a, MODE(age) AS m,"
    " COUNT(DISTINCT age, name) AS p, COUNT(DISTINCT name) FILTER (WHERE age > 1) AS f, MAX(id) AS x"
)
SHOWN = (
    "MEDIAN(age) AS p5, PERCENTILE_DISC(0.3) WITHIN GROUP (ORDER BY name DESC) AS p3,"
    " PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY age DESC) AS p9, HISTOGRAM(name) AS h, HISTOGRAM(name) FILTER (WHERE"
    " age > 1) AS hf, COLLECT_LIST(age) AS l, ARRAY_AGG(age ORDER BY name DESC) AS o, ARRAY_AGG(DISTINCT age ORDER BY"
    " age) AS od, STRING_AGG(name, '|' ORDER BY age) AS t, FIRST_VALUE(name ORDER BY age) AS f1, MODE(age) AS mo,"
    " LAST_VALUE(name ORDER BY age) AS l1, MAX(age) AS mx"
)
VIEWS = {
    "shown": f"SELECT id % 3 AS k, {SHOWN} FROM users GROUP BY id % 3",
    "shown-global": f"SELECT {SHOWN} FROM users",
    "shown-sets": f"SELECT name, age, {SHOWN} FROM users GROUP BY ROLLUP (name, age)",
    "shown-names": f"SELECT name, {SHOWN} FROM users GROUP BY name",
    "shown-having": f"SELECT name, {SHOWN} FROM users GROUP BY name HAVING MEDIAN(age) > 1",
    "shown-hopping": "SELECT area, MEDIAN(n) AS m, COLLECT_LIST(n) AS l, HISTOGRAM(sensor) AS h FROM readings"
    " WINDOW HOPPING (SIZE 20 SECONDS, ADVANCE BY 10 SECONDS, GRACE PERIOD 15 SECONDS) GROUP BY area",
    "shown-session": "SELECT area, MEDIAN(n) AS m, COLLECT_LIST(n) AS l, HISTOGRAM(sensor) AS h FROM readings"
    " WINDOW SESSION (5 SECONDS) GROUP BY area",
    "groups": f"SELECT name, {CALLS} FROM users GROUP BY name",
    "global": f"SELECT {CALLS} FROM users",
    "sets": f"SELECT name, age, {CALLS} FROM users GROUP BY ROLLUP (name, age)",
    "having": f"SELECT age, {CALLS} FROM users GROUP BY age HAVING COUNT(DISTINCT name) > 1",
    "hopping": "SELECT area, COUNT(DISTINCT n) AS d, MODE(n) AS m FROM readings"
    " WINDOW HOPPING (SIZE 20 SECONDS, ADVANCE BY 10 SECONDS, GRACE PERIOD 15 SECONDS) GROUP BY area",
    "union": "SELECT k, COUNT(DISTINCT v) AS d, MODE(v) AS m FROM (SELECT name AS k, age AS v FROM users UNION ALL"
    " SELECT area AS k, n AS v FROM readings) AS q GROUP BY k",
}


KSQL = "TABLE v WITH (SEMANTICS = 'ksql', ERRORS = 'dead_letter')"
"""It leaves out the groups whose key is NULL, but not the values that are."""


@pytest.mark.parametrize(
    ("form", "kind"),
    [
        *((form, "MATERIALIZED VIEW v") for form in VIEWS),
        *((form, KSQL) for form in ("shown-names", "groups", "union")),
    ],
)
def test_after_every_epoch_the_view_is_what_its_select_gives(
    form: str, kind: str, catalog: Catalog, duck: duckdb.DuckDBPyConnection
) -> None:
    assert isinstance(view := run(f"CREATE {kind} AS {VIEWS[form]}", catalog), View)
    assert view.by_value == (0 if "SESSION" in VIEWS[form] else LEVEL)
    chance, lake, offsets = random.Random(form), DuckLake(catalog, catalog.definitions(), duck), count()

    def events(*columns: tuple[str, Sequence[object]]) -> list[dict[str, object]]:
        made = []
        for _ in range(chance.randint(0, 9)):
            at = next(offsets)
            time = NOON + timedelta(seconds=at + chance.randint(-30, 0))
            place = {"_partition": 0, "_offset": at, "_timestamp": time, "_stream_time": NOON + timedelta(seconds=at)}
            made.append({**{name: chance.choice(values) for name, values in columns}, **place})
        return made

    numbers, names = [None, 0, 1, 2, 3], [None, "a", "b", "c"]
    for _ in range(6):
        lake.feed("readings", events(("sensor", ["s"]), ("area", names), ("n", numbers)))
        lake.feed(
            "users__log",
            events(("id", [1, 2, 3, 4, 5]), ("name", names), ("age", numbers), ("_tombstone", [False, False, True])),
        )
        lake.refresh()
        assert lake.wrong("v") == ""
    lake.close()


@pytest.mark.parametrize(("least", "stretch"), [(1, 2), (20, 3), (64, 64)])
def test_a_percentile_follows_its_values_wherever_they_go(
    least: int, stretch: int, catalog: Catalog, duck: duckdb.DuckDBPyConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With windows so small that rows asked for leave them all the time, and with windows that hold everything."""
    monkeypatch.setattr(of_values, "_LEAST", least)
    monkeypatch.setattr(of_values, "_STRETCH", stretch)
    text = (
        "CREATE MATERIALIZED VIEW v AS SELECT id % 2 AS k, MEDIAN(age) AS m, PERCENTILE_DISC(0) WITHIN GROUP (ORDER BY"
        " age) AS a, PERCENTILE_DISC(1) WITHIN GROUP (ORDER BY age) AS b, PERCENTILE_CONT(0.95) WITHIN GROUP (ORDER BY"
        " age DESC) AS c, COUNT(*) AS n FROM users GROUP BY id % 2"
    )
    assert isinstance(run(text, catalog), View)
    chance, lake, offsets = random.Random(least), DuckLake(catalog, catalog.definitions(), duck), count()
    for epoch in range(30):
        rows = []
        for _ in range(chance.choice([1, 3, 60])):
            at = next(offsets)
            # Values wander up, then down; keys are few, so that most events retract a row.
            age = None if chance.random() < 0.1 else chance.randint(0, 20) + 15 * min(epoch, 30 - epoch)
            place = {"_partition": 0, "_offset": at, "_timestamp": NOON, "_stream_time": NOON}
            gone = chance.random() < 0.2
            rows.append({"id": chance.randint(0, 90), "name": "a", "age": age, "_tombstone": gone, **place})
        lake.feed("users__log", rows)
        lake.refresh()
        assert lake.wrong("v") == ""
    lake.close()
