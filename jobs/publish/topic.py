"""The interface of a changelog topic: its position, which is what it holds, and writing on from there, exactly once.

ChangelogTopic ── KafkaTopic    one transaction of Kafka for each write (strandline.jobs.publish.kafka_topic)
               └─ LocalTopic    one segment of the lake's own log for each write (below)

The changelog topic that a view declares: `WITH (KAFKA_TOPIC = 'name', …)`, as a source that could read it.

A record's key is the columns that identify a row, its value the others; so the same formats write the topic and read
it back, here and wherever `CREATE TABLE … WITH (KAFKA_TOPIC = 'name')` declares it again.

The position in a topic of the lake's own log stands in a header of the last record that a write brings to a partition,
with the write's number: of the partitions' last records, the one with the greatest number says what the topic holds. A
segment is appended only where the topic ends as this publisher knows it, so a second one is found out before it writes.

The errors of changelog topics: what keeps a view's changes from its topic, or its rows from coming back from there.

PublishError
├── TopicTaken                publish.topic_taken         stop
├── TopicUnfit                publish.topic_unfit         stop
├── PublisherFenced           publish.fenced              stop
├── NeverPublished            publish.never               stop
├── TopicMoved                publish.topic_moved         retry
└── TopicDiffers              publish.topic_differs       restore
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol, Self

from strandline.jobs.ingest.formats.format import NULLABLE_OPTIONS, WRAP_OPTION
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.logs.log import partition_for
from strandline.jobs.ingest.topics import remember
from strandline.jobs.model.definitions import Source, View
from strandline.state_store.commits import TableVersion
from strandline.state_store.digest import Digest
from strandline.state_store.errors import Action, CorruptState, StrandlineError
from strandline.state_store.failpoints import failpoint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from strandline.jobs.ingest.logs.log import Log, Record
    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.commits import Head
    from strandline.state_store.layout import LakeLayout


class PublishError(StrandlineError):
    """Base of the errors of changelog topics."""

    code = "publish"


class TopicTaken(PublishError):
    """The topic has records that are not the view's: what vanished could not be told from what others wrote. Nothing
    was written. Stop: give the view a topic of its own."""

    code = "publish.topic_taken"


class TopicUnfit(PublishError):
    """The topic is not compacted: it would forget rows that have not changed for a while. Stop: alter its
    configuration, or give the view another topic."""

    code = "publish.topic_unfit"


class PublisherFenced(PublishError):
    """Another publisher of the topic has begun since. What this one had not committed is not there. Stop: one goes on
    alone; where the other is not wanted, end it and start this one again."""

    code = "publish.fenced"


class NeverPublished(PublishError):
    """The topic holds no version of the view. Stop: publish it first."""

    code = "publish.never"


class TopicMoved(PublishError):
    """The topic was written to while it was read. Retry."""

    code = "publish.topic_moved"
    action = Action.RETRY


class TopicDiffers(PublishError):
    """What the topic adds up to is not the version that it says it holds: records were removed, or others were added.
    Restore: publish the difference to the table, or rebuild the view from its inputs."""

    code = "publish.topic_differs"
    action = Action.RESTORE


_FORMAT = 1


@dataclass(frozen=True)
class Position:
    """The version of a view's table that a reader of all committed records of its changelog topic has.

    Attributes:
        view: whose topic it is.
        at: the commit of the view's table.
        digest: of the table's rows at that commit: 32 hex digits, a colon, their count.
        generation: of the topic's records: 1, and one more each time the table's versions began anew; 0 of those that
            were published before records said it.
    """

    view: str
    at: TableVersion
    digest: str
    generation: int = 0

    @classmethod
    def of(cls, view: str, head: Head, generation: int) -> Self:
        """The position of a topic that holds what the table has at `head`."""
        return cls(view, head.at, head.record.digest, generation)

    @property
    def version(self) -> int:
        """Delta's number of the commit."""
        return self.at.version

    @property
    def rows(self) -> int:
        """The number of keys that are not deleted."""
        return Digest.parse(self.digest).count

    def to_json(self) -> str:
        """The form in which it is stored."""
        return json.dumps({"format": _FORMAT, **asdict(self)}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes, where: str) -> Self:
        """The position in that form.

        Args:
            where: it was read, for the error.

        Raises:
            CorruptState: it does not read back.
        """
        try:
            body = json.loads(text)
            if body["format"] != _FORMAT:
                raise ValueError
            at, generation = TableVersion(**body["at"]), int(body.get("generation", 0))
            return cls(str(body["view"]), at, str(body["digest"]), generation)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState(
                "what a changelog topic says of its version does not read back",
                where=where,
                hint="delete the topic; it is published anew",
            ) from error


class ChangelogTopic(Protocol):
    """One changelog topic. Any call may raise SourceUnavailable or SourceDenied; close it then, and open another."""

    @property
    def log(self) -> Log:
        """Where the topic is."""
        ...

    @property
    def source(self) -> Source:
        """The topic, as a source could read it."""
        ...

    def position(self) -> Position | None:
        """What the topic holds; None before the first write, and where that is not known any more.

        Raises:
            CorruptState: what it says does not read back.
        """
        ...

    def begin(self) -> None:
        """Become the topic's one publisher, before the first write; the topic is made if it is not there.

        Raises:
            TopicUnfit: it would not keep the newest record of each key.
            TopicsElsewhere: the lake's topics are of the other kind.
        """
        ...

    def write(self, records: Iterable[Record], position: Position) -> int:
        """Write records and the position that they lead to, all of it or nothing; the number of records.

        What iterating over the records raises is raised, and nothing is written.

        Raises:
            PublisherFenced: another publisher has begun since. Nothing is written.
        """
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


_OF_FORMATS: Final = ("KEY_DELIMITER", "VALUE_DELIMITER", WRAP_OPTION, *NULLABLE_OPTIONS.values())
NULLS_COME_BACK: Final = dict.fromkeys(NULLABLE_OPTIONS.values(), "OPTIONAL")
"""Options of a topic that does not say otherwise: a lost table is made of it, and a NULL must not become a zero."""
FORMAT = "JSON"
"""Of key and value, where the view does not say: the one format that has a NULL key and keys of several columns."""


def published(definition: Definition) -> bool:
    """True for a view with a changelog topic. The topic of a stream is its own record of events: it has none."""
    return isinstance(definition, View) and "KAFKA_TOPIC" in definition.options and definition.kind == "table"


def published_views(definitions: Iterable[Definition]) -> list[View]:
    """Those of the definitions that are published."""
    return [each for each in definitions if isinstance(each, View) and published(each)]


def topic_as_source(view: View) -> Source:
    """The changelog topic of a published view as a keyed source."""
    options = view.options
    both = options.get("FORMAT", FORMAT)
    keys = set(view.row_key)
    return Source(
        name=view.name,
        kind="table",
        columns=tuple(replace(column, key=column.name in keys) for column in view.columns),
        topic=options["KAFKA_TOPIC"],
        key_format=options.get("KEY_FORMAT", both),
        value_format=options.get("VALUE_FORMAT", both),
        pipeline=view.pipeline,
        sql=view.sql,
        partitions=int(options.get("PARTITIONS", 1)),
        replicas=int(options.get("REPLICAS", 1)),
        options=NULLS_COME_BACK | {name: options[name] for name in _OF_FORMATS if name in options},
    )


def hidden_keys(view: View) -> tuple[str, ...]:
    """The columns that identify a row and are not visible: a topic without them could not tell rows apart."""
    visible = {column.name for column in view.columns}
    return tuple(name for name in view.row_key if name not in visible)


POSITION: Final = "strandline.position"


class LocalTopic:
    """See `ChangelogTopic`. The lake's own topics are never compacted: every change stays."""

    def __init__(self, source: Source, settings: Settings, lake: LakeLayout) -> None:
        self.source = source
        self.log = LocalLog(lake)
        self._settings = settings
        self._lake = lake
        self._ends: Mapping[int, int] | None = None
        self._writes = 0

    def position(self) -> Position | None:
        if not self.log.exists(self.source.topic):
            return None
        found = self._last(self.log.end_offsets(self.source.topic))
        return found[1] if found is not None else None

    def begin(self) -> None:
        self.log.ensure_topic(self.source.topic, self.source.partitions)
        remember(self._settings, self._lake)
        self._ends = self.log.end_offsets(self.source.topic)
        found = self._last(self._ends)
        self._writes = found[0] if found is not None else 0

    def write(self, records: Iterable[Record], position: Position) -> int:
        """As the interface says; without a record nothing is written, and the position stays what it was."""
        assert self._ends is not None, "begin comes first"
        listed = list(records)
        if not listed:
            return 0
        failpoint("before-publish")
        marked = self._marked(listed, position, len(self._ends))
        places = self.log.produce_after(self.source.topic, marked, self._ends)
        if places is None:
            raise PublisherFenced(
                f"another process wrote to the topic '{self.source.topic}'",
                where=str(self._lake.topic(self.source.topic)),
                hint="end it, or give the view a topic of its own",
            )
        failpoint("after-publish")
        self._writes += 1
        self._ends = {**self._ends, **{partition: offset + 1 for partition, offset in places}}
        return len(listed)

    def close(self) -> None:
        """Nothing is held."""

    def _marked(self, records: Sequence[Record], position: Position, partitions: int) -> list[Record]:
        """The records with their partitions; the last one of each says the position."""
        placed = [replace(each, partition=partition_for(each.key, partitions, 0)) for each in records]
        last = {each.partition: place for place, each in enumerate(placed)}
        stated = json.dumps({"write": self._writes + 1, "position": position.to_json()}).encode()
        for place in last.values():
            placed[place] = replace(placed[place], headers=(*placed[place].headers, (POSITION, stated)))
        return placed

    def _last(self, ends: Mapping[int, int]) -> tuple[int, Position] | None:
        """The number of the last write, and the position that it led to."""
        found: list[tuple[int, Position]] = []
        for partition, end in ends.items():
            for run in self.log.read(self.source.topic, partition, max(end - 1, 0), end):
                stated = dict(run.headers[-1] or ()).get(POSITION)
                if stated is not None:
                    found.append(self._read(stated))
        return max(found, key=lambda each: each[0], default=None)

    def _read(self, stated: bytes) -> tuple[int, Position]:
        where = str(self._lake.topic(self.source.topic))
        try:
            body = json.loads(stated)
            return int(body["write"]), Position.from_json(body["position"], where)
        except (ValueError, KeyError, TypeError) as error:
            raise CorruptState("a header of a changelog topic does not read back", where=where) from error
