"""The rows of a block below its top: relations joined and filtered, names as they mean there, and rows that are stored.

A block's expressions read the columns of its inputs. Some of those inputs are subqueries that have no table: they are
read as the relations below them, so a name of the block may stand for an expression, and for different ones in the
branches of a UNION ALL.

Of filters, projections, joins and UNION ALL the rows are stored as they are:

| rows | stored |
| --- | --- |
| only ever added | appended, with the meta columns of their events |
| change and go | by key; the key columns that nobody selected are hidden: `__k0`, … |
| events joined so that they may change and go | by key, time and place of the event hidden as well |
| branches of a UNION ALL, all only ever added | appended; a branch's events have partitions of their own |
| branches of which one changes | by `__branch` and the branch's key, all hidden |
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from strandline.jobs.model import types as t
from strandline.jobs.model.errors import NotSupported
from strandline.jobs.model.stage import Core, Input, MapStage, Output
from strandline.jobs.model.tables import (
    EVENT_ORDER,
    ITEM,
    META_COLUMNS,
    PARTITIONS_EACH,
    WINDOW_BOUNDS,
    Relation,
    alike,
)
from strandline.jobs.model.types import BaseType, SqlType
from strandline.jobs.sql.from_text import type_of
from strandline.jobs.sql.trees import Place, all_of, call, columns_in, conjuncts, identifier, place_of, replaced
from strandline.state_store.wording import Name, sentence

# Operations of the planner on expressions: references to columns, numbers.


def named(name: str, alias: str = "") -> exp.Column:
    """A reference to a column, plain or qualified."""
    qualifier = identifier(alias) if alias else None
    return exp.Column(this=identifier(name), table=qualifier)


def number(value: int) -> exp.Expression:
    """A whole number."""
    literal = exp.Literal.number(abs(value))
    return exp.Neg(this=literal) if value < 0 else literal


def greatest(values: list[exp.Expression]) -> exp.Expression:
    """The greatest of some values; NULLs are passed over."""
    return values[0] if len(values) == 1 else call("GREATEST", *values)


@dataclass(frozen=True)
class PlannedRows:
    """Relations joined from left to right, filtered, exploded.

    Attributes:
        values: the meaning of the block's names, by place; a place that is missing means itself.
        branch: number of the branch of a UNION ALL, from 1; 0 outside of one.
        repeated: as `jobs.model.stage.Core.repeated`.
    """

    inputs: tuple[Input, ...]
    where: exp.Expression | None = None
    expand: tuple[Output, ...] = ()
    values: Mapping[Place, exp.Expression] = field(default_factory=dict)
    branch: int = 0
    repeated: bool = False

    def read(self, node: exp.Expression) -> exp.Expression:
        """An expression of the block, over the columns of `inputs`."""
        return replaced(node, self.values)

    def output(self, output: Output) -> Output:
        """An output of the block, over the columns of `inputs`."""
        return replace(output, expression=self.read(output.expression))

    def filtered(self, condition: exp.Expression | None) -> PlannedRows:
        """Only the rows for which a condition over the columns of `inputs` holds."""
        return replace(self, where=all_of(self.where, condition))

    def core(self, columns: tuple[Output, ...], key: tuple[str, ...] = ()) -> Core:
        """The core that gives those columns, which are over the columns of `inputs`."""
        return Core(self.inputs, self.where, columns, key, self.expand, self.repeated)

    @property
    def is_append(self) -> bool:
        """True if rows are only ever added."""
        return self.core(()).storage == "append"

    def key(self) -> tuple[KeyColumn, ...]:
        """The columns that tell the rows apart. Raises NotSupported: none do."""
        found = key_of(self.inputs, self.where)
        item = KeyColumn("", ITEM, t.INT, frozenset({("", ITEM)}))
        return (*found, item) if self.expand else found

    def meta(self) -> dict[str, exp.Expression]:
        """The meta columns that the rows have, by name.

        Of joined events the time is the greatest, the place that of the leftmost. A row of streams and tables has the
        meta columns of the streams; one of tables those of the newest events of the tables.
        """
        found: dict[str, exp.Expression] = {}
        for name, _ in META_COLUMNS:
            values = [named(name, each.alias) for each in self._events() if _has(each.relation, name)]
            if values:
                found[name] = greatest(list(values)) if name in ("_timestamp", "_stream_time") else self._first(values)
        if self.branch and "_partition" in found:
            found["_partition"] = shifted(found["_partition"], self.branch)
        return found

    def is_of_events(self) -> bool:
        """True if the rows are events, or several events joined, though they may change and go."""
        return any(is_stream(each.relation) for each in self._events())

    def _events(self) -> list[Input]:
        columns = [each for each in giving(self.inputs) if not each.frozen]
        return [each for each in columns if is_stream(each.relation)] or columns

    def _first(self, values: list[exp.Column]) -> exp.Expression:
        # Only an outer join leaves the leftmost event out.
        pads = any(each.join in ("right", "full") for each in self.inputs)
        return call("COALESCE", *values) if pads and len(values) > 1 else values[0]


def is_stream(relation: Relation) -> bool:
    """True if a relation's rows are events: it is append-only, or streams joined so that rows may change and go.

    The latter are known by their key: it is made of the hidden places of the events.
    """
    if relation.storage == "append":
        return True
    hidden = {name for name, _ in relation.hidden}
    return bool(relation.key) and hidden.issuperset(relation.key) and {"_timestamp", "_offset"} <= hidden


def _has(relation: Relation, name: str) -> bool:
    return any(name == each for each, _ in (*relation.columns, *relation.hidden))


def shifted(partition: exp.Expression, number_of_query: int) -> exp.Expression:
    """The partition of an event in a target that several queries feed, this one by its number."""
    return exp.Add(this=number(number_of_query * PARTITIONS_EACH), expression=exp.Paren(this=partition))


def all_columns(relation: Relation) -> tuple[tuple[str, SqlType], ...]:
    """All columns of a relation that can be read by name."""
    return (*relation.columns, *relation.hidden)


def of_relation(relation: Relation, alias: str) -> PlannedRows:
    """The rows of one relation as they are."""
    return PlannedRows((Input(alias, relation),))


@dataclass(frozen=True)
class Selected:
    """Rows and the outputs that are selected of them, over the columns of their inputs."""

    rows: PlannedRows
    outputs: tuple[Output, ...]


def apart(parts: Iterable[Selected]) -> list[Selected]:
    """The same parts with a different alias for each input, as a stage needs them."""
    taken: set[str] = set()
    made = []
    for part in parts:
        names = _new_names(part.rows, taken)
        moved = _moved(part.rows, names)
        outputs = tuple(replace(each, expression=replaced(each.expression, moved)) for each in part.outputs)
        made.append(Selected(aliased(part.rows, names), outputs))
        taken |= {each.alias for each in made[-1].rows.inputs}
    return made


def renamed(rows: PlannedRows, taken: Collection[str]) -> PlannedRows:
    """The same rows, with aliases that are not `taken`."""
    return aliased(rows, _new_names(rows, set(taken)))


def aliased(rows: PlannedRows, names: Mapping[str, str]) -> PlannedRows:
    """The same rows with other aliases for the inputs, `names` being {old: new}. The block's own names stay."""
    moved = _moved(rows, names)
    inputs = tuple(
        replace(
            each,
            alias=names.get(each.alias, each.alias),
            on=replaced(each.on, moved) if each.on is not None else None,
        )
        for each in rows.inputs
    )
    return replace(
        rows,
        inputs=inputs,
        where=replaced(rows.where, moved) if rows.where is not None else None,
        expand=tuple(replace(each, expression=replaced(each.expression, moved)) for each in rows.expand),
        values={place: replaced(value, moved) for place, value in rows.values.items()},
    )


def _moved(rows: PlannedRows, names: Mapping[str, str]) -> dict[Place, exp.Expression]:
    return {
        (each.alias, name): named(name, names[each.alias])
        for each in rows.inputs
        if each.alias in names
        for name, _ in all_columns(each.relation)
    }


def _new_names(rows: PlannedRows, taken: set[str]) -> dict[str, str]:
    names: dict[str, str] = {}
    used = set(taken)
    for each in rows.inputs:
        names[each.alias] = _free(each.alias, used)
        used.add(names[each.alias])
    return {old: new for old, new in names.items() if old != new}


def _free(alias: str, taken: Collection[str]) -> str:
    if alike(alias, taken) is None:
        return alias
    return next(name for n in range(2, len(taken) + 3) if alike(name := f"{alias}_{n}", taken) is None)


# The key of joined rows: the fewest key columns of the inputs that tell the rows apart.
#
#     orders (key id) JOIN users (key name) ON users.name = orders.user      key: orders.id
#     a (key id) LEFT JOIN b (key id) ON a.id = b.id                         key: a.id
#     a (key id) FULL JOIN b (key id) ON a.id = b.id                         key: a.id, b.id
#     s (a stream) LEFT JOIN t (a stream) ON s.k = t.k                       key: s._partition, s._offset, t._…
#
# An input drops out when the join's equalities make its whole key a function of the inputs that remain.

Types = Mapping[Place, SqlType]


@dataclass(frozen=True)
class KeyColumn:
    """A column of an input that is part of the key.

    Attributes:
        same: the places of the columns that always have the same value, its own among them.
    """

    alias: str
    name: str
    type: SqlType
    same: frozenset[Place]

    @property
    def expression(self) -> exp.Column:
        return named(self.name, self.alias)


def giving(inputs: Sequence[Input]) -> list[Input]:
    """The inputs whose columns can be read after the joins."""
    return [each for each in inputs if each.join not in ("semi", "anti")]


def key_of(inputs: Sequence[Input], where: exp.Expression | None) -> tuple[KeyColumn, ...]:
    """The key of the rows of a core.

    Raises:
        NotSupported: the rows of an input cannot be told apart.
    """
    rules = list(_rules(inputs, where))
    kept = [each.alias for each in giving(inputs)]
    for each in reversed(giving(inputs)):
        without = [alias for alias in kept if alias != each.alias]
        if each.alias in _determined(inputs, rules, without):
            kept = without
    equal = _equal_columns(inputs, where)
    found = []
    for each in giving(inputs):
        if each.alias in kept:
            for name in _identity(each):
                same = _class_of((each.alias, name), equal)
                found.append(KeyColumn(each.alias, name, each.relation.type_of(name), same))
    return tuple(found)


def _identity(each: Input) -> tuple[str, ...]:
    """The columns that tell the input's rows apart. AS OF a time a table has one row per key, its log has many."""
    if each.relation.storage == "keyed" or each.as_of:
        return each.relation.key
    if not each.relation.identity:
        raise NotSupported(
            sentence(
                "the rows of '{}' cannot be told apart, and what is asked of them here needs that",
                Name(each.relation.name),
            ),
            hint="explode, or join streams, after this",
        )
    return each.relation.identity


@dataclass(frozen=True)
class _Rule:
    """The column at `place` is a function of the inputs `of`."""

    place: Place
    of: frozenset[str]


def _rules(inputs: Sequence[Input], where: exp.Expression | None) -> Iterator[_Rule]:
    """The rules that equalities give. One of an outer join holds only from the side with all its rows to the other."""
    types = {(each.alias, name): sql_type for each in inputs for name, sql_type in each.relation.columns}
    for condition in conjuncts(where):
        for place, other in _sides(condition, types):
            yield _Rule(place, _aliases(other))
    for each in giving(inputs):
        for condition in conjuncts(each.on):
            for place, other in _sides(condition, types):
                own = place[0] == each.alias
                if each.join == "inner" or each.join == ("left" if own else "right"):
                    yield _Rule(place, _aliases(other))


def _sides(condition: exp.Expression, types: Types) -> Iterator[tuple[Place, exp.Expression]]:
    if not isinstance(condition, exp.EQ):
        return
    for side, other in ((condition.this, condition.expression), (condition.expression, condition.this)):
        place = place_of(_widened(side, types))
        if place is not None:
            yield place, other


def _widened(node: exp.Expression, types: Types) -> exp.Expression:
    """The operand of a cast of a whole number to a wider type, which keeps the numbers apart; else the node."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, exp.Cast):
        return node
    place = place_of(node.this)
    whole = place is not None and place in types and types[place].base in (BaseType.INT, BaseType.BIGINT)
    inner: exp.Expression = node.this
    return inner if whole and type_of(node.to).base in (BaseType.BIGINT, BaseType.DECIMAL) else node


def _aliases(node: exp.Expression) -> frozenset[str]:
    return frozenset(column.table for column in columns_in(node))


def _determined(inputs: Sequence[Input], rules: list[_Rule], kept: list[str]) -> set[str]:
    known = set(kept)
    while True:
        fixed = {rule.place for rule in rules if rule.of <= known}
        more = {
            each.alias
            for each in giving(inputs)
            if each.alias not in known
            and (each.relation.storage == "keyed" or each.relation.identity)
            and all((each.alias, name) in fixed for name in _identity(each))
        }
        if not more:
            return known
        known |= more


def _equal_columns(inputs: Sequence[Input], where: exp.Expression | None) -> list[tuple[Place, Place]]:
    conditions = [*conjuncts(where)]
    for each in giving(inputs):
        if each.join == "inner":
            conditions += conjuncts(each.on)
    pairs = []
    for condition in conditions:
        if isinstance(condition, exp.EQ):
            left, right = place_of(condition.this), place_of(condition.expression)
            if left is not None and right is not None:
                pairs.append((left, right))
    return pairs


def _class_of(place: Place, pairs: list[tuple[Place, Place]]) -> frozenset[Place]:
    found = {place}
    while True:
        more = {b for a, b in pairs if a in found} | {a for a, b in pairs if b in found}
        if more <= found:
            return frozenset(found)
        found |= more


BRANCH = "__branch"
_HERE = "__here"

# Stored beside the rows of events that may change and go: their time and place.
_EVENT = ("_timestamp", "_stream_time", "_partition", "_offset")


def map_stage(parts: Sequence[Selected], *, with_events: bool = False, with_places: bool = False) -> MapStage:
    """The stage that stores those rows; each part is a branch of a UNION ALL.

    Args:
        with_events: keep time and place of events also where the rows are those of tables.
        with_places: keep places there. Without its time, nobody takes such a row for an event.

    Raises:
        NotSupported: the rows of an input cannot be told apart.
    """
    parts = apart(parts)
    visible = tuple(output.name for output in parts[0].outputs)
    if all(part.rows.is_append for part in parts):
        body = tuple(part.rows.core((*part.outputs, *appended(part.rows))) for part in parts)
        return MapStage("", body, (*visible, *(name for name, _ in META_COLUMNS)))
    events = with_events or all(part.rows.is_of_events() for part in parts)
    names = _EVENT if events else EVENT_ORDER if with_places else ()
    if len(parts) == 1:
        core = _keyed(parts[0], names)
        return MapStage("", (core,), visible, core.key)
    return _union(parts, visible, names)


def marked_stage(relation: Relation) -> MapStage:
    """A keyed relation as it is, with a column in its key that is never NULL."""
    rows = of_relation(relation, "rows")
    columns = tuple(Output(name, named(name, "rows"), sql_type) for name, sql_type in all_columns(relation))
    key = (*relation.key, _HERE)
    core = rows.core((*columns, Output(_HERE, exp.Boolean(this=True), t.BOOLEAN)), key)
    return MapStage("", (core,), tuple(name for name, _ in relation.columns), key)


def appended(rows: PlannedRows) -> tuple[Output, ...]:
    """The meta columns of rows that are only ever added."""
    meta = rows.meta()
    return tuple(Output(name, meta[name], sql_type) for name, sql_type in META_COLUMNS)


def keyed_columns(rows: PlannedRows, outputs: tuple[Output, ...]) -> tuple[tuple[str, ...], tuple[Output, ...]]:
    """The names of the key, and the columns that must be hidden for it: a key column that is selected is visible.

    A window's bounds keep their names, even hidden, so that queries over the rows can read them.
    """
    taken = {each.name for each in outputs}
    names, hidden = [], []
    for place, column in enumerate(rows.key()):
        bound = column.name in WINDOW_BOUNDS
        named_so = (o for o in outputs if not bound or o.name == column.name)
        shown = next((o.name for o in named_so if place_of(o.expression) in column.same), None)
        if shown is None:
            name = column.name if bound and column.name not in taken else f"__k{place}"
            taken.add(name)
            hidden.append(Output(name, column.expression, column.type))
        names.append(shown or name)
    return tuple(names), tuple(hidden)


def _keyed(part: Selected, names: Sequence[str]) -> Core:
    key, hidden = keyed_columns(part.rows, part.outputs)
    return part.rows.core((*part.outputs, *hidden, *_events([part.rows], names)[0]), key)


def _events(branches: Sequence[PlannedRows], names: Sequence[str]) -> list[tuple[Output, ...]]:
    """Those of the columns of time and place of the events that all branches have."""
    types = dict(META_COLUMNS)
    known = [rows.meta() for rows in branches]
    shared = [name for name in names if all(name in meta for meta in known)]
    return [tuple(Output(name, meta[name], types[name]) for name in shared) for meta in known]


def _union(parts: Sequence[Selected], visible: tuple[str, ...], names: Sequence[str]) -> MapStage:
    keys = [part.rows.key() for part in parts]
    slots = _slots(keys)
    events = _events([part.rows for part in parts], names)
    key = (BRANCH, *(f"__k{place}" for place in range(len(slots))))
    body = []
    for place, (part, own, event) in enumerate(zip(parts, keys, events, strict=True), 1):
        branch = Output(BRANCH, number(place), t.INT)
        values = _filled(own, slots)
        hidden = (
            Output(f"__k{at}", value, sql_type) for at, (value, sql_type) in enumerate(zip(values, slots, strict=True))
        )
        body.append(part.rows.core((*part.outputs, branch, *hidden, *event), key))
    return MapStage("", tuple(body), visible, key)


def _slots(keys: Sequence[tuple[KeyColumn, ...]]) -> list[SqlType]:
    """The types of the fewest columns that can hold the key of every branch."""
    slots: list[SqlType] = []
    for key in keys:
        types = [column.type for column in key]
        for sql_type in dict.fromkeys(types):
            slots += [sql_type] * (types.count(sql_type) - slots.count(sql_type))
    return slots


def _filled(key: tuple[KeyColumn, ...], slots: Sequence[SqlType]) -> list[exp.Expression]:
    """A value for each slot; NULL where this branch has none."""
    left = list(key)
    values: list[exp.Expression] = []
    for sql_type in slots:
        column = next((each for each in left if each.type == sql_type), None)
        if column is not None:
            left.remove(column)
        values.append(column.expression if column is not None else exp.Null())
    return values
