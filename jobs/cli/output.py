"""Writes results: rows to standard output, messages to standard error.

With `json` standard output holds one JSON object for each row and nothing else, for scripts to read.
"""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.serve.format import Table, cell, json_line, to_json
from jobs.serve.results import Document, LiveRows, Message, Result, Rows, Tombstone

if TYPE_CHECKING:
    from collections.abc import Sequence

TOMBSTONE_FIELD = "__tombstone"
"""The JSON member that marks a tombstone; other rows do not have it."""

_TOMBSTONE_CELL = "<gone>"


@dataclass(frozen=True)
class Output:
    """The output of a command: results on standard output, as JSON lines or as tables."""

    json: bool = False

    def write(self, result: Result) -> None:
        """Write one result; of a live one, each row when it arrives.

        Raises:
            BrokenPipeError: nobody reads standard output any more.
        """
        match result:
            case Message():
                say(result.text)
            case Document():
                print(to_json(result.data) if self.json else result.text, flush=True)
            case Rows() if self.json:
                for row in result.rows:
                    print(json_line(result.names, row))
                sys.stdout.flush()
            case Rows():
                self._table(result)
            case LiveRows() if self.json:
                self._live_json(result)
            case LiveRows():
                self._live_table(result)

    def _table(self, result: Rows) -> None:
        rows = [[cell(value) for value in row] for row in result.rows]
        table = Table.fitting(result.names, rows)
        print(table.header())
        for row in rows:
            print(table.line(row))
        print(table.rule, flush=True)

    def _live_json(self, result: LiveRows) -> None:
        for row in result.rows:
            if isinstance(row, Tombstone):
                print(json_line((*result.names, TOMBSTONE_FIELD), (*row.row, True)), flush=True)
            else:
                print(json_line(result.names, row), flush=True)

    def _live_table(self, result: LiveRows) -> None:
        table = Table.within(result.names, shutil.get_terminal_size().columns)
        print(table.header(), flush=True)
        for row in result.rows:
            print(table.line(_live_cells(row)), flush=True)


def say(text: str) -> None:
    """Write a message for the user to standard error."""
    print(text, file=sys.stderr, flush=True)


def _live_cells(row: tuple[object, ...] | Tombstone) -> Sequence[str]:
    if isinstance(row, Tombstone):
        return [_TOMBSTONE_CELL if value is None else cell(value) for value in row.row]
    return [cell(value) for value in row]
