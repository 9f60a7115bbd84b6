"""CREATE … AS SELECT: the view that it makes, with its kind (stream or table) and its storage."""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.engines.engine import engine_of
from strandline.jobs.functions.aggregates.of_values import LEVEL
from strandline.jobs.ivm.plan.plan import check_errors, check_incremental, plan_of_query, with_rowtime
from strandline.jobs.ivm.rules.maintenance import check_written, engines_for, maintenance
from strandline.jobs.ivm.rules.stored import reads_values
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Column, InsertQuery, Source, View
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.options import Ownership, Semantics, ViewOptions
from strandline.jobs.model.relation import META_COLUMNS, Relation
from strandline.jobs.model.stage import Plan
from strandline.jobs.model.stage_columns import relation_of
from strandline.jobs.query.clauses.ksql import check_projection
from strandline.jobs.query.clauses.quarantine import guarded_query
from strandline.jobs.query.clauses.read import read_query
from strandline.jobs.query.logical import (
    Block,
    From,
    Query,
    Recursion,
    SetOperation,
    fingerprint,
    grows_by_groups,
    outputs_of,
    relations_of,
)
from strandline.jobs.session.define.changelog_topic import check_changelog_topic
from strandline.jobs.session.define.options import has_odd_map, timestamp_column
from strandline.jobs.session.define.ownership import check_columns_of
from strandline.jobs.session.define.partial import check_options, check_partial
from strandline.jobs.session.define.quarantine import check_quarantine
from strandline.jobs.session.define.shown_windows import with_bounds
from strandline.jobs.session.define.source import check_name
from strandline.jobs.session.define.view_options import check_formats, view_options
from strandline.jobs.sql.dialect import quote, sql_of
from strandline.jobs.sql.syntax import CreateView
from strandline.state_store.wording import Name, sentence


def view_of(statement: CreateView, catalog: Catalog, pipeline: str, *, prefixed: bool = False) -> View:
    """The view that a statement declares.

    Args:
        prefixed: as of `read_query`.

    Raises:
        SqlError: with line and column of the fault, where they are known.
    """
    check_name(statement.name)
    options = view_options(statement.options)
    check_options(statement.options)
    semantics = ViewOptions.read(options).semantics
    tree, query = _read(statement, semantics, catalog, prefixed=prefixed)
    query = guarded_query(query, Ownership.read(options).quarantined)
    _note_rowtime(statement, query, options)
    maintenance = ViewOptions.read(options)
    made = plan_of_query(
        statement.name, query, semantics, maintenance.state, pipeline=pipeline, errors=maintenance.errors
    )
    made = with_rowtime(made, maintenance)
    if maintenance.refresh == "incremental":
        check_incremental(made)
    if "ERRORS" in options:  # what only follows from SEMANTICS = 'ksql' gives way to what the views share
        check_errors(made, maintenance.errors)
    check_rules(made)
    stored = relation_of(made.stages[-1])
    meta = {name for name, _ in META_COLUMNS} if stored.storage == "append" else set()
    columns = tuple(Column(name, sql_type, name in query.key) for name, sql_type in stored.columns if name not in meta)
    check_formats(options, columns)
    check_columns_of(options, columns)
    view = View(
        name=statement.name,
        kind=statement.kind or ("stream" if stored.storage == "append" else "table"),
        columns=columns,
        query=sql_of(tree),
        inputs=inputs_of(query, catalog),
        pipeline=pipeline,
        sql=statement.sql,
        fingerprint=fingerprint(query, semantics),
        materialized=statement.materialized,
        options=options,
        storage=stored.storage,
        hidden=tuple(Column(name, sql_type) for name, sql_type in stored.hidden),
        row_key=stored.key,
        identity=stored.identity,
        by_value=LEVEL if any(map(reads_values, made.stages)) else View.by_value,
        plain_stars=statement.kind is None and not prefixed and has_stars(tree),
    )
    check_quarantine(view, catalog)
    check_changelog_topic(view, catalog)
    if view.partial:
        check_partial(view, catalog)
    return view


def check_new(statement: CreateView, view: View, catalog: Catalog) -> None:
    """Check a view that is not there yet against what ksqlDB refuses in its statements.

    Raises:
        InvalidQuery, TypeMismatch
    """
    if statement.kind is None:
        return
    read_query(statement.query, catalog, semantics=view.maintenance.semantics, kind=statement.kind, strict=True)
    clause = statement.query.args.get("partition_by")
    keyless = clause is not None and isinstance(clause.expressions[0], exp.Null)
    if keyless and view.options.get("KEY_FORMAT", "NONE").upper() != "NONE":
        raise InvalidQuery("PARTITION BY NULL leaves no key for KEY_FORMAT to write", hint="leave KEY_FORMAT out")
    odd = next((column for column in view.columns if has_odd_map(column.type)), None)
    if odd is not None:
        raise InvalidQuery(
            f"column '{odd.name}' is {odd.type}: records have MAPs with VARCHAR keys only",
            hint="CAST the keys; CREATE MATERIALIZED VIEW … AS takes it",
        )


def has_stars(tree: exp.Expr) -> bool:
    """True if a `*` in it may stand for the columns of a join."""
    return tree.find(exp.Join, exp.Lateral) is not None and any(
        not isinstance(each.parent, exp.Anonymous) for each in tree.find_all(exp.Star)
    )


def _read(statement: CreateView, semantics: Semantics, catalog: Catalog, *, prefixed: bool) -> tuple[exp.Query, Query]:
    """The tree of a view's query, with the bounds of its windows among the columns, and what it means."""
    query = read_query(statement.query, catalog, semantics=semantics, kind=statement.kind, prefixed=prefixed)
    tree = with_bounds(statement.query, query)
    if tree is not statement.query:
        query = read_query(tree, catalog, semantics=semantics, kind=statement.kind, prefixed=prefixed)
    _check_kind(statement, query, catalog)
    if statement.kind is not None:
        check_projection(query, statement.kind)
    return tree, query


def check_rules(made: Plan) -> None:
    """Write the rules of both engines: what cannot be maintained is refused now, and not by the first refresh.

    Raises:
        NotSupported: no rule can maintain a stage.
        ConditionLost: a rule's text would lack a condition of the query.
    """
    for stage in made.stages:
        for dialect in engines_for(stage):
            check_written(made.view, stage, maintenance(stage, dialect), engine_of(dialect))


def _note_rowtime(statement: CreateView, query: Query, options: dict[str, str]) -> None:
    """Check that TIMESTAMP names a column of the view, and put its name into the options."""
    given = {option.name: option for option in statement.options}
    name = timestamp_column(given, tuple(Column(name, sql_type) for name, sql_type in outputs_of(query)))
    if name is not None:
        options["TIMESTAMP"] = name


def inputs_of(query: Query, catalog: Catalog) -> tuple[str, ...]:
    """The names of the definitions that a query reads; an event log counts as its table."""
    names = {tables.event_log(each): each.name for each in catalog.definitions() if isinstance(each, Source)}
    found = (relation.name for relation in relations_of(query))
    return tuple(dict.fromkeys(name if catalog.find(name) else names[name] for name in found))


def makes_stream(query: Query, catalog: Catalog) -> bool:
    """True if each row is made of one or several events: no groups, and no table whose changes are followed."""
    if isinstance(query, Recursion):
        return False
    if isinstance(query, SetOperation):
        return query.operation == "union all" and all(makes_stream(branch, catalog) for branch in query.branches)
    return bool(query.inputs) and not grows_by_groups(query) and all(_is_stream(each, catalog) for each in query.inputs)


def _is_stream(each: From, catalog: Catalog) -> bool:
    if each.frozen:
        return True
    if not isinstance(each.source, Relation):
        return makes_stream(each.source, catalog)
    found = catalog.find(each.source.name)
    return found is not None and not isinstance(found, InsertQuery) and found.kind == "stream"


def _check_kind(statement: CreateView, query: Query, catalog: Catalog) -> None:
    """Refuse CREATE TABLE for a stream and CREATE STREAM for a table (InvalidQuery)."""
    if statement.kind is None:
        return
    name, stream = statement.name, makes_stream(query, catalog)
    grouped = isinstance(query, Block) and grows_by_groups(query)
    if statement.kind == "stream" and not stream:
        tables = [each for each in inputs_of(query, catalog) if _is_table(each, catalog)]
        what = (
            sentence("'{}' aggregates", Name(name))
            if grouped or not tables
            else sentence("'{}' is a table", Name(tables[0]))
        )
        raise InvalidQuery(
            sentence("{}: its rows change, so '{}' is a table", what, Name(name)),
            hint=sentence("CREATE TABLE {} AS …", Name(name, quote)),
        )
    if statement.kind == "table" and stream:
        source = inputs_of(query, catalog)[0]
        raise InvalidQuery(
            sentence(
                "'{}' is a stream, and the query neither groups nor aggregates: '{}' is a stream",
                Name(source),
                Name(name),
            ),
            hint=sentence("CREATE STREAM {} AS …, or add GROUP BY", Name(name, quote)),
        )


def _is_table(name: str, catalog: Catalog) -> bool:
    found = catalog.get(name)
    return not isinstance(found, InsertQuery) and found.kind == "table"
