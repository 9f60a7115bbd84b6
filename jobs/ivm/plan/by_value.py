"""Aggregates over the different values of a group: an inner stage keeps each value in a row of its own.

    SELECT k, COUNT(*) AS n, COUNT(DISTINCT x) AS d FROM s GROUP BY k

    v__stage_1    GROUP BY k, x                a row for each group and value, with the number of its rows
    v             s            __part = 0      COUNT(*) FILTER (WHERE __part = 0)    ┐
                  v__stage_1   __part = 1      COUNT(*) FILTER (WHERE __part = 1)    ┘ UNION ALL, GROUP BY k

An epoch touches the values that changed. As one array in the group's row they would all be read, sorted and written.

Calls whose values have the same types share an inner stage, which numbers them (`__of`): its key has no NULL but those
of the groups, so that rows are found by equality; calls that take NULL for a value share others. A row on which an
expression fails is in no inner stage; it is among the dead letters of the outer one, which still reads the arguments
that can fail.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from strandline.jobs.functions.aggregates.registry import function_of
from strandline.jobs.functions.failing import FAILS, can_fail
from strandline.jobs.functions.scalars.contract import TOTAL
from strandline.jobs.ivm.plan.builder import Stages, lookups_apart
from strandline.jobs.ivm.plan.rows import PlannedRows, Selected, apart, named, number, of_relation, renamed
from strandline.jobs.ivm.refresh.guarded_stage import guarded
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import PART, AggregateCall, AggregateStage, Body, Core, Input, Output, inputs_of
from strandline.jobs.model.tables import EVENT_ORDER
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.sql.dialect import sql_of
from strandline.jobs.sql.trees import MARK, Place, all_of, columns_in, conjuncts, is_not_null, replaced

_VALUES = "values"
"""Alias of an inner stage in the stage above it."""
_OF = "__of"
_NUMBER = "__n"
_PLAIN = frozenset(
    {
        BaseType.INT,
        BaseType.BIGINT,
        BaseType.DECIMAL,
        BaseType.DOUBLE,
        BaseType.BOOLEAN,
        BaseType.VARCHAR,
        BaseType.BYTES,
        BaseType.DATE,
        BaseType.TIME,
        BaseType.TIMESTAMP,
    }
)
"""The types of values that can be a key: of equal values, both engines say that they are equal."""


def values_apart(stage: AggregateStage, stages: Stages) -> AggregateStage:
    """The same groups, where calls over different values read them from inner stages; unchanged where none does."""
    moved = {each.name for each in stage.aggregates if _is_by_value(each, stages.by_value)}
    if not moved or stage.session is not None:
        return stage
    # Every stage must see the same row of a table that an event looks up: the inner ones read what was found.
    found = lookups_apart(stage, stages)
    assert isinstance(found, AggregateStage)
    body = _sound_body(found, stages)
    if body is None or any(each.frozen for each in inputs_of(found)):
        return stage
    families: dict[tuple[object, ...], _Family] = {}
    for call in (_with_places(each, found) for each in found.aggregates if each.name in moved):
        nulls = function_of(call).null_values(call)
        families.setdefault((call.argument_types, nulls), _Family(len(families) + 1)).add(call)
    stages.note("different values: an inner stage keeps each in a row of its own, so that a change touches no other")
    relations = [stages.add(family.stage(found, body)) for family in families.values()]
    aliases = {each.alias for each in inputs_of(found)}
    read = []
    for relation in relations:
        (source,) = renamed(of_relation(relation, _VALUES), aliases).inputs
        aliases.add(source.alias)
        read.append(source)
    return _over(found, list(families.values()), read)


def _is_by_value(call: AggregateCall, level: int) -> bool:
    if not call.arguments or not all(each.base in _PLAIN for each in call.argument_types):
        return False
    made = function_of(call).of_values(call, call.arguments, exp.Null())
    return made is not None and function_of(made).values_since <= level


def _with_places(call: AggregateCall, stage: AggregateStage) -> AggregateCall:
    """The call whose values are those of a place in the order of events, where it goes by places and rows have any."""
    types = {each.name: each.type for each in stage.body[0].columns}
    if not function_of(call).by_place or call.distinct or not types.keys() >= set(EVENT_ORDER):
        return call
    places = tuple(map(named, EVENT_ORDER))
    more = tuple(types[name] for name in EVENT_ORDER)
    return replace(call, arguments=(*call.arguments, *places), argument_types=(*call.argument_types, *more))


def _sound_body(stage: AggregateStage, stages: Stages) -> Body | None:
    """The body without the rows on which an expression fails, as far as the view leaves them out; None: the stages of
    the view would not agree on which these are."""
    found = guarded(stage, "")
    if found.aside is None:
        return stage.body
    if stages.errors == "null":
        return None if stages.state == "shared" else stage.body
    assert isinstance(found.sound, AggregateStage)
    return tuple(map(_without_failure, found.sound.body))


def _without_failure(core: Core) -> Core:
    """The core, whose rows are those that do not fail, with expressions that are known not to."""

    def outputs(found: tuple[Output, ...]) -> tuple[Output, ...]:
        return tuple(replace(each, expression=_total(each.expression)) for each in found)

    joined = tuple(replace(each, on=_total(each.on)) if each.on is not None else each for each in core.inputs)
    where = _total(core.where) if core.where is not None else None
    return replace(core, inputs=joined, where=where, columns=outputs(core.columns), expand=outputs(core.expand))


def _total(node: exp.Expression) -> exp.Expression:
    made = node.copy()
    for each in made.walk():
        each.meta[TOTAL] = True
        each.meta.pop(FAILS, None)
    return made


@dataclass
class _Family:
    """Calls whose values have the same types.

    Attributes:
        part: its number, from 1.
        taken: arguments and filter of each number in the inner stage, from 1; calls with the same share one.
        calls: by name, each call and its number.
    """

    part: int
    taken: dict[str, AggregateCall] = field(default_factory=dict)
    calls: dict[str, tuple[AggregateCall, int]] = field(default_factory=dict)

    def add(self, call: AggregateCall) -> None:
        """Take in a call."""
        condition = sql_of(call.filter) if call.filter is not None else ""
        place = "; ".join([*map(sql_of, call.arguments), condition])
        self.taken.setdefault(place, call)
        self.calls[call.name] = (call, list(self.taken).index(place) + 1)

    @property
    def numbered(self) -> bool:
        """True if the inner stage keeps the values of several calls."""
        return len(self.taken) > 1

    @property
    def counted(self) -> bool:
        """True if a call must know how many rows have a value; a value is a row as long as there is one in any case."""
        trees = (tree for call, _ in self.calls.values() for tree in self.over(call).arguments)
        return any(column.name == self._name(_NUMBER) for tree in trees for column in columns_in(tree))

    def stage(self, stage: AggregateStage, body: Body) -> AggregateStage:
        """The inner stage: a row for each group and value."""
        parts = [
            part
            for at, call in enumerate(self.taken.values(), 1)
            for core, marked in zip(body, stage.body, strict=True)
            for part in self._part(stage, call, at, core, marked)
        ]
        names = [(each.name, each.type) for each in parts[0].outputs]
        group = tuple(Output(name, named(name), sql_type) for name, sql_type in names)
        count = AggregateCall("__a0", "COUNT", (), (), t.BIGINT)
        shown = Output(_NUMBER, named("__a0"), t.BIGINT)
        return AggregateStage(
            table="",
            body=tuple(part.rows.core(part.outputs) for part in apart(parts)),
            group=group,
            aggregates=(count,) if self.counted else (),
            outputs=(*group, shown) if self.counted else group,
            key=tuple(name for name, _ in names),
        )

    def _part(
        self, stage: AggregateStage, call: AggregateCall, at: int, core: Core, marked: Core
    ) -> Iterator[Selected]:
        """The values of one call in one core; nothing where its filter lets none of the core's rows through."""
        columns = _columns(core)
        arguments = [replaced(each, columns) for each in call.arguments]
        terms = [] if call.filter is None else conjuncts(_with_marks(call.filter, columns, _columns(marked)))
        if any(isinstance(each, exp.Boolean) and not each.this for each in terms):
            return
        terms = [each for each in terms if not isinstance(each, exp.Boolean)]
        nulls = function_of(call).null_values(call)
        present = [is_not_null(each) for each, null in zip(arguments, nulls, strict=True) if not null]
        group = [Output(_group(place), replaced(g.expression, columns), g.type) for place, g in _groups(stage)]
        if stage.skip_null_keys:
            # Of the inner stage's key only the group must be there: a value may be NULL.
            present += [is_not_null(each.expression) for each in group]
        where = all_of(core.where, *terms, *present)
        of = [Output(_OF, number(at), t.INT)] if self.numbered else []
        values = zip(arguments, call.argument_types, strict=True)
        yield Selected(
            PlannedRows(core.inputs, where, core.expand, repeated=core.repeated),
            (*group, *of, *(Output(_value(place), value, kind) for place, (value, kind) in enumerate(values))),
        )

    def over(self, call: AggregateCall) -> AggregateCall:
        """The call over the rows of the inner stage."""
        values = tuple(named(self._name(_value(place))) for place in range(len(call.arguments)))
        made = function_of(call).of_values(call, values, named(self._name(_NUMBER)))
        assert made is not None
        of = exp.EQ(this=named(self._name(_OF)), expression=number(self.calls[call.name][1]))
        return replace(made, filter=all_of(_in_part(self.part), of if self.numbered else None))

    def columns(self) -> Iterator[tuple[str, str, SqlType]]:
        """Name in the outer body, name in the inner stage, and type of what the calls over it may read."""
        kinds = next(iter(self.taken.values())).argument_types
        found = [(_value(place), kind) for place, kind in enumerate(kinds)]
        found += [(_NUMBER, t.BIGINT)] if self.counted else []
        found += [(_OF, t.INT)] if self.numbered else []
        return ((self._name(name), name, kind) for name, kind in found)

    def _name(self, column: str) -> str:
        """What a column of the inner stage is called in the outer body."""
        return f"{column}_{self.part}"


def _over(stage: AggregateStage, families: Sequence[_Family], read: Sequence[Input]) -> AggregateStage:
    """The stage over the rows, and over the values of each family."""
    family_of = {name: family for family in families for name in family.calls}
    calls = [
        family_of[each.name].over(family_of[each.name].calls[each.name][0])
        if each.name in family_of
        else replace(each, filter=all_of(_in_part(0), each.filter))
        for each in stage.aggregates
    ]
    calls += _read_still(stage, family_of)
    group, computed = _plain_groups(stage)
    wanted = {column.name for each in group for column in columns_in(each.expression)} | set(EVENT_ORDER)
    trees = [tree for call in calls for tree in (*call.arguments, call.filter) if tree is not None]
    wanted |= {column.name for tree in trees for column in columns_in(tree)}
    # A row on which a column fails is in no group, also where no group has that column.
    wanted |= {each.name for core in stage.body for each in core.columns if can_fail(each.expression)}
    values = [each for family in families for each in family.columns() if each[0] in wanted]
    absent = [Output(name, exp.Null(), kind) for name, _, kind in values]
    rows = []
    for core in stage.body:
        found = _columns(core)
        own = [Output(name, replaced(value, found), kind) for name, value, kind in computed]
        kept = [each for each in (*core.columns, *own) if each.name in wanted]
        rows.append(replace(core, columns=(*kept, Output(PART, number(0), t.INT), *absent)))
    names = [(each.name, each.type) for each in rows[0].columns]
    sides = {
        column.name: _group(place) for place, g in _groups(replace(stage, group=group)) for column in [g.expression]
    }
    cores = [_core_of_values(names, source, family, sides) for family, source in zip(families, read, strict=True)]
    return replace(stage, body=(*rows, *cores), group=group, aggregates=tuple(calls))


def _core_of_values(
    names: Sequence[tuple[str, SqlType]], source: Input, family: _Family, groups: Mapping[str, str]
) -> Core:
    """The values of a family as rows of the outer body: what only rows have is NULL."""
    values: dict[str, exp.Expression] = {name: named(inner, source.alias) for name, inner, _ in family.columns()}
    values |= {name: named(inner, source.alias) for name, inner in groups.items()}
    values[PART] = number(family.part)
    columns = tuple(Output(name, values.get(name, exp.Null()), kind) for name, kind in names)
    return Core((source,), None, columns)


def _plain_groups(stage: AggregateStage) -> tuple[tuple[Output, ...], list[tuple[str, exp.Expression, SqlType]]]:
    """The group expressions as columns of the body, and the columns that are to be computed for that: a row of values
    has the group, not what it is computed from."""
    group, computed = [], []
    for place, each in enumerate(stage.group):
        if isinstance(each.expression, exp.Column | exp.Null):
            group.append(each)
            continue
        name = f"__s{place}"
        computed.append((name, each.expression, each.type))
        group.append(replace(each, expression=named(name)))
    return tuple(group), computed


def _read_still(stage: AggregateStage, moved: Mapping[str, _Family]) -> Iterator[AggregateCall]:
    """Calls of nobody's that read the arguments which can fail: a row on which one does is in no call of the view."""
    columns = [_columns(core) for core in stage.body]
    for place, call in enumerate(each for each in stage.aggregates if each.name in moved):
        trees = [*call.arguments, *([call.filter] if call.filter is not None else [])]
        if any(can_fail(replaced(tree, found)) for tree in trees for found in columns):
            condition = all_of(_in_part(0), call.filter)
            for at, (argument, kind) in enumerate(zip(call.arguments, call.argument_types, strict=True)):
                yield AggregateCall(f"__read{place}_{at}", "COUNT", (argument,), (kind,), t.BIGINT, filter=condition)


def _columns(core: Core) -> dict[Place, exp.Expression]:
    return {("", each.name): each.expression for each in core.columns}


def _with_marks(
    condition: exp.Expression, columns: Mapping[Place, exp.Expression], marked: Mapping[Place, exp.Expression]
) -> exp.Expression:
    """A filter over the columns of inputs, every term of it with the mark that its column has."""
    made = replaced(condition, columns)
    for column in columns_in(condition):
        original = marked.get(("", column.name))
        if original is not None and MARK in original.meta:
            for term in conjuncts(made):
                term.meta.setdefault(MARK, original.meta[MARK])
    return made


def _groups(stage: AggregateStage) -> Iterator[tuple[int, Output]]:
    """The groups that have values, with their numbers."""
    return ((place, each) for place, each in enumerate(stage.group) if not isinstance(each.expression, exp.Null))


def _in_part(part: int) -> exp.Expression:
    return exp.EQ(this=named(PART), expression=number(part))


def _group(place: int) -> str:
    return f"__g{place}"


def _value(place: int) -> str:
    return f"__v{place}"
