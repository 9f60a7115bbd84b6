"""Checkpoints: all actions that still count at one version, in one Parquet file, so that opening a table stays cheap.

    _delta_log/<version, 20 digits>.checkpoint.parquet      written and flushed first
    _delta_log/_last_checkpoint                             names it: see `hint`

What counts: the protocol, the table, the last transaction of each application, the live files, and for the recovery
horizon the files that were removed (another tool's vacuum keeps those). A checkpoint that does not read back is passed
over: the commits are still there.
"""

from __future__ import annotations

import io
import logging
from functools import reduce
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from strandline.state_store.delta.entry import write_hint
from strandline.state_store.files import create
from strandline.state_store.stored_state import MARK, PLACE, intact, sealed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.state_store.delta.entry import Action
    from strandline.state_store.paths import LakePath

log = logging.getLogger("strandline.store")

_TEXTS: Final = pa.map_(pa.string(), pa.string())
_VECTOR: Final = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_SCHEMA: Final = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _TEXTS,
                "deletionVector": _VECTOR,
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _TEXTS,
                "size": pa.int64(),
                "deletionVector": _VECTOR,
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _TEXTS,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
    }
)
_LIVE: Final = ("txn", "add", "metaData", "protocol")
_LIVE_ROWS: Final = "strandline.live"
"""The name, in the footer, of the number of rows that are not removals: they come first."""


def write_checkpoint(
    file: LakePath, hint: LakePath, version: int, actions: Sequence[Action], removed: pa.Table
) -> None:
    """Write the checkpoint of `version` to `file`, and name it in `hint`.

    Args:
        actions: what is live: `txn`, `add`, `metaData` and `protocol` actions.
        removed: the `remove` actions still to be kept, as of `removed_actions`.
    """
    live = as_rows(actions)
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, _SCHEMA, compression="snappy", store_schema=False, write_page_checksum=True) as writer:
        writer.write_table(live)
        # In row groups of their own: whoever opens the table passes over them.
        writer.write_table(removed)
        # The footer holds such values as they are, so that they can be filled in afterwards.
        about = {"checksum": PLACE, _LIVE_ROWS: str(live.num_rows)}
        writer.add_key_value_metadata(about)
    data = sealed(sink.getvalue(), MARK)
    create(file, data)
    files = sum("add" in action for action in actions)
    write_hint(hint, version, actions=live.num_rows + removed.num_rows, size=len(data), files=files)


def as_rows(actions: Sequence[Action]) -> pa.Table:
    """Actions as the rows of a checkpoint."""
    return pa.Table.from_pylist([{**dict.fromkeys(_SCHEMA.names), **action} for action in actions], _SCHEMA)


def live_actions(file: LakePath) -> list[Action] | None:
    """The actions of a checkpoint but for the removals; None when it is not there or is broken."""
    rows = _read(file, _LIVE, _live_row_groups)
    if rows is None:
        return None
    # Another tool's checkpoint has removals in between, which take long as Python objects.
    live = reduce(pc.or_, (pc.is_valid(rows[name]) for name in _LIVE))
    found = rows.filter(live).to_pylist(maps_as_pydicts="strict")
    return [{name: _plain(body) for name, body in row.items() if body is not None} for row in found]


def removed_actions(file: LakePath, since: int) -> pa.Table:
    """The removals of a checkpoint, as its rows, of files removed at `since` (ms) or later; none if it is broken."""
    rows = _read(file, ["remove"], lambda footer: range(footer.num_row_groups))
    if rows is None:
        return _SCHEMA.empty_table()
    kept = rows.filter(pc.greater_equal(pc.struct_field(rows["remove"], "deletionTimestamp"), since))["remove"]
    empty = {name: pa.nulls(len(kept), _SCHEMA.field(name).type) for name in _SCHEMA.names}
    return pa.table({**empty, "remove": kept.cast(_SCHEMA.field("remove").type)}, schema=_SCHEMA)


def _live_row_groups(footer: pq.FileMetaData) -> Sequence[int]:
    """The row groups that hold what is live: the first ones, if it is a checkpoint of ours."""
    groups = range(footer.num_row_groups)
    live = int((footer.metadata or {}).get(_LIVE_ROWS.encode(), footer.num_rows))
    ends = accumulate(footer.row_group(number).num_rows for number in groups)
    return [number for number, end in zip(groups, ends, strict=True) if end - footer.row_group(number).num_rows < live]


def _read(
    file: LakePath, columns: Sequence[str], row_groups: Callable[[pq.FileMetaData], Sequence[int]]
) -> pa.Table | None:
    try:
        data = file.read_bytes()
        if MARK.search(data) and not intact(data, MARK):
            log.warning("the checkpoint %s fails its checksum, and is passed over", file)
            return None
        found = pq.ParquetFile(io.BytesIO(data), page_checksum_verification=True)
        # Threads cost more than they save with so small a file.
        return found.read_row_groups(row_groups(found.metadata), columns=list(columns), use_threads=False)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        log.warning("the checkpoint %s does not read back, and is passed over: %s", file, error)
        return None


def _plain(value: Any) -> Any:
    """An action's members without those that are absent."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    return value
