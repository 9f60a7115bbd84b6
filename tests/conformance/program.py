"""From the statements of a case to definitions in a catalog, as `CREATE` would take them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.model.definitions import Definition, InsertQuery, Source, View
from strandline.jobs.model.settings import load_settings
from strandline.jobs.model.stage import inputs_of
from strandline.jobs.session.catalog_changes import drop
from strandline.jobs.session.define.analyze import define
from strandline.jobs.session.user_defined import change_types
from strandline.jobs.session.writes import insert
from strandline.jobs.sql.statements import (
    AlterSource,
    CreateSource,
    CreateType,
    CreateView,
    Drop,
    DropType,
    InsertSelect,
    InsertValues,
    Option,
    Statement,
    parse,
)
from strandline.state_store.layout import LakeLayout
from tests.conformance.cases import Case
from tests.conformance.wire import Wire, default_wire, plain_source, plain_view, values

PIPELINE = "conformance"
_KSQL = Option("SEMANTICS", "ksql")
_T = TypeVar("_T")


class Stopped(Exception):
    """A statement was not taken.

    Attributes:
        stage: where: `parse`, `define` or `plan`.
        error: why.
    """

    def __init__(self, stage: str, error: Exception) -> None:
        super().__init__(f"{stage}: {type(error).__name__}: {error}")
        self.stage = stage
        self.error = error


@dataclass
class Program:
    """What the statements of a case came to.

    Attributes:
        prefix: before every name, so that many cases can live in one lake.
        wires: how each stream and table is written.
        topics: {stream or table: the topic that holds its records}.
        tables: names of those whose records replace each other.
        as_of: an event joins a table as it was at the event's time.
    """

    catalog: Catalog
    lake: LakeLayout
    prefix: str = ""
    names: list[str] = field(default_factory=list)
    wires: dict[str, Wire] = field(default_factory=dict)
    topics: dict[str, str] = field(default_factory=dict)
    tables: set[str] = field(default_factory=set)
    as_of: bool = False

    @property
    def definitions(self) -> list[Definition]:
        """This case's definitions, in the order of creation."""
        return [d for d in self.catalog.definitions() if d.name in self.names]

    @property
    def sources(self) -> list[Source]:
        return [d for d in self.definitions if isinstance(d, Source)]

    @property
    def views(self) -> list[View]:
        return [d for d in self.definitions if isinstance(d, View)]

    def written_by(self, topic: str) -> Source | View | None:
        """The stream or table whose records are in `topic`; where no topic has just that name, case does not matter."""
        exact = [name for name, own in self.topics.items() if own == topic]
        alike = [name for name, own in self.topics.items() if own.lower() == topic.lower()]
        found = self.catalog.find((exact or alike or [""])[-1])
        return None if isinstance(found, InsertQuery) else found


def build(case: Case, catalog: Catalog, lake: LakeLayout, prefix: str = "", *, verbatim: bool = False) -> Program:
    """Define and plan everything that `case` says.

    Args:
        lake: the catalog's.
        verbatim: keep the WITH clauses as they are (for statements that must be refused).

    Raises:
        Stopped: a statement was refused, or the engine failed on it.
    """
    program = Program(catalog, lake, prefix)
    try:
        for text in case.statements:
            for statement in _at("parse", partial(parse, text, catalog.types)):
                _take(statement, program, case, verbatim=verbatim)
    finally:
        if catalog.types:
            catalog.change_types(lambda _: {})  # the next case may share the catalog, and names its own
    return program


def _take(statement: Statement, program: Program, case: Case, *, verbatim: bool) -> None:
    statement = _prefixed(statement, program)
    if isinstance(statement, Drop):
        _drop(statement, program)
        return
    if isinstance(statement, CreateType | DropType):
        _at("define", partial(change_types, statement, program.catalog))
        return
    if isinstance(statement, AlterSource):
        program.catalog.replace(_at("define", partial(define, statement, program.catalog, PIPELINE)))
        return
    if isinstance(statement, InsertValues):
        settings = load_settings(lake=program.lake.root)
        _at("define", partial(insert, statement, program.catalog, settings, program.lake))
    if not isinstance(statement, CreateSource | CreateView | InsertSelect):
        raise Stopped(
            "define", TypeError(f"the runner does not run {type(statement).__name__}: records are the case's")
        )
    _note_wire(statement, program, case)
    if isinstance(statement, CreateSource) and not verbatim:
        statement = replace(statement, options=plain_source(statement.options))
    elif isinstance(statement, CreateView):
        options = statement.options if verbatim else plain_view(statement.options)
        statement = replace(statement, options=(*options, _KSQL))
    definition = _at("define", partial(define, statement, program.catalog, PIPELINE))
    if program.catalog.find(definition.name) is None:
        program.catalog.add(definition)
    else:
        program.catalog.replace(definition)
    program.names.append(definition.name)
    if not (isinstance(definition, Source) and definition.kind == "stream"):
        stages = _at("plan", lambda: plan(definition, program.catalog)).stages
        program.as_of |= any(each.as_of for stage in stages for each in inputs_of(stage))


def _at(stage: str, action: Callable[[], _T]) -> _T:
    try:
        return action()
    except Exception as error:
        raise Stopped(stage, error) from error


def _drop(statement: Drop, program: Program) -> None:
    _at("define", lambda: drop(statement, program.catalog, program.lake))
    kept = set(program.catalog.names())
    program.names = [name for name in program.names if name in kept]
    program.topics = {name: topic for name, topic in program.topics.items() if name in kept}


def _note_wire(statement: CreateSource | CreateView | InsertSelect, program: Program, case: Case) -> None:
    """How the records of a new stream or table are written: a view's as those of what it reads first."""
    if isinstance(statement, InsertSelect):
        return
    options = values(statement.options)
    wire = default_wire(case.properties)
    if isinstance(statement, CreateView):
        first = statement.query.find(exp.Table)
        wire = replace(program.wires.get(first.name, wire) if first else wire, wrapped=wire.wrapped)
    own = statement.name.removeprefix(program.prefix)
    program.wires[statement.name] = wire.changed(options)
    program.topics[statement.name] = options.get("KAFKA_TOPIC", own.upper())
    if statement.kind != "stream":
        program.tables.add(statement.name)


def _prefixed(statement: Statement, program: Program) -> Statement:
    """The statement over the names with the case's prefix; a table keeps its own name as its alias."""
    prefix = program.prefix
    if not prefix:
        return statement
    known = {name.removeprefix(prefix) for name in program.names}

    def renamed(query: exp.Query) -> exp.Query:
        query = query.copy()
        for table in query.find_all(exp.Table):
            if table.name in known:
                if not table.alias:
                    table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=True)))
                table.set("this", exp.to_identifier(prefix + table.name, quoted=True))
        return query

    match statement:
        case CreateSource() | AlterSource() | Drop():
            return replace(statement, name=prefix + statement.name)
        case CreateView():
            return replace(statement, name=prefix + statement.name, query=renamed(statement.query))
        case InsertSelect():
            return replace(statement, target=prefix + statement.target, query=renamed(statement.query))
        case _:
            return statement
