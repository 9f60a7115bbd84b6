"""WITH (TIMESTAMP = 'column') of a view: its rows take their time from a column, not from their events.

    CREATE STREAM v WITH (TIMESTAMP='at') AS SELECT id, at FROM s

    before     id = s.id, at = s.at, _timestamp = s._timestamp, …
    after      id = s.id, at = s.at, _timestamp = FROM_UNIXTIME(s.at), …      WHERE s.at >= 0

A row without a time, or one before 1970, is left out, as in ksqlDB. Groups have no time of their own: there the option
changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from sqlglot import exp

from strandline.jobs.model.options import ViewOptions
from strandline.jobs.model.stage import Core, MapStage, Output, Plan
from strandline.jobs.model.types import BaseType
from strandline.jobs.query.inputs import conjoined

_TIME = "_timestamp"


def with_rowtime(plan: Plan, options: ViewOptions) -> Plan:
    """The plan whose last stage gives the rows the time that the view's options ask for."""
    name = options.timestamp
    last = plan.stages[-1]
    if name is None or not isinstance(last, MapStage):
        return plan
    body = tuple(_timed(core, name, options.timestamp_format) for core in last.body)
    return replace(plan, stages=(*plan.stages[:-1], replace(last, body=body)))


def _timed(core: Core, name: str, form: str | None) -> Core:
    source = next(column for column in core.columns if column.name == name)
    if not any(column.name == _TIME for column in core.columns):
        return core
    time = _time(source, form)
    milliseconds = exp.Anonymous(this="UNIX_TIMESTAMP", expressions=[time.copy()])
    kept = exp.GTE(this=milliseconds, expression=exp.Literal.number(0))
    columns = tuple(replace(each, expression=time) if each.name == _TIME else each for each in core.columns)
    return replace(core, columns=columns, where=conjoined([core.where, kept] if core.where is not None else [kept]))


def _time(source: Output, form: str | None) -> exp.Expression:
    value = source.expression.copy()
    if source.type.base is BaseType.BIGINT:
        return exp.Anonymous(this="FROM_UNIXTIME", expressions=[value])
    if form is not None:
        return exp.Anonymous(this="PARSE_TIMESTAMP", expressions=[value, exp.Literal.string(form)])
    return value
