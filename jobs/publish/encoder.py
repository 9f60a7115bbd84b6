"""The records of a view's rows: a key with a value where the row is there, a key alone (a tombstone) where it went.

    header                 says
    strandline.view        whose topic it is
    strandline.table       the identity of the view's table: another one once it was begun anew
    strandline.generation  1, and one more each time the table's versions began anew
    strandline.version     the version of the table in which the row became so
    strandline.ordinal     the record's number within that version, from 1

Each record carries its own version, since compaction keeps the newest record of a key and no others: headers stay with
the record, a record that only marked a version would not say what it covers. A version alone does not order records: a
table that was rebuilt or restored has versions of the same numbers once more. Generation and version do.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from strandline.jobs.ingest.formats.coerce import wire_column
from strandline.jobs.ingest.formats.format import open_format
from strandline.jobs.ingest.logs.log import Record, partition_for
from strandline.jobs.model.errors import EncodeFailed
from strandline.jobs.publish.topic import TopicTaken
from strandline.state_store.errors import CorruptState, DuplicateKey
from strandline.state_store.tablespec import WEIGHT
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.ingest.formats.format import Format, Role
    from strandline.jobs.ingest.logs.log import Header, Log
    from strandline.jobs.model.definitions import Source


VIEW: Final = "strandline.view"
TABLE: Final = "strandline.table"
GENERATION: Final = "strandline.generation"
VERSION: Final = "strandline.version"
ORDINAL: Final = "strandline.ordinal"

SLICE_ROWS: Final = 10_000
"""Rows that are turned into records at a time: some ten MB of Python objects, whatever the size of the table."""

_EMPTY: Final = b"{}"
"""Of a key or a value without columns: of a view of one row, or one all of whose columns are its key."""
_NULL: Final = b"null"


@dataclass(frozen=True)
class RecordOrigin:
    """What records are of: one version of one table, of one generation of the topic."""

    table: str
    generation: int
    version: int


class Encoder:
    """Writes the records of one changelog topic.

    Args:
        source: the topic, as a source could read it.
        registry: called when a format needs one.

    Raises:
        OptionRefused, NotSupported: as of `open_format`.
    """

    def __init__(self, source: Source, registry: Callable[[], Any]) -> None:
        self._source = source
        self._view: Header = (VIEW, source.name.encode())
        self._formats: dict[Role, Format | None] = {
            "key": open_format(source, "key", registry),
            "value": open_format(source, "value", registry),
        }

    @property
    def columns(self) -> list[str]:
        """The names of the columns that a record has."""
        return [column.name for column in self._source.columns]

    def keys(self, rows: pa.Table) -> list[bytes]:
        """The key of each row.

        Raises:
            EncodeFailed: the format cannot write one of them.
        """
        absent = _EMPTY if self._formats["key"] is None else _NULL if self._source.key_format == "JSON" else None
        return self._payloads(rows, "key", absent, "has no NULL")

    def values(self, rows: pa.Table) -> list[bytes]:
        """The value of each row. Errors as of `keys`."""
        absent = _EMPTY if self._formats["value"] is None else None
        return self._payloads(rows, "value", absent, "cannot tell a row of NULLs from one that is deleted")

    def changes(self, changes: pa.Table, origin: RecordOrigin, timestamp_ms: int) -> Iterator[Record]:
        """The records of one version's changes: those of the keys that went, then those of the rows that came.

        A row that came as it went (where only `__state` changed) has none.

        Args:
            changes: the visible columns and `__weight`; of each key one row that went at most, and one that came.
            timestamp_ms: of the commit, milliseconds since the epoch.

        Raises:
            EncodeFailed: as of `keys`.
            DuplicateKey: two rows came with one key.
        """
        import pyarrow.compute as pc

        came = changes.filter(pc.greater(changes[WEIGHT], 0))
        went = dict(self.pairs(changes.filter(pc.less(changes[WEIGHT], 0))))
        there = {key for part in slices(came) for key in self.keys(part)}
        if len(there) != came.num_rows:
            raise DuplicateKey(
                sentence("version {} of '{}' has two rows of one key", origin.version, Name(self._source.name))
            )
        number = 0
        for key in went:
            if key not in there:
                number += 1
                yield self.record(key, None, origin, number, timestamp_ms)
        for key, value in self.pairs(came):
            if went.get(key) != value:
                number += 1
                yield self.record(key, value, origin, number, timestamp_ms)

    def pairs(self, rows: pa.Table) -> Iterator[tuple[bytes, bytes]]:
        """(key, value) of each row. Errors as of `keys`."""
        for part in slices(rows):
            yield from zip(self.keys(part), self.values(part), strict=True)

    def record(self, key: bytes, value: bytes | None, origin: RecordOrigin, number: int, timestamp_ms: int) -> Record:
        """One record, which has that number within its version."""
        headers: tuple[Header, ...] = (
            self._view,
            (TABLE, origin.table.encode()),
            (GENERATION, str(origin.generation).encode()),
            (VERSION, str(origin.version).encode()),
            (ORDINAL, str(number).encode()),
        )
        return Record(key, value, timestamp_ms, headers)

    def _payloads(self, rows: pa.Table, role: Role, absent: bytes | None, why: str) -> list[bytes]:
        form = self._formats[role]
        if form is None:
            return [_EMPTY] * rows.num_rows
        columns = [column for column in self._source.columns if column.part == role]
        names = [column.name for column in columns]
        wire = [wire_column(rows[column.name], column) for column in columns]
        try:
            found = [form.encode(dict(zip(names, row, strict=True))) for row in zip(*wire, strict=True)]
        except (ValueError, TypeError) as error:
            raise EncodeFailed(
                sentence("a row of '{}' cannot be written: {}", Name(self._source.name), error)
            ) from error
        if absent is None and None in found:
            stated = self._source.key_format if role == "key" else self._source.value_format
            raise EncodeFailed(
                sentence(
                    "a row of '{}' cannot be written: as a {}, the format {} {}",
                    Name(self._source.name),
                    role,
                    stated,
                    why,
                ),
                hint=f"say {role.upper()}_FORMAT = 'JSON'",
            )
        return [payload if payload is not None else absent or b"" for payload in found]


def slices(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows, some at a time."""
    for start in range(0, rows.num_rows, SLICE_ROWS):
        yield rows.slice(start, SLICE_ROWS)


# The rows of a changelog topic's live records: what `encoder` wrote, in the columns of the view.


def decoded_rows(live: Mapping[bytes, bytes], source: Source, registry: Callable[[], Any]) -> pa.Table:
    """The rows, in the order of the records.

    Args:
        live: {key: value}, see `live_records`.

    Raises:
        CorruptState: a record cannot be read as a row of the view.
    """
    import pyarrow as pa

    schema = pa.schema([(column.name, column.type.arrow()) for column in source.columns])
    parts: list[pa.Table] = [schema.empty_table()]
    pairs = iter(live.items())
    while piece := list(islice(pairs, SLICE_ROWS)):
        errors: Errors = {}
        arrays: dict[str, pa.Array] = {}
        sides: tuple[tuple[Role, int], ...] = (("key", 0), ("value", 1))
        for role, place in sides:
            form = open_format(source, role, registry)
            names = [column.name for column in source.columns if column.part == role]
            if form is not None:
                payloads = [pair[place] for pair in piece]
                arrays |= dict(zip(names, form.decode(payloads, errors), strict=True))
        if errors:
            row, what = min(errors.items())
            raise CorruptState(
                sentence("a record of the topic '{}' is not a row of '{}': {}", source.topic, Name(source.name), what),
                where=f"{source.topic}, key {piece[row][0]!r}",
                hint=sentence(
                    "compute the rows from the view's inputs: strandline rebuild {}", Name(source.name, shlex.quote)
                ),
            )
        parts.append(pa.table([arrays[name] for name in schema.names], schema=schema))
    return pa.concat_tables(parts)


# The live records of a changelog topic: the newest of each key, but for the keys that are deleted.

Kept = TypeVar("Kept")


def live_records(log: Log, topic: str, view: str, keep: Callable[[bytes], Kept]) -> dict[bytes, Kept]:
    """{key: what `keep` makes of its value}, of all committed records at the time of the call.

    All keys are in memory: some 150 bytes each, and what is kept.

    Raises:
        TopicTaken: a record is not the view's.
        SourceUnavailable: the brokers do not answer.
    """
    begins, ends = log.begin_offsets(topic), log.end_offsets(topic)
    newest: dict[bytes, tuple[int, Kept | None]] = {}
    for partition, end in sorted(ends.items()):
        for run in log.read(topic, partition, begins[partition], end):
            _check_ours(run.headers, topic, view)
            for key, value in zip(run.keys, run.values, strict=True):
                name = key or b""
                before = newest.get(name)
                # Where partitions were added, a key may have records in two: those of its present one came later.
                if before is not None and before[0] == partition_for(name, len(ends), 0) != partition:
                    continue
                newest[name] = (partition, None if value is None else keep(value))
    return {key: kept for key, (_, kept) in newest.items() if kept is not None}


def newest_generation(log: Log, topic: str) -> int:
    """The greatest generation that a committed record states; 0 where none does, or there is no topic.

    Raises:
        SourceUnavailable: the brokers do not answer.
    """
    if not log.exists(topic):
        return 0
    begins, found = log.begin_offsets(topic), 0
    for partition, end in log.end_offsets(topic).items():
        for run in log.read(topic, partition, begins[partition], end):
            stated = (dict(headers or ()).get(GENERATION) for headers in run.headers)
            found = max(found, *(int(each) for each in stated if each), 0)
    return found


def _check_ours(headers: Sequence[Sequence[Header] | None], topic: str, view: str) -> None:
    wanted = (VIEW, view.encode())
    strange = [each or () for each in headers if wanted not in (each or ())]
    if not strange:
        return
    other = dict(strange[0]).get(VIEW)
    whose = f"of the view '{other.decode(errors='replace')}'" if other else "that no view published"
    raise TopicTaken(
        sentence("the topic '{}' of the view '{}' has records {}", topic, Name(view), whose),
        where=topic,
        hint="name another topic: CREATE OR REPLACE … WITH (KAFKA_TOPIC = '…')",
    )
