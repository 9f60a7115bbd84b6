"""What the object of a lease holds: who has it, which fencing token, and for how long it is good without a renewal."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import uuid4

from strandline.state_store.errors import CorruptState, ObjectMissing

if TYPE_CHECKING:
    from strandline.state_store.location import Location


@dataclass(frozen=True)
class LeaseRecord:
    """One state of a lease.

    Attributes:
        holder: unique to one holding; empty when the lease is free. A free record stays, since it keeps the token.
        owner: the holder's name for people: `run tickets.sql`.
        token: one more for each holder, never less: whoever sees a greater one knows that his own is void.
        renewals: makes each renewal a new content, so that its etag is a new one.
        seconds: how long it is good after a renewal.
        expires: that moment by the holder's clock, for people only: no clock is compared with another's.
    """

    holder: str
    owner: str
    host: str
    pid: int
    token: int
    renewals: int
    seconds: float
    expires: str

    @classmethod
    def of_this_process(cls, owner: str, token: int, seconds: float) -> LeaseRecord:
        """The first record of a new holder."""
        return cls(uuid4().hex, owner, socket.gethostname(), os.getpid(), token, 0, seconds, _in(seconds))

    @property
    def is_free(self) -> bool:
        return not self.holder

    def renewed(self) -> LeaseRecord:
        return replace(self, renewals=self.renewals + 1, expires=_in(self.seconds))

    def freed(self) -> LeaseRecord:
        return replace(self, holder="", expires=_in(0))

    def to_bytes(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def read_lease(location: Location) -> tuple[LeaseRecord, str] | None:
    """The record of the lease and its etag; None when nobody ever held it.

    Raises:
        CorruptState: the object is no lease.
    """
    try:
        data, etag = location.read_with_etag()
    except ObjectMissing:
        return None
    try:
        return LeaseRecord(**json.loads(data)), etag
    except (ValueError, TypeError) as error:
        raise CorruptState(
            f"'{location.name}' is not a lease", where=location.url, hint="see that no writer runs, then remove it"
        ) from error


def _in(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")
