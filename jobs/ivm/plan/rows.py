"""The rows of a block below its top: relations joined and filtered, and the meaning of the block's names there.

A block's expressions read the columns of its inputs. Some of those inputs are subqueries that have no table: they are
read as the relations below them, so a name of the block may stand for an expression, and for different ones in the
branches of a UNION ALL.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from strandline.jobs.ivm.plan.key import KeyColumn, giving, key_of
from strandline.jobs.ivm.plan.trees import greatest, named, number
from strandline.jobs.model import types as t
from strandline.jobs.model.relation import ITEM, META_COLUMNS, PARTITIONS_EACH, Relation
from strandline.jobs.model.stage import Core, Input, Output
from strandline.jobs.model.tables import alike
from strandline.jobs.model.types import SqlType
from strandline.jobs.sql.places import Place, replaced
from strandline.jobs.sql.trees import all_of, call


@dataclass(frozen=True)
class Rows:
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

    def filtered(self, condition: exp.Expression | None) -> Rows:
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


def of_relation(relation: Relation, alias: str) -> Rows:
    """The rows of one relation as they are."""
    return Rows((Input(alias, relation),))


@dataclass(frozen=True)
class Selected:
    """Rows and the outputs that are selected of them, over the columns of their inputs."""

    rows: Rows
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


def renamed(rows: Rows, taken: Collection[str]) -> Rows:
    """The same rows, with aliases that are not `taken`."""
    return aliased(rows, _new_names(rows, set(taken)))


def aliased(rows: Rows, names: Mapping[str, str]) -> Rows:
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


def _moved(rows: Rows, names: Mapping[str, str]) -> dict[Place, exp.Expression]:
    return {
        (each.alias, name): named(name, names[each.alias])
        for each in rows.inputs
        if each.alias in names
        for name, _ in all_columns(each.relation)
    }


def _new_names(rows: Rows, taken: set[str]) -> dict[str, str]:
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
