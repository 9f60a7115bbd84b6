"""SELECTs of keys, answered in the server's process by the view's replica; whatever else is asked has no answer here.

    text ──shape──> plan (kept) ──replica that is LIVE──> rows
                      └─ none, or no replica ──> the processes that answer any SELECT

No expression of a user is computed here: a plan has columns, constants and comparisons, see `jobs.serve.keyed`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.serve.keyed import NotByKey, keyed_plan
from strandline.jobs.serve.results import RowText, shown
from strandline.jobs.serve.shape import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.query.pulled import Unnamed
    from strandline.jobs.serve.catalogued import Catalogued
    from strandline.jobs.serve.consistent_snapshot import Pinned, Reach, Reflected
    from strandline.jobs.serve.keyed import KeyedPlan
    from strandline.jobs.serve.shape import Shape
    from strandline.jobs.serve.terms import Least
    from strandline.jobs.server.state.access import Token
    from strandline.jobs.server.state.metrics import Metrics
    from strandline.jobs.server.state.replicas import Replicas
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.replicas.state import Row

_KEPT_PLANS: Final = 1000
"""Of some kilobytes each: an application has some dozens of shapes."""
_FEW_KEYS: Final = 64
"""Read in the event loop: they take a millisecond."""


@dataclass
class Prepared:
    """A plan, and what its answers share.

    Attributes:
        plan: None: the texts of the shape are not answered here.
        scopes: the names by which a token's scope may mean the view, first what it is called.
    """

    plan: KeyedPlan | None
    scopes: tuple[str, ...] = ("",)
    text: RowText | None = None


@dataclass(frozen=True)
class Keyed:
    """One answer.

    Attributes:
        rows: with all columns of the view, by name.
        standing: what the view's version reflects.
    """

    prepared: Prepared
    plan: KeyedPlan
    rows: list[Row]
    standing: Reflected

    @property
    def names(self) -> tuple[str, ...]:
        """Of the columns."""
        return self.plan.names

    @property
    def types(self) -> tuple[SqlType, ...]:
        """Of the columns."""
        return self.plan.types

    @property
    def versions(self) -> dict[str, int]:
        """{what the view is called: its version}."""
        return {self.prepared.scopes[0]: self.standing.version}

    @property
    def committed(self) -> int | None:
        """When that version was committed, milliseconds since the epoch."""
        return self.standing.committed

    @property
    def event_time(self) -> int | None:
        """The largest event time in it, microseconds since the epoch."""
        return self.standing.event_time

    @property
    def offsets(self) -> Mapping[str, Reach]:
        """Of the topics that it is made of, which it reflects."""
        return self.standing.offsets

    def lines(self) -> list[str]:
        """The rows as JSON objects."""
        assert self.prepared.text is not None
        return [self.prepared.text.of(row) for row in self.rows]

    def tuples(self) -> list[tuple[object, ...]]:
        """The rows as values in the order of the columns, as Arrow's `to_pylist` gives them."""
        return [tuple(row[column] for column in self.plan.columns) for row in self.rows]

    def shown(self) -> list[list[Any]]:
        """The rows as results hold them: MAP as dict, TIME as time of day."""
        types = self.plan.types
        return [[shown(value, kind) for value, kind in zip(row, types, strict=True)] for row in self.tuples()]


class KeyedQueries:
    """The SELECTs of keys of a server. Called in the event loop alone.

    Args:
        may_answer: False if a client may have had a newer version of a view.
    """

    def __init__(
        self,
        lake: LakeLayout,
        catalogued: Catalogued,
        replicas: Replicas,
        may_answer: Callable[[str, int], bool],
        metrics: Metrics,
    ) -> None:
        self._lake = lake
        self._catalogued = catalogued
        self._replicas = replicas
        self._may_answer = may_answer
        self._metrics = metrics
        self._catalog: Catalog | None = None
        self._prepared: dict[tuple[str, Unnamed], Prepared] = {}

    async def find(
        self,
        text: str,
        token: Token,
        unnamed: Unnamed = "postgres",
        at_least: Mapping[str, Least] | None = None,
        *,
        schema: bool = False,
        pinned: Pinned | None = None,
    ) -> Keyed | None:
        """The answer to a SELECT; None where others have to answer it.

        Args:
            unnamed: whose names the columns get that nobody named.
            schema: names may have the schema `public`.
            pinned: the cut that is read: a replica answers while it stands at that version.

        Raises:
            Unauthenticated, Forbidden: the token does not allow it.
        """
        shape = shape_of(text, schema=schema)
        if shape is None:
            return None
        prepared = await self.prepared(shape, unnamed)
        plan = prepared.plan
        if plan is None:
            return None
        name = plan.relation.name
        token.require("read", *prepared.scopes)
        followed = self._replicas.of(plan.relation)
        if followed is None:
            return None
        constants = shape.constants
        try:
            if not self._replicas.remote and sum(len(each.values) for each in constants) <= _FEW_KEYS:
                found = followed.read_rows(plan, constants)
            else:
                found = await asyncio.to_thread(followed.read_rows, plan, constants)
        except NotByKey:
            return None
        if found is None:
            return None
        version, rows = found
        if pinned is not None and (pinned.versions.get(name) != version or pinned.at(name, self._lake) is None):
            return None
        standing = followed.standing(version)
        if at_least and not all(table == name and least.met_by(standing) for table, least in at_least.items()):
            return None
        if not self._may_answer(name, version) and pinned is None:
            return None
        self._metrics.looked_up(name, "replica")
        return Keyed(prepared, plan, rows, standing)

    async def prepared(self, shape: Shape, unnamed: Unnamed) -> Prepared:
        """The plan of a shape, made now unless it is kept."""
        catalog = self._catalogued.catalog
        if catalog is not self._catalog or len(self._prepared) >= _KEPT_PLANS:
            self._catalog, self._prepared = catalog, {}
        found = self._prepared.get((shape.text, unnamed))
        if found is None:
            found = await asyncio.to_thread(_prepare, shape, catalog, unnamed)
            if catalog is self._catalog:
                self._prepared[shape.text, unnamed] = found
        return found


def _prepare(shape: Shape, catalog: Catalog, unnamed: Unnamed) -> Prepared:
    plan = keyed_plan(shape, catalog, unnamed)
    if plan is None:
        return Prepared(None)
    text = RowText(zip(plan.columns, plan.types, strict=True), plan.names)
    return Prepared(plan, catalog.name_map.scopes_of(plan.relation.name), text)
