"""CREATE … AS SELECT: the view that it makes, with its kind (stream or table) and its storage, its changelog topic, or
as a partial view; and CREATE VIEW.

The bounds of a view's windows are among its columns.

    SELECT k, COUNT(*) AS c FROM s WINDOW … GROUP BY k
    SELECT k, windowstart, windowend, COUNT(*) AS c FROM s WINDOW … GROUP BY k

Two rows of one key differ only in their windows: so every reader sees which window a row is of, as in ksqlDB. It is the
text of the definition that says so: a view of an older lake keeps the columns that it has.

The checks of a view's changelog topic: that its records can tell the rows apart and hold them, and that no other
definition writes to it or, on the way to the view, reads from it.

The checks of a partial view: what its other options may say, and that it can be read by key.

CREATE VIEW without MATERIALIZED: a name for a query, checked as whatever reads it will read it.

As in Materialize: nothing is stored; one that something reads is neither dropped nor replaced; `*` stands for the
columns that there are when the view is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.plain_views import expanded_query, names_in
from strandline.jobs.engines.engine import engine_of
from strandline.jobs.functions.aggregates.of_values import LEVEL
from strandline.jobs.ingest.formats.format import check_source
from strandline.jobs.ivm.plan.plan import check_errors, check_incremental, plan_of_query, with_rowtime
from strandline.jobs.ivm.rules.maintenance import check_written, engines_for, maintenance
from strandline.jobs.ivm.rules.stored import reads_values
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import (
    OWNERSHIP_OPTIONS,
    Column,
    InsertQuery,
    Ownership,
    PlainView,
    Semantics,
    Source,
    View,
    ViewOptions,
)
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, SqlError
from strandline.jobs.model.stage import Plan
from strandline.jobs.model.stage_columns import relation_of
from strandline.jobs.model.tables import META_COLUMNS, Relation
from strandline.jobs.model.types import BaseType
from strandline.jobs.publish.topic import hidden_keys, published, published_views, topic_as_source
from strandline.jobs.query.clauses.ksql import check_projection
from strandline.jobs.query.clauses.quarantine import guarded_query
from strandline.jobs.query.clauses.read import query_of, read_pull, read_query
from strandline.jobs.query.expressions.scope import column
from strandline.jobs.query.inputs import BOUNDS
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
from strandline.jobs.session.define.options import check_columns, error, has_odd_map, timestamp_column
from strandline.jobs.session.define.source import check_name
from strandline.jobs.session.define.view_options import (
    RETENTION,
    RETENTION_MS,
    check_columns_of,
    check_formats,
    check_quarantine,
    view_options,
)
from strandline.jobs.sql.dialect import quote, sql_of
from strandline.jobs.sql.from_text import parse_query
from strandline.jobs.sql.syntax import CreateView
from strandline.jobs.sql.trees import identifier
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from strandline.jobs.model.types import SqlType
    from strandline.jobs.sql.syntax import Option


def view_of(statement: CreateView, catalog: Catalog, pipeline: str, *, prefixed: bool = False) -> View:
    """The view that a statement declares.

    Args:
        prefixed: as of `read_query`.

    Raises:
        SqlError: with line and column of the fault, where they are known.
    """
    check_name(statement.name)
    options = view_options(statement.options)
    _check_options(statement.options)
    semantics = ViewOptions.read(options).semantics
    tree, query = _read(statement, semantics, catalog, prefixed=prefixed)
    _note_rowtime(statement, query, options)
    if RETENTION in options:
        tree = _with_retention(statement, tree, query, options)
        query = read_query(tree, catalog, semantics=semantics, prefixed=prefixed)
    query = guarded_query(query, Ownership.read(options).quarantined)
    made = _planned(statement.name, query, options, pipeline)
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
    _check_changelog_topic(view, catalog)
    if view.partial:
        _check_partial(view, catalog)
    return view


def _planned(name: str, query: Query, options: Mapping[str, str], pipeline: str) -> Plan:
    """The plan of the view, checked against what its options ask of it."""
    maintenance = ViewOptions.read(options)
    made = plan_of_query(
        name, query, maintenance.semantics, maintenance.state, pipeline=pipeline, errors=maintenance.errors
    )
    made = with_rowtime(made, maintenance)
    if maintenance.refresh == "incremental":
        check_incremental(made)
    if "ERRORS" in options:  # what only follows from SEMANTICS = 'ksql' gives way to what the views share
        check_errors(made, maintenance.errors)
    check_rules(made)
    return made


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
    tree = _with_bounds(statement.query, query)
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


def _with_retention(statement: CreateView, tree: exp.Query, query: Query, options: Mapping[str, str]) -> exp.Query:
    """The tree of a view's query, whose rows leave when the lake's clock says that they are older than RETENTION.

    Raises:
        NotSupported: the rows of CREATE STREAM and TABLE go to a topic, and do not leave by the clock.
        OptionRefused: no column says how old a row is.
    """
    given = {option.name: option for option in statement.options}
    option = given.get(RETENTION) or given[RETENTION_MS]
    if statement.kind is not None:
        what = f"{option.name} in CREATE STREAM or TABLE is not supported: rows leave by the clock"
        raise error(NotSupported, option, what, "CREATE MATERIALIZED VIEW … AS")
    types = dict(outputs_of(query))
    name = options.get("TIMESTAMP") or next((each.name for each in reversed(BOUNDS) if each.name in types), None)
    if name is None:
        what = f"{option.name} needs the column that says how old a row is"
        raise error(OptionRefused, option, what, "TIMESTAMP = 'the column', BIGINT milliseconds or TIMESTAMP")
    time = quote(name)
    if types[name].base is BaseType.BIGINT:
        time = f"FROM_UNIXTIME({time})"
    elif types[name].base is BaseType.VARCHAR:
        time = f"PARSE_TIMESTAMP({time}, {_literal(options['TIMESTAMP_FORMAT'])})"
    columns = ", ".join(map(quote, types))
    length = _literal(options[RETENTION])
    return parse_query(f"SELECT {columns} FROM ({sql_of(tree)}) WHERE {time} > NOW() - INTERVAL {length}")


def _literal(text: str) -> str:
    return sql_of(exp.Literal.string(text))


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


def _with_bounds(tree: exp.Query, query: Query) -> exp.Query:
    """The tree of a view's query with the bounds that it does not select, after its group columns.

    Args:
        query: what the tree means.
    """
    if not isinstance(query, Block) or query.window is None or query.distinct or not isinstance(tree, exp.Select):
        return tree
    read = {output.expression.name for output in query.outputs if isinstance(output.expression, exp.Column)}
    taken = {output.name for output in query.outputs}
    missing = [bound.name for bound in BOUNDS if bound.name not in read and bound.name not in taken]
    first = {key.name for key in query.group or ()} | {bound.name for bound in BOUNDS}
    last = max((place for place, output in enumerate(query.outputs, 1) if output.name in first), default=0)
    # A star stands for several columns: after it there is no telling which item is which.
    place = last if len(tree.expressions) == len(query.outputs) else len(tree.expressions)
    made = tree.copy()
    made.set("expressions", [*made.expressions[:place], *(column(name) for name in missing), *made.expressions[place:]])
    return made if missing else tree


def _check_changelog_topic(view: View, catalog: Catalog) -> None:
    """Check the changelog topic of a view, if it has one.

    Raises:
        InvalidQuery: a column that tells rows apart is not visible, or a format cannot hold a column.
        OptionRefused: another view has the topic, or the view is computed from it.
        NotSupported: there is no such format.
    """
    if not published(view):
        return
    source = topic_as_source(view)
    if hidden_keys(view):
        raise InvalidQuery(
            sentence("'{}' cannot be published: what tells its rows apart is not among its columns", Name(view.name)),
            hint="select every expression of GROUP BY, or the keys of what is read; or leave KAFKA_TOPIC out",
        )
    check_columns("key", source.key_format, [column for column in source.columns if column.key])
    check_columns("value", source.value_format, [column for column in source.columns if not column.key])
    check_source(source)
    _check_alone(view, source.topic, catalog)


def _check_alone(view: View, topic: str, catalog: Catalog) -> None:
    others = (each for each in published_views(catalog.definitions()) if each.name != view.name)
    other = next((each for each in others if topic_as_source(each).topic == topic), None)
    if other is not None:
        raise OptionRefused(
            sentence("the topic '{}' is that of the view '{}'", topic, Name(other.name)),
            hint="a changelog topic has one view",
        )
    if topic in _topics_below(view, catalog):
        raise OptionRefused(
            sentence("'{}' is computed from the topic '{}', and cannot be published to it", Name(view.name), topic),
            hint="name a topic of its own: KAFKA_TOPIC = '…'",
        )


def _topics_below(view: View, catalog: Catalog) -> set[str]:
    """The topics of the sources that a view is computed from."""
    topics: set[str] = set()
    waiting, seen = [*view.inputs], {view.name}
    while waiting:
        name = waiting.pop()
        found = catalog.find(name)
        if found is None or name in seen:
            continue
        seen.add(name)
        if isinstance(found, Source):
            topics.add(found.topic)
        else:
            waiting += found.inputs
        if not isinstance(found, InsertQuery):
            waiting += [each.name for each in catalog.insert_queries(name)]
    return topics


_WHY_NOT = {
    "REFRESH": "nothing is refreshed",
    "ERRORS": "a row on which an expression fails makes the reading of its key fail",
    "SEMANTICS": "a group that once existed is known to a stored view alone",
}
"""Options that only a stored view obeys. Any other that is not about its ownership belongs to its changelog topic."""
_OBEYED = ("STATE", "CACHE_BYTES", *OWNERSHIP_OPTIONS)


def _check_options(options: Sequence[Option]) -> None:
    """Check the options of a view that depend on its STATE.

    Raises:
        OptionRefused: one has no meaning for a partial view, or CACHE_BYTES for a view that is stored.
    """
    given = {option.name: option for option in options}
    state = given.get("STATE")
    if state is None or state.value.lower() != "partial":
        if "CACHE_BYTES" in given:
            raise error(
                OptionRefused, given["CACHE_BYTES"], "CACHE_BYTES is for partial views", "add STATE = 'partial'"
            )
        return
    for name, option in given.items():
        if name in _OBEYED or (name == "SEMANTICS" and option.value.lower() == "sql"):
            continue
        why = _WHY_NOT.get(name, "it has no changelog")
        raise error(OptionRefused, option, f"{name} is not for partial views: {why}", f"leave {name} or STATE out")


def _check_partial(view: View, catalog: Catalog) -> None:
    """Check that the rows of a view can be computed key by key.

    Raises:
        InvalidQuery: it is a stream, it has no visible key, or no column of its key selects rows of its inputs.
        NotSupported: what a key has depends on all other rows, or DuckDB has no function for one of its aggregates.
    """
    if view.storage == "append" or view.kind == "stream":
        raise InvalidQuery(
            sentence("'{}' is a stream: its rows are events, and have no key to be read by", Name(view.name)),
            hint="leave STATE = 'partial' out, or add GROUP BY",
        )
    if _final(query_of(view, catalog)):
        raise NotSupported(
            sentence(
                "'{}' cannot be partial: EMIT FINAL shows a window once the events of all keys are past it",
                Name(view.name),
            ),
            hint="leave EMIT FINAL or STATE = 'partial' out",
        )
    # Late: what reads tables need not be loaded for all other definitions.
    from strandline.jobs.partial.plan import partial_plan

    partial_plan(view, catalog)


def _final(query: Query) -> bool:
    """True if a window of the query, or of a subquery, is shown once it is closed."""
    if not isinstance(query, Block):
        return any(_final(branch) for branch in query.branches)
    own = query.window is not None and query.window.final
    return own or any(_final(part.source) for part in query.inputs if not isinstance(part.source, Relation))


def plain_view_of(statement: CreateView, catalog: Catalog, pipeline: str) -> PlainView:
    """The plain view that a statement declares.

    Raises:
        InvalidQuery: the name cannot be one, it reads itself, or it says EMIT.
        OptionRefused: it has options, which say how rows are kept.
        SqlError: its query can be read neither by a view nor by a pull query.
    """
    check_name(statement.name)
    if statement.options:
        option = statement.options[0]
        what = f"{option.name} is for views whose rows are kept"
        raise error(OptionRefused, option, what, f"CREATE MATERIALIZED VIEW {statement.name} …")
    if statement.emit is not None:
        raise InvalidQuery("a plain view has no EMIT: what reads it says when", hint="leave EMIT out")
    if statement.name in names_in(statement.query):
        raise InvalidQuery(f"'{statement.name}' reads itself")
    columns = tuple(Column(name, sql_type) for name, sql_type in _columns(statement.query, catalog))
    query = statement.query
    if any(each.is_star for select in query.find_all(exp.Select) for each in select.expressions):
        query = _naming(columns, query, statement.name)
    return PlainView(statement.name, columns, sql_of(query), names_in(query), pipeline, statement.sql)


def _columns(query: exp.Query, catalog: Catalog) -> tuple[tuple[str, SqlType], ...]:
    """The columns of a query that a view can maintain or, where none can, that a pull query can answer."""
    whole = expanded_query(query, catalog.plain)
    try:
        return tuple(outputs_of(read_query(whole, catalog)))
    except SqlError as refused:
        try:
            return tuple(outputs_of(read_pull(whole, catalog).query))
        except SqlError:
            raise refused from None


def _naming(columns: tuple[Column, ...], query: exp.Query, name: str) -> exp.Query:
    """A query of these columns alone: one that the relation gets later is not among those of `*`."""
    names = [exp.column(identifier(column.name)) for column in columns]
    alias = exp.TableAlias(this=identifier(name))
    return exp.Select(expressions=names).from_(exp.Subquery(this=query.copy(), alias=alias))
