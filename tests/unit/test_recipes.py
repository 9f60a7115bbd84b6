"""The recipes and the migration guides: every view that they show gives the rows that they show for it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from infra.house.plan import ROOT
from strandline.jobs.model.settings import load_settings
from strandline.jobs.testing.suite import SUFFIX, read_suite
from strandline.jobs.testing.trials import prepared, run_suite, trials
from tests.support.page_files import files_of, write_files

PAGES: Final = sorted([*(ROOT / "docs" / "recipes").glob("*.md"), *(ROOT / "docs" / "migrate").glob("*.md")])
SUITES: Final = [(page, file.name) for page in PAGES for file in files_of(page) if file.name.endswith(SUFFIX)]
_CUTS: Final = 1
"""Times that each test is also run in epochs cut at random: a row that depends on the cut mostly shows at once."""


def _name(value: object) -> str:
    return value.stem if isinstance(value, Path) else str(value).removesuffix(SUFFIX)


@pytest.mark.parametrize(("page", "suite"), SUITES, ids=_name)
def test_the_views_of_a_page_give_the_rows_of_the_page(page: Path, suite: str, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    wanted = trials(_CUTS, 1, kills=False, duckdb=True, spark=False)
    with prepared(load_settings(lake=tmp_path / "lake"), read_suite(tmp_path / suite)) as (bench, cases):
        results = list(run_suite(bench, cases, wanted))
    assert len(results) == len(cases) * len(wanted)
    assert [(each.case, str(each.trial), each.step, each.faults) for each in results if not each.passed] == []


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_statement_of_a_page_is_run(page: Path) -> None:
    """SQL stands in a file with tests beside it, so that the test above runs it."""
    names = {file.name for file in files_of(page)}
    assert [name for name in names if name.endswith(".sql") and name.replace(".sql", SUFFIX) not in names] == []
    assert re.findall(r"(?m)^```(?:sql|yaml)$", page.read_text()) == []
    assert names
