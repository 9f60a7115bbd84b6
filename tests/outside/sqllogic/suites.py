"""The suites: where they are, which of their files are read, and how.

They are no part of the project, and nothing of them is copied into it. `STRANDLINE_OUTSIDE` names a folder that holds
their checkouts; unless it does, the folder `outside-suites` beside the project is looked for:

    git clone --depth 1 https://github.com/duckdb/duckdb              outside-suites/duckdb+duckdb
    git clone --depth 1 https://github.com/risingwavelabs/risingwave  outside-suites/risingwavelabs+risingwave
    git clone --depth 1 https://github.com/sraoss/pg_ivm              outside-suites/sraoss+pg_ivm
    git clone --depth 1 https://github.com/ila/openivm                outside-suites/ila+openivm
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.outside.sqllogic import read_regress, read_slt
from tests.outside.sqllogic.script import Form, Script

PLACE: Final = Path(os.environ.get("STRANDLINE_OUTSIDE", Path(__file__).parents[4] / "outside-suites"))


@dataclass(frozen=True)
class Suite:
    """A project's suite.

    Attributes:
        checkout: the folder of its checkout.
        folders: those of its folders that ask about SELECT, views and what they compute.
        pattern: of the files there.
        without: parts of paths that are about something else.
    """

    name: str
    checkout: str
    folders: tuple[str, ...]
    pattern: str
    form: Form
    without: tuple[str, ...] = ()

    def folder(self, place: Path) -> Path:
        """Where its checkout is."""
        return place / self.checkout

    def files(self, place: Path) -> list[Path]:
        """Its files, in order; none where it is absent."""
        return sorted(self._found(place))

    def read(self, file: Path, place: Path) -> Script:
        """The script of one of them."""
        if self.form == "barred":
            return read_regress.read(file, self.folder(place))
        return read_slt.read(file, self.folder(place), self.form)

    def _found(self, place: Path) -> Iterator[Path]:
        for folder in self.folders:
            for file in (self.folder(place) / folder).glob(self.pattern):
                if not any(part in str(file) for part in self.without):
                    yield file


_OF_DUCKDB: Final = (
    "aggregate binder cast conjunction cte error filter function join keywords limit order ordinality overflow"
    " projection select setops subquery topn types window"
)
_OF_RISINGWAVE: Final = (
    "batch/aggregate batch/basic batch/duckdb batch/functions batch/grouping_sets batch/join batch/order"
    " batch/over_window batch/subquery batch/top_n batch/types batch/tpch streaming over_window/generated/batch"
    " over_window/generated/streaming"
)

SUITES: Final = {
    suite.name: suite
    for suite in (
        Suite("pg_ivm", "sraoss+pg_ivm", ("sql",), "*.sql", "barred"),
        Suite("openivm", "ila+openivm", ("test/sql",), "*.test", "tabbed", ("ducklake",)),
        Suite(
            "risingwave",
            "risingwavelabs+risingwave",
            tuple(f"e2e_test/{each}" for each in _OF_RISINGWAVE.split()),
            "**/*.slt*",
            "spaced",
        ),
        Suite(
            "duckdb", "duckdb+duckdb", tuple(f"test/sql/{each}" for each in _OF_DUCKDB.split()), "**/*.test", "tabbed"
        ),
    )
}
