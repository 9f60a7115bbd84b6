"""The options of a view that change how it is maintained, as typed values with their defaults.

| option | values | says |
| --- | --- | --- |
| SEMANTICS | `sql`, `ksql` | what an empty group and a NULL key are |
| STATE | `full`, `shared` | whether inner stages are the view's own, or read by every view that has the same |
| | `partial` | nothing is stored: a reader computes a key when it is asked for, and keeps it while it is used |
| CACHE_BYTES | a number | the most memory that a reader keeps rows of a partial view in |
| REFRESH | `auto`, `incremental`, `full` | take in changes, compute everything anew, or what is cheaper |
| ERRORS | `dead_letter`, `stop`, `null` | what happens to a row on which an expression fails |
| TIMESTAMP, TIMESTAMP_FORMAT | a column, a pattern | the time of the view's rows, when it is not that of their events |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, cast

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
        """The values of options that CREATE has checked (`jobs.session.define.view_options`).

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
