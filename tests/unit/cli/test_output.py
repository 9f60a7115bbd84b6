"""Live rows as they are printed: what came and what went is told apart in both forms."""

from __future__ import annotations

import json

import pytest

from strandline.jobs.cli.output import CommandOutput
from strandline.jobs.serve.results import LiveRows, Tombstone, Weighted


def test_json_marks_what_went_and_what_has_a_weight(capsys: pytest.CaptureFixture[str]) -> None:
    changes: list[tuple[object, ...] | Tombstone | Weighted]
    changes = [(1, "a"), Tombstone((1, None)), Weighted((2, None), 1), Weighted((2, None), -1)]
    CommandOutput(json=True).write(LiveRows(("k", "v"), iter(changes)))
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [
        {"k": 1, "v": "a"},
        {"k": 1, "v": None, "__tombstone": True},
        {"k": 2, "v": None, "__weight": 1},
        {"k": 2, "v": None, "__tombstone": True, "__weight": -1},
    ]


@pytest.mark.parametrize(
    ("changes", "marked", "wanted"),
    [
        ([(1, "a"), Tombstone((1, None))], False, [["1", "a"], ["1", "<gone>"]]),
        ([(1, None), Tombstone((1, 2))], True, [["1", "null", "1"], ["1", "2", "-1"]]),
        ([Weighted((1, None), 1), Weighted((1, None), -1)], True, [["1", "null", "1"], ["1", "null", "-1"]]),
    ],
)
def test_a_table_marks_them_where_its_columns_do_not(
    changes: list[tuple[object, ...] | Tombstone | Weighted],
    marked: bool,
    wanted: list[list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    CommandOutput().write(LiveRows(("k", "v"), iter(changes), marked))
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:]] == wanted
