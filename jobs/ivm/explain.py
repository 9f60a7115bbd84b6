"""EXPLAIN: the stages of a view in words; EXPLAIN MAINTENANCE adds the SQL that maintains them. Starts no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.engines.engine import engine_of
from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.ivm.plan.plan import plan_of_query, why_not
from strandline.jobs.ivm.refresh.engines import MOST_ROWS
from strandline.jobs.ivm.refresh.epoch import in_words
from strandline.jobs.ivm.rules.computed_again import recomputed
from strandline.jobs.ivm.rules.delta_join import equalities
from strandline.jobs.ivm.rules.lookups import plan_lookups
from strandline.jobs.ivm.rules.maintenance import engines_for, late_rows
from strandline.jobs.ivm.rules.maintenance import maintenance as maintenance_text
from strandline.jobs.ivm.rules.recompute import grows
from strandline.jobs.ivm.rules.spread import spread_rule
from strandline.jobs.ivm.rules.stored import state_type
from strandline.jobs.model.definitions import Definition, InsertQuery, Source, View
from strandline.jobs.model.stage import (
    JOIN_WORDS,
    AggregateCall,
    AggregateFramed,
    AggregateStage,
    AnalyticCall,
    AnalyticStage,
    Core,
    Input,
    LatestStage,
    MapStage,
    Output,
    Plan,
    RecursiveStage,
    Stage,
    body_of,
    inputs_of,
)
from strandline.jobs.model.stage_columns import hidden_columns, key_names, storage_of
from strandline.jobs.model.tables import ITSELF
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.sql.dialect import quote, sql_of
from strandline.jobs.sql.syntax import Explain

if TYPE_CHECKING:
    from strandline.jobs.model.definitions import Refresh


def explain(statement: Explain, catalog: Catalog) -> str:
    """The stages of a view, of a query that inserts into a stream, or of a SELECT as if it were a view.

    Tables have the names that they are stored under; above them stands what those are called otherwise.

    Raises:
        UnknownName: there is no such view.
        SqlError: the SELECT cannot be maintained; the message says why.
    """
    if statement.query is not None:
        made = plan_of_query("query", read_query(statement.query, catalog))
        text = _text("the query, as a view", made, "auto", maintenance=statement.maintenance)
        return "\n".join([*catalog.name_map.legend(made.inputs), text])
    assert statement.name is not None
    definition = catalog.get(statement.name)
    if isinstance(definition, Source) and definition.kind == "stream":
        log = f"its event log is written by ingest from the topic '{definition.topic}'"
        return "\n".join([*catalog.name_map.legend([definition.name]), _title(definition), f"  {log}"])
    refresh = definition.maintenance.refresh if isinstance(definition, View) else "auto"
    made = compiled(definition, catalog)
    named = [definition.name, *([definition.target] if isinstance(definition, InsertQuery) else []), *made.inputs]
    text = _text(_title(definition), made, refresh, maintenance=statement.maintenance)
    return "\n".join([*catalog.name_map.legend(named), text])


def _title(definition: Definition) -> str:
    if isinstance(definition, Source):
        return f"source {definition.kind} {quote(definition.name)} (pipeline '{definition.pipeline}')"
    what = f"query into {quote(definition.target)}" if isinstance(definition, InsertQuery) else definition.kind
    text = f"{what} {quote(definition.name)} (pipeline '{definition.pipeline}', fingerprint {definition.fingerprint})"
    return f"{text}\n  {definition.query}"


def _text(title: str, of: Plan, refresh: Refresh, *, maintenance: bool) -> str:
    lines = [title]
    for number, stage in enumerate(of.stages, 1):
        lines += ["", f"stage {number} of {len(of.stages)}: {rule(stage)}"]
        lines += [f"  {name:<9}{value}" for name, value in facts(stage, refresh)]
        if maintenance:
            text = maintenance_text(stage, engines_for(stage)[0])
            lines += ["", *(f"    {line}" for line in text.splitlines())]
            if isinstance(stage, RecursiveStage) and grows(stage):
                again = maintenance_text(stage, engines_for(stage)[0], None)
                lines += ["", "  where rows go", "", *(f"    {line}" for line in again.splitlines())]
            late = late_rows(stage, "spark", [each.alias for each in inputs_of(stage)])
            if late is not None:
                lines += ["", "  late rows are counted by", "", *(f"    {line}" for line in late.splitlines())]
            lines += ["", *(f"  {name:<9}{value}" for name, value in reading(stage))]
    lines += [f"\nnote: {note}" for note in of.notes]
    return "\n".join(lines)


# One stage in words: its rule, its inputs, its columns and calls, its table and its state.

Fact = tuple[str, str]
"""A line of the explanation: its label and its text."""


def reading(stage: Stage) -> Iterator[Fact]:
    """The lines about the relations of the rule's text: what is looked up of large ones, by which columns, and what is
    scanned, and why."""
    found = plan_lookups(stage, engine_of("duckdb"), {each.alias for each in inputs_of(stage)})
    asked: dict[str, list[str]] = {}
    for lookup in found.lookups:
        if lookup.relation not in found.scanned:
            asked.setdefault(lookup.relation, []).append(f"({', '.join(lookup.columns)})")
    for relation, columns in asked.items():
        yield "looks up", f"{quote(relation)} by {' and by '.join(dict.fromkeys(columns))}"
    for relation, why in found.scanned.items():
        yield "scans", f"{quote(relation)}: {why}"


def rule(stage: Stage) -> str:
    """The rule that maintains the stage, in one sentence."""
    match stage:
        case LatestStage() if stage.bag:
            return "a row for each that has come and not gone; of equal rows the oldest goes first"
        case LatestStage():
            return "the newest event of each key; a null value takes the row away"
        case AggregateStage() if stage.session is not None:
            return "the touched groups are cut into sessions again"
        case AggregateStage() if not stage.aggregates:
            return "distinct rows: a row is there while any of its copies is"
        case AggregateStage():
            return "changes are folded per group and merged with what the group's row keeps"
        case AnalyticStage():
            return f"{'the touched partitions are' if stage.partition else 'all rows are'} computed again"
        case RecursiveStage() if grows(stage):
            return "what follows from new rows is added; where rows go, all rounds of the recursion are computed again"
        case RecursiveStage():
            return "all rounds of the recursion are computed again, and compared with the stored rows"
        case MapStage():
            return _map_rule(stage)


def facts(stage: Stage, refresh: Refresh) -> Iterator[Fact]:
    """The lines about the stage's inputs, columns, calls, table, state and refresh."""
    body = body_of(stage)
    for number, core in enumerate(body, 1):
        if isinstance(stage, RecursiveStage):
            yield ("begins" if core in stage.seed else "follows"), ""
        elif len(body) > 1:
            yield f"branch {number}", ""
        yield from _core(core, with_columns=not isinstance(stage, LatestStage))
    yield from _top(stage)
    yield "writes", f"{quote(stage.table)} ({', '.join(_shown(stage))}), {_storage(stage)}"
    yield "key", _key(stage)
    yield "keeps", _state(stage)
    yield "refresh", in_words(stage, refresh)
    if isinstance(stage, RecursiveStage):
        yield "engine", "DuckDB: Spark has no recursion with UNION"
    else:
        yield "engine", f"DuckDB while up to {MOST_ROWS:,} rows may be read, beyond that Spark"
        yield "first", _first_refresh(stage)
    reason = why_not(stage)
    if reason is not None:
        yield "because", f"not incremental: {reason}"


def _first_refresh(stage: Stage) -> str:
    """Whether tasks can share the first refresh, and where their rows meet."""
    rule = spread_rule(stage, {each.relation.name: 0 for each in inputs_of(stage)})
    if rule is None:
        return "by one task, which has to see all rows"
    how = "Spark's tasks share it where it reads much"
    if rule.bucket is None:
        return f"{how}; each stores its rows"
    met = ", ".join(rule.meet)
    return f"{how}; rows meet by {met}" if met else f"{how}; all that they give meets in one"


def _map_rule(stage: MapStage) -> str:
    joins = any(len(core.inputs) > 1 for core in stage.body)
    if storage_of(stage) == "append":
        return f"new events are {'joined, ' if joins else ''}filtered and projected, and appended"
    if joins:
        return "changes of each input are joined with the others' rows, filtered and projected, by key"
    return "changed rows are filtered and projected, by key"


def _core(core: Core, *, with_columns: bool) -> Iterator[Fact]:
    if not core.inputs:
        yield "reads", "nothing: its rows are constants"
    for each in core.inputs:
        first = each is core.inputs[0]
        yield ("reads" if first else "", _input(each, joins=not (first and each.joins_nothing)))
    for items in core.expand:
        yield "repeats", f"each row for each {_output(items)}"
    if core.where is not None:
        yield "where", sql_of(core.where)
    if with_columns:
        yield "columns", ", ".join(_output(column) for column in core.columns)


def _input(each: Input, *, joins: bool) -> str:
    name = quote(each.alias if each.relation.name == ITSELF else each.relation.name)
    alias = f" AS {quote(each.alias)}" if each.alias != each.relation.name != ITSELF else ""
    text = f"{name}{alias} ({_input_rows(each)})"
    if not joins:
        return text
    on = f" ON {sql_of(each.on)}" if each.on is not None else ""
    found = bool(each.on is not None and equalities(each.on, each.alias))
    cost = "" if found or not each.relation.key else "; no equality: a changed row meets every row of the other side"
    return f"{JOIN_WORDS[each.join]} {text}{on}{cost}"


def _input_rows(each: Input) -> str:
    if each.relation.name == ITSELF:
        return "the rows of the round before"
    if each.as_of:
        return "as it was at the event's time"
    if each.frozen:
        return "as it is when the event comes"
    return "append-only" if each.relation.storage == "append" else "rows change and go"


def _top(stage: Stage) -> Iterator[Fact]:
    match stage:
        case AggregateStage():
            yield "groups", ", ".join(_output(group) for group in stage.group) or "one, of all rows"
            if stage.session is not None:
                grace = f", late after {stage.session.grace} ms" if stage.session.grace is not None else ""
                yield "sessions", f"rows of a group no further apart than {stage.session.gap} ms{grace}"
            for call in stage.aggregates:
                yield "call", _call(call, stage)
        case AnalyticStage():
            yield "parts", ", ".join(_output(each) for each in stage.partition) or "one, of all rows"
            for over in stage.calls:
                yield "call", _over(over)
            if stage.keep is not None:
                yield "keeps if", sql_of(stage.keep)
        case RecursiveStage():
            yield "rounds", f"at most {stage.levels:,}" if stage.levels is not None else "until nothing new comes"
        case _:
            return


def _output(output: Output) -> str:
    if isinstance(output.expression, exp.Column) and output.expression.name == output.name:
        return sql_of(output.expression)
    return f"{sql_of(output.expression)} AS {quote(output.name)}"


def _call(call: AggregateCall, stage: AggregateStage) -> str:
    arguments = ", ".join([*(sql_of(a) for a in call.arguments), *(str(p) for p in call.parameters)]) or "*"
    distinct = "DISTINCT " if call.distinct else ""
    chosen = f" FILTER (WHERE {sql_of(call.filter)})" if call.filter is not None else ""
    if stage.session is not None:
        way = "computed again for touched groups"
    elif not function_of(call).kept:
        way = "made of all values of a touched group"
    elif call in recomputed(stage):
        way = "a group that loses the row which decided it is computed again"
    else:
        way = "merged"
    return f"{call.name} = {call.function}({distinct}{arguments}){chosen} {call.type}, {way}"


def _over(call: AnalyticCall) -> str:
    arguments = ", ".join(sql_of(each) for each in call.arguments)
    order = ", ".join(
        f"{sql_of(each)}{' DESC' if down else ''}{' NULLS FIRST' if nulls else ''}" for each, down, nulls in call.order
    )
    exclude = f"EXCLUDE {call.exclude}" if isinstance(call, AggregateFramed) and call.exclude else ""
    inside = " ".join(part for part in (f"ORDER BY {order}" if order else "", call.frame or "", exclude) if part)
    return f"{call.name} = {call.function}({arguments}) OVER ({inside}) {call.type}"


def _shown(stage: Stage) -> list[str]:
    if isinstance(stage, MapStage):
        return [quote(name) for name in stage.visible]
    return [_output(output) for output in stage.outputs]


def _storage(stage: Stage) -> str:
    return "append-only" if storage_of(stage) == "append" else "by key"


def _key(stage: Stage) -> str:
    hidden = {name for name, _ in hidden_columns(stage)}
    names = [f"{quote(name)} (hidden)" if name in hidden else quote(name) for name in key_names(stage)]
    return ", ".join(names) or "none"


def _state(stage: Stage) -> str:
    kept = state_type(stage)
    return f"__state {kept}" if kept is not None else "nothing beside its rows"
