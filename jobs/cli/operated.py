"""Shows what a maintenance came to: a table for people, one JSON object a row for scripts."""

from __future__ import annotations

import json as jsons
import sys
from typing import TYPE_CHECKING, Any

from strandline.jobs.cli.output import Output, say
from strandline.jobs.operate.verify.findings import counted
from strandline.jobs.serve.results import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.jobs.operate.maintenance.execute import MaintenanceResult


def show_json(rows: Sequence[dict[str, Any]]) -> None:
    """Write one JSON object for each row."""
    for row in rows:
        print(jsons.dumps(row, ensure_ascii=False))
    sys.stdout.flush()


def show_maintenance(done: MaintenanceResult, *, json: bool) -> None:
    """Write what was done to each table; for people, only those to which anything was."""
    if json:
        show_json([table.as_json() for table in done.tables])
        return
    names = ("table", "files", "removed", "MB freed", "restore plays", "proof", "note")
    rows = [
        (
            table.table,
            f"{table.files_before} > {table.files_after}",
            table.removed,
            round(table.freed / 1e6, 1),
            f"{table.restore_rows_before} > {table.restore_rows_after} rows",
            "equal" if table.proved else "BROKEN",
            table.note,
        )
        for table in done.tables
        if table.proved is not None
    ]
    if rows:
        Output().write(Rows(names, rows))
    idle = len(done.tables) - len(rows)
    if idle or not rows:
        say(f"{counted(idle, 'table')}: nothing to merge or remove")
