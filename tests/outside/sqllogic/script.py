"""What a file of a suite says: statements and queries in order, with the answers that it states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Form = Literal["spaced", "tabbed", "barred"]
"""How the cells of an answer's lines are set apart: by white space (sqllogictest), by tabs or one a line (DuckDB), by
`|` (pg_regress)."""


@dataclass(frozen=True)
class Statement:
    """A statement without an answer.

    Attributes:
        fails: the file says that it must be refused; None: either will do.
    """

    sql: str
    line: int
    fails: bool | None = False


@dataclass(frozen=True)
class Query:
    """A query and the lines of its answer.

    Attributes:
        lines: as they stand in the file; None: the file states none, as where two queries are compared by a label.
        columns: how many columns the file says that there are; 0: it does not say.
        sorted: the file's rows are sorted, whatever order the query asks for.
    """

    sql: str
    line: int
    lines: tuple[str, ...] | None
    columns: int = 0
    form: Form = "spaced"
    sorted: bool = False


@dataclass(frozen=True)
class LeftOut:
    """A record that is not run, and why."""

    line: int
    reason: str


Record = Statement | Query | LeftOut


@dataclass(frozen=True)
class Script:
    """A file.

    Attributes:
        name: its path below the suite's folder.
        left_out: why nothing of it is run; empty: it is.
    """

    name: str
    records: tuple[Record, ...]
    left_out: str = ""

    @property
    def queries(self) -> int:
        """How many queries it has."""
        return sum(isinstance(each, Query) for each in self.records)
