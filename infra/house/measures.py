"""Sizes: lines by file and room, files by folder, the lines that are imports, and the parameters of every function."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from infra.house.plan import FACADE, PACKAGE, ROOT, TOPS, room_of


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
    imports: int
    functions: tuple[Function, ...]

    @property
    def module(self) -> str:
        """The name that it is imported by."""
        parts = Path(self.path).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        return ".".join(parts if parts[0] == PACKAGE else (PACKAGE, *parts))

    @property
    def folder(self) -> str:
        return str(Path(self.path).parent)


def measured() -> list[File]:
    """Every file of the product, in the order of their paths."""
    paths = (path for top in (*TOPS, *FACADE) for path in (ROOT / top).rglob("*.py"))
    return [measure(path.relative_to(ROOT).as_posix(), path.read_text()) for path in sorted(paths)]


def measure(path: str, source: str) -> File:
    """The sizes in one file's text."""
    nodes = list(ast.walk(ast.parse(source)))
    functions = [
        Function(path, node.name, node.lineno, _lines(node), _parameters(node))
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    imports = sum(_lines(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    return File(path, len(source.splitlines()), imports, tuple(functions))


def lines_by_room(files: Iterable[File]) -> Counter[str]:
    """The lines in each room."""
    found: Counter[str] = Counter()
    for file in files:
        room = room_of(file.module)
        if room is not None:
            found[room] += file.lines
    return found


def files_by_folder(files: Iterable[File]) -> Counter[str]:
    """The number of files in each folder."""
    return Counter(file.folder for file in files)


def _lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = node.args
    named = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    return len([each for each in named if each.arg not in ("self", "cls") and not _is_typed_by_users(each)])


def _is_typed_by_users(argument: ast.arg) -> bool:
    """True for an option of a command: no code passes it, and a user names the few that he needs."""
    return argument.annotation is not None and "typer.Option(" in ast.unparse(argument.annotation)
