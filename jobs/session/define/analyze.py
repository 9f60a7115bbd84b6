"""Analysis of CREATE and INSERT INTO … SELECT: the checked definition, new or the one in the catalog.

Constants that fail for every row, as `1 / 0` or `CAST('x' AS INT)`, are refused here, not by the first refresh: only
where they are computed for each row whatever it holds: what stands in a branch of CASE, or beside an AND, may be there
for rows that never come.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.functions.failing import can_fail, failing
from strandline.jobs.functions.render import lower
from strandline.jobs.model.definitions import TICK, Definition, Source, View, gives_the_same_rows, same
from strandline.jobs.model.errors import InvalidQuery, NameInUse, NameTaken, NotSupported, SqlError
from strandline.jobs.model.tables import Relation
from strandline.jobs.query.clock import clock_of
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Scope
from strandline.jobs.session.define.insert import insert_query_of
from strandline.jobs.session.define.replaced import check_replacement, reads_the_same
from strandline.jobs.session.define.source import (
    SourceDiff,
    altered,
    broken_by,
    check_new_columns,
    extended,
    extends,
    source_of,
)
from strandline.jobs.session.define.view import check_new, has_stars, view_of
from strandline.jobs.sql.dialect import position_of, quote, sql_of
from strandline.jobs.sql.size import too_deep
from strandline.jobs.sql.syntax import AlterSource, CreateSource, CreateView, InsertSelect
from strandline.state_store.duckdb import elementary
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator


Defining = CreateSource | CreateView | InsertSelect | AlterSource


def define(statement: Defining, catalog: Catalog, pipeline: str) -> Definition:
    """Check a statement and make its definition. The catalog is not changed.

    If the same is defined already, the definition in the catalog is returned.

    Args:
        pipeline: the pipeline of a new definition; an existing one keeps its own.

    Raises:
        SqlError: the statement is refused; with line and column of the fault, or else of the statement.
    """
    try:
        return _defined(statement, catalog, pipeline)
    except SqlError as error:
        error.placed(statement.line, statement.column)
        raise
    except RecursionError as error:
        raise too_deep(statement.line, statement.column) from error


def _means_the_same(existing: Definition, made: Source | View, catalog: Catalog) -> bool:
    """True if two definitions of a view differ only since an input of theirs has got further columns in between."""
    if not isinstance(existing, View) or not isinstance(made, View):
        return False
    alike = same(replace(existing, fingerprint=made.fingerprint), made)
    return alike and reads_the_same(existing, made.fingerprint, catalog)


def _as_registered(existing: View, statement: CreateView, catalog: Catalog) -> Definition | None:
    """The view that a statement leaves which means the same as when it was registered, before its inputs were given
    further columns; None where it means something else."""
    if not existing.columns_seen:
        return None
    try:
        prefixed = not existing.plain_stars
        made = view_of(statement, catalog.as_seen_by(existing), existing.pipeline, prefixed=prefixed)
    except SqlError:
        return None
    if same(existing, made):
        return existing
    kept = replace(_as_made(made, existing), columns_seen=existing.columns_seen)
    return kept if gives_the_same_rows(existing, made) else None


def _as_made(made: View, existing: View) -> View:
    """The view with what only says how the existing one was made."""
    return replace(made, first_stage=existing.first_stage, by_value=existing.by_value, plain_stars=existing.plain_stars)


def _defined(statement: Defining, catalog: Catalog, pipeline: str) -> Definition:
    if isinstance(statement, AlterSource):
        return altered(statement, catalog)
    if isinstance(statement, InsertSelect):
        query = insert_query_of(statement, catalog)
        _check_constants(statement.query)
        return query
    # A definition whose file is broken is registered again, as a new one.
    existing = None if statement.name in catalog.broken else catalog.find(statement.name)
    _check_source(statement, existing)
    if existing is None:
        catalog.name_map.check_new(statement.name, catalog.names())
    if existing is not None and statement.if_not_exists:
        return existing
    if isinstance(existing, View) and isinstance(statement, CreateView):
        registered = _as_registered(existing, statement, catalog)
        if registered is not None and not (statement.or_replace and _gets_columns(existing, statement, catalog)):
            return registered
    made = (
        source_of(statement, pipeline)
        if isinstance(statement, CreateSource)
        else _view(statement, existing, catalog, pipeline)
    )
    if existing is None:
        _check_new(statement, made, catalog)
        return made
    return _redefined(existing, made, statement, catalog)


def _view(statement: CreateView, existing: Definition | None, catalog: Catalog, pipeline: str) -> View:
    """The view of a statement; one that is there and was made before `*` over joins had the columns' own names goes on
    with those that it has."""
    if isinstance(existing, View) and not existing.plain_stars and has_stars(statement.query):
        try:
            before = view_of(statement, catalog, pipeline, prefixed=True)
        except SqlError:
            return view_of(statement, catalog, pipeline)
        if gives_the_same_rows(existing, before) or _means_the_same(existing, before, catalog):
            return before
    return view_of(statement, catalog, pipeline)


def _check_new(statement: CreateSource | CreateView, made: Source | View, catalog: Catalog) -> None:
    """Check what is asked of new definitions alone: a file with those that are there is applied again as it is."""
    if isinstance(statement, CreateSource):
        check_new_columns(statement.columns)
        _check_only_clock(made, catalog)
    elif isinstance(made, View):
        check_new(statement, made, catalog)
        if made.maintenance.errors != "null":
            _check_constants(statement.query)


def _check_only_clock(made: Source | View, catalog: Catalog) -> None:
    """Check that a table with ticks is the only one: NOW() in a view means one time.

    Raises:
        InvalidQuery: there is another, or the statement says that others write its topic.
    """
    if not isinstance(made, Source) or TICK not in made.options:
        return
    known = clock_of(catalog)
    if known is not None:
        hint = "one clock serves all views of a lake"
        raise InvalidQuery(sentence("'{}' is the clock of this lake", Name(known.name)), hint=hint)
    if made.read_only:
        raise InvalidQuery(
            sentence("'{}' is a SOURCE: nothing of ours writes it, so it has no TICK_EVERY", Name(made.name)),
            hint="CREATE TABLE",
        )


def _gets_columns(existing: View, statement: CreateView, catalog: Catalog) -> bool:
    """True if the statement, read today, gives other columns than the view has, as one with `*` may.

    Raises:
        NotSupported, NameInUse: it does, and they cannot take the place of those that the view has.
    """
    try:
        made = view_of(statement, catalog, existing.pipeline)
    except SqlError:
        return False  # a name has another meaning by now: the view keeps the one that it was registered with
    if made.columns == existing.columns:
        return False
    try:
        check_replacement(existing, made, catalog)
    except (NotSupported, NameInUse) as error:
        error.hint = f"name its columns in place of *: {', '.join(column.name for column in existing.columns)}"
        raise
    return True


def _check_source(statement: CreateSource | CreateView, existing: Definition | None) -> None:
    """Refuse to replace by, or instead of, a SOURCE (InvalidQuery): whoever declared it does not own its topic."""
    declared = isinstance(statement, CreateSource) and statement.read_only
    present = isinstance(existing, Source) and existing.read_only
    if statement.or_replace and (declared or present):
        raise InvalidQuery(
            sentence("'{}' is a SOURCE: it cannot be replaced", Name(statement.name)),
            hint="drop it, and create it again",
        )


def _redefined(
    existing: Definition, made: Source | View, statement: CreateSource | CreateView, catalog: Catalog
) -> Definition:
    """The definition that a second CREATE of a name leaves: the existing one, or its replacement."""
    if same(existing, made) or _means_the_same(existing, made, catalog):
        return existing
    if isinstance(existing, Source) and isinstance(made, Source):
        return _changed_source(existing, made, catalog, or_replace=statement.or_replace)
    if gives_the_same_rows(existing, made):
        if isinstance(existing, View) and isinstance(made, View):
            made = _as_made(made, existing)
        return replace(made, pipeline=existing.pipeline)
    if not statement.or_replace:
        way = "or DROP it first" if isinstance(existing, Source) else "CREATE OR REPLACE puts this one in its place"
        raise NameTaken(
            sentence("'{}' is defined already, differently", Name(made.name)),
            hint=sentence("DESCRIBE {} shows how; {}", Name(made.name, quote), way),
        )
    if isinstance(existing, View) and isinstance(made, View):
        check_replacement(existing, made, catalog)
        return made
    raise NotSupported(
        sentence("'{}' cannot become a source, nor a source a view", Name(made.name)),
        hint="drop it and create it again",
    )


def _changed_source(existing: Source, made: Source, catalog: Catalog, *, or_replace: bool) -> Source:
    """The definition that takes the place of a source's.

    Raises:
        NameTaken: it differs otherwise than by further columns, and the statement does not say OR REPLACE.
        NameInUse: something depends on the source.
    """
    if gives_the_same_rows(existing, made):
        return replace(made, pipeline=existing.pipeline, added=existing.added)
    if extends(existing, made):
        return extended(existing, made, catalog)
    diff, broken = SourceDiff.of(existing, made), broken_by(existing, made, catalog)
    listed = joined("; ", (sentence("'{}': {}", Name(name), why) for name, why in broken.items()))
    if broken:
        raise (NameInUse if or_replace else NameTaken)(
            sentence("'{}' would change by {}, and break what depends on it: {}", Name(made.name), diff, listed),
            hint="columns can be added at the end; for anything else DROP what depends on it first",
        )
    if not or_replace:
        raise NameTaken(
            sentence("'{}' is defined already, and would change by {}", Name(made.name), diff),
            hint=sentence("DESCRIBE {} shows how it is defined; or DROP it first", Name(made.name, quote)),
        )
    return made


_NOTHING = Scope(Relation("", (), "keyed"), ())
_ROW_BY_ROW = (exp.Column, exp.Star, exp.Query, exp.Lambda, exp.Window)
_BRANCHES = (exp.Case, exp.If, exp.And, exp.Or, exp.Coalesce)
_CHOOSING_FUNCTIONS = frozenset({"IF", "IFNULL", "COALESCE", "NULLIF"})


def _check_constants(query: exp.Query) -> None:
    """Check the constants of a query.

    Raises:
        InvalidQuery: one fails for every row; at its place.
    """
    for node in _constants(query):
        if _fails(node):
            line, column = position_of(node)
            raise InvalidQuery(
                f"{sql_of(node)} has no value: every row would fail",
                line=line,
                column=column,
                hint="correct it, or write NULL; WITH (ERRORS = 'null') gives NULL wherever an expression fails",
            )


def _constants(query: exp.Query) -> Iterator[exp.Expression]:
    """The largest constant expressions that are computed for every row."""
    for node in query.find_all(exp.Div, exp.Mod, exp.Cast, exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Anonymous):
        if not _is_constant(node) or _chosen(node):
            continue
        if isinstance(node.parent, exp.Condition) and _is_constant(node.parent):
            continue
        if isinstance(node, exp.Expression):
            yield node


def _is_constant(node: exp.Expr) -> bool:
    return node.find(*_ROW_BY_ROW) is None


def _chosen(node: exp.Expr) -> bool:
    """True if it stands where only some rows need its value."""
    above = node.parent
    while above is not None and not isinstance(above, exp.Query):
        if isinstance(above, _BRANCHES) or (isinstance(above, exp.Anonymous) and above.name in _CHOOSING_FUNCTIONS):
            return True
        above = above.parent
    return False


def _fails(node: exp.Expression) -> bool:
    try:
        made = infer(node.copy(), _NOTHING).expression
    except SqlError:
        return False  # no value of its own: part of a clause that is read as a whole
    if not can_fail(made):
        return False
    condition = failing(made)
    if condition is None:
        return False
    import duckdb

    text = lower(condition, "duckdb")
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        if elementary.PREFIX in text:
            elementary.register(connection)
        row = connection.execute(f"SELECT {text}").fetchone()
    return row is not None and row[0] is True
