"""HEADERS and HEADER('name') after a column of CREATE STREAM or TABLE: what such columns must be."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.jobs.model.definitions import ALL_HEADERS
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.relation import HEADERS
from strandline.jobs.model.types import BYTES
from strandline.jobs.sql.syntax import DeclaredColumn


def check_header(column: DeclaredColumn, columns: Sequence[DeclaredColumn]) -> None:
    """Check a column that comes from the headers against the others; as ksqlDB does.

    Raises:
        InvalidQuery: it has another type, or a header is asked for twice, or one beside all of them.
    """
    if column.header is None:
        return
    everything = column.header == ALL_HEADERS
    wanted = HEADERS if everything else BYTES
    message = None
    if column.type != wanted:
        message = f"a column of {'HEADERS' if everything else 'one HEADER'} is {wanted}, not {column.type}"
    for other in columns[: columns.index(column)]:
        if other.header == column.header:
            message = f"'{other.name}' and '{column.name}' are the same header"
        elif other.header is not None and ALL_HEADERS in (other.header, column.header):
            message = f"'{other.name}' and '{column.name}': a source has HEADERS or single ones, not both"
    if message is not None:
        raise InvalidQuery(message, line=column.line, column=column.column)
