"""Sizes: lines by file and room, files by folder, and of every function its lines and parameters."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from infra.house.plan import PRODUCT, ROOT, TOOLS, room_of


@dataclass(frozen=True)
class Function:
    """A function or method, where it begins and how large it is."""

    path: str
    name: str
    line: int
    lines: int
    parameters: int

    def __str__(self) -> str:
        return f"{self.path}:{self.line} {self.name}"


@dataclass(frozen=True)
class File:
    """One Python file, by its path from the root."""

    path: str
    lines: int
    functions: tuple[Function, ...]

    @property
    def module(self) -> str:
        parts = Path(self.path).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @property
    def folder(self) -> str:
        return str(Path(self.path).parent)

    @property
    def room(self) -> str | None:
        return room_of(self.module)

    @property
    def product(self) -> bool:
        return self.path.split("/")[0] in PRODUCT


def measured() -> list[File]:
    """Every file of the product and its tools, in the order of their paths."""
    paths = (path for top in (*PRODUCT, *TOOLS) for path in (ROOT / top).rglob("*.py"))
    return [measure(path.relative_to(ROOT).as_posix(), path.read_text()) for path in sorted(paths)]


def measure(path: str, source: str) -> File:
    """The sizes in one file's text."""
    found = [
        Function(path, node.name, node.lineno, (node.end_lineno or node.lineno) - node.lineno + 1, _parameters(node))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    return File(path, len(source.splitlines()), tuple(found))


def product_of(files: Iterable[File]) -> list[File]:
    """The files that are the product."""
    return [file for file in files if file.product]


def lines_by_room(files: Iterable[File]) -> Counter[str]:
    """The product's lines in each room."""
    found: Counter[str] = Counter()
    for file in product_of(files):
        if file.room is not None:
            found[file.room] += file.lines
    return found


def files_by_folder(files: Iterable[File]) -> Counter[str]:
    """The number of the product's files in each folder."""
    return Counter(file.folder for file in product_of(files))


def median_lines(files: Iterable[File]) -> int:
    """The lines of the product's median file; packages' own files, which hold a sentence each, are left out."""
    return int(median(file.lines for file in product_of(files) if not file.path.endswith("__init__.py")))


def functions_of(files: Iterable[File]) -> Sequence[Function]:
    """All functions of these files."""
    return [function for file in files for function in file.functions]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = node.args
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return len([each for each in named if each.arg not in ("self", "cls") and not _is_typed_by_users(each)])


def _is_typed_by_users(argument: ast.arg) -> bool:
    """True for an option of a command: no code passes it, and a user names the few that he needs."""
    return argument.annotation is not None and "typer.Option(" in ast.unparse(argument.annotation)
