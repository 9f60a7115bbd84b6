"""Tables set aside: moved out of the way of one that is begun anew, and kept for whoever wants to look."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from state_store.files import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

    from state_store.layout import Lake


def set_aside(lake: Lake, table: str) -> Path | None:
    """Move a table's folder to `<lake>/aside/`; None when there is no such table. One step: it is here or there."""
    path = lake.table(table)
    if not path.exists():
        return None
    lake.aside.mkdir(exist_ok=True)
    target = lake.aside / f"{path.name}-{time.time_ns()}"
    path.rename(target)
    sync_folder(path.parent)
    sync_folder(lake.aside)
    return target
