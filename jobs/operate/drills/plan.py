"""The plan of drills: scenario × view, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.operate.drills.closure import drillable
from strandline.jobs.operate.drills.scenarios import chosen
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.model.settings import Settings


@dataclass(frozen=True)
class Drill:
    """One rehearsal: a scenario's name, a view, and the seconds that the recovery may take."""

    scenario: str
    view: str
    target_seconds: float

    def as_json(self) -> dict[str, Any]:
        """The drill as values of JSON."""
        return asdict(self)


def plan_drills(
    settings: Settings, views: Sequence[str] = (), scenarios: Sequence[str] = (), target_seconds: float | None = None
) -> tuple[Drill, ...]:
    """The drills of some views.

    Args:
        views: names of views and keyed sources; default: all in the lake.
        scenarios: default: all there are.
        target_seconds: of every drill; default: each scenario's own.

    Raises:
        UnknownName: there is no such view or scenario.
    """
    catalog = Catalog(LakeLayout(settings.lake))
    known = drillable(catalog)
    for view in views:
        if view not in known:
            raise UnknownName.among("view or keyed table", view, map(catalog.name_map.of, known))
    return tuple(
        Drill(each.name, view, each.target_seconds if target_seconds is None else target_seconds)
        for view in views or known
        for each in chosen(scenarios)
    )
