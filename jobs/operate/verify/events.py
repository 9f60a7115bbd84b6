"""The checks of event logs: every record of the topic is in the log or among the dead letters, exactly once.

Offsets of the local log have no gaps. Kafka's may: a transaction's markers and its aborted records take offsets too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.ingest.topics import check_last_records, check_same
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import SourceUnavailable, TopicMissing
from strandline.jobs.model.relation import PARTITIONS_EACH
from strandline.jobs.operate.verify.findings import counted, failed, passed, skipped
from strandline.state_store.delta import reader
from strandline.state_store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.operate.verify.findings import Outcome
    from strandline.jobs.operate.verify.subjects import Opened
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath

_Offsets = dict[int, Any]
"""{partition: its offsets, sorted, as an array of int64}"""


def check_offsets(table: Opened, source: Source, lake: LakeLayout, log: Log, *, dense: bool) -> Outcome:
    """No offset stands twice, and none at or above the recorded one; with `dense` none is missing below it.

    Args:
        table: the event log of the source, or its dead letters, of which alone nothing can be missing.
        dense: the offsets of the topic have no gaps.

    Raises:
        VersionGone, CorruptState: the rows do not read.
    """
    recorded = {int(name): upto for name, upto in table.record.offsets.get(source.topic, {}).items()}
    found = _offsets(table.path, table.version)
    for partition, offsets in found.items():
        upto = recorded.get(partition, 0)
        if offsets[-1] >= upto:
            return failed(f"partition {partition} holds offset {offsets[-1]}, and the record says it ends at {upto}")
    if table.subject.role == "event log":
        try:
            aside = _aside(source, lake, recorded)
        except StoreError as error:
            return skipped(f"the dead letters do not read: {error.message}")
        gone = _gone(table)
        back = next((p for p, offsets in found.items() if offsets[0] < gone.get(p, 0)), None)
        if back is not None:
            return failed(f"offset {found[back][0]} of partition {back} stands in the log, and retention has taken it")
        aside = {p: offsets[offsets >= gone.get(p, 0)] for p, offsets in aside.items()}
        found = {p: np.sort(np.concatenate([s[p] for s in (found, aside) if p in s])) for p in found | aside}
    for partition, offsets in found.items():
        twice = offsets[1:][offsets[1:] == offsets[:-1]]
        if len(twice):
            return failed(f"offset {twice[0]} of partition {partition} stands twice")
    if dense and table.subject.role == "event log":
        missing = _missing(found, recorded, _begins(table, log, source.topic))
        if missing:
            return failed(f"{missing} is neither in the log nor among the dead letters")
    return passed(f"{counted(sum(map(len, found.values())), 'record')} of topic '{source.topic}'")


def check_topic(table: Opened, source: Source, log: Log) -> Outcome:
    """The topic is the one that the events were read from.

    Raises:
        TopicReplaced: it is another one of that name.
        ForeignChanged: of a table of others the version that was read last is another one.
        TopicMissing: it is not there.
    """
    wanted = table.record.topics.get(source.topic, "")
    try:
        found = log.identity(source.topic).id
    except SourceUnavailable as error:
        return skipped(f"the broker does not answer: {error.message}")
    if not wanted or not found:
        whose = "the record" if not wanted else f"topic '{source.topic}'"
        return skipped(f"{whose} has no id")
    check_same(source.topic, wanted, found)
    if origin_of(source.topic) is not None:
        check_last_records(source, table.record, log, {})
    return passed(f"topic '{source.topic}' has id {found} still")


def _offsets(path: LakePath, version: int) -> _Offsets:
    rows = reader.read_rows(path, version, ["_partition", "_offset"])
    partitions, offsets = (rows[each].to_numpy() for each in ("_partition", "_offset"))
    # Rows of the queries that insert into a stream have partitions of their own.
    chosen = np.unique(partitions[partitions < PARTITIONS_EACH])
    return {int(each): np.sort(offsets[partitions == each]) for each in chosen}


def _aside(source: Source, lake: LakeLayout, recorded: Mapping[int, int]) -> _Offsets:
    """The dead letters below the event log's offsets: they are written first, so a kill may leave some above."""
    path = lake.table(tables.dead_letters(source.name))
    head = reader.head(path)
    found = _offsets(path, head.version) if head is not None else {}
    below = {partition: offsets[offsets < recorded.get(partition, 0)] for partition, offsets in found.items()}
    return {partition: offsets for partition, offsets in below.items() if len(offsets)}


def _begins(table: Opened, log: Log, topic: str) -> dict[int, int]:
    """{partition: the first offset that must be there}: of the topic, or after what retention has taken of the log."""
    gone = _gone(table)
    try:
        topics = log.begin_offsets(topic)
    except TopicMissing:  # another check says so
        topics = {}
    return {each: max(gone.get(each, 0), topics.get(each, 0)) for each in gone | topics}


def _gone(table: Opened) -> dict[int, int]:
    """{partition: the offset below which retention has taken every event of the log}."""
    trimmed = table.record.trimmed
    return {int(partition): offset for partition, offset in trimmed.begins.items()} if trimmed is not None else {}


def _missing(found: _Offsets, recorded: Mapping[int, int], begins: Mapping[int, int]) -> str:
    """The first offset that should be there, in words; empty when none is missing."""
    for partition, upto in recorded.items():
        offsets = found.get(partition, np.array([], np.int64))
        # What retention has removed since may have been read before.
        first = min([begins.get(partition, upto), *offsets[:1].tolist()])
        if len(offsets) < upto - first:
            wanted = np.arange(first, upto)
            return f"offset {np.setdiff1d(wanted, offsets)[0]} of partition {partition}"
    return ""
