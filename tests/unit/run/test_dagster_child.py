"""The metadata that Dagster shows of a table."""

from __future__ import annotations

from dataclasses import replace

from strandline.jobs.model.report import TableReport
from strandline.jobs.run.dagster_child import table_metadata

REPORT = TableReport("v", 1, 1, 10, 1000, 10, 0, 0.5, {"s": 1}, {}, "delta", "few keys", "d:10")


def test_late_rows_are_shown_where_rows_can_be_late() -> None:
    assert "late rows" not in table_metadata(REPORT, "projection")
    assert table_metadata(replace(REPORT, late=0), "projection")["late rows"] == 0
    assert table_metadata(replace(REPORT, late=4), "projection")["late rows"] == 4


def test_a_table_whose_readers_wait_says_why() -> None:
    assert "what reads it waits" not in table_metadata(REPORT, "projection")
    assert table_metadata(REPORT, "projection", "it breaks …")["what reads it waits"] == "it breaks …"
