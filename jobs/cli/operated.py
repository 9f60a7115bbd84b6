"""Shows what operations came to: a table for people, one JSON object a row for scripts."""

from __future__ import annotations

import json as jsons
import sys
from typing import TYPE_CHECKING, Any

from jobs.cli.output import Output, say
from jobs.operate.verify.findings import counted
from jobs.serve.results import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jobs.operate.drills.run import DrillResult
    from jobs.operate.maintenance.execute import MaintenanceResult

_PASSED = {True: "ok", False: "FAILED", None: "skipped"}


def show_json(rows: Sequence[dict[str, Any]]) -> None:
    """Write one JSON object for each row."""
    for row in rows:
        print(jsons.dumps(row, ensure_ascii=False))
    sys.stdout.flush()


def show_maintenance(done: MaintenanceResult, *, json: bool) -> None:
    """Write what was done to each table."""
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
            {True: "equal", False: "BROKEN", None: "nothing to do"}[table.proved],
            table.note,
        )
        for table in done.tables
    ]
    Output().write(Rows(names, rows))


def show_drills(results: Sequence[DrillResult], *, json: bool) -> bool:
    """Write the results of drills; false if one failed."""
    failed = [result for result in results if result.passed is False]
    if json:
        show_json([result.as_json() for result in results])
    else:
        names = ("drill", "view", "result", "RTO s", "target s", "RPO versions", "RPO rows", "rows", "why")
        rows = [
            (
                result.drill,
                result.view,
                _PASSED[result.passed],
                result.rto_seconds,
                result.target_seconds,
                result.rpo_versions,
                result.rpo_rows,
                result.rows,
                result.why,
            )
            for result in results
        ]
        Output().write(Rows(names, rows))
    skipped = sum(result.passed is None for result in results)
    end = f"failed: {', '.join(f'{each.drill} of {each.view}' for each in failed)}" if failed else "all is well"
    say(f"{counted(len(results), 'drill')}, {skipped} skipped: {end}")
    return not failed
