"""EXPLAIN: how a view is maintained, in words; EXPLAIN MAINTENANCE adds the SQL that does it. Starts no JVM."""

from __future__ import annotations

from sqlglot import exp

from jobs.ivm.stage import AggregateCall, AggregateStage, LatestStage, MapStage, Output, Plan, Stage
from jobs.sql.catalog import Catalog
from jobs.sql.dialect import quote, sql_of
from jobs.sql.model import Definition, InsertQuery, Source
from jobs.sql.plan import plan, plan_of_query
from jobs.sql.query import read_query
from jobs.sql.syntax import Explain


def explain(statement: Explain, catalog: Catalog) -> str:
    """The stages of a view, of a query that inserts into a stream, or of a SELECT as if it were a view.

    Raises:
        UnknownName: there is no such view.
        SqlError: the SELECT cannot be maintained; the message says why.
    """
    if statement.query is not None:
        title = "the query, as a view"
        return _text(title, plan_of_query("query", read_query(statement.query, catalog)), statement.maintenance)
    assert statement.name is not None
    definition = catalog.get(statement.name)
    if isinstance(definition, Source) and definition.kind == "stream":
        return f"{_title(definition)}\n  its event log is written by ingest from the topic '{definition.topic}'"
    return _text(_title(definition), plan(definition, catalog), statement.maintenance)


def _title(definition: Definition) -> str:
    if isinstance(definition, Source):
        return f"source {definition.kind} {quote(definition.name)} (pipeline '{definition.pipeline}')"
    what = f"query into {quote(definition.target)}" if isinstance(definition, InsertQuery) else definition.kind
    text = f"{what} {quote(definition.name)} (pipeline '{definition.pipeline}', fingerprint {definition.fingerprint})"
    return f"{text}\n  {definition.query}"


def _text(title: str, of: Plan, maintenance: bool) -> str:
    lines = [title]
    for number, stage in enumerate(of.stages, 1):
        lines += ["", f"stage {number} of {len(of.stages)}: {_rule(stage)}"]
        lines += [f"  {name:<8}{value}" for name, value in _facts(stage)]
        if maintenance:
            lines += ["", *(f"    {line}" for line in _maintenance(stage).splitlines())]
    lines += [f"\nnote: {note}" for note in of.notes]
    return "\n".join(lines)


def _rule(stage: Stage) -> str:
    match stage:
        case LatestStage():
            return "the newest event of each key; a null value takes the row away"
        case AggregateStage():
            return "changes are folded per group and merged with what the group's row keeps"
        case MapStage() if stage.input.kind == "append":
            return "new events are filtered and projected, and appended"
        case MapStage():
            return "changed rows are filtered and projected, by key"


def _facts(stage: Stage) -> list[tuple[str, str]]:
    """(name, value) lines: what the stage reads, does, and keeps."""
    facts = [("reads", f"{quote(stage.input.name)} ({_kind(stage)})")]
    if not isinstance(stage, LatestStage) and stage.where is not None:
        facts.append(("where", sql_of(stage.where)))
    if isinstance(stage, AggregateStage):
        facts.append(("groups", ", ".join(_output(key) for key in stage.group) or "one, of all rows"))
        facts += [("call", f"{call.name} = {_call(call)}") for call in stage.aggregates]
    facts.append(("writes", f"{quote(stage.table)} ({', '.join(_output(o) for o in stage.outputs)})"))
    facts.append(("key", ", ".join(_keys(stage)) or "none"))
    facts.append(("keeps", _state(stage)))
    return facts


def _kind(stage: Stage) -> str:
    return "append-only" if stage.input.kind == "append" else "rows change and go"


def _output(output: Output) -> str:
    if isinstance(output.expression, exp.Column) and output.expression.name == output.name:
        return quote(output.name)
    return f"{sql_of(output.expression)} AS {quote(output.name)}"


def _call(call: AggregateCall) -> str:
    from jobs.ivm.aggregates import FUNCTIONS

    arguments = ", ".join([*(sql_of(a) for a in call.arguments), *(str(p) for p in call.parameters)]) or "*"
    chosen = f" FILTER (WHERE {sql_of(call.filter)})" if call.filter is not None else ""
    way = "takes values back" if FUNCTIONS[call.function].retractable else "for append-only inputs"
    return f"{call.function}({arguments}){chosen} {call.type}, {way}"


def _keys(stage: Stage) -> list[str]:
    hidden = stage.hidden_key if isinstance(stage, MapStage) else ()
    names = [quote(name) for name in stage.key]
    return names + [f"{_output(key)} (hidden)" for key in hidden if key.name not in stage.key]


def _state(stage: Stage) -> str:
    from jobs.ivm.storage import state_type

    kept = state_type(stage)
    return f"__state {kept}" if kept is not None else "nothing beside its rows"


def _maintenance(stage: Stage) -> str:
    from jobs.ivm.rules import maintenance

    return maintenance(stage, "spark")
