"""The names of columns that the table of a view has had: they stay taken as long as its change feed reaches back.

The feed is read in the columns of today, those that a row did not have yet as NULL. A column that went and came again
was there before, with other values, and nothing in the feed would say when they went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.model.errors import NotSupported
from strandline.jobs.operate.verify.history import oldest_base
from strandline.jobs.session.define.replaced import ColumnDiff
from strandline.state_store.delta import log
from strandline.state_store.delta.schema import columns_of
from strandline.state_store.delta.snapshot import read_snapshot
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.model.definitions import View
    from strandline.state_store.paths import LakePath


def check_added_columns(present: View, following: View, path: LakePath) -> None:
    """Check that the columns which a view gets are new to its table.

    Args:
        path: the folder of the table, which need not be there.

    Raises:
        NotSupported: the table has had one of them.
        VersionGone, CorruptState: its log does not read.
    """
    added = [name for name, _ in ColumnDiff.of(present, following).added]
    if not added:
        return
    former = {name for schema in _schemas(path) for name in columns_of(schema)}
    again = next((name for name in added if name in former), None)
    if again is not None:
        raise NotSupported(
            sentence(
                "'{}' cannot be replaced in place: it had a column '{}' before, whose values stay in the change feed",
                Name(present.name),
                again,
            ),
            hint="give the column another name; or DROP the view and CREATE it again",
        )


def _schemas(path: LakePath) -> Iterator[str]:
    """The columns that the table has had in all versions that are readable, as Delta's `schemaString`."""
    newest = log.newest_version(path)
    if newest is None:
        return
    base = oldest_base(path, newest)
    if base is None or base >= 0:
        yield read_snapshot(path, newest if base is None else base).metadata["schemaString"]
    for actions in log.read_entries(path, newest if base is None else base, newest):
        yield from (action["metaData"]["schemaString"] for action in actions if "metaData" in action)
