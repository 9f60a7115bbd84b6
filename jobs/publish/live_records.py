"""The live records of a changelog topic: the newest of each key, but for the keys that are deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from strandline.jobs.ingest.logs.partitioner import partition_for
from strandline.jobs.publish.encoder import GENERATION, VIEW
from strandline.jobs.publish.errors import TopicTaken
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.jobs.ingest.logs.log import Header, Log

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
