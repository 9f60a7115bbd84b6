"""Where things lie in a lake. The only place that joins paths.

<lake>/catalog/<name>.json        definitions
<lake>/tables/<name>              Delta tables: event logs, projections, dead letters, stages
<lake>/topics/<topic>/            the local log
<lake>/registry/                  schemas of AVRO and JSON_SR topics, without a registry server
<lake>/checkpoints/<pipeline>/    Spark's own bookkeeping; deleting it loses nothing
<lake>/locks/<name>.lock          one writer process per pipeline
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

_SHARED = "shared__"


def safe_name(name: str) -> str:
    """A file name for any SQL name: letters, digits, `_`, `-` and inner dots stay, the rest is percent-encoded."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E", 1) if encoded.startswith(".") else encoded


@dataclass(frozen=True)
class Lake:
    """The paths of one lake."""

    root: Path

    @property
    def catalog(self) -> Path:
        return self.root / "catalog"

    @property
    def registry(self) -> Path:
        return self.root / "registry"

    def table(self, name: str) -> Path:
        return self.root / "tables" / safe_name(name)

    def topic(self, name: str) -> Path:
        return self.root / "topics" / safe_name(name)

    def checkpoint(self, pipeline: str) -> Path:
        return self.root / "checkpoints" / safe_name(pipeline)

    def lock(self, name: str) -> Path:
        return self.root / "locks" / f"{safe_name(name)}.lock"


def dead_letters_of(stream: str) -> str:
    """The table that holds the records of `stream` that could not be decoded."""
    return f"{stream}__dead_letters"


def event_log_of(table: str) -> str:
    """The event log below a keyed source (`CREATE TABLE … (… PRIMARY KEY)`)."""
    return f"{table}__log"


def stage_of(view: str, number: int) -> str:
    """The table of an inner stage of `view`."""
    return f"{view}__stage_{number}"


def shared_table(digest: str) -> str:
    """The table of an inner stage that several views read; `digest` says what it holds."""
    return f"{_SHARED}{digest}"


def is_shared(table: str) -> bool:
    """Whether a table is that of an inner stage that several views read."""
    return table.startswith(_SHARED)
