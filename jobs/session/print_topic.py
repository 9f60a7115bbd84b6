"""`PRINT topic`: the records of a topic as they are, whatever reads them."""

from __future__ import annotations

import datetime as dt
from itertools import chain, islice
from typing import TYPE_CHECKING

from strandline.jobs.ingest.logs.open import open_log
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.serve.results import Rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.ingest.logs.log import Log, Records
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.sql.syntax import Print
    from strandline.state_store.layout import Lake

_NAMES = ("partition", "offset", "rowtime", "key", "value")
_LAST = 20
"""Records of each partition that are shown without FROM BEGINNING: a screen."""


def print_topic(statement: Print, settings: Settings, lake: Lake) -> Rows:
    """The records of a topic, partition by partition: the last ones, or with FROM BEGINNING all that are kept.

    Raises:
        UnknownName: there is no such topic.
        SourceUnavailable: the broker does not answer.
    """
    log = open_log(settings, lake)
    if not log.exists(statement.topic):
        raise UnknownName.among("topic", statement.topic, log.topics())
    rows = _rows(log, statement)
    return Rows(_NAMES, list(rows if statement.limit is None else islice(rows, statement.limit)))


def _rows(log: Log, statement: Print) -> Iterator[tuple[object, ...]]:
    begins, ends = log.begin_offsets(statement.topic), log.end_offsets(statement.topic)
    last = _LAST if statement.limit is None else statement.limit
    for number, end in sorted(ends.items()):
        start = begins[number] if statement.from_beginning else max(begins[number], end - last)
        yield from chain.from_iterable(map(_shown, log.read(statement.topic, number, start, end)))


def _shown(records: Records) -> Iterator[tuple[object, ...]]:
    for place, offset in enumerate(records.offsets):
        time = dt.datetime.fromtimestamp(records.timestamps[place] / 1000, dt.UTC)
        yield (records.partition, offset, time, _text(records.keys[place]), _text(records.values[place]))


def _text(data: bytes | None) -> str | None:
    """Bytes as text; those that are no text, such as AVRO, in hex."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return f"0x{data.hex()}"
    return text if text.isprintable() else f"0x{data.hex()}"
