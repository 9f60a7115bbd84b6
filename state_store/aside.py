"""Tables set aside: moved out of the way of one that is begun anew, and kept for whoever wants to look."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from strandline.state_store import begun
from strandline.state_store.files import make_folder
from strandline.state_store.folders import move_folder
from strandline.state_store.paths import is_folder

if TYPE_CHECKING:
    from strandline.state_store.layout import Lake
    from strandline.state_store.paths import LakePath


def set_aside(lake: Lake, table: str) -> LakePath | None:
    """Move a table's folder to `<lake>/aside/`; None when there is no such table. On a disk it is one step."""
    path = lake.table(table)
    begun.forget(lake, table)
    if not is_folder(path):
        return None
    make_folder(lake.aside)
    target = lake.aside / f"{path.name}-{time.time_ns()}"
    move_folder(path, target)
    return target
