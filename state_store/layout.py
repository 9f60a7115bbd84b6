"""The layout of a lake: the path of everything in it, on a disk or an object store. Nothing else joins paths.

<lake>/catalog/<name>.json        definitions; functions/ holds those of users, dropping/ and
                                  swapping/ the changes not ended yet
<lake>/definitions.json           which definitions there are: what tells a lost file of the catalog
<lake>/compiled/<name>.json       the compiled plan of a definition; deleting it loses nothing
<lake>/tables/<name>              Delta tables: event logs, projections, dead letters, stages; _leases/ of their readers
<lake>/begun/<name>.json          that a table has a commit: what tells a lost one from one that was never made
<lake>/aside/                     tables that were replaced because they could not be read
<lake>/topics/<topic>/            the local log
<lake>/folders/<record>/          which files of a folder of others were seen, for a source over it
<lake>/topics.json                whether topics are Kafka's or the local log's
<lake>/registry/                  schemas of AVRO, JSON_SR and PROTOBUF topics, without a registry server
<lake>/checkpoints/<pipeline>/    Spark's checkpoints; deleting them loses nothing
<lake>/runs/<pipeline>.json       the heartbeat of its last run: a note for people and alerts
<lake>/reached/<pipeline>.json    what tables reflect beyond their vectors: a note for readers
<lake>/approvals/<name>.json      the version of a table up to which its blocking expectations hold
<lake>/data_docs/<name>.html      what the expectations of a table came to, for people
<lake>/drills/                    what recovery drills came to
<lake>/locks/<name>.lock          one writer process per pipeline: a file lock, or a lease on an object store
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from strandline.state_store.errors import ObjectMissing
from strandline.state_store.paths import is_folder
from strandline.state_store.wording import Name

if TYPE_CHECKING:
    from strandline.state_store.paths import LakePath

# A name itself never has one: `safe_name` encodes it.
_MARK = "!"


def safe_name(name: str) -> str:
    """A file name for any SQL name: letters, digits, `_`, `-` and inner dots stay, the rest is percent-encoded."""
    encoded = quote(name, safe="")
    return encoded.replace(".", "%2E", 1) if encoded.startswith(".") else encoded


def name_of(safe: str) -> str:
    """Invert `safe_name`, and the folder name of `LakeLayout.table`."""
    return unquote(safe.replace(_MARK, "%"))


def table_at(path: LakePath) -> Name:
    """The table in a folder, for a sentence."""
    return Name(name_of(path.name))


@dataclass(frozen=True)
class LakeLayout:
    """The paths of one lake.

    Attributes:
        stand_ins: (table, the table whose folder stands for it), for whoever makes a table that others do not see yet.
    """

    root: LakePath
    stand_ins: tuple[tuple[str, str], ...] = ()

    @property
    def catalog(self) -> LakePath:
        return self.root / "catalog"

    @property
    def definitions(self) -> LakePath:
        return self.root / "definitions.json"

    def compiled(self, name: str) -> LakePath:
        return self.root / "compiled" / f"{safe_name(name)}.json"

    @property
    def registry(self) -> LakePath:
        return self.root / "registry"

    @property
    def tables(self) -> LakePath:
        return self.root / "tables"

    @property
    def begun(self) -> LakePath:
        return self.root / "begun"

    @property
    def aside(self) -> LakePath:
        return self.root / "aside"

    @property
    def drills(self) -> LakePath:
        return self.root / "drills"

    @property
    def acknowledged(self) -> LakePath:
        return self.root / "acknowledged"

    def table(self, name: str) -> LakePath:
        """The folder of a table. On an object store it has no `%`, which delta-rs and Spark would decode or encode."""
        stored = dict(self.stand_ins).get(name, name) if self.stand_ins else name
        if isinstance(self.root, Path):
            return _folder(self.root, stored)
        return self.tables / safe_name(stored).replace("~", "%7E").replace("%", _MARK)

    def topic(self, name: str) -> LakePath:
        return self.root / "topics" / safe_name(name)

    def folder_record(self, name: str) -> LakePath:
        return self.root / "folders" / name

    @property
    def topics_kind(self) -> LakePath:
        return self.root / "topics.json"

    def checkpoint(self, pipeline: str) -> LakePath:
        return self.root / "checkpoints" / safe_name(pipeline)

    def run(self, pipeline: str) -> LakePath:
        return self.root / "runs" / f"{safe_name(pipeline)}.json"

    def reached(self, pipeline: str) -> LakePath:
        return self.root / "reached" / f"{safe_name(pipeline)}.json"

    def approval(self, name: str) -> LakePath:
        return self.root / "approvals" / f"{safe_name(name)}.json"

    def proof(self, name: str) -> LakePath:
        return self.root / "proved" / f"{safe_name(name)}.json"

    def measured(self, kind: str) -> LakePath:
        return self.root / "measured" / safe_name(kind)

    def data_docs(self, name: str) -> LakePath:
        return self.root / "data_docs" / f"{safe_name(name)}.html"

    def lock(self, name: str) -> LakePath:
        return self.root / "locks" / f"{safe_name(name)}.lock"


@lru_cache(maxsize=1 << 14)
def _folder(root: Path, name: str) -> Path:
    # A path that stays the same object knows its text and its hash.
    return root / "tables" / safe_name(name)


def check_lake(lake: LakeLayout) -> None:
    """Check that something has made the lake, before anybody says of one that is not there that all is well with it.

    Raises:
        ObjectMissing: there is nothing of a lake at its root.
    """
    parts = (lake.catalog, lake.tables, lake.root / "topics")
    if not any(is_folder(part) for part in parts) and not lake.topics_kind.exists():
        raise ObjectMissing(
            "there is no lake yet",
            where=str(lake.root),
            hint="make one: strandline apply FILE.sql; or set STRANDLINE_LAKE to where it is",
        )
