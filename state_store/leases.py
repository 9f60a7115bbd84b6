"""Leases: a reader's published "I still need version N" of a table. Clean-up never goes past the smallest.

    <table>/_leases/<reader>.json

A lease keeps the version's rows, and the changes since, beyond the recovery horizon that every version is kept for. It
ends with `withdraw`, or by itself when its reader has not renewed it for `LEASE_DAYS`. A reader publishes before it
reads, and gets VersionGone where it was too late: a lease saves work, no correctness rests on it.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from strandline.state_store.errors import CorruptState, LeaseHeld, TableMissing
from strandline.state_store.files import make_folder, remove_file, replace
from strandline.state_store.layout import safe_name, table_at
from strandline.state_store.paths import files_in, is_folder
from strandline.state_store.stored_state import members_in, sealed_members
from strandline.state_store.tablespec import RECOVERY_HORIZON_MS
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.state_store.paths import LakePath


FOLDER: Final = "_leases"
"""Below the table, so that the leases go where it goes; with '_' no reader of Delta takes it for data."""

LEASE_DAYS: Final = 7
"""A reader that was away for a long weekend goes on where it was; one that is gone for good holds nothing for long."""
_LEASE_MS: Final = LEASE_DAYS * 86_400_000

RENEW_SECONDS: Final = 60.0
"""A renewal is a flushed file. What is published in between is too old by that much, which is on the safe side."""

_FORMAT: Final = 1
_LONGEST: Final = 180
"""Bytes of a reader's name as that of a file. Disks allow 255, and a file that is being written has 38 more."""


@dataclass(frozen=True)
class Lease:
    """A version that a reader has published as needed.

    Attributes:
        version: the version that it still needs, and the changes after it.
        until: milliseconds since the epoch, by the reader's clock.
        host, pid: the process, for people.
    """

    reader: str
    version: int
    until: int
    host: str
    pid: int


class ReaderLease:
    """One reader's lease of one table.

    Args:
        reader: unique among the readers of the table, and the same at each start.
    """

    def __init__(self, table: LakePath, reader: str) -> None:
        self._table = table
        self._file = table / FOLDER / _file_name(reader)
        self._reader = reader
        self._published: tuple[int, float] | None = None

    def publish(self, version: int) -> None:
        """Publish that this version is needed from now on.

        Raises:
            TableMissing: the table was dropped. A lease would begin its folder again.
            DiskFailed, StorageDenied: it could not be written.
        """
        if not is_folder(self._table):
            raise TableMissing(
                sentence("there is no table '{}' to be leased", table_at(self._table)), where=str(self._table)
            )
        lease = Lease(self._reader, version, _now_ms() + _LEASE_MS, socket.gethostname(), os.getpid())
        make_folder(self._file.parent)
        replace(self._file, sealed_members({"format": _FORMAT, **asdict(lease)}))
        self._published = (version, time.monotonic())

    def renew(self, version: int) -> None:
        """Publish the version if the lease is not younger than `RENEW_SECONDS`, or stands at a later one. Raises as
        `publish`."""
        if self._published is not None:
            before, since = self._published
            if before <= version and time.monotonic() - since < RENEW_SECONDS:
                return
        self.publish(version)

    def withdraw(self) -> None:
        """Withdraw the lease: nothing is needed any more."""
        remove_file(self._file)
        self._published = None


def living(table: LakePath, now: int) -> list[Lease]:
    """The leases that have not ended.

    Args:
        now: milliseconds since the epoch.

    Raises:
        CorruptState: one of them does not read back.
    """
    return [lease for lease in _all(table) if lease.until > now]


def expired(table: LakePath, now: int) -> list[Lease]:
    """The leases that have ended, of readers that did not withdraw them: nothing is kept for them any more.

    Raises:
        CorruptState: one of them does not read back.
    """
    return [lease for lease in _all(table) if lease.until <= now]


def file_of(lease: Lease) -> str:
    """The lease's file, relative to the table."""
    return f"{FOLDER}/{_file_name(lease.reader)}"


def _file_name(reader: str) -> str:
    """Of a long name the beginning, and a hash of all: a topic may be called by more than a file."""
    safe = safe_name(reader)
    if len(safe) > _LONGEST:
        safe = f"{safe[: _LONGEST // 2]}-{hashlib.blake2b(reader.encode(), digest_size=16).hexdigest()}"
    return f"{safe}.json"


def _all(table: LakePath) -> Iterator[Lease]:
    for file in files_in(table / FOLDER, ".json"):
        try:
            data = file.read_bytes()
            # Those of earlier versions had no checksum; a member of another name is no member of a lease.
            body = members_in(data) if b'"crc"' in data else json.loads(data)
            if body.pop("format") != _FORMAT:
                raise ValueError
            yield Lease(**body)
        except FileNotFoundError:  # withdrawn a moment ago
            continue
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState(
                "a lease does not read back", where=str(file), hint="remove it; its reader publishes it again"
            ) from error


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


# Retention: the oldest version that somebody needs, and who.
#
#     commits   0 … … … … … … … first … … … … newest
#               └──── may go ────┘     └── kept for the horizon, a lease, or a table that was computed from it
#
# `first` is the smallest version that anybody needs. The feed below it is folded: the rows of `first` stand for all
# changes up to it, the newest row per key, as in a compacted topic. A restore begins there and plays the changes
# after.


@dataclass(frozen=True)
class Need:
    """A version of a table that somebody needs, with the changes after it.

    Attributes:
        kind: the horizon of recovery, a reader's lease, or a table whose vector names the version.
        who: the reader, or the table; empty for the horizon.
        until: of a lease, its end: milliseconds since the epoch.
    """

    kind: Literal["horizon", "lease", "vector"]
    version: int
    who: str = ""
    until: int | None = None

    def __str__(self) -> str:
        name = {
            "horizon": "the recovery horizon",
            "lease": f"the lease of '{self.who}'",
            "vector": sentence("'{}'", Name(self.who)),
        }
        return sentence("version {} for {}", self.version, name[self.kind])


@dataclass(frozen=True)
class Retention:
    """How far back a clean-up keeps a table.

    Attributes:
        horizon_ms: every version of this age (milliseconds) can be read afterwards.
        before: an explicit version instead: what is older goes, whatever its age.
        needs: of tables that were computed from this one.
        fold: the log begins at `first` afterwards, with a checkpoint of it: what the older versions alone need goes
            at once. Otherwise the log goes back to an older checkpoint, and files go when they are a week old.
    """

    horizon_ms: int = RECOVERY_HORIZON_MS
    before: int | None = None
    needs: tuple[Need, ...] = field(default=())
    fold: bool = False


def check_leases(path: LakePath, leased: Sequence[Need], first: int) -> None:
    """Raise LeaseHeld if a version below `first` is leased."""
    held = min((need for need in leased if need.version < first), key=lambda need: need.version, default=None)
    if held is not None:
        raise LeaseHeld(
            sentence(
                "reader '{}' still needs version {} of '{}': nothing below it goes",
                held.who,
                held.version,
                table_at(path),
            ),
            where=str(path / FOLDER),
            hint=f"keep version {held.version} on, or wait until the reader has gone on; a dead reader's lease ends "
            f"by itself after {LEASE_DAYS} days",
        )
