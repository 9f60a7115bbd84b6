"""The readers of a lake as questions, each with an answer that can be compared, by the part of the lake they read."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.formats.confluent import AvroFormat
from strandline.jobs.ingest.formats.registry import LocalRegistry
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import data_files, log, reader
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.errors import StrandlineError
from strandline.state_store.paths import LakePath
from tests.campaigns.beside import BESIDE, beside
from tests.campaigns.lake import VERSIONS
from tests.support.on_disk import on_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from strandline.state_store.layout import LakeLayout

Question = tuple[str, "Callable[[], object]"]
_AVRO = b"\0\0\0\0\2\2\4\2\6"
"""A record of the second schema: a frame with its id, then a = 2 and b = 3."""
_PULLS: Mapping[str, tuple[str, str]] = {
    "averages": ("SELECT * FROM averages", "SELECT * FROM averages WHERE sensor IN ('s7', 's21')"),
    "readings": ("SELECT * FROM readings", "SELECT reading FROM readings WHERE n = 77"),
}


def part_of(path: Path, lake: LakeLayout) -> str:
    """The part that a file belongs to: a table's name, `catalog`, `topics`, `registry`, or one of `BESIDE`."""
    parts = path.relative_to(on_disk(lake.root)).parts
    match parts:
        case ("tables", _, "_leases", _):
            return "leases"
        case ("tables" | "beside", name, *_):
            return name
        case (name, _, *_):
            return name
    return parts[0]


def answers(part: str, lake: LakeLayout) -> dict[str, str]:
    """{question: the hash of its answer, `typed: code` or `raw: the error`} of a process that begins now."""
    data_files._found.cache_clear()
    return {name: _answer(ask) for name, ask in _questions(part, lake)}


def _answer(ask: Callable[[], object]) -> str:
    try:
        return hashlib.sha256(repr(ask()).encode()).hexdigest()
    except StrandlineError as error:
        return f"typed: {error.code}"
    except Exception as error:  # whatever it is, it is what the campaign looks for
        return f"raw: {type(error).__name__}: {str(error)[:200]}"


def _questions(part: str, lake: LakeLayout) -> Iterator[Question]:
    match part:
        case "catalog":
            yield from _of_catalog(lake)
        case "topics":
            yield from _of_topic(lake)
        case "registry":
            yield from _of_registry(lake)
        case part if part in BESIDE:
            yield from beside(part, lake)
        case table:
            yield from _of_table(table, lake)


def _of_table(name: str, lake: LakeLayout) -> Iterator[Question]:
    path = lake.table(name)
    last = VERSIONS if name == "averages" else 6
    yield "head", lambda: reader.head(path)
    yield "commits", lambda: [log.read_commit(path, number) for number in range(last + 1)]
    yield "snapshot", lambda: _snapshot(path, last)
    yield "older snapshot", lambda: _snapshot(path, last // 2)
    yield "schema", lambda: reader.schema(path)
    yield "rows", lambda: _sorted(reader.read_rows(path))
    yield "older rows", lambda: _sorted(reader.read_rows(path, last // 2))
    yield (
        "some columns and rows",
        lambda: _sorted(reader.read_rows(path, columns=["sensor"], predicate={"n": [1, 30, 77]})),
    )
    yield "changes", lambda: reader.read_changes(path).to_pylist()
    yield "last changes", lambda: reader.read_changes(path, last - 4).to_pylist()
    for text in _PULLS[name]:
        yield text, partial(_pulled, text, lake)


def _snapshot(path: LakePath, version: int) -> object:
    """What counts of a snapshot: a checkpoint keeps its files in another order, and none of them is news."""
    found = read_snapshot(path, version)
    files = sorted((name, str(body.get("deletionVector")), body["size"]) for name, body in found.files.items())
    return found.version, found.table_id, found.metadata["schemaString"], files


def _of_catalog(lake: LakeLayout) -> Iterator[Question]:
    yield "definitions", lambda: _definitions(lake)
    for text in ("SELECT sensor, n FROM averages WHERE sensor = 's7'", "SELECT n FROM readings WHERE n = 77"):
        yield text, partial(_pulled, text, lake)


def _definitions(lake: LakeLayout) -> object:
    """All definitions, and those that are begun, once the pipeline may run. What is broken is told by name, and refused
    here."""
    catalog = Catalog(lake)
    catalog.check_pipeline("campaign")
    return list(catalog.definitions()), catalog.begun


def _of_topic(lake: LakeLayout) -> Iterator[Question]:
    yield "topics", lambda: LocalLog(lake).topics()
    yield "identity", lambda: LocalLog(lake).identity("readings")
    yield "begin", lambda: LocalLog(lake).begin_offsets("readings")
    yield "end", lambda: LocalLog(lake).end_offsets("readings")
    for partition, (start, end) in ((0, (0, 40)), (1, (0, 20)), (0, (17, 23))):
        yield f"read {partition} from {start}", partial(_records, lake, partition, start, end)
        yield f"size {partition} from {start}", partial(_size, lake, partition, start, end)


def _records(lake: LakeLayout, partition: int, start: int, end: int) -> object:
    return list(LocalLog(lake).read("readings", partition, start, end))


def _size(lake: LakeLayout, partition: int, start: int, end: int) -> int:
    return LocalLog(lake).size("readings", partition, start, end)


def _of_registry(lake: LakeLayout) -> Iterator[Question]:
    registry = LocalRegistry(lake.registry)
    yield "schemas", lambda: [_schema(registry.get_schema(number)) for number in (1, 2, 3)]
    for subject in ("readings-value", "readings-key"):
        yield subject, partial(_versions, registry, subject)
    yield "a record", lambda: _decoded(registry)


def _versions(registry: LocalRegistry, subject: str) -> object:
    found = [registry.get_version(subject, version) for version in registry.get_versions(subject)]
    latest = registry.get_latest_version(subject)
    known = registry.lookup_schema(subject, latest.schema).version
    return [(each.version, each.schema_id, _schema(each.schema)) for each in found], latest.version, known


def _schema(schema: Any) -> tuple[object, object]:
    return schema.schema_type, schema.schema_str


def _decoded(registry: LocalRegistry) -> object:
    columns = tuple(Column(name, t.BIGINT) for name in ("a", "b"))
    errors: dict[int, str] = {}
    arrays = AvroFormat(columns, registry, "readings", key=False, bare=False).decode([_AVRO], errors)
    return [array.to_pylist() for array in arrays], errors


def _session(lake: LakeLayout) -> Interpreter:
    return Interpreter(load_settings(lake=lake.root), "campaign")


def _pulled(text: str, lake: LakeLayout) -> object:
    (result,) = _session(lake).run(f"{text};")
    assert isinstance(result, Rows)
    return result.names, sorted(map(repr, result.rows))


def _sorted(rows: Any) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))
