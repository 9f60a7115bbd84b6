"""The layout of a lake: the path of everything in it. Nothing else joins paths.

<lake>/catalog/<name>.json        definitions; functions/ holds those of users, dropping/ the drops not ended yet
<lake>/tables/<name>              Delta tables: event logs, projections, dead letters, stages; _leases/ of their readers
<lake>/aside/                     tables that were replaced because they could not be read
<lake>/topics/<topic>/            the local log
<lake>/registry/                  schemas of AVRO and JSON_SR topics, without a registry server
<lake>/checkpoints/<pipeline>/    Spark's checkpoints; deleting them loses nothing
<lake>/locks/<name>.lock          one writer process per pipeline
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote


def safe_name(name: str) -> str:
    """A file name for any SQL name: letters, digits, `_`, `-` and inner dots stay, the rest is percent-encoded."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E", 1) if encoded.startswith(".") else encoded


def name_of(safe: str) -> str:
    """The name that `safe_name` made a file name of."""
    return unquote(safe)


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

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    @property
    def aside(self) -> Path:
        return self.root / "aside"

    def table(self, name: str) -> Path:
        return self.tables / safe_name(name)

    def topic(self, name: str) -> Path:
        return self.root / "topics" / safe_name(name)

    def checkpoint(self, pipeline: str) -> Path:
        return self.root / "checkpoints" / safe_name(pipeline)

    def lock(self, name: str) -> Path:
        return self.root / "locks" / f"{safe_name(name)}.lock"
