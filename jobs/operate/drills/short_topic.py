"""Drill: the topic is shorter than the event log: retention, or a broker that came back without its tail.

The event log must hold all that the topic held, the view must follow from it alone, and the next run must refuse to
read other records at offsets that were read already.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.offsets import committed_offsets, start_offsets
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import OffsetsVanished
from strandline.jobs.operate.drills import recomputed
from strandline.jobs.operate.drills.scenario import Recovery, Unrehearsable
from strandline.jobs.operate.verify.events import check_offsets
from strandline.state_store.files import remove_file
from strandline.state_store.paths import files_in
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.operate.drills.ground import Ground


def rehearse(ground: Ground) -> Recovery:
    """Remove every segment of the view's topics, and prove the view from the event logs.

    Raises:
        Unrehearsable: the topics are a broker's, or hold nothing.
        Others: as `recomputed.rehearse`.
    """
    if ground.settings.kafka.bootstrap_servers:
        raise Unrehearsable("its topics are a broker's, which a drill does not copy")
    fault = _held(ground)
    sources = [each for each in _sources(ground) if any(committed_offsets(each, ground.lake).values())]
    if not sources:
        raise Unrehearsable("nothing was read from a topic yet")
    for source in sources:
        for segment in files_in(ground.lake.topic(source.topic), ".log"):
            remove_file(segment)
    began = time.monotonic()
    fault = fault or _noticed(ground, sources)
    proof = recomputed.rehearse(ground)
    topics = ", ".join(sorted({source.topic for source in sources}))
    what = f"all records of {topics} removed: noticed, and the view proved from the event logs"
    return Recovery(time.monotonic() - began, proof.rows, what, fault or proof.fault)


def _sources(ground: Ground) -> list[Source]:
    names = {table.subject.owner for table in ground.tables()}
    return [each for each in ground.catalog.definitions() if isinstance(each, Source) and each.name in names]


def _held(ground: Ground) -> str:
    """What is missing in the event logs of the records that were read; empty when nothing is."""
    topics = LocalLog(ground.lake)
    for table in ground.tables():
        definition = table.subject.definition
        if table.subject.role == "event log" and isinstance(definition, Source):
            outcome = check_offsets(table, definition, ground.lake, topics, dense=True)
            if outcome.ok is False:
                return sentence("'{}': {}", Name(table.subject.table), outcome.what)
    return ""


def _noticed(ground: Ground, sources: Sequence[Source]) -> str:
    """Empty when a run would refuse to start."""
    committed = {source.name: committed_offsets(source, ground.lake) for source in sources}
    try:
        start_offsets(sources, committed, LocalLog(ground.lake))
    except OffsetsVanished:
        return ""
    return "a run would go on, though the topic ends before the records that were read"
