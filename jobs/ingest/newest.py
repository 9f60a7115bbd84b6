"""The newest row of a key: that of the table, or of a record of the topic that the table does not reflect yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest.formats.format import open_format
from strandline.jobs.ingest.logs.open import open_log
from strandline.jobs.model import tables
from strandline.jobs.model.errors import SourceBehind
from strandline.state_store.delta import reader
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from strandline.jobs.ingest.formats.format import Format
    from strandline.jobs.ingest.logs.log import Log, Records
    from strandline.jobs.model.definitions import Source
    from strandline.jobs.model.settings import Settings
    from strandline.state_store.delta.statistics import Predicate
    from strandline.state_store.layout import LakeLayout

Row = dict[str, Any]
"""{column: value}, as Arrow's `to_pylist` gives them."""

# They are decoded one by one, in this process: a second or two. A longer backlog is for the pipeline.
_MOST_WAITING = 100_000


def newest_row(source: Source, key: Mapping[str, object], settings: Settings, lake: LakeLayout) -> Row | None:
    """The row that the table of `source` will have for a key once its topic is taken in; None when there is none.

    Who writes to the topic meanwhile is not seen, as with any reader of a log.

    Args:
        key: {key column: value}, all of them.

    Raises:
        SourceBehind: the table lacks so many records that a pipeline should take them in first.
        SourceUnavailable: the broker or registry does not answer.
    """
    log = open_log(settings, lake)
    row = _stored(source, key, lake)
    if not log.exists(source.topic):
        return row
    reached = _reflected(source, lake)
    begins, ends = log.begin_offsets(source.topic), log.end_offsets(source.topic)
    starts = {number: max(reached.get(str(number), 0), begins.get(number, 0)) for number in ends}
    waiting = sum(end - starts[number] for number, end in ends.items())
    if waiting > _MOST_WAITING:
        raise SourceBehind(
            sentence(
                "{} events of '{}' wait to be taken in: its rows are not known yet", f"{waiting:,}", Name(source.name)
            ),
            hint=f"strandline run {source.pipeline}, then again; or give every column with INSERT",
        )
    formats = _formats(source, settings, lake)
    for number, end in ends.items():
        row = _followed(row, key, source, log, (number, starts[number], end), formats)
    return row


def _formats(source: Source, settings: Settings, lake: LakeLayout) -> tuple[Format | None, Format | None]:
    def registry() -> Any:
        from strandline.jobs.ingest.formats.registry import open_registry

        return open_registry(settings, lake)

    return open_format(source, "key", registry), open_format(source, "value", registry)


def _stored(source: Source, key: Mapping[str, object], lake: LakeLayout) -> Row | None:
    path = lake.table(source.name)
    head = reader.head(path)
    if head is None:
        return None
    names = [column.name for column in source.columns]
    # Whole numbers and text are what the reader compares as the table does; the rest is compared here.
    numbers = {name: (value,) for name, value in key.items() if type(value) is int}
    texts = {name: (value,) for name, value in key.items() if isinstance(value, str)}
    pushed: Predicate = {**numbers, **texts}
    found = reader.read_rows(path, head.version, names, pushed or None)
    return next((row for row in _rows(found) if _has(row, key)), None)


def _reflected(source: Source, lake: LakeLayout) -> dict[str, int]:
    """{partition: next offset} that the table's rows reflect: those of the event log's version in its last commit."""
    head = reader.head(lake.table(source.name))
    event_log = tables.event_log(source)
    version = head.record.versions.get(event_log) if head else None
    if version is None:
        return {}
    return dict(reader.record_at(lake.table(event_log), version).offsets.get(source.topic, {}))


def _followed(
    row: Row | None,
    key: Mapping[str, object],
    source: Source,
    log: Log,
    piece: tuple[int, int, int],
    formats: tuple[Format | None, Format | None],
) -> Row | None:
    """The row after the records of a piece: partition, first offset, end."""
    for records in log.read(source.topic, *piece):
        for place in _places(records, key, source, formats[0]):
            row = None if records.values[place] is None else _decoded(records, place, source, formats)
    return row


def _places(records: Records, key: Mapping[str, object], source: Source, form: Format | None) -> list[int]:
    """The places of the records with that key, in order."""
    errors: dict[int, str] = {}
    columns = form.decode(records.keys, errors) if form else []
    found = _rows(_table(columns, [column.name for column in source.columns if column.key]))
    return [place for place, row in enumerate(found) if place not in errors and _has(row, key)]


def _decoded(records: Records, place: int, source: Source, formats: tuple[Format | None, Format | None]) -> Row | None:
    """The row of one record; None when its value does not decode: it is a dead letter, and changes nothing."""
    key, value = formats
    errors: dict[int, str] = {}
    keys = iter(key.decode([records.keys[place]], errors) if key else ())
    values = iter(value.decode([records.values[place]], errors) if value else ())
    columns = [next(keys if column.key else values) for column in source.columns]
    (row,) = _rows(_table(columns, [column.name for column in source.columns]))
    return None if errors else row


def _table(columns: list[pa.Array], names: list[str]) -> pa.Table:
    import pyarrow as pa

    return pa.Table.from_arrays(columns, names=names)


def _rows(table: pa.Table) -> list[Row]:
    return list(table.to_pylist(maps_as_pydicts="lossy"))


def _has(row: Row, key: Mapping[str, object]) -> bool:
    return all(row[name] == value for name, value in key.items())
