"""Plans of statements over a few sources, and their parts as text."""

from __future__ import annotations

from typing import get_args

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.engines.engine import Dialect, engine_of
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.rules.maintenance import check_written, maintenance
from strandline.jobs.model.stage import Output, Plan, Stage
from strandline.jobs.model.stage_columns import hidden_columns
from strandline.jobs.model.tables import META_COLUMNS
from strandline.jobs.sql.dialect import sql_of
from tests.support.catalog_from_sql import run

SOURCES = """
CREATE STREAM readings (sensor VARCHAR KEY, reading DOUBLE, area VARCHAR, n INT);
CREATE STREAM clicks (sensor VARCHAR KEY, c INT);
CREATE TABLE users (id BIGINT PRIMARY KEY, name VARCHAR, age INT);
CREATE TABLE areas (area VARCHAR PRIMARY KEY, owner BIGINT);
"""
META = [name for name, _ in META_COLUMNS]
EVENT = ["_timestamp", "_stream_time", "_partition", "_offset"]


def planned(text: str, catalog: Catalog) -> Plan:
    """The plan; every stage of it can be written for both engines."""
    definition = run(text, catalog)
    made = plan(definition, catalog)
    for stage in made.stages:
        for dialect in get_args(Dialect):
            for changed in ((), None):
                check_written(made.view, stage, maintenance(stage, dialect, changed), engine_of(dialect))
    return made


def only(text: str, catalog: Catalog) -> Stage:
    (stage,) = planned(text, catalog).stages
    return stage


def texts(outputs: tuple[Output, ...]) -> list[str]:
    return [f"{o.name}={sql_of(o.expression)}:{o.type}" for o in outputs]


def hidden(stage: Stage) -> list[str]:
    return [name for name, _ in hidden_columns(stage)]


def kinds(made: Plan) -> list[type[Stage]]:
    return [type(stage) for stage in made.stages]
