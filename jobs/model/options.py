"""The options of definitions as typed values: how a view is maintained, who owns it, and what an event log keeps.

CREATE checks them (`jobs.session.define`); here they are read. Those that change how a view is maintained:

| option | values | says |
| --- | --- | --- |
| SEMANTICS | `sql`, `ksql` | what an empty group and a NULL key are |
| STATE | `full`, `shared` | whether inner stages are the view's own, or read by every view that has the same |
| | `partial` | nothing is stored: a reader computes a key when it is asked for, and keeps it while it is used |
| CACHE_BYTES | a number | the most memory that a reader keeps rows of a partial view in |
| REFRESH | `auto`, `incremental`, `full` | apply changes, recompute in full, or whatever is cheaper |
| ERRORS | `dead_letter`, `stop`, `null` | what happens to a row on which an expression fails |
| TIMESTAMP, TIMESTAMP_FORMAT | a column, a pattern | the time of the view's rows, when it is not that of their events |
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, cast

Semantics = Literal["sql", "ksql"]
State = Literal["full", "shared", "partial"]
Refresh = Literal["auto", "incremental", "full"]
ErrorPolicy = Literal["dead_letter", "stop", "null"]

CACHE_BYTES: Final = 64 << 20
"""Of each partial view in each reading process: some hundred thousand small rows."""


@dataclass(frozen=True)
class ViewOptions:
    """The options that change how a view is maintained; those of its topic are not among them."""

    semantics: Semantics = "sql"
    state: State = "full"
    cache_bytes: int = CACHE_BYTES
    refresh: Refresh = "auto"
    errors: ErrorPolicy = "dead_letter"
    timestamp: str | None = None
    timestamp_format: str | None = None

    @classmethod
    def read(cls, options: Mapping[str, str]) -> ViewOptions:
        """Read options that CREATE has checked (`jobs.session.define.view_options`).

        ksqlDB gives NULL where an expression fails; where its semantics are asked for, that is the default.
        """
        semantics = cast(Semantics, options.get("SEMANTICS", "sql"))
        errors = options.get("ERRORS", "null" if semantics == "ksql" else "dead_letter")
        return cls(
            semantics=semantics,
            state=cast(State, options.get("STATE", "full")),
            cache_bytes=int(options.get("CACHE_BYTES", CACHE_BYTES)),
            refresh=cast(Refresh, options.get("REFRESH", "auto")),
            errors=cast(ErrorPolicy, errors),
            timestamp=options.get("TIMESTAMP"),
            timestamp_format=options.get("TIMESTAMP_FORMAT"),
        )


# Ownership of a source or view: what it is for people, who answers for it, how fresh it must be, and what its rows are
# expected to be.
#
# | option | value | says |
# | --- | --- | --- |
# | OWNER | `team:logistics, ann@example.org` | who answers for it |
# | TAGS | `domain=parcels, internal` | labels for people and tools |
# | FRESHNESS | `5 seconds`, `downstream` | how long an event may wait for the rows (`jobs.run.schedule`) |
# | EXPECT | expectations, as YAML | what is checked of the rows (`jobs.operate.health_checks`) |
# | DESCRIPTION | a text, Markdown | what it is, for people |
# | ORIGIN | a text | what its SQL was made from: a function in Python, a model of dbt |
#
# Rows depend on none of these but expectations with quarantine, which are part of the view's query
# (`jobs.query.clauses.quarantine`). All others may change at any time, also beside a running stream.

OWNERSHIP_OPTIONS: Final = ("OWNER", "TAGS", "FRESHNESS", "EXPECT", "DESCRIPTION", "ORIGIN")

DOWNSTREAM: Final = "downstream"
"""The FRESHNESS of rows that are refreshed when what reads them is."""

Severity = Literal["error", "warn"]


@dataclass(frozen=True)
class Expectation:
    """One expectation of Great Expectations: its name and arguments there, and what happens if it is broken.

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
        """Columns that the arguments name."""
        named = [value for name, value in self.arguments.items() if name in ("column", "column_A", "column_B")]
        return tuple(str(each) for each in (*named, *self.arguments.get("column_list", ())))

    @property
    def name(self) -> str:
        """Name of its check: the expectation's, with its columns."""
        return "__".join((self.type, *self.columns))


@dataclass(frozen=True)
class Ownership:
    """Who owns a definition, and what its owners promise of it.

    Attributes:
        owners: `team:NAME` or addresses.
        tags: {key: value}; the value of a tag without one is empty.
        freshness_seconds: None when there is no target.
        downstream: the rows are refreshed when what reads them is, and have no target of their own.
        description: what it is, for people; Markdown.
        origin: what its SQL was made from.
    """

    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    freshness_seconds: float | None = None
    downstream: bool = False
    expectations: tuple[Expectation, ...] = ()
    description: str | None = None
    origin: str | None = None

    @property
    def patience(self) -> float | None:
        """For how many seconds the rows may lack what has come; None: they are refreshed with each epoch."""
        return math.inf if self.downstream else self.freshness_seconds

    @property
    def quarantined(self) -> tuple[Expectation, ...]:
        """Expectations that keep broken rows out of the view."""
        return tuple(each for each in self.expectations if each.quarantine)

    @property
    def blocking(self) -> tuple[Expectation, ...]:
        """Expectations that keep readers from a version that breaks them."""
        return tuple(each for each in self.expectations if each.blocking and each.severity == "error")

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Ownership:
        """Read the options in the form that `jobs.session.define.ownership` gives them."""
        freshness = options.get("FRESHNESS")
        return cls(
            owners=tuple(options["OWNER"].split(", ")) if "OWNER" in options else (),
            tags=json.loads(options.get("TAGS", "{}")),
            freshness_seconds=None if freshness is None or freshness == DOWNSTREAM else float(freshness),
            downstream=freshness == DOWNSTREAM,
            expectations=tuple(Expectation(**each) for each in json.loads(options.get("EXPECT", "[]"))),
            description=options.get("DESCRIPTION"),
            origin=options.get("ORIGIN"),
        )


def without_ownership(options: Mapping[str, str]) -> dict[str, str]:
    """Leave out the options on which no row depends: those of ownership and retention. Expectations with quarantine do
    keep rows out, but they are in the view's fingerprint."""
    left_out = (*OWNERSHIP_OPTIONS, *RETENTION_OPTIONS)
    return {name: value for name, value in options.items() if name not in left_out}


# The retention of an event log: the options of a source that say how old and how large its log may grow.
#
# | option | value | says |
# | --- | --- | --- |
# | RETENTION_MS | milliseconds | events that are older go, file by file |
# | RETENTION_BYTES | bytes | the oldest go as long as what stays has that many |
#
# -1 stands for no end, as in Kafka. No row of a view depends on them: what was counted of an event stays counted.

TICK: Final = "TICK_EVERY"
"""The option of a table that makes it the clock of its lake: how often the time is written there, in milliseconds."""
RETENTION_OPTIONS: Final = ("RETENTION_MS", "RETENTION_BYTES")
NO_END: Final = -1


@dataclass(frozen=True)
class LogRetention:
    """Limits of an event log; None: no limit.

    Attributes:
        age_ms: of an event, in milliseconds of its event time before now.
        size: bytes of data files.
    """

    age_ms: int | None = None
    size: int | None = None

    @classmethod
    def read(cls, options: Mapping[str, str], default_ms: int | None = None) -> LogRetention:
        """Read the options of a source.

        Args:
            default_ms: the age where they say none.
        """
        age, size = (int(options[name]) if name in options else None for name in RETENTION_OPTIONS)
        age = default_ms if age is None else age
        return cls(None if age == NO_END else age, None if size == NO_END else size)

    @property
    def endless(self) -> bool:
        """True if events are kept for ever."""
        return self.age_ms is None and self.size is None
