"""Routes: how the values of a view's key select the rows of each leaf that matter for it.

    key (category) ──own──> 1: info where category = …  ──via product──> 0: visits where product is one of theirs

One rule is used in both directions. Downwards, an upquery reads of each leaf the rows on the key's route. Upwards, a
changed row of a leaf can change the rows of those keys alone on whose route it is, before the change or after it. What
is no NULL in the key is on some route; a key with a NULL has none, so all rows are read for it, and each change is
taken to change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.model.types import BaseType

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.jobs.model.types import SqlType
    from strandline.jobs.partial.leaves import Edge, Leaves, Place

_SELECTING: Final = (BaseType.INT, BaseType.BIGINT, BaseType.VARCHAR)
"""The types whose values the reader of files compares exactly as DuckDB does."""


@dataclass(frozen=True)
class Route:
    """The way to the rows of one leaf; one of `own` and `origins` is empty, both are where there is no way.

    Attributes:
        own: (column of the leaf, place in the key): the rows in which all these are equal.
        column, origins: the rows whose column has a value of one of these columns, in rows on their own routes.
    """

    leaf: int
    own: tuple[tuple[str, int], ...] = ()
    column: str = ""
    origins: tuple[Place, ...] = ()

    @property
    def there(self) -> bool:
        """False if all rows of the leaf matter for every key."""
        return bool(self.own or self.origins)


@dataclass(frozen=True)
class Routes:
    """The routes of a view.

    Attributes:
        key: the columns of the view's key whose values select rows, in the order of the key.
        routes: one for each leaf, each after those that it goes through.
    """

    key: tuple[str, ...]
    routes: tuple[Route, ...]

    def of(self, leaf: int) -> Route:
        """The route to a leaf."""
        return next(route for route in self.routes if route.leaf == leaf)


def routes_of(leaves: Leaves, key: Sequence[tuple[str, SqlType]]) -> Routes:
    """The routes from a key to all leaves.

    Args:
        key: the columns of the view's key, with their types.

    Returns:
        With an empty key when none of its columns selects rows.
    """
    starts = {name: _starts(leaves, name, sql_type) for name, sql_type in key}
    selecting = tuple(name for name, _ in key if starts[name])
    bound = {place: number for number, name in enumerate(selecting) for place in starts[name]}
    _spread(bound, leaves.edges)
    own: dict[int, list[tuple[str, int]]] = {}
    for (leaf, column), number in bound.items():
        own.setdefault(leaf, []).append((column, number))
    found = {leaf: Route(leaf, own=tuple(columns)) for leaf, columns in own.items()}
    while (step := _next(found, leaves.edges)) is not None:
        found[step.leaf] = step
    rest = (Route(leaf) for leaf in range(len(leaves.relations)) if leaf not in found)
    return Routes(selecting, (*found.values(), *rest))


def _starts(leaves: Leaves, name: str, sql_type: SqlType) -> list[Place]:
    """The columns that a key column's values are put on."""
    if sql_type.base not in _SELECTING:
        return []
    places = leaves.outputs[name].places
    return [place for place in places if leaves.relations[place[0]].type_of(place[1]) == sql_type]


def _spread(bound: dict[Place, int], edges: Iterable[Edge]) -> None:
    """Add the columns that equal a key's column because a join says so."""
    before = -1
    while before != len(bound):
        before = len(bound)
        for edge in edges:
            numbers = {bound.get(place) for place in edge.origins}
            number = numbers.pop() if len(numbers) == 1 else None
            if number is not None:
                bound.setdefault(edge.target, number)


def _next(found: Mapping[int, Route], edges: Iterable[Edge]) -> Route | None:
    """A route to one more leaf, through leaves that have one."""
    for edge in edges:
        leaf, column = edge.target
        if leaf not in found and all(place[0] in found for place in edge.origins):
            return Route(leaf, column=column, origins=edge.origins)
    return None
