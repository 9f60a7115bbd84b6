"""The scenarios that are drilled, as data. A new view is drilled without code: drills are scenario × view."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.jobs.model.errors import UnknownName
from strandline.jobs.operate.drills import losses, recoveries
from strandline.jobs.operate.drills.ground import Scenario

if TYPE_CHECKING:
    from collections.abc import Sequence

_REBUILT: Final = 60.0
"""Seconds for whatever reads all rows: the goal for ten million of them."""
_RESTARTED: Final = 20.0
"""Seconds from a killed driver to fresh rows, with the start of a JVM: the goal for it."""

SCENARIOS: Final = (
    Scenario(
        "changelog",
        "the table, rebuilt from its changelog to a version and to a time",
        _REBUILT,
        losses.rehearse_from_changelog,
    ),
    Scenario(
        "recompute",
        "the trust in the rows: computed again from the event logs",
        _REBUILT,
        recoveries.rehearse_recomputed,
    ),
    Scenario("local-state", "checkpoints and the replica's folder", _REBUILT, losses.rehearse_local_state),
    Scenario(
        "killed-driver",
        "the driver, by SIGKILL in the middle of an epoch",
        _RESTARTED,
        recoveries.rehearse_killed_driver,
    ),
    Scenario(
        "point-in-time",
        "the newest versions: taken back to a time, and caught up",
        _REBUILT,
        recoveries.rehearse_point_in_time,
    ),
    Scenario("feed-gap", "a version of the change feed, where a reader stands", _REBUILT, losses.rehearse_feed_gap),
    Scenario("backup", "the lake, restored from a backup", _REBUILT, losses.rehearse_from_backup),
    Scenario("short-topic", "the topic behind the event log", _REBUILT, losses.rehearse_short_topic),
)


def scenario(name: str) -> Scenario:
    """The scenario of that name. Raises UnknownName."""
    found = next((each for each in SCENARIOS if each.name == name), None)
    if found is None:
        raise UnknownName.among("scenario", name, [each.name for each in SCENARIOS])
    return found


def chosen(names: Sequence[str]) -> list[Scenario]:
    """The scenarios of those names; without names all of them. Raises UnknownName."""
    return [scenario(name) for name in names] if names else [*SCENARIOS]
