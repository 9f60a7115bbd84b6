"""`python -m infra.house [check | write]`: prints the house, and fails where it is not as planned.

check   only what is against the plan, one line each
write   the table of rooms in docs/architecture.md
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from statistics import median

from infra.house.graph import Edge, all_imports, between_rooms, breaches, circles_by_scope, importers
from infra.house.measures import File, files_by_folder, lines_by_room, measured
from infra.house.page import stale, write
from infra.house.plan import FLOORS, standing

_SHOWN = 5
_SHORT = 100
"""Lines below which a module with a single importer may be a piece of that one."""


def main() -> int:
    """Do what the command line asks; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m infra.house", description="The house of the code.")
    parser.add_argument("action", nargs="?", choices=("show", "check", "write"), default="show")
    action = parser.parse_args().action
    if action == "write":
        write()
        return 0
    edges, files = all_imports(), measured()
    if action == "show":
        sys.stdout.write("\n".join([*report(edges, files), "", ""]))
    found = [*breaches(edges, [file.module for file in files]), *stale()]
    for line in found:
        sys.stderr.write(f"house: {line}\n")
    return 1 if found else 0


def report(edges: list[Edge], files: list[File]) -> Iterator[str]:
    """The house as it stands, as lines: floors, imports between rooms, circles, sizes."""
    yield from _floors(files)
    yield ""
    yield from _imports(edges)
    yield ""
    for scope, rings in circles_by_scope(edges).items():
        yield f"circles between {scope:8} {len(rings) or 'none'}"
    yield ""
    yield from _sizes(edges, files)
    yield ""
    yield from _largest(files)


def _floors(files: list[File]) -> Iterator[str]:
    rooms, sizes = standing(), lines_by_room(files)
    total = sum(file.lines for file in files)
    yield f"{'floor':>5}  {'room':14} {'lines':>6} {'share':>7}"
    for number, floor in reversed(list(enumerate(FLOORS))):
        for room in floor:
            if room in rooms:
                yield f"{number:>5}  {room:14} {sizes[room]:>6} {100 * sizes[room] / total:>5.1f} %"
    yield f"{'':5}  {'':14} {total:>6}"


def _imports(edges: list[Edge]) -> Iterator[str]:
    counts = between_rooms(edges)
    rooms = standing()
    imported = [room for room in rooms if any(pair[1] == room for pair in counts)]
    yield " ".join([f"{'imports of':14}", *imported])
    for room in reversed(rooms):
        cells = [f"{counts[room, other] or '·':>{len(other)}}" for other in imported]
        yield " ".join([f"{room:14}", *cells]).rstrip()


def _sizes(edges: list[Edge], files: list[File]) -> Iterator[str]:
    modules = [file for file in files if not file.path.endswith("__init__.py")]
    lines = sum(file.lines for file in files)
    counts = importers(edges)
    single = [file for file in modules if counts[file.module] == 1]
    yield f"files            {len(files):>6}, {len(modules)} modules of {median(f.lines for f in modules):.0f} lines"
    yield f"lines            {lines:>6}, of them imports {100 * sum(file.imports for file in files) / lines:.1f} %"
    yield f"one importer     {len(single):>6} modules, {sum(f.lines < _SHORT for f in single)} of them short"


def _largest(files: list[File]) -> Iterator[str]:
    functions = [function for file in files for function in file.functions]
    folder, number = files_by_folder(files).most_common(1)[0]
    yield f"largest folder   {number:>4} files  {folder}"
    for file in sorted(files, key=lambda each: -each.lines)[:_SHOWN]:
        yield f"largest files    {file.lines:>4} lines  {file.path}"
    for function in sorted(functions, key=lambda each: -each.lines)[:_SHOWN]:
        yield f"longest          {function.lines:>4} lines  {function}"
    for function in sorted(functions, key=lambda each: -each.parameters)[:_SHOWN]:
        yield f"most parameters  {function.parameters:>4}        {function}"


if __name__ == "__main__":
    sys.exit(main())
