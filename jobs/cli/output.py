"""Writes results: rows to standard output, messages to standard error.

With `json` standard output holds one JSON object for each row and nothing else, for scripts to read.
"""

from __future__ import annotations

import json as jsons
import shutil
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.jobs.serve.format import TextTable, cell, json_line, to_json
from strandline.jobs.serve.results import Document, LiveRows, Message, Result, Rows, Tombstone, Weighted

if TYPE_CHECKING:
    from collections.abc import Sequence

TOMBSTONE_FIELD = "__tombstone"
"""The JSON member that marks a tombstone, and a row that went; others do not have it."""
WEIGHT_FIELD = "__weight"
"""The JSON member, and the table's last column, of rows that no key tells apart: 1 for one more, -1 for one less."""

_TOMBSTONE_CELL = "<gone>"


@dataclass(frozen=True)
class CommandOutput:
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
                self._note(result)
            case Rows():
                self._table(result)
                self._note(result)
            case LiveRows() if self.json:
                self._live_json(result)
            case LiveRows():
                self._live_table(result)

    def _note(self, result: Rows) -> None:
        if result.note:
            say(result.note)

    def _table(self, result: Rows) -> None:
        rows = [[cell(value) for value in row] for row in result.rows]
        table = TextTable.fitting(result.names, rows)
        print(table.header())
        for row in rows:
            print(table.line(row))
        print(table.rule, flush=True)

    def _live_json(self, result: LiveRows) -> None:
        for change in result.rows:
            match change:
                case Tombstone(row):
                    marks: dict[str, object] = {TOMBSTONE_FIELD: True}
                case Weighted(row, weight):
                    marks = {TOMBSTONE_FIELD: True, WEIGHT_FIELD: weight} if weight < 0 else {WEIGHT_FIELD: weight}
                case row:
                    marks = {}
            print(json_line((*result.names, *marks), (*row, *marks.values())), flush=True)

    def _live_table(self, result: LiveRows) -> None:
        names = (*result.names, WEIGHT_FIELD) if result.marked else result.names
        table = TextTable.within(names, shutil.get_terminal_size().columns)
        print(table.header(), flush=True)
        for change in result.rows:
            cells, weight = _live_cells(change)
            print(table.line([*cells, str(weight)] if result.marked else cells), flush=True)


def say(text: str) -> None:
    """Write a message for the user to standard error."""
    print(text, file=sys.stderr, flush=True)


def _live_cells(change: tuple[object, ...] | Tombstone | Weighted) -> tuple[Sequence[str], int]:
    """The cells of a change, and 1 for a row that came, -1 for one that went."""
    match change:
        case Tombstone(row):
            return [_TOMBSTONE_CELL if value is None else cell(value) for value in row], -1
        case Weighted(row, weight):
            return [cell(value) for value in row], weight
        case row:
            return [cell(value) for value in row], 1


def show_json(rows: Sequence[dict[str, Any]]) -> None:
    """Write one JSON object for each row."""
    for row in rows:
        print(jsons.dumps(row, ensure_ascii=False))
    sys.stdout.flush()
