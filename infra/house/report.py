"""The house as it stands, in print: floors, imports between rooms, circles, and the largest of everything."""

from __future__ import annotations

from collections.abc import Iterator

from infra.house.graph import Edge, between_rooms, circles_by_scope
from infra.house.measures import (
    File,
    files_by_folder,
    functions_of,
    lines_by_room,
    median_lines,
    product_of,
)
from infra.house.plan import FLOORS, standing

_SHOWN = 5


def report(edges: list[Edge], files: list[File]) -> Iterator[str]:
    """The lines to print."""
    yield from _floors(files)
    yield ""
    yield from _imports(edges)
    yield ""
    for scope, rings in circles_by_scope(edges).items():
        yield f"circles between {scope:8} {len(rings) or 'none'}"
    yield ""
    yield from _largest(files)


def _floors(files: list[File]) -> Iterator[str]:
    rooms, sizes = standing(), lines_by_room(files)
    total = sum(file.lines for file in product_of(files))
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


def _largest(files: list[File]) -> Iterator[str]:
    functions = functions_of(files)
    folder, number = files_by_folder(files).most_common(1)[0]
    yield f"largest folder   {number:>4} files  {folder}"
    yield f"median file      {median_lines(files):>4} lines"
    for file in sorted(files, key=lambda each: -each.lines)[:_SHOWN]:
        yield f"largest files    {file.lines:>4} lines  {file.path}"
    for function in sorted(functions, key=lambda each: -each.lines)[:_SHOWN]:
        yield f"longest          {function.lines:>4} lines  {function}"
    for function in sorted(functions, key=lambda each: -each.parameters)[:_SHOWN]:
        yield f"most parameters  {function.parameters:>4}        {function}"
