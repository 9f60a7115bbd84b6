"""The stewardship of a source or view: whose it is, how fresh it must be, and what its rows are expected to be.

| option | value | says |
| --- | --- | --- |
| OWNER | `team:logistics, ann@example.org` | who answers for it |
| TAGS | `domain=parcels, internal` | labels for people and tools |
| FRESHNESS | `5 seconds` | how long an event may wait before the rows reflect it |
| EXPECT | expectations, as YAML | what is checked of the rows (`jobs.operate.quality`) |

No row depends on any of it but expectations with quarantine, which are part of the view's query
(`jobs.query.clauses.quarantine`). All else may change at any time, also beside a running stream.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from strandline.jobs.model.retention import RETENTION_OPTIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

STEWARDSHIP_OPTIONS: Final = ("OWNER", "TAGS", "FRESHNESS", "EXPECT")

Severity = Literal["error", "warn"]


@dataclass(frozen=True)
class Expectation:
    """One expectation of Great Expectations: its name and arguments there, and what follows when it is not met.

    Attributes:
        severity: `warn` is shown, `error` makes the check fail.
        blocking: nothing is computed from a version of the view that breaks it (`jobs.expect.approvals`).
        quarantine: rows that break it are in the view's dead letters, and never in the view.
    """

    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "error"
    blocking: bool = False
    quarantine: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that the arguments name."""
        named = [value for name, value in self.arguments.items() if name in ("column", "column_A", "column_B")]
        return tuple(str(each) for each in (*named, *self.arguments.get("column_list", ())))

    @property
    def name(self) -> str:
        """The name of its check: the expectation's, with the columns that it speaks of."""
        return "__".join((self.type, *self.columns))


@dataclass(frozen=True)
class Stewardship:
    """The stewardship of one definition.

    Attributes:
        owners: `team:NAME` or addresses.
        tags: {key: value}; the value of a tag without one is empty.
        freshness_seconds: None when there is no target.
    """

    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    freshness_seconds: float | None = None
    expectations: tuple[Expectation, ...] = ()

    @property
    def quarantined(self) -> tuple[Expectation, ...]:
        """The expectations that keep rows out."""
        return tuple(each for each in self.expectations if each.quarantine)

    @property
    def blocking(self) -> tuple[Expectation, ...]:
        """The expectations that keep what reads the view from a version that breaks them."""
        return tuple(each for each in self.expectations if each.blocking and each.severity == "error")

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Stewardship:
        """The values of options in the form that `jobs.session.define.stewardship` gives them."""
        freshness = options.get("FRESHNESS")
        return cls(
            owners=tuple(options["OWNER"].split(", ")) if "OWNER" in options else (),
            tags=json.loads(options.get("TAGS", "{}")),
            freshness_seconds=None if freshness is None else float(freshness),
            expectations=tuple(Expectation(**each) for each in json.loads(options.get("EXPECT", "[]"))),
        )


def without_stewardship(options: Mapping[str, str]) -> dict[str, str]:
    """The options on which rows may depend; those that expectations keep out depend on the fingerprint, and no row of a
    view on the retention of a log."""
    left_out = (*STEWARDSHIP_OPTIONS, *RETENTION_OPTIONS)
    return {name: value for name, value in options.items() if name not in left_out}
