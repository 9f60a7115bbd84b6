"""Runs dbt projects of others by our adapter and by dbt-duckdb, as they stand in their checkouts.

    python -m tests.outside.dbt_projects DIR [--only NAME] [--keep FOLDER] [--write-doc FILE]

Ends with a table. The exit status is 1 when rows differ, 2 when nothing could be run.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.outside.dbt_projects.projects import PROJECTS
from tests.outside.dbt_projects.report import table, write_doc
from tests.outside.dbt_projects.run import compared
from tests.outside.sqllogic.suites import PLACE
from tests.support.dbt_project import installed_adapter


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.outside.dbt_projects")
    parser.add_argument("place", type=Path, nargs="?", default=PLACE, help="the folder of the checkouts")
    parser.add_argument("--only", default=",".join(PROJECTS), help="some of " + ", ".join(PROJECTS))
    parser.add_argument("--keep", type=Path, help="run in this folder, and leave it")
    parser.add_argument("--write-doc", type=Path, help="a page with the marks of the table")
    options = parser.parse_args(arguments)
    came = []
    with tempfile.TemporaryDirectory() as made:
        folder = options.keep or Path(made)
        (folder / "adapter").mkdir(parents=True)
        adapter = installed_adapter(folder / "adapter")
        for name in options.only.split(","):
            absent = PROJECTS[name].missing(options.place)
            if absent:
                print(
                    f"{name}: {', '.join(absent)} absent: {__package__}.projects says how to get them", file=sys.stderr
                )
                continue
            came.append(compared(PROJECTS[name], options.place, folder / name, adapter))
            print("\n".join(table(came[-1:])), flush=True)
    if not came:
        return 2
    print("\n".join(table(came)))
    if options.write_doc:
        write_doc(came, options.write_doc)
    return int(any(each.kind == "differs" for found in came for each in (*found.unchanged, *found.deleted)))


if __name__ == "__main__":
    sys.exit(main())
