"""The stages of a plan under construction: the names of their tables, and one stage in place of equal ones."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.functions.aggregates.of_values import LEVEL
from strandline.jobs.ivm.plan.conditions import conditions_of
from strandline.jobs.ivm.plan.rows import PlannedRows, Selected, all_columns, giving, map_stage, marked_stage, named
from strandline.jobs.ivm.rules.stored import form_of
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import ErrorPolicy, Semantics, State
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import (
    AggregateStage,
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
    storage_of_body,
)
from strandline.jobs.model.stage_columns import relation_of
from strandline.jobs.model.tables import Relation
from strandline.jobs.model.types import SqlType
from strandline.jobs.query.logical import class_name, field_name, plain_text
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import Place, columns_in, place_of, replaced

if TYPE_CHECKING:
    from collections.abc import Callable

    from strandline.jobs.query.logical import Query


@dataclass
class Stages:
    """Collects the inner stages of a view.

    Attributes:
        build: gives the stage that maintains a query.
        pipeline: views of one pipeline share stages; a table has one writer.
        first: the number of the first inner stage.
        made: the inner stages, each after what it reads.
        notes: reasons, for EXPLAIN.
        offered: every stage that was made, also those in whose place an equal one stands.
        places: rows of tables keep time and place of their newest events, for a function that goes by these.
        by_value: which calls have the different values of a group in rows of their own: `View.by_value`.
        errors: what becomes of a row on which an expression fails.
        keyed: joins of events are read as they are: a table of them that views share has no key.
    """

    view: str
    build: Callable[[Query, Stages], Stage]
    semantics: Semantics = "sql"
    state: State = "full"
    pipeline: str = ""
    first: int = 1
    made: list[Stage] = field(default_factory=list)
    offered: list[Stage] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    places: bool = False
    by_value: int = LEVEL
    errors: ErrorPolicy = "dead_letter"
    keyed: bool = False
    _known: dict[str, Relation] = field(default_factory=dict)

    def stored(self, query: Query) -> Relation:
        """The table of an inner stage that maintains `query`."""
        return self.add(self.build(query, self))

    def placed(self, needed: bool) -> Stages:
        """The same builder, for inner stages whose rows keep places, or need none."""
        return replace(self, places=needed)

    def marked(self, relation: Relation) -> Relation:
        """The relation with a column in its key that is never NULL."""
        self.note("FULL JOIN: an inner stage marks the rows of one side, since a key of theirs may be NULL")
        return self.add(marked_stage(relation))

    def arranged(self, rows: PlannedRows) -> PlannedRows:
        """Rows of a join, read from a table that holds the join when views share such tables."""
        if self.state != "shared" or len(rows.inputs) < 2 or (self.keyed and rows.is_append):
            return rows
        return arrangement(rows, self)

    def add(self, stage: Stage) -> Relation:
        """The table of an inner stage; that of an equal stage, if there is one already."""
        stage = lookups_apart(stage, self)
        self.offered.append(stage)
        form = form_of((stage,))
        # A table that views share is found by its name: one in another form has another.
        digest = digest_of(stage, self.pipeline, *((f"form {form}",) if form > 1 else ()))
        found = self._known.get(digest)
        if found is not None:
            return found
        own = tables.inner_stage(self.view, self.first + len(self.made))
        table = tables.shared_stage(digest) if self.state == "shared" else own
        stored = replace(stage, table=table)
        self.made.append(stored)
        self._known[digest] = relation_of(stored)
        return self._known[digest]

    def note(self, text: str) -> None:
        """Keep a reason for EXPLAIN."""
        self.notes[text] = None

    def plan(self, query: Query) -> Plan:
        """The plan whose last stage maintains the query's rows in the view's own table.

        Raises:
            NotSupported: no stage can maintain it; the message says why.
            ConditionLost: a condition of the query would stand in no stage.
        """
        try:
            return self._plan(query)
        except NotSupported:
            if self.state != "shared" or self.keyed:
                raise
            return replace(self, keyed=True, made=[], offered=[], notes={}, _known={}).plan(query)

    def _plan(self, query: Query) -> Plan:
        conditions = conditions_of(query)
        last = lookups_apart(self.build(conditions.query, self), self)
        conditions.check(self.view, (*self.offered, last))
        return Plan(self.view, (*self.made, replace(last, table=self.view)), tuple(self.notes))


# The normal form of a stage, by which equal stages are recognized and built once.
#
# Left out are the table's name, the names of the inputs' aliases, and what follows from the rest: the late rows, and
# whether rows are repeated for their groups. Everything else is written down as text.

_HEX = 12
"""Digits of a hash in a table's name: two of a million stages have one hash by chance in one of 500 lakes."""

_OF_TABLE = ("table", "late")
"""Left out of the stage itself."""
_LEFT_OUT = ("repeated",)
"""Left out wherever it stands."""


def digest_of(stage: Stage, *context: str) -> str:
    """The hash of a stage's normal form: stages with one hash hold equal rows.

    Args:
        context: what else must be equal, such as the pipeline.
    """
    inputs = (each for core in body_of(stage) for each in core.inputs)
    aliases = {each.alias: f"i{place}" for place, each in enumerate(inputs)}
    text = "\n".join([*context, *_parts(stage, aliases, top=True)])
    return hashlib.sha256(text.encode()).hexdigest()[:_HEX]


def _parts(value: object, aliases: Mapping[str, str], *, top: bool = False) -> Iterator[str]:
    if isinstance(value, exp.Expr):
        tree = value.copy()
        for column in tree.find_all(exp.Column):
            if column.table in aliases:
                column.set("table", exp.Identifier(this=aliases[column.table], quoted=False))
        yield sql_of(tree)
    elif isinstance(value, SqlType):
        yield str(value)
    elif is_dataclass(value):
        yield class_name(value)
        for each in fields(value):
            if each.name in _LEFT_OUT or (top and each.name in _OF_TABLE):
                continue
            inner = getattr(value, each.name)
            yield field_name(value, each.name)
            yield from (aliases[inner],) if each.name == "alias" else _parts(inner, aliases)
        yield "."
    elif isinstance(value, tuple):
        yield "("
        for item in value:
            yield from _parts(item, aliases)
        yield ")"
    else:
        yield plain_text(value)


# Shared arrangements (STATE = 'shared'): a join has a table that all views of the pipeline over it read.
#
#     view_1  MAX(length) … FROM visit JOIN info ON …   ┐                       ┌ view_1: aggregate
#     view_2  COUNT(*)    … FROM visit JOIN info ON …   ┘ shared__… (the join) ─┤
#                                                                               └ view_2: aggregate
#
# The table holds all columns of the joined relations and no view's filter, so that views which differ in those share
# it.


def arrangement(rows: PlannedRows, stages: Stages) -> PlannedRows:
    """The same rows, read from one relation that holds the join."""
    join = PlannedRows(rows.inputs)
    names = dict(_names(rows))
    columns = tuple(
        Output(name, named(place[1], place[0]), dict(all_columns(_of(rows, place[0]).relation))[place[1]])
        for place, name in names.items()
    )
    stage = map_stage((Selected(join, columns),), with_events=True)
    if join.is_of_events():
        # A key of hidden places tells readers that the rows are events, see `is_stream`.
        stage = replace(stage, visible=tuple(name for name in stage.visible if name not in stage.key))
    relation = stages.add(stage)
    alias = rows.inputs[0].alias
    moved = {place: named(name, alias) for place, name in names.items()}
    return replace(
        rows,
        inputs=(Input(alias, relation),),
        where=replaced(rows.where, moved) if rows.where is not None else None,
        expand=tuple(replace(each, expression=replaced(each.expression, moved)) for each in rows.expand),
        values={place: replaced(value, moved) for place, value in rows.values.items()},
    )


def _names(rows: PlannedRows) -> Iterator[tuple[Place, str]]:
    """Names for all columns of all inputs: by the inputs' numbers, since other views have other aliases."""
    for number, each in enumerate(giving(rows.inputs)):
        for name, _ in all_columns(each.relation):
            yield (each.alias, name), f"j{number}_{name}"


def _of(rows: PlannedRows, alias: str) -> Input:
    return next(each for each in rows.inputs if each.alias == alias)


# Look-ups apart: events with the rows of tables that they found, in a table of their own.
#
#     SESSION … FROM s JOIN t (frozen)  ──>  v__stage_1: s JOIN t (frozen), only ever added to
#                                            v: SESSION … FROM v__stage_1
#
# An event joins a frozen table once, as it is when the event is taken in. A rule that reads its inputs again (a
# session, a window function, all rows of an aggregate) would find other rows of the table than the event did. So what
# was found is stored, unless the stage itself only stores what it joins.


def lookups_apart(stage: Stage, stages: Stages) -> Stage:
    """The same stage, over tables that hold what its events found where its rule may read them again.

    A table that is looked up after a join whose rows change stays where it is: a row of that join finds the row that is
    there in the epoch in which the join gives it.
    """
    if isinstance(stage, LatestStage) or not any(each.frozen for each in inputs_of(stage)):
        return stage
    if isinstance(stage, MapStage) and storage_of_body(stage.body) == "append":
        return stage
    late = stage.late if isinstance(stage, AggregateStage) else ()
    if isinstance(stage, RecursiveStage):
        return stage  # no event of it looks up a table
    read = {place for core in (*stage.body, *late) for place in _read(core)}
    body = tuple(_over_table(core, read, stages) for core in stage.body)
    if isinstance(stage, AggregateStage):
        return replace(stage, body=body, late=tuple(_over_table(core, read, stages) for core in late))
    return replace(stage, body=body)


def _over_table(core: Core, read: Collection[Place], stages: Stages) -> Core:
    """The core with its first inputs, as far as rows of them are only ever added, read from a table of their join.

    Args:
        read: the columns that cores of the stage read; the table has those.
    """
    first = _first(core)
    if not any(each.frozen for each in first):
        return core
    rows = PlannedRows(first)
    meta = {place_of(value): name for name, value in rows.meta().items()}
    columns, moved = [], {}
    for number, each in enumerate(first):
        for name, sql_type in all_columns(each.relation):
            place = (each.alias, name)
            if place in read:
                # An event's own time and place are stored beside the columns in any case.
                stored = meta.get(place, f"j{number}_{name}")
                moved[place] = named(stored, first[0].alias)
                if place not in meta:
                    columns.append(Output(stored, named(name, each.alias), sql_type))
    stages.note("events look up tables once: an inner stage keeps what each of them found")
    joined = Input(first[0].alias, stages.add(map_stage((Selected(rows, tuple(columns)),))))
    others = tuple(
        replace(each, on=replaced(each.on, moved) if each.on is not None else None)
        for each in core.inputs[len(first) :]
    )
    return replace(
        core,
        inputs=(joined, *others),
        where=replaced(core.where, moved) if core.where is not None else None,
        columns=tuple(_moved(each, moved) for each in core.columns),
        expand=tuple(_moved(each, moved) for each in core.expand),
    )


def _first(core: Core) -> tuple[Input, ...]:
    """The inputs up to the first one whose rows, or whose matches, change and go."""
    return tuple(
        takewhile(lambda each: each.frozen or (each.relation.storage == "append" and each.join == "inner"), core.inputs)
    )


def _read(core: Core) -> Iterator[Place]:
    """The places of the columns that a core reads of its inputs, once the first of them are joined."""
    trees = [each.expression for each in (*core.columns, *core.expand)]
    trees += [each.on for each in core.inputs[len(_first(core)) :] if each.on is not None]
    trees += [core.where] if core.where is not None else []
    return ((column.table, column.name) for tree in trees for column in columns_in(tree))


def _moved(output: Output, values: Mapping[Place, exp.Expression]) -> Output:
    return replace(output, expression=replaced(output.expression, values))
