"""A stage rewritten for rows on which an expression fails: `ERRORS='dead_letter'` or `'stop'`.

    strict(stage)     the stage, failing where SQL says so: what an epoch runs
    guarded(stage)    the stage without the rows that fail, and a stage of those rows: its dead letters

An epoch runs strictly. Where that fails on a row, a view with `'stop'` stops; one with `'dead_letter'` runs guarded
from then on. The dead letters are a maintained table like any other, `<view>__dead_letters`: a row that is corrected
or retracted leaves it, and nothing is in it twice.

Guarded are the expressions over the rows a stage reads: its columns, conditions and joins. What is computed of a whole
group (`SUM(a) / SUM(b)`) or overflows while it is added up concerns no single row: there the view stops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from jobs.functions.failing import can_fail, failing, lenient
from jobs.functions.failing import strict as strict_expression
from jobs.functions.scalars.guards import guards_in, is_guard, name_of
from jobs.model import types as t
from jobs.model.columns import FAILED_ROW_COLUMNS
from jobs.model.stage import (
    AggregateStage,
    AnalyticStage,
    Core,
    Input,
    LatestStage,
    MapStage,
    Output,
    Stage,
    storage_of_body,
)
from jobs.sql.dialect import sql_of
from jobs.sql.trees import any_of, conjuncts

REASON, ROW = (name for name, _ in FAILED_ROW_COLUMNS)

BREAKS = "breaks "
"""The reason of a row that breaks an expectation begins so; any other is of a row on which an expression fails."""

Change = Callable[[exp.Expression], exp.Expression]
BodyStage = MapStage | AggregateStage | AnalyticStage


def strict(stage: Stage) -> Stage:
    """The stage with every expression failing where SQL says so."""
    return strict_outputs(_with_body(stage, strict_expression))


def strict_outputs(stage: Stage) -> Stage:
    """The stage with what it computes above its body failing where SQL says so."""
    if not isinstance(stage, AggregateStage | AnalyticStage):
        return stage
    return replace(stage, outputs=_outputs(stage.outputs, strict_expression))


def null_instead(stage: Stage) -> Stage:
    """The stage with NULL wherever an expression fails."""
    if isinstance(stage, AggregateStage | AnalyticStage):
        stage = replace(stage, outputs=_outputs(stage.outputs, lenient))
    return _with_body(stage, lenient)


def guarded(stage: Stage, letters: str) -> tuple[Stage, MapStage | None]:
    """The stage without the rows that fail, and the stage that keeps those in the table `letters`; None when no row can
    fail."""
    if isinstance(stage, LatestStage) or not any(_failing_core(core) is not None for core in stage.body):
        return stage, None
    body = tuple(_without(core) for core in stage.body)
    return replace(_late_leniently(stage), body=body), _dead_letters(stage, letters)


def _with_body(stage: Stage, change: Change) -> Stage:
    if isinstance(stage, LatestStage):
        return stage
    stage = _late_leniently(stage)
    return replace(stage, body=tuple(_changed(core, change) for core in stage.body))


def _late_leniently(stage: BodyStage) -> BodyStage:
    """The stage that counts no row as late on which an expression fails: to count must never stop a view."""
    if isinstance(stage, AggregateStage):
        return replace(stage, late=tuple(_changed(core, lenient) for core in stage.late))
    return stage


def _changed(core: Core, change: Change) -> Core:
    return replace(
        core,
        inputs=tuple(_input(each, change) for each in core.inputs),
        where=change(core.where) if core.where is not None else None,
        columns=_outputs(core.columns, change),
        expand=_outputs(core.expand, change),
    )


def _input(each: Input, change: Change) -> Input:
    return replace(each, on=change(each.on)) if each.on is not None else each


def _outputs(outputs: tuple[Output, ...], change: Change) -> tuple[Output, ...]:
    return tuple(replace(each, expression=change(each.expression)) for each in outputs)


def _failing_core(core: Core) -> exp.Expression | None:
    """The condition over a core's joined rows under which one fails: in its WHERE, or, where that lets it through, in a
    column."""
    where = failing(core.where) if core.where is not None else None
    columns = any_of([failing(each.expression) for each in core.columns])
    if columns is not None and core.where is not None:
        columns = exp.And(this=_truth(core.where), expression=columns)
    return any_of([where, columns])


def _without(core: Core) -> Core:
    fails = _failing_core(core)
    made = _changed(core, lenient)
    if fails is None:
        return made
    sound = exp.Not(this=exp.Paren(this=_coalesced(fails)))
    return replace(
        made, where=sound if made.where is None else exp.And(this=exp.Paren(this=made.where), expression=sound)
    )


def _dead_letters(stage: BodyStage, letters: str) -> MapStage:
    """The rows that fail: what they are (JSON of the inputs' columns) and why, by the identity of the rows they come
    from. Those of a body that only grows are only added, and need none."""
    grows = storage_of_body(stage.body) == "append"
    cores = []
    for number, core in enumerate(stage.body):
        fails = _failing_core(core) or exp.false()
        identity = [
            Output(f"__i{number}_{at}_{name}", _column(each.alias, name), each.relation.type_of(name))
            for at, each in enumerate(core.inputs)
            if each.join not in ("semi", "anti") and not grows
            for name in each.relation.told_apart_by
        ]
        columns = (
            Output(REASON, _reason(core, stage.table), t.VARCHAR),
            Output(ROW, _row(core), t.VARCHAR),
            *identity,
        )
        made = _changed(core, lenient)
        cores.append(replace(made, where=_coalesced(fails), columns=columns, key=tuple(each.name for each in identity)))
    # Branches have identities of their own: all columns, NULL where they are another branch's.
    names = {each.name: each.type for core in cores for each in core.columns}
    body = tuple(_padded(core, names) for core in cores)
    key = tuple(name for name in names if name not in (REASON, ROW))
    return MapStage(letters, tuple(replace(core, key=key) for core in body), (REASON, ROW), key)


def _padded(core: Core, names: dict[str, t.SqlType]) -> Core:
    own = {each.name: each for each in core.columns}
    return replace(
        core, columns=tuple(own.get(name) or Output(name, exp.Null(), sql_type) for name, sql_type in names.items())
    )


def _reason(core: Core, table: str) -> exp.Expression:
    """Why a row is kept out: the first expectation that it breaks, or else all expressions that can fail."""
    other = exp.Literal.string(f"fails in {table}: {_said(core)}")
    broken = [
        exp.If(this=failing(guard), true=exp.Literal.string(f"{BREAKS}{name_of(guard)} of {table}"))
        for guard in guards_in(core.where)
    ]
    return exp.Case(ifs=broken, default=other) if broken else other


def _said(core: Core) -> str:
    """The expressions that can fail, in our language; guards have names of their own."""
    can = [each.expression for each in core.columns if can_fail(each.expression)]
    can += [term for term in conjuncts(core.where) if can_fail(term) and not is_guard(term)]
    return "; ".join(dict.fromkeys(sql_of(each) for each in can))


def _row(core: Core) -> exp.Expression:
    """The visible columns of the inputs as one JSON text."""
    fields = [
        exp.PropertyEQ(
            this=exp.to_identifier(f"{each.alias}_{name}", quoted=True), expression=_column(each.alias, name)
        )
        for each in core.inputs
        if each.join not in ("semi", "anti")
        for name, _ in each.relation.columns
        if not name.startswith("_")
    ]
    return exp.Anonymous(this="ROW_JSON", expressions=[exp.Anonymous(this="STRUCT", expressions=fields)])


def _column(alias: str, name: str) -> exp.Column:
    return exp.column(name, table=alias, quoted=True)


def _truth(condition: exp.Expression) -> exp.Expression:
    return _coalesced(lenient(condition))


def _coalesced(condition: exp.Expression) -> exp.Expression:
    return exp.Anonymous(this="COALESCE", expressions=[condition, exp.false()])
