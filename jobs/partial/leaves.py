"""The leaves of a query: each place where it reads a relation, and how the rows of one leaf select those of another.

    SELECT i.category, COUNT(*) FROM visits v JOIN info i ON v.product = i.product GROUP BY i.category

    leaves    0: visits   1: info          outputs   category: column category of leaf 1
    edges     1.product selects 0.product, and 0.product selects 1.product

An edge says: of the rows of its target only those matter whose column has one of the values that the column has in the
rows of its origin that matter. It holds of an equality in the condition of a join, in both directions of an inner one.
Of a left, semi or anti join it holds towards the joined input alone, since rows that match nothing matter on the other
side; of a right or full join it does not hold. NULL equals nothing, and is no value here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sqlglot import exp

from strandline.jobs.model.relation import Relation
from strandline.jobs.query.logical import Block, From, Query, SetOperation, outputs_of
from strandline.jobs.sql.trees import conjuncts

if TYPE_CHECKING:
    from collections.abc import Mapping

Place = tuple[int, str]
"""A column of a leaf: the leaf's number, and the column's name."""


@dataclass(frozen=True)
class Origin:
    """The columns of leaves that a column's values come from, as they are.

    Attributes:
        complete: False if values may come from elsewhere as well: from an expression, or a branch of a UNION.
    """

    places: tuple[Place, ...]
    complete: bool


NOWHERE: Final = Origin((), complete=False)


@dataclass(frozen=True)
class Edge:
    """The rows of `target`'s leaf that matter have, in that column, a value of one of the columns of `origins`."""

    origins: tuple[Place, ...]
    target: Place


@dataclass(frozen=True)
class Leaves:
    """A query as its leaves.

    Attributes:
        relations: of each leaf, by its number.
        outputs: the origin of each visible column. A condition on one that has an origin may as well be put on it: it
            is a column of groups or of partitions, or no rows are combined.
    """

    relations: tuple[Relation, ...]
    edges: tuple[Edge, ...]
    outputs: Mapping[str, Origin]


def leaves_of(query: Query) -> Leaves:
    """The leaves of a query, in the order of its text."""
    walk = _Walk()
    outputs = walk.query(query)
    return Leaves(tuple(walk.relations), tuple(walk.edges), outputs)


class _Walk:
    """What was found so far on the way through a query and its subqueries."""

    def __init__(self) -> None:
        self.relations: list[Relation] = []
        self.edges: list[Edge] = []

    def query(self, query: Query) -> dict[str, Origin]:
        """The origin of each visible column."""
        if isinstance(query, Block):
            parts = {part.alias: self._source(part) for part in query.inputs}
            for part in query.inputs[1:]:
                self._joined(part, parts)
            return {each.name: _origin(each.expression, query, parts) for each in query.outputs}
        return self._set_operation(query)

    def _set_operation(self, query: SetOperation) -> dict[str, Origin]:
        branches = [list(self.query(branch).values()) for branch in query.branches]
        found = {}
        for place, (name, _) in enumerate(outputs_of(query)):
            origins = [branch[place] for branch in branches]
            places = tuple(each for origin in origins for each in origin.places)
            found[name] = Origin(places, all(origin.complete for origin in origins))
        return found

    def _source(self, part: From) -> dict[str, Origin]:
        if not isinstance(part.source, Relation):
            return self.query(part.source)
        number = len(self.relations)
        self.relations.append(part.source)
        return {name: Origin(((number, name),), complete=True) for name, _ in part.source.columns}

    def _joined(self, part: From, parts: Mapping[str, Mapping[str, Origin]]) -> None:
        """Note the edges of one join's condition."""
        if part.join in ("right", "full"):
            return
        for term in conjuncts(part.on):
            sides = (term.this, term.expression) if isinstance(term, exp.EQ) else ()
            columns = [side for side in sides if isinstance(side, exp.Column) and side.table]
            if len(columns) != 2 or sum(column.table == part.alias for column in columns) != 1:
                continue
            joined, earlier = sorted(columns, key=lambda column: column.table != part.alias)
            near, far = (parts[each.table].get(each.name, NOWHERE) for each in (joined, earlier))
            self._edges(far, near)
            if part.join == "inner":
                self._edges(near, far)

    def _edges(self, origin: Origin, target: Origin) -> None:
        if not origin.complete:
            return
        types = {self._type(place) for place in origin.places}
        # Values are compared by the reader of files, as they are stored: only within one type.
        self.edges += [Edge(origin.places, place) for place in target.places if types == {self._type(place)}]

    def _type(self, place: Place) -> object:
        return self.relations[place[0]].type_of(place[1])


def _origin(output: exp.Expression, block: Block, parts: Mapping[str, Mapping[str, Origin]]) -> Origin:
    """The origin of an output."""
    if not isinstance(output, exp.Column):
        return NOWHERE
    if block.analytic and output not in block.partition:
        return NOWHERE
    if block.group is not None:
        key = next((each.expression for each in block.group if each.name == output.name), None)
        if not isinstance(key, exp.Column):
            return NOWHERE
        output = key
    return parts[output.table].get(output.name, NOWHERE) if output.table else NOWHERE
