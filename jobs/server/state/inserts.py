"""Inserts by HTTP: rows become records of a stream's topic, once for each idempotency key.

    intent (key, body's hash, ends of the topic) ──> records, each with the key in a header ──> answer

A request whose key is known gets the answer that was given before. Where a kill left an intent without an answer, the
records since the intent's ends say which rows are in already: the others follow, and the answer is that of all.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.ingest.produce import append_records, encode_rows
from strandline.jobs.ingest.topics import open_log, open_to_write
from strandline.jobs.model.definitions import written_elsewhere
from strandline.jobs.serve.errors import KeyReused, RequestRefused
from strandline.state_store.errors import CorruptState
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder
from strandline.state_store.files import replace as replace_file
from strandline.state_store.stored_state import members_in, sealed_members
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from strandline.jobs.ingest.logs.log import Record
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.layout import LakeLayout

HEADER: Final = "strandline-insert"
"""Of a record that came with an idempotency key: a hash of the key, a colon, the row's place in the request."""
KEPT_SECONDS: Final = 86_400
"""A client that comes again after a day has other worries; a key takes some hundred bytes of disk."""
_FORGETS_SECONDS: Final = 3_600.0
"""Between two removals of the keys that are too old: a look at each file that is kept."""
_LOCKS: Final = 64
"""Requests with one key wait for each other; those with different ones seldom do."""

_FREED_AT_ONCE: Final = 1000

Place = tuple[int, int]
"""The partition and offset of a record."""


@dataclass(frozen=True)
class Inserted:
    """Rows that are in the topic: the place of each, in the order of the request."""

    topic: str
    places: tuple[Place, ...]

    @property
    def position(self) -> str:
        """What `at_least` takes: `topic@partition:offset,…`, each offset behind the last row of the partition."""
        ends: dict[int, int] = {}
        for partition, offset in self.places:
            ends[partition] = max(ends.get(partition, 0), offset + 1)
        return f"{self.topic}@{','.join(f'{partition}:{end}' for partition, end in sorted(ends.items()))}"


class Inserts:
    """The inserts of a server. Any thread may insert; requests with one key go one after the other.

    Args:
        folder: for the keys; no other process uses it.
    """

    def __init__(self, settings: Settings, lake: LakeLayout, folder: Path) -> None:
        self._settings = settings
        self._lake = lake
        self._folder = folder
        self._locks = [Lock() for _ in range(_LOCKS)]
        make_folder(folder)
        self._forgot = time.monotonic()
        self._forget()

    def insert(self, source: Source, rows: Sequence[Mapping[str, Any]], key: str | None) -> Inserted:
        """Append the rows to the source's topic.

        Raises:
            EncodeFailed: a value does not fit its column. Nothing was written.
            KeyReused: the key came with other rows before.
            RequestRefused: others write the topic.
            TopicMissing, TopicReplaced: events were read from it, and it is gone. Nothing was written.
            SourceUnavailable: the broker does not answer.
        """
        if source.read_only:
            raise RequestRefused(
                sentence("'{}' is a SOURCE: it is read only", Name(source.name)), hint=written_elsewhere(source)
            )
        records = encode_rows(source, rows, self._settings, self._lake)
        try:
            if key is None:
                return Inserted(source.topic, tuple(append_records(source, records, self._settings, self._lake)))
            if time.monotonic() - self._forgot > _FORGETS_SECONDS:
                self._forgot = time.monotonic()
                Thread(target=self._forget, name="old idempotency keys", daemon=True).start()
            name = hashlib.sha256(f"{source.name}\0{key}".encode()).hexdigest()[:32]
            with self._locks[int(name[:8], 16) % len(self._locks)]:
                return self._once(name, source, records, _hash(rows))
        finally:
            let_go(records)

    def _once(self, name: str, source: Source, records: Sequence[Record], body: str) -> Inserted:
        file = self._folder / f"{name}.json"
        known = _known(file) if file.exists() else None
        if known is not None and known["body"] != body:
            raise KeyReused("the idempotency key came with other rows before", hint="use a new key for a new request")
        if known is not None and known["places"] is not None:
            return Inserted(source.topic, tuple((p, o) for p, o in known["places"]))
        log = open_to_write(source, self._settings, self._lake)
        if known is None:
            ends = {str(partition): end for partition, end in log.end_offsets(source.topic).items()}
            known = {"body": body, "ends": ends, "places": None}
            replace_file(file, sealed_members(known))
            found: dict[int, Place] = {}
        else:
            found = self._found(name, source, {int(partition): end for partition, end in known["ends"].items()})
        failpoint("after-insert-intent")
        missing = [number for number in range(len(records)) if number not in found]
        marked = [_marked(records[number], name, number) for number in missing]
        if marked:
            places = append_records(source, marked, self._settings, self._lake)
            found |= dict(zip(missing, places, strict=True))
        failpoint("after-insert-records")
        made = Inserted(source.topic, tuple(found[number] for number in range(len(records))))
        replace_file(file, sealed_members({**known, "places": made.places}))
        return made

    def _found(self, name: str, source: Source, ends: Mapping[int, int]) -> dict[int, Place]:
        """{place in the request: its record} of those that were written before a kill."""
        log = open_log(self._settings, self._lake)
        found: dict[int, Place] = {}
        for partition, end in log.end_offsets(source.topic).items():
            for run in log.read(source.topic, partition, ends.get(partition, 0), end):
                for offset, headers in zip(run.offsets, run.headers, strict=True):
                    for header, value in headers or ():
                        mark, _, number = (value or b"").decode(errors="replace").partition(":")
                        if header == HEADER and mark == name:
                            found[int(number)] = (partition, offset)
        return found

    def _forget(self) -> None:
        """Remove the keys that are too old."""
        for file in self._folder.glob("*.json"):
            with suppress(FileNotFoundError):  # removed since it was listed
                if file.stat().st_mtime < time.time() - KEPT_SECONDS:
                    file.unlink()


def _known(file: Path) -> dict[str, Any]:
    """What is kept of a request: its body's hash, the topic's ends before it, and its answer.

    Raises:
        CorruptState: it is not as it was written. Without it nobody knows which rows of the request are in the topic.
    """
    try:
        return members_in(file.read_bytes())
    except ValueError as error:
        raise CorruptState(
            f"what the server kept of this idempotency key, '{file.name}', is not as it was written: "
            "it cannot tell whether the rows are in the topic",
            where=str(file),
            hint=f"look for records with the header {HEADER} = '{file.stem}:0' and on (PRINT shows headers); if there "
            "are none, remove the file and send the request again; if all are there, it is done",
        ) from error


def let_go(items: list[Any]) -> None:
    """Empty a list, some at a time: to free 600,000 rows at once keeps every other thread waiting for 0.2 s."""
    while items:
        del items[-_FREED_AT_ONCE:]


def _marked(record: Record, name: str, number: int) -> Record:
    return replace(record, headers=(*record.headers, (HEADER, f"{name}:{number}".encode())))


def _hash(rows: Sequence[Mapping[str, Any]]) -> str:
    """Of the rows as one JSON array. Row by row, so that look-ups get their turn between two of many."""
    hashed, before = hashlib.sha256(b"["), b""
    for row in rows:
        hashed.update(before + json.dumps(row, sort_keys=True, default=str).encode())
        before = b", "
    hashed.update(b"]")
    return hashed.hexdigest()
