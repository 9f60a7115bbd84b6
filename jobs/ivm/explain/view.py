"""EXPLAIN: the stages of a view in words; EXPLAIN MAINTENANCE adds the SQL that maintains them. Starts no JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.explain.stage import facts, rule
from strandline.jobs.ivm.plan.plan import plan, plan_of_query
from strandline.jobs.ivm.rules.maintenance import late_rows
from strandline.jobs.ivm.rules.maintenance import maintenance as maintenance_text
from strandline.jobs.model.definitions import Definition, InsertQuery, Source, View
from strandline.jobs.model.stage import Plan, inputs_of
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.sql.dialect import quote
from strandline.jobs.sql.syntax import Explain

if TYPE_CHECKING:
    from strandline.jobs.model.options import Refresh


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
    made = plan(definition, catalog)
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
            lines += ["", *(f"    {line}" for line in maintenance_text(stage, "spark").splitlines())]
            late = late_rows(stage, "spark", [each.alias for each in inputs_of(stage)])
            if late is not None:
                lines += ["", "  late rows are counted by", "", *(f"    {line}" for line in late.splitlines())]
    lines += [f"\nnote: {note}" for note in of.notes]
    return "\n".join(lines)
