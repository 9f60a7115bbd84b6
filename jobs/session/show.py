"""The answers of SHOW, DESCRIBE, EXPLAIN and PRINT, from the catalog, the tables' last commits and the topics."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.plain_views import readers_of_plain
from strandline.jobs.catalog.stored_names import shown_text
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import InsertQuery, Ownership, PlainView, Source, View
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.serve.results import Document, Rows, TextTable, cell
from strandline.jobs.session.catalog_changes import described
from strandline.jobs.session.define.view_options import TOPIC_OPTIONS
from strandline.state_store.delta import reader
from strandline.state_store.layout import check_lake

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.catalog.name_map import NameMap
    from strandline.jobs.ingest.logs.log import Log, Records
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.sql.syntax import Explain, Print, Show
    from strandline.state_store.layout import LakeLayout


def listing(
    statement: Show, catalog: Catalog, properties: Mapping[str, str], settings: Settings, lake: LakeLayout
) -> Rows:
    """`SHOW …`: one row for each thing listed.

    Raises:
        ObjectMissing: there is no lake.
    """
    if statement.what not in ("FUNCTIONS", "PROPERTIES"):
        check_lake(lake)
    rows: dict[str, Callable[[], Rows]] = {
        "STREAMS": lambda: _relations(catalog, lambda d: d.kind == "stream"),
        "TABLES": lambda: _relations(catalog, lambda d: d.kind == "table"),
        "VIEWS": lambda: _views(catalog),
        "QUERIES": lambda: _queries(catalog),
        "TOPICS": lambda: _topics(settings, lake),
        "FUNCTIONS": lambda: _functions(catalog),
        "TYPES": lambda: Rows(("name", "type"), [(name, str(kind)) for name, kind in sorted(catalog.types.items())]),
        "PROPERTIES": lambda: Rows(("property", "value"), sorted(properties.items())),
    }
    found = rows[statement.what]()
    return replace(found, note="" if found.rows else f"there are none in the lake {lake.root}")


def description(name: str, catalog: Catalog, lake: LakeLayout, *, extended: bool) -> Document:
    """`DESCRIBE name [EXTENDED]`. Raises UnknownName."""
    if name in catalog.plain:
        return _plain_description(catalog.plain[name], catalog)
    definition, name_map = catalog.get(name), catalog.name_map
    assert not isinstance(definition, InsertQuery)
    data: dict[str, Any] = {
        "name": name_map.of(name),
        **({"stored_as": name} if name in name_map.names else {}),
        "kind": "materialized view" if isinstance(definition, View) and definition.materialized else definition.kind,
        "pipeline": definition.pipeline,
        **_about(definition),
        "columns": [{"name": c.name, "type": str(c.type), "key": c.key} for c in definition.columns],
    }
    if isinstance(definition, Source):
        data |= {
            "topic": definition.topic,
            "key_format": definition.key_format,
            "value_format": definition.value_format,
            "partitions": definition.partitions,
            "timestamp": definition.timestamp,
        }
    else:
        data |= {"reads": [name_map.of(each) for each in definition.inputs]}
        topic = {name: value for name, value in definition.options.items() if name in TOPIC_OPTIONS}
        if topic:  # a view is a table of the lake: these describe its changelog topic
            data |= {"changelog_topic": topic}
    if extended:
        data |= {
            "sql": shown_text(definition.sql, catalog),
            **({"origin": origin} if (origin := Ownership.read(definition.options).origin) is not None else {}),
            "path": str(lake.table(name)),
            **_state(name, name_map, lake),
        }
    return Document(data, _as_text(name_map.localized(described(definition)), data))


def _about(definition: Source | View) -> dict[str, str]:
    """What the definition says of itself to people."""
    said = Ownership.read(definition.options)
    return {} if said.description is None else {"description": said.description}


def _plain_description(view: PlainView, catalog: Catalog) -> Document:
    data: dict[str, Any] = {
        "name": view.name,
        "kind": "plain view",
        "pipeline": view.pipeline,
        "columns": [{"name": c.name, "type": str(c.type), "key": c.key} for c in view.columns],
        "reads": [catalog.name_map.of(each) for each in view.inputs],
        "read_by": [catalog.name_map.of(each) for each in readers_of_plain(view.name, catalog, catalog.types)],
        "sql": shown_text(view.sql, catalog),
    }
    return Document(data, _as_text(catalog.name_map.localized(described(view)), data))


def explanation(statement: Explain, catalog: Catalog) -> str:
    """`EXPLAIN name|SELECT …`: the plan of maintenance, with reasons."""
    from strandline.jobs.ivm.explain import explain

    if statement.name is not None and statement.name in catalog.plain:
        plain = catalog.plain[statement.name]
        return f"'{plain.name}' is a plain view: nothing is stored. What reads it has this in its place:\n{plain.query}"
    found = catalog.get(statement.name) if statement.name is not None else None
    if isinstance(found, View) and found.partial:
        from strandline.jobs.partial.plan import explain_partial

        return explain_partial(found, catalog, upquery=statement.maintenance)
    return explain(statement, catalog)


def _views(catalog: Catalog) -> Rows:
    """Views that are maintained, then plain ones."""
    found, of = _relations(catalog, lambda d: isinstance(d, View)), catalog.name_map.of
    plain = [
        (each.name, "plain view", each.pipeline, None, None, None, [of(name) for name in each.inputs])
        for each in catalog.plain.values()
    ]
    return replace(found, rows=[*found.rows, *plain])


def _relations(catalog: Catalog, wanted: Callable[[Source | View], bool]) -> Rows:
    names = ("name", "kind", "pipeline", "topic", "key_format", "value_format", "reads")
    found = (d for d in catalog.definitions() if not isinstance(d, InsertQuery) and wanted(d))
    # The kind of a definition is in its file: a broken one is listed wherever it may belong.
    broken = [each for each in catalog.broken.values() if not each.number]
    lost = [
        (catalog.name_map.of(each.name), "broken", catalog.pipeline_of(each), None, None, None, None) for each in broken
    ]
    return Rows(names, [*(_relation(d, catalog.name_map) for d in found), *lost])


def _relation(definition: Source | View, name_map: NameMap) -> tuple[object, ...]:
    if isinstance(definition, Source):
        origin = (definition.topic, definition.key_format, definition.value_format, None)
    else:
        origin = (None, None, None, [name_map.of(each) for each in definition.inputs])  # type: ignore[assignment]
    return (
        name_map.of(definition.name),
        "source" if isinstance(definition, Source) else "view",
        definition.pipeline,
        *origin,
    )


def _queries(catalog: Catalog) -> Rows:
    kept = (d for d in catalog.definitions() if not isinstance(d, Source))
    of = catalog.name_map.of
    rows: list[tuple[object, ...]] = [
        (
            *(of(d.name), of(d.target if isinstance(d, InsertQuery) else d.name), d.pipeline),
            *([of(name) for name in d.inputs], shown_text(d.query, catalog)),
        )
        for d in kept
    ]
    broken = [(each, tables.fed_stream(each.name)) for each in catalog.broken.values()]
    rows += [(of(each.name), of(fed[0]), catalog.pipeline_of(each), None, "broken") for each, fed in broken if fed]
    return Rows(("name", "writes", "pipeline", "reads", "query"), rows)


def _topics(settings: Settings, lake: LakeLayout) -> Rows:
    from strandline.jobs.ingest.topics import open_log

    log = open_log(settings, lake)
    rows = []
    for topic in log.topics():
        ends = log.end_offsets(topic)
        begins = log.begin_offsets(topic)
        rows.append((topic, len(ends), sum(end - begins.get(partition, 0) for partition, end in ends.items())))
    return Rows(("topic", "partitions", "records"), rows)


def _functions(catalog: Catalog) -> Rows:
    from strandline.jobs.session.language_functions import kinds

    rows = list(kinds().items())
    rows += [(f.name, "python aggregate" if f.aggregate else "python scalar") for f in catalog.functions.values()]
    rows += [(name, "broken") for name in catalog.broken_functions]
    return Rows(("name", "kind"), sorted(rows))


def _state(name: str, name_map: NameMap, lake: LakeLayout) -> dict[str, Any]:
    """The state of a table, from the record of its last commit alone."""
    head = reader.head(lake.table(name))
    if head is None:
        return {"version": None, "rows": None}
    record = head.record
    return {
        "version": head.version,
        "epoch": record.epoch,
        "rows": record.rows,
        "vector": {name_map.of_input(entry): version for entry, version in record.versions.items()},
        "offsets": record.offsets,
        "digest": record.digest,
        "mode": record.mode,
        "reason": name_map.localized(record.reason),
    }


_LONG = ("sql", "origin")
"""Facts of many lines, which stand below the others."""


def _as_text(title: str, data: dict[str, Any]) -> str:
    columns = [(c["name"], c["type"], "key" if c["key"] else "") for c in data["columns"]]
    facts = [(name, value) for name, value in data.items() if name not in ("name", "columns", *_LONG)]
    parts = [title, _table(("column", "type", ""), columns), _table(("property", "value"), facts)]
    return "\n".join([*parts, *(data[each] for each in _LONG if each in data)])


def _table(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = [[cell(value) for value in row] for row in rows]
    table = TextTable.fitting(names, cells)
    return "\n".join((table.header(), *(table.line(row) for row in cells), table.rule))


# `PRINT topic`: the records of a topic as they are, whatever reads them.

_NAMES = ("partition", "offset", "rowtime", "key", "value")
_LAST = 20
"""Records of each partition that are shown without FROM BEGINNING: a screen."""


def print_topic(statement: Print, settings: Settings, lake: LakeLayout) -> Rows:
    """Read the records of a topic, partition by partition: the last ones, or with FROM BEGINNING all that are kept.

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
