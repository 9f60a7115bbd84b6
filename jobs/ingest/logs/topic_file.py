"""The file that says what a local topic is: its name, its number of partitions and its id.

    topic.json   {"format": 2, "topic": …, "partitions": n, "id": 32 hex digits, "crc": crc32 of the other members}

A topic gets its id when it is made, so one that was removed and made again is told from the first.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from strandline.state_store.checksum import of_members
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import create

if TYPE_CHECKING:
    from strandline.state_store.paths import LakePath

NAME = "topic.json"
_FORMAT = 2


@dataclass(frozen=True)
class TopicFile:
    """One local topic."""

    topic: str
    partitions: int
    id: str
    format: int = _FORMAT


def write(folder: LakePath, topic: str, partitions: int) -> None:
    """Write the file of a new topic; of several processes that do, the first one's stays."""
    members = asdict(TopicFile(topic, partitions, uuid4().hex))
    create(folder / NAME, json.dumps({**members, "crc": of_members(members, ascii_only=True)}).encode())


def read(path: LakePath) -> TopicFile:
    """The topic that the file describes.

    Raises:
        FileNotFoundError: there is no such file.
        CorruptState: it is not as it was written, or of a format that this version does not read.
    """
    try:
        members = json.loads(path.read_bytes())
        version = members["format"]
        checksum = members.pop("crc")
        if version == _FORMAT and checksum == of_members(members, ascii_only=True):
            return TopicFile(**members)
    except (ValueError, KeyError, TypeError):
        pass
    raise CorruptState(
        "the file that describes a local topic does not read back as it was written",
        where=str(path),
        hint="restore the file from a backup of the lake",
    )
