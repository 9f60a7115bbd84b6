"""Breaches of the plan: a line for each, with the place, the number and the limit."""

from __future__ import annotations

from collections.abc import Iterator

from infra.house.graph import Edge, against_the_floors, circles_by_scope
from infra.house.measures import (
    File,
    files_by_folder,
    functions_of,
    lines_by_room,
    median_lines,
    product_of,
)
from infra.house.plan import (
    FILE_LINES,
    FOLDER_FILES,
    FUNCTION_LINES,
    MEDIAN_FILE,
    PARAMETERS,
    ROOM_SHARE,
    ROOMS,
    Limit,
    package_of,
    room_of,
)


def breaches(edges: list[Edge], files: list[File]) -> list[str]:
    """What is against the plan; empty when the house is in order."""
    return [*_imports(edges), *_rooms(files), *_folders(files), *_files(files), *_functions(files)]


def _imports(edges: list[Edge]) -> Iterator[str]:
    for scope, rings in circles_by_scope(edges).items():
        for ring in rings:
            yield f"a circle between {scope}: {' -> '.join(ring)}"
    for edge in against_the_floors(edges):
        one, other = room_of(edge.importer), room_of(edge.imported)
        yield f"{edge.importer} imports {edge.imported}: {other} does not stand below {one}"


def _rooms(files: list[File]) -> Iterator[str]:
    sizes = lines_by_room(files)
    total = sum(file.lines for file in product_of(files))
    for room, lines in sizes.items():
        if room not in ROOMS:
            yield f"jobs/{room}: stands on no floor of the plan"
        if 100 * lines > ROOM_SHARE.most * total:
            where = package_of(room).replace(".", "/")
            yield f"{where}: {lines} of {total} lines, {100 * lines / total:.1f} %{_limit(ROOM_SHARE)}"


def _folders(files: list[File]) -> Iterator[str]:
    for folder, number in files_by_folder(files).items():
        if number > FOLDER_FILES.most:
            yield f"{folder}: {number} files{_limit(FOLDER_FILES)}"


def _files(files: list[File]) -> Iterator[str]:
    middle = median_lines(files)
    if middle > MEDIAN_FILE.most:
        yield f"the median file: {middle} lines{_limit(MEDIAN_FILE)}"
    for file in files:
        if file.lines > FILE_LINES.most:
            yield f"{file.path}: {file.lines} lines{_limit(FILE_LINES)}"


def _functions(files: list[File]) -> Iterator[str]:
    for function in functions_of(files):
        if function.lines > FUNCTION_LINES.most:
            yield f"{function}: {function.lines} lines{_limit(FUNCTION_LINES)}"
        if function.parameters > PARAMETERS.most:
            yield f"{function}: {function.parameters} parameters{_limit(PARAMETERS)}"


def _limit(limit: Limit) -> str:
    return f", at most {limit.most}: {limit.reason}"
