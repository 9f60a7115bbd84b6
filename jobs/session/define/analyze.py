"""Analysis of CREATE and INSERT INTO … SELECT: the checked definition, new or the one in the catalog."""

from __future__ import annotations

from dataclasses import replace

from jobs.catalog.catalog import Catalog
from jobs.model.definitions import Definition, InsertQuery, Source, View
from jobs.model.errors import InvalidQuery, NameInUse, NameTaken, NotSupported, SqlError
from jobs.model.names import alike, differ_only_in_case
from jobs.model.stewardship import without_stewardship
from jobs.session.define.constants import check_constants
from jobs.session.define.insert import insert_query_of
from jobs.session.define.replaced import check_replacement, reads_the_same
from jobs.session.define.source import source_of
from jobs.session.define.view import view_of
from jobs.sql.dialect import quote
from jobs.sql.from_text import too_deep
from jobs.sql.syntax import CreateSource, CreateView, InsertSelect


def define(statement: CreateSource | CreateView | InsertSelect, catalog: Catalog, pipeline: str) -> Definition:
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


def same(left: Definition, right: Definition) -> bool:
    """True if two definitions have the same meaning; their text and pipeline do not count."""
    return _meaning(left) == _meaning(right)


def gives_the_same_rows(left: Definition, right: Definition) -> bool:
    """True if two definitions differ at most in their stewardship, on which no row depends."""
    return same(_unowned(left), _unowned(right))


def _unowned(definition: Definition) -> Definition:
    if isinstance(definition, InsertQuery):
        return definition
    return replace(definition, options=without_stewardship(definition.options))


def _meaning(definition: Definition) -> Definition:
    if isinstance(definition, Source):
        return replace(definition, sql="", pipeline="")
    if isinstance(definition, View):
        definition = replace(definition, first_stage=View.first_stage)
    return replace(definition, sql="", pipeline="", query="")  # the fingerprint stands for its meaning


def _means_the_same(existing: Definition, made: Source | View, catalog: Catalog) -> bool:
    """True if two definitions of a view differ only since an input of theirs has got further columns in between."""
    if not isinstance(existing, View) or not isinstance(made, View):
        return False
    alike = same(replace(existing, fingerprint=made.fingerprint), made)
    return alike and reads_the_same(existing, made.fingerprint, catalog)


def _defined(statement: CreateSource | CreateView | InsertSelect, catalog: Catalog, pipeline: str) -> Definition:
    if isinstance(statement, InsertSelect):
        query = insert_query_of(statement, catalog)
        check_constants(statement.query)
        return query
    # A definition whose file is broken is registered again, as a new one.
    existing = None if statement.name in catalog.broken else catalog.find(statement.name)
    _check_source(statement, existing)
    taken = alike(statement.name, catalog.names()) if existing is None else None
    if taken not in (None, statement.name):
        raise NameTaken(differ_only_in_case("names", taken, statement.name), hint=f"DESCRIBE {quote(taken)} shows it")
    if existing is not None and statement.if_not_exists:
        return existing
    made = (
        source_of(statement, pipeline) if isinstance(statement, CreateSource) else view_of(statement, catalog, pipeline)
    )
    if existing is None:
        # Not of what is there already: a file is applied again as it is.
        if isinstance(statement, CreateView) and isinstance(made, View) and made.maintenance.errors != "null":
            check_constants(statement.query)
        return made
    return _redefined(existing, made, statement, catalog)


def _check_source(statement: CreateSource | CreateView, existing: Definition | None) -> None:
    """Refuse to replace by, or instead of, a SOURCE (InvalidQuery): whoever declared it does not own its topic."""
    declared = isinstance(statement, CreateSource) and statement.read_only
    present = isinstance(existing, Source) and existing.read_only
    if statement.or_replace and (declared or present):
        raise InvalidQuery(
            f"'{statement.name}' is a SOURCE: it cannot be replaced", hint="drop it, and create it again"
        )


def _redefined(
    existing: Definition, made: Source | View, statement: CreateSource | CreateView, catalog: Catalog
) -> Definition:
    """The definition that a second CREATE of a name leaves: the existing one, or its replacement."""
    if same(existing, made) or _means_the_same(existing, made, catalog):
        return existing
    if gives_the_same_rows(existing, made):
        return replace(made, pipeline=existing.pipeline)
    if not statement.or_replace:
        way = "or DROP it first" if isinstance(existing, Source) else "CREATE OR REPLACE puts this one in its place"
        raise NameTaken(f"'{made.name}' is defined already, differently", hint=f"DESCRIBE {made.name} shows how; {way}")
    if isinstance(existing, View) and isinstance(made, View):
        check_replacement(existing, made, catalog)
        return made
    if isinstance(existing, View) or isinstance(made, View):
        raise NotSupported(
            f"'{made.name}' cannot become a source, nor a source a view", hint="drop it and create it again"
        )
    readers = (*catalog.readers(made.name), *(query.name for query in catalog.insert_queries(made.name)))
    if readers:
        raise NameInUse(
            f"'{made.name}' cannot change while {', '.join(repr(r) for r in readers)} depend on it",
            hint="drop them first",
        )
    return made
