"""The rows of a changelog topic's live records: what `encoder` wrote, in the columns of the view."""

from __future__ import annotations

import shlex
from itertools import islice
from typing import TYPE_CHECKING, Any

from strandline.jobs.ingest.formats.format import open_format
from strandline.jobs.publish.encoder import SLICE_ROWS
from strandline.state_store.errors import CorruptState
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import pyarrow as pa

    from strandline.jobs.ingest.formats.columns import Errors
    from strandline.jobs.ingest.formats.format import Role
    from strandline.jobs.model.definitions import Source


def decoded_rows(live: Mapping[bytes, bytes], source: Source, registry: Callable[[], Any]) -> pa.Table:
    """The rows, in the order of the records.

    Args:
        live: {key: value}, see `live_records`.

    Raises:
        CorruptState: a record cannot be read as a row of the view.
    """
    import pyarrow as pa

    schema = pa.schema([(column.name, column.type.arrow()) for column in source.columns])
    parts: list[pa.Table] = [schema.empty_table()]
    pairs = iter(live.items())
    while piece := list(islice(pairs, SLICE_ROWS)):
        errors: Errors = {}
        arrays: dict[str, pa.Array] = {}
        sides: tuple[tuple[Role, int], ...] = (("key", 0), ("value", 1))
        for role, place in sides:
            form = open_format(source, role, registry)
            names = [column.name for column in source.columns if column.part == role]
            if form is not None:
                payloads = [pair[place] for pair in piece]
                arrays |= dict(zip(names, form.decode(payloads, errors), strict=True))
        if errors:
            row, what = min(errors.items())
            raise CorruptState(
                sentence("a record of the topic '{}' is not a row of '{}': {}", source.topic, Name(source.name), what),
                where=f"{source.topic}, key {piece[row][0]!r}",
                hint=sentence(
                    "compute the rows from the view's inputs: strandline rebuild {}", Name(source.name, shlex.quote)
                ),
            )
        parts.append(pa.table([arrays[name] for name in schema.names], schema=schema))
    return pa.concat_tables(parts)
