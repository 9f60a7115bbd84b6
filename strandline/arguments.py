"""Arguments of the Python API: checked where they come in, so that a wrong one is an error of the project's tree."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.jobs.model.errors import UnknownName
from strandline.jobs.model.types import BaseType
from strandline.state_store.errors import ArgumentRefused, VersionGone

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.model.definitions import Source, View

_TAKEN_BY: dict[BaseType, type] = {BaseType.INT: Integral, BaseType.BIGINT: Integral, BaseType.VARCHAR: str}
"""Types of columns that files are told apart by, and what their values are in Python."""

_AS_ROWS = {"to_dicts": "to_dicts()", "to_pylist": "to_pylist()", "to_dict": "to_dict('records')"}
"""Methods of frames (polars, Arrow, pandas), and the calls that make them rows."""


def checked(value: object, taken: type | tuple[type, ...], what: str, hint: str) -> None:
    """Check the kind of an argument.

    Args:
        what: the argument, as a sentence begins with it: "the name of a pipeline".

    Raises:
        ArgumentRefused: it is of another kind.
    """
    if not isinstance(value, taken):
        raise refused(value, what, hint)


def refused(value: object, what: str, hint: str) -> ArgumentRefused:
    """Build the error of an argument of the wrong kind."""
    shown = "None" if value is None else f"of Python's type {type(value).__name__}"
    return ArgumentRefused(f"{what} is {shown}", hint=hint)


def check_name(name: object) -> None:
    """Check what should name a stream, table or view. Raises ArgumentRefused."""
    checked(name, str, "the name of a stream, table or view", "write it as text; lake.names() lists them")


def check_pipeline(pipeline: object) -> None:
    """Check what should name a pipeline. Raises ArgumentRefused."""
    hint = f"write '{pipeline.stem}'" if isinstance(pipeline, Path) and pipeline.stem else "write it as text: 'shop'"
    checked(pipeline, str, "the name of a pipeline", hint)


def check_text(text: object) -> None:
    """Check what should be statements. Raises ArgumentRefused."""
    checked(text, str, "the text of a statement", "write SQL: 'SELECT * FROM name'")


def check_file(path: Path) -> None:
    """Check that a file of definitions is there.

    Raises:
        ArgumentRefused: it is not, or is a folder; the hint tells a statement from a name.
    """
    try:
        if path.is_file():
            return
        message = f"'{path}' is a folder" if path.is_dir() else f"there is no file '{path}'"
    except (OSError, ValueError):
        message = "there is no such file: its name is none that a file has"
    if ";" in str(path) or "\n" in str(path):
        raise ArgumentRefused("`apply` takes a file, and this is a statement", hint="lake.execute(…) takes statements")
    raise ArgumentRefused(message, hint=f"name a .sql file; a path that is not absolute begins at '{Path.cwd()}'")


def check_version(version: object, name: str) -> None:
    """Check what should be a version, or None for a default. Raises ArgumentRefused; VersionGone: it is negative."""
    if version is None:
        return
    checked(version, Integral, "a version", f"write a number: lake.version('{name}') is the newest")
    if isinstance(version, Integral) and version < 0:
        raise VersionGone(f"'{name}' has no version {version}", hint=f"lake.version('{name}') is the newest")


def check_columns(columns: object, of: Source | View) -> None:
    """Check a choice of columns, None for all. Raises ArgumentRefused; UnknownName: there is no such column."""
    if columns is None:
        return
    _check_known(check_names(columns, "the choice of columns", of.columns[0].name), of)


def check_names(names: object, what: str, such_as: str = "id") -> Collection[str]:
    """Check what should be a list of columns' names, and return it. Raises ArgumentRefused."""
    hint = f"write a list of columns: ['{such_as}']"
    if isinstance(names, str | bytes | Mapping) or not isinstance(names, Collection):
        raise refused(names, what, hint)
    for each in names:
        checked(each, str, "the name of a column", hint)
    return names


def check_where(where: object, of: Source | View) -> None:
    """Check a choice of rows by the values of columns, None for all.

    Raises:
        ArgumentRefused: it is no such choice; a value is none that its column may have; the column is neither whole
            numbers nor text.
        UnknownName: there is no such column.
    """
    if where is None:
        return
    hint = f"write {{'{of.columns[0].name}': [value, …]}}, whole numbers or text; lake.query(…) takes any condition"
    if not isinstance(where, Mapping):
        raise refused(where, "`where`", hint)
    _check_known(where, of)
    types = {column.name: column.type for column in of.columns}
    for name, values in where.items():
        taken = _TAKEN_BY.get(types[name].base)
        if taken is None:
            raise ArgumentRefused(f"`where` takes no column of {types[name]}: '{name}'", hint=hint)
        if isinstance(values, str | bytes | Mapping) or not isinstance(values, Collection):
            raise refused(values, f"what `where` says of '{name}'", hint)
        for value in values:
            checked(value, taken, f"a value of '{name}' ({types[name]})", hint)


def check_rows(rows: object) -> None:
    """Check what should be rows: values by column. Raises ArgumentRefused."""
    for method, call in _AS_ROWS.items():
        if hasattr(rows, method):
            raise refused(rows, "what should be rows", f"write rows.{call}")
    hint = "write a list of rows, each with values by column: [{'id': 1}]"
    if isinstance(rows, str | bytes | Mapping) or not isinstance(rows, Collection):
        raise refused(rows, "what should be rows", hint)
    for row in rows:
        checked(row, Mapping, "a row", hint)
        for name in row:
            checked(name, str, "the name of a column in a row", hint)


def _check_known(names: Iterable[str], of: Source | View) -> None:
    declared = [column.name for column in of.columns]
    unknown = next((each for each in names if each not in declared), None)
    if unknown is not None:
        raise UnknownName.among("column", str(unknown), declared)
