"""The check of CREATE, ALTER and INSERT INTO … SELECT before anything is stored: both engines can bind the rules.

    definition ──plan──> stages ──ERRORS──> forms ──rules──> texts ──┬─> DuckDB binds them over empty tables
                                                                     └─> sqlglot binds them for Spark

A rule that an engine cannot bind is a fault of Strandline. It is found here, with the statement at hand, and not by the
first refresh that needs it, when the view is there and others read it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

import sqlglot
from sqlglot.errors import OptimizeError, ParseError, SchemaError, TokenError
from sqlglot.optimizer.qualify import qualify

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.engines.engine import Dialect, engine_of
from strandline.jobs.functions.python import Library
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.ivm.refresh.context import Heads
from strandline.jobs.ivm.refresh.guarded_stage import decide
from strandline.jobs.ivm.rules.maintenance import check_written, engines_for, late_rows, maintenance
from strandline.jobs.ivm.rules.stored import difference, stored_columns
from strandline.jobs.ivm.spark_names import proved
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, InsertQuery, Source, View, ViewOptions
from strandline.jobs.model.errors import NotBound, NotSupported
from strandline.jobs.model.stage import Input, Stage, inputs_of
from strandline.jobs.model.stage_columns import storage_of
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import BIGINT, VARCHAR, SqlType
from strandline.jobs.query.clauses.read import query_of
from strandline.jobs.query.logical import relations_of
from strandline.jobs.query.recompute import recompute_sql
from strandline.state_store.tablespec import FILE, POSITION, WEIGHT
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.state_store.duckdb.engine import DuckDBEngine


_MEMORY = "64MB"
"""Nothing is run, so this is more than enough."""


class Binding:
    """Binds definitions, each once.

    A file's statements are checked before they are executed and again when they are: what was bound is not bound twice.
    """

    def __init__(self) -> None:
        self._without_functions: EmptyTables | None = None
        self._with_functions: EmptyTables | None = None
        self._bound: list[Definition] = []

    def check(self, definition: Definition, catalog: Catalog) -> None:
        """Bind all texts of a definition, which need not be in the catalog; what it reads is.

        Raises:
            NotBound: an engine cannot bind a text.
            ConditionLost: a text would lack a condition of the query.
            NotSupported: an engine has no rule for a stage.
        """
        if definition in self._bound:
            return
        forms = [forms_of(definition, stage) for stage in stages_of(definition, catalog)]
        texts = [changes_of(form, "duckdb") for each in forms for form in each]
        texts += [text for first, *_ in forms for text in other_texts(first, "duckdb")]
        texts += recomputation(definition, catalog)
        if texts:
            functions = Library(catalog.functions.values(), ())
            bind_on_duckdb(self._tables(catalog), texts, functions)
        for first, *_ in forms:
            # Binding by sqlglot is slow: the text with the most parts, of the form that is run first, stands for all.
            if "spark" in engines_for(first):
                bind_on_spark(changes_of(first, "spark"))
        self._bound.append(definition)

    def _tables(self, catalog: Catalog) -> EmptyTables:
        """Tables over which texts are bound; on an engine of these statements' own where there are functions, which
        DuckDB knows by their names alone."""
        if not catalog.functions:
            self._without_functions = self._without_functions or EmptyTables(_engine_without_functions())
            return self._without_functions
        self._with_functions = self._with_functions or EmptyTables(_new_engine())
        return self._with_functions


def _new_engine() -> DuckDBEngine:
    from strandline.state_store.duckdb.engine import DuckDBEngine

    return DuckDBEngine(_MEMORY, 1)


@cache  # it takes 30 ms to start, and nothing is stored in it
def _engine_without_functions() -> DuckDBEngine:
    return _new_engine()


# Binding on DuckDB: DuckDB resolves every name and type of a text over empty tables, and runs nothing.


class EmptyTables:
    """The relations of texts as empty tables, on a connection of their own. Not safe for two threads.

    Most texts read what the one before has read, so a table stays until a text needs another one in its place.
    """

    def __init__(self, engine: DuckDBEngine) -> None:
        self._engine = engine  # it ends with its last reader
        self.connection = engine.cursor()
        self._there: dict[str, Columns] = {}

    def put(self, text: BoundText) -> None:
        """Make the relations that a text may name, those that it names, and leave no other one of a name in it."""
        engine = engine_of("duckdb")
        for name in {**self._there, **text.relations}:
            columns, quoted = text.relations.get(name), engine.name(name)
            if self._there.get(name) == columns or not (quoted in text.text or name in text.text):
                continue
            if columns is None:
                self.connection.execute(f"DROP TABLE {quoted}")
                del self._there[name]
                continue
            listed = ", ".join(f"{engine.name(column)} {engine.type(of)}" for column, of in columns)
            self.connection.execute(f"CREATE OR REPLACE TEMP TABLE {quoted} ({listed})")
            self._there[name] = columns


def bind_on_duckdb(tables: EmptyTables, texts: Iterable[BoundText], functions: Library) -> None:
    """Bind the texts.

    Raises:
        NotBound: a name, function or type of a text is not there.
    """
    import duckdb

    # What DuckDB finds wrong with the values of constants is a fault of rows, which the view's ERRORS decides on.
    faults = (
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.ParserException,
        duckdb.SyntaxException,
        duckdb.NotImplementedException,
    )
    for each in texts:
        tables.put(each)
        functions.declare_duckdb(tables.connection, each.text)
        try:
            tables.connection.sql(each.text)
        except faults as error:
            raise NotBound.by("DuckDB", each.what, str(error)) from error
        except duckdb.Error:
            continue


# Binding for Spark without a JVM: a text is parsed in Spark's grammar, and each of its columns is found.
#
# sqlglot knows where a name can come from: relations, subqueries, common table expressions. It does not know Spark's
# functions; which of them a text calls, `jobs.functions` alone says, and their tests run on Spark. That Spark itself
# binds the texts of all views that come with the project, `tests/spark/test_binding.py` shows.


def bind_on_spark(text: BoundText) -> None:
    """Bind a text.

    Raises:
        NotBound: a text is not of Spark's grammar, or a column of it is not there.
    """
    try:
        _find_columns(text.text, tuple(text.relations.items()))
    except (OptimizeError, ParseError, SchemaError, TokenError) as error:
        raise NotBound.by("Spark", text.what, str(error)) from error


@lru_cache(maxsize=512)  # a process that defines one view in many lakes, as a test does, binds its texts once
def _find_columns(text: str, relations: tuple[tuple[str, Columns], ...]) -> None:
    if proved(text, {name: [column for column, _ in columns] for name, columns in relations}):
        return
    engine = engine_of("spark")
    schema: dict[str, object] = {
        name: {column: engine.type(sql_type) for column, sql_type in columns} for name, columns in relations
    }
    tree = sqlglot.parse_one(text, dialect="spark")
    qualify(tree, schema=schema, dialect="spark", isolate_tables=False, identify=False, quote_identifiers=False)


# The texts that a definition is maintained and proved by: those that an engine must be able to bind.
#
# | text | of |
# | --- | --- |
# | changes | each stage in each form that its ERRORS may run it in; the stages of its dead letters |
# | first refresh | each stage in the first form: others differ by expressions alone, which are in the changes too |
# | late rows | windows with GRACE PERIOD |
# | comparison | keyed stages, where all rows are computed anew |
# | recomputation | the whole query as one SELECT, which `verify` and readers ask |
#
# The text for all inputs changed at once has the terms of every other one, so it stands for those of some inputs;
# where only inputs moved that an event looks up, the text says that nothing changes.

Columns = tuple[tuple[str, SqlType], ...]
_FRESH = "fresh"


@dataclass(frozen=True)
class BoundText:
    """A text, and the relations that it may name.

    Attributes:
        what: the text in words, for a message: `the changes of 'v'`.
        relations: the columns of each relation, by its name.
    """

    what: str
    text: str
    relations: dict[str, Columns]


def stages_of(definition: Definition, catalog: Catalog) -> tuple[Stage, ...]:
    """The stages that maintain a definition; none of a stream, which ingest writes, nor of a partial view.

    Raises:
        SqlError: an input has changed so that the query no longer fits.
    """
    if isinstance(definition, View) and definition.partial:
        return ()
    if isinstance(definition, Source) and definition.kind == "stream":
        return ()
    return compiled(definition, catalog).stages


def forms_of(definition: Definition, stage: Stage) -> tuple[Stage, ...]:
    """A stage in every form that a refresh may run; the first is that of a refresh before any row has failed."""
    errors = definition.maintenance.errors if isinstance(definition, View) else ViewOptions().errors
    decision = decide(stage, errors, tables.dead_letters(stage.table), _NothingStored())
    return (decision.sound, *(each for each in decision.stages if each is not decision.sound))


def changes_of(stage: Stage, dialect: Dialect) -> BoundText:
    """The text of the changes of a stage in one form.

    Raises:
        NotSupported: the engine has no rule for it.
        ConditionLost: a text would lack a condition of the stage.
    """
    return _rule(stage, dialect, (), "changes")


def other_texts(stage: Stage, dialect: Dialect) -> Iterator[BoundText]:
    """The texts of a stage beside that of its changes. Raises as `changes_of`."""
    yield _rule(stage, dialect, None, "first refresh")
    late = late_rows(stage, dialect, {each.alias for each in inputs_of(stage)})
    if late is not None:
        yield BoundText(sentence("the late rows of '{}'", Name(stage.table)), late, _relations(stage))
    if storage_of(stage) == "keyed":
        compared = {**_relations(stage), _FRESH: stored_columns(stage)}
        text = difference(stage, _FRESH, engine_of(dialect))
        yield BoundText(sentence("the comparison of '{}'", Name(stage.table)), text, compared)


def recomputation(definition: Definition, catalog: Catalog) -> Iterator[BoundText]:
    """The query of a view, or of one that inserts, as one SELECT; none where DuckDB lacks an aggregate for it."""
    if isinstance(definition, Source):
        return
    query = query_of(definition, catalog)
    options = ViewOptions() if isinstance(definition, InsertQuery) else definition.maintenance
    shared = options.state == "shared"
    try:
        text = recompute_sql(query, "duckdb", fate="left out", semantics=options.semantics, shared=shared)
    except NotSupported:
        return
    relations = {each.name: _readable(each) for each in relations_of(query)}
    yield BoundText(sentence("the recomputation of '{}'", Name(definition.name)), text, relations)


class _NothingStored(Heads):
    """The heads of tables before the first refresh: there are none."""

    def __init__(self) -> None:
        """Know of no lake."""

    def find(self, name: str) -> None:
        """No head."""


def _rule(stage: Stage, dialect: Dialect, changed: Collection[str] | None, what: str) -> BoundText:
    text = maintenance(stage, dialect, changed)
    check_written(stage.table, stage, text, engine_of(dialect))
    return BoundText(sentence("the {} of '{}'", what, Name(stage.table)), text, _relations(stage))


def _relations(stage: Stage) -> dict[str, Columns]:
    found = {
        f"{side}_{each.alias}": _side(each, changes=side == "delta")
        for each in inputs_of(stage)
        for side in ("delta", "old", "new")
    }
    if storage_of(stage) == "keyed":
        found["self_old"] = (*stored_columns(stage), (FILE, VARCHAR), (POSITION, BIGINT))
    return found


def _side(each: Input, *, changes: bool) -> Columns:
    columns = _readable(each.relation)
    return (*columns, (WEIGHT, BIGINT)) if changes else columns


def _readable(relation: Relation) -> Columns:
    return (*relation.columns, *relation.hidden)
