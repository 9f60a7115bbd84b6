"""The look-ups of a rule: of which rows its text can make use, by key, before it runs.

    SELECT category, MAX(length) FROM info JOIN visit USING (product) GROUP BY category            visit changed

    __keys0   products of delta_visit                              ──> new_info by (product)
    __keys1   categories of delta                                  ──> self_old by (category)
    __keys2   of these, the ones that lost their maximum           ──> new_info by (category), too
    __keys3   products of new_info in the categories of __keys2    ──> new_visit by (product)

What is looked up may be more than the text needs and never less: the text joins as it would join all rows, so a rule
gives the same whether its relations are looked up or scanned. A relation is looked up when each use that the text makes
of it says by which key; otherwise it is scanned, and `Plan.scanned` says why:

- an equality `a.x = b.y` of an inner join, or of a semi join, finds the rows of either side by those of the other;
- that of a left or anti join finds the rows of the joined side. The rows left of it are found by its changed rows,
  to which its term is restricted;
- of a RIGHT or FULL join of two inputs both sides are found by the join keys of the changed rows, as its term is
  restricted; a row that changes on the right of a RIGHT join finds those left of it. In other places such a join keeps
  rows that meet nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.render import lower
from strandline.jobs.ivm.rules.aggregate import chosen, groups_computed_again
from strandline.jobs.ivm.rules.computed_again import Bounds, bounds_of, computed_again, through
from strandline.jobs.ivm.rules.delta_join import PADDING, ctes, equalities, terms
from strandline.jobs.ivm.rules.stored import typed, value_of
from strandline.jobs.model.stage import (
    AggregateStage,
    AnalyticStage,
    Body,
    Core,
    Input,
    LatestStage,
    Output,
    RecursiveStage,
    Stage,
    body_of,
    inputs_of,
)
from strandline.jobs.model.stage_columns import key_names, key_path, storage_of
from strandline.jobs.model.tables import Relation
from strandline.jobs.sql.trees import conjuncts
from strandline.state_store.tablespec import STATE

SELF: Final = "self_old"
_SAME: Final = "IS NOT DISTINCT FROM"
_TOUCHED: Final = "__touched"
"""The changed rows of the input that a term is restricted by; the input itself is read as it was, or is."""


@dataclass(frozen=True)
class Lookup:
    """The rows of a relation by the keys that a rule asks for.

    Attributes:
        relation: as the rule's text names it, unquoted.
        columns: the key's, as they are stored: `__state.<field>` for one that is not visible.
        keys: a SELECT of the keys, a column `k0`, `k1`, … for each of these, over relations of the rule and over the
            keys of earlier look-ups, `__keys<number>`. Further columns are what bounds the rows that are of use.
        after: the numbers of the look-ups whose keys it reads.
    """

    relation: str
    columns: tuple[str, ...]
    keys: str
    after: tuple[int, ...] = ()


@dataclass
class Plan:
    """All look-ups of a rule, in the order in which their keys can be computed.

    Attributes:
        scanned: {relation: why all of its rows are read}.
    """

    lookups: list[Lookup] = field(default_factory=list)
    scanned: dict[str, str] = field(default_factory=dict)

    def add(self, lookup: Lookup) -> int:
        """Add a look-up; its number. The same one is there once."""
        if lookup not in self.lookups:
            self.lookups.append(lookup)
        return self.lookups.index(lookup)

    def needed(self, relations: Collection[str]) -> list[tuple[int, Lookup]]:
        """The look-ups, with their numbers, that find rows of these relations, and those whose keys they read.

        Args:
            relations: those that are worth it. One that the text reads whole is looked up all the same by nobody.
        """
        wanted = {
            number
            for number, lookup in enumerate(self.lookups)
            if lookup.relation in relations and lookup.relation not in self.scanned
        }
        for number in range(len(self.lookups) - 1, -1, -1):
            if number in wanted:
                wanted.update(self.lookups[number].after)
        return [(number, self.lookups[number]) for number in sorted(wanted)]


def plan_lookups(stage: Stage, engine: Engine, changed: Collection[str]) -> Plan:
    """Plan the look-ups of a stage's rule.

    Args:
        changed: the aliases of the inputs that moved.
    """
    plan = Plan()
    if isinstance(stage, RecursiveStage):
        every = (SELF, *(f"new_{each.alias}" for each in inputs_of(stage)))
        plan.scanned.update(dict.fromkeys(every, "rounds read all of it"))
        return plan
    for core in body_of(stage):
        for term in terms(core, changed, engine):
            names = {alias: f"{side}_{alias}" for alias, side in term.sides.items()}
            moved = term.touched_by or next(alias for alias, side in term.sides.items() if side == "delta")
            _Walk(plan, core, names, engine, touched_by=term.touched_by).from_changes(moved)
    _stored_rows(plan, stage, engine, changed)
    _rows_again(plan, stage, engine, changed)
    return plan


def _stored_rows(plan: Plan, stage: Stage, engine: Engine, changed: Collection[str]) -> None:
    """The stored rows that an epoch may replace or delete."""
    if storage_of(stage) == "append":
        return
    names, values, rows = _touched(stage, engine)
    if not names:
        plan.scanned[SELF] = "it has one group, of all rows"
        return
    delta = ", ".join(ctes(stage, engine, changed))
    keys = f"WITH {delta}\nSELECT DISTINCT {_numbered(values)}\n  FROM delta{rows}"
    plan.add(Lookup(SELF, tuple(".".join(key_path(stage, name)) for name in names), keys))


def _touched(stage: Stage, engine: Engine) -> tuple[list[str], list[str], str]:
    """The key columns of the stored rows that a change touches, their values in a row of `delta`, and which rows."""
    match stage:
        case LatestStage():
            outputs = [output for output in stage.outputs if output.name in stage.key]
            return [each.name for each in outputs], [value_of(each, engine) for each in outputs], ""
        case AggregateStage():
            groups = [group for group in stage.group if stage.session is not None or group.name in stage.key]
            return [each.name for each in groups], [value_of(each, engine) for each in groups], chosen(stage, engine)
        case AnalyticStage():
            return [each.name for each in stage.partition], [value_of(each, engine) for each in stage.partition], ""
        case _:
            return list(key_names(stage)), [engine.name(name) for name in key_names(stage)], ""


def _rows_again(plan: Plan, stage: Stage, engine: Engine, changed: Collection[str]) -> None:
    """The rows of the inputs that make up the groups, or parts, which are computed again from all their rows."""
    for body, parts, again, bounds in _computed_again(stage, engine, changed):
        for core, bound in zip(body, bounds, strict=True):
            walk = _Walk(plan, core, {each.alias: f"new_{each.alias}" for each in core.inputs}, engine)
            if parts:
                walk.from_parts(parts, again, bound)
            else:
                walk.scan_rest((), "all rows are computed again")


def _computed_again(
    stage: Stage, engine: Engine, changed: Collection[str]
) -> Iterator[tuple[Body, Sequence[Output], str, tuple[Bounds | None, ...]]]:
    """Rows that are read again, the columns of groups or parts, a SELECT of those that are computed again, and the
    bounds of each core's rows."""
    match stage:
        case AggregateStage() if stage.session is None:
            for again in computed_again(stage):
                keys = groups_computed_again(stage, again, engine, changed) if stage.group else ""
                yield again.rows, stage.group, keys, bounds_of(stage, again)
            return
        case AggregateStage():
            parts, rows = stage.group, chosen(stage, engine)
        case AnalyticStage():
            parts, rows = stage.partition, ""
        case _:
            return
    delta = ", ".join(ctes(stage, engine, changed))
    values = ", ".join(typed(part, engine) for part in parts) or "TRUE AS __any"
    touched = f"WITH {delta}\nSELECT DISTINCT {values} FROM delta{rows}"
    yield body_of(stage), parts, touched, (None,) * len(body_of(stage))


@dataclass(frozen=True)
class _Edge:
    """An equality by which the rows of one input are found: the column `name` of `alias` is `value`, of the rows known
    as `source`."""

    alias: str
    name: str
    source: str
    value: exp.Expression


@dataclass
class _Walk:
    """The way from the rows that are known to those of the other relations of a core, by the equalities of its joins.

    Attributes:
        names: {alias: the relation that it is read from}.
        touched_by: the input whose changes restrict the rows.
    """

    plan: Plan
    core: Core
    names: Mapping[str, str]
    engine: Engine
    touched_by: str | None = None
    unmatched_kept: bool = False
    """Rows that meet nothing are kept by some join: those of no input can be found by the others'."""
    known: dict[str, tuple[str, tuple[int, ...]]] = field(default_factory=dict)
    """{alias: its rows as a relation of a FROM clause, and the look-ups that it reads}."""

    def from_changes(self, alias: str) -> None:
        """From the changed rows of an input."""
        restricting = self.touched_by is not None
        rows = f"{self.engine.name(f'delta_{alias}')} AS {self.engine.name(alias)}"
        padding = [place for place, each in enumerate(self.core.inputs) if each.join in PADDING]
        if padding == [1] and restricting and alias in [each.alias for each in self.core.inputs[:2]]:
            self._go_on(self._found_on_both_sides(alias, rows))
            return
        joined = [self.core.inputs[place] for place in padding]
        if [each.alias for each in joined if each.join == "right"] != [alias] or restricting or len(joined) > 1:
            self.unmatched_kept = bool(padding)
        self.known[_TOUCHED if restricting else alias] = rows, ()
        self._go_on(set() if restricting else {alias})

    def _found_on_both_sides(self, alias: str, changes: str) -> set[str]:
        """Find the rows of both inputs of a RIGHT or FULL join by the keys of the changed rows of one; both inputs.

        Nothing else may find them: of a row of the one all rows of the other that it meets must be there.
        """
        first, second = self.core.inputs[:2]
        pairs = equalities(second.on, second.alias) if second.on is not None else []
        for each, side in ((first, 0), (second, 1)):
            found = [
                (name, lower(pair[alias == second.alias], self.engine.dialect))
                for pair in pairs
                for name in [_column_of(pair[side], each.alias)]
                if name is not None and _stored(each.relation, name) is not None
            ]
            if found:
                keys = f"SELECT DISTINCT {_numbered([value for _, value in found])} FROM {changes}"
                self._found(each, [name for name, _ in found], keys, (), null_too=True)
            else:
                self.plan.scanned.setdefault(self.names[each.alias], "no equality of columns finds them")
        return {first.alias, second.alias}

    def from_parts(self, parts: Sequence[Output], again: str, bounds: Bounds | None) -> None:
        """From the values of groups or parts: of the columns of one input.

        Args:
            again: a SELECT of these values.
            bounds: leave out rows of that input.
        """
        columns = {column.name: column.expression for column in self.core.columns}
        padded = any(each.join in PADDING for each in self.core.inputs)
        for each in self.core.inputs:
            found = [
                (part.name, name)
                for part in parts
                for name in [_column_of(through(part.expression, columns), each.alias)]
                if name is not None and _stored(each.relation, name) is not None
            ]
            nullable = each.join != "inner"
            if found and not nullable and not padded:
                values = ", ".join(f"{self.engine.name(part)} AS k{place}" for place, (part, _) in enumerate(found))
                if bounds is not None:
                    values = ", ".join([values, *bounds.columns(self.engine)])
                keys = f"SELECT DISTINCT {values} FROM (\n{again}\n) AS __again"
                self._found(each, [name for _, name in found], keys, (), null_too=True, bounds=bounds)
                self._go_on({each.alias})
                return
        self.scan_rest(set(), "its groups are no columns of one input")

    def _go_on(self, done: set[str]) -> None:
        while not self.unmatched_kept:
            best = max(self._next(done), key=lambda edges: len(edges), default=None)
            if best is None:
                break
            each = next(each for each in self.core.inputs if each.alias == best[0].alias)
            source, after = self.known[best[0].source]
            values = ", ".join(
                f"{lower(edge.value, self.engine.dialect)} AS k{place}" for place, edge in enumerate(best)
            )
            self._found(each, [edge.name for edge in best], f"SELECT DISTINCT {values} FROM {source}", after)
            done.add(each.alias)
        why = "a RIGHT or FULL join keeps rows that meet nothing" if self.unmatched_kept else "no equality finds them"
        self.scan_rest(done, why)

    def _next(self, done: set[str]) -> Iterator[list[_Edge]]:
        """The equalities that find rows of an input that is not done, by those of one that is known; one list each."""
        edges = [edge for edge in self._edges() if edge.alias not in done and edge.source in self.known]
        for alias, source in dict.fromkeys((edge.alias, edge.source) for edge in edges):
            yield [edge for edge in edges if (edge.alias, edge.source) == (alias, source)]

    def _edges(self) -> Iterator[_Edge]:
        for each in self.core.inputs:
            for part in conjuncts(each.on) if each.on is not None else ():
                if not isinstance(part, exp.EQ):
                    continue
                for one, other in ((part.left, part.right), (part.right, part.left)):
                    edge = self._edge(each, one, other)
                    if edge is not None:
                        yield edge

    def _edge(self, each: Input, target: object, value: object) -> _Edge | None:
        """The rows of the column `target`, by `value`, if the join of `each` leaves no other ones to be read."""
        if not isinstance(target, exp.Column) or not isinstance(value, exp.Expression):
            return None
        aliases = {node.table for node in value.find_all(exp.Column)}
        if len(aliases) != 1 or target.table in aliases or each.alias not in {target.table, *aliases}:
            return None
        source = next(iter(aliases))
        if target.table != each.alias:
            if each.alias == self.touched_by:
                source = _TOUCHED
            elif each.join not in ("inner", "semi", "right"):
                return None
        if not isinstance(value, exp.Column) and self._may_be_padded(source):
            return None  # of a row of NULLs, which is none of the rows that are known, it may have a value
        found = next((i for i in self.core.inputs if i.alias == target.table), None)
        if found is None or _stored(found.relation, target.name) is None:
            return None
        if found.as_of and target.name not in found.relation.key:
            return None  # of a key's versions each needs the one after it
        return _Edge(target.table, target.name, source, value)

    def _may_be_padded(self, alias: str) -> bool:
        """True if some join puts NULLs in the place of a row of that input."""
        places = [place for place, each in enumerate(self.core.inputs) if each.alias == alias]
        return any(
            each.join in ("left", "full") if place in places else each.join in PADDING
            for place, each in enumerate(self.core.inputs)
            if places and place >= places[0]
        )

    def _found(
        self,
        each: Input,
        names: Sequence[str],
        keys: str,
        after: tuple[int, ...],
        *,
        null_too: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        paths = tuple(path for path in (_stored(each.relation, name) for name in names) if path is not None)
        number = self.plan.add(Lookup(self.names[each.alias], paths, keys, after))
        alias, word = self.engine.name(each.alias), _SAME if null_too else "="
        same = " AND ".join(
            f"{alias}.{self.engine.name(name)} {word} __keys{number}.k{place}" for place, name in enumerate(names)
        )
        if bounds is not None:
            same = f"{same} AND {bounds.may_decide(f'__keys{number}', self.engine)}"
        relation = self.engine.name(self.names[each.alias])
        rows = f"(SELECT {alias}.* FROM {relation} AS {alias} SEMI JOIN __keys{number} ON {same}) AS {alias}"
        self.known[each.alias] = rows, (*after, number)

    def scan_rest(self, done: Collection[str], why: str) -> None:
        """All rows of the inputs that are not done are read."""
        for each in self.core.inputs:
            if each.alias not in done:
                self.plan.scanned.setdefault(self.names[each.alias], why)


def _numbered(values: Sequence[str]) -> str:
    return ", ".join(f"{value} AS k{place}" for place, value in enumerate(values))


def _column_of(expression: exp.Expression, alias: str) -> str | None:
    """The column of an input that an expression is; None: it is more than that."""
    return expression.name if isinstance(expression, exp.Column) and expression.table == alias else None


def _stored(relation: Relation, name: str) -> str | None:
    """Where a column of a relation is stored."""
    if any(name == each for each, _ in relation.columns):
        return name
    return f"{STATE}.{name}" if any(name == each for each, _ in relation.hidden) else None
