"""Sources with a format, and the rows that payloads become by it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka.schema_registry import SchemaRegistryClient

from strandline.jobs.ingest.formats import columns
from strandline.jobs.ingest.formats.format import Role, open_format
from strandline.jobs.model.definitions import Column, Source
from strandline.jobs.model.types import SqlType

Decoded = tuple[list[dict[str, Any]], dict[int, str]]


def no_registry() -> SchemaRegistryClient:
    raise AssertionError("this format needs no registry")


def source(value_format: str, *wanted: tuple[str, SqlType], key_format: str = "KAFKA", **options: str) -> Source:
    """Columns named `k…` come from the key."""
    cells = tuple(Column(name, kind, key=name.startswith("k")) for name, kind in wanted)
    return Source("s", "stream", cells, "topic", key_format, value_format, "p", "", options=options)


def decode(
    of: Source,
    payloads: list[bytes | None],
    role: Role = "value",
    registry: Callable[[], SchemaRegistryClient] = no_registry,
) -> Decoded:
    form = open_format(of, role, registry)
    assert form is not None
    errors: columns.Errors = {}
    arrays = form.decode(payloads, errors)
    names = [column.name for column in of.columns if column.key is (role == "key")]
    for array, column in zip(arrays, (c for c in of.columns if c.name in names), strict=True):
        assert array.type == column.type.arrow()
        assert len(array) == len(payloads)
    rows = zip(*(array.to_pylist() for array in arrays), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows], errors
