"""Cases of our own, in ksqlDB's form: what its documentation and its source say, kind by kind.

A file of `own/` is a topic. Those with outputs run in both modes; those with an exception must be refused. Where ksqlDB
takes what its neighbours in a file are refused for, a case without outputs or exception says so.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.state_store.layout import LakeLayout
from tests.conformance.cases import Case, read_cases
from tests.conformance.on_duckdb import run_one
from tests.conformance.program import build
from tests.conformance.refusals import run_refusal

_CASES = read_cases(Path(__file__).parent / "own")


def _named(case: Case) -> str:
    return f"{case.file.removesuffix('.json')}: {case.name}"


@pytest.mark.parametrize("case", [case for case in _CASES if case.outputs], ids=_named)
def test_records_come_out_as_ksqldb_says(case: Case) -> None:
    assert [outcome.reason for outcome in run_one(case, ("A", "B"), cuts=3)] == ["", ""]


@pytest.mark.parametrize("case", [case for case in _CASES if case.refused], ids=_named)
def test_what_ksqldb_refuses_is_refused(case: Case) -> None:
    outcome = run_refusal(case)
    assert outcome.outcome == "passed", outcome.reason
    assert case.message in outcome.reason


@pytest.mark.parametrize("case", [case for case in _CASES if not case.outputs and not case.refused], ids=_named)
def test_what_ksqldb_takes_is_taken(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lake = LakeLayout(Path(folder))
        build(case, Catalog(lake), lake, verbatim=True)
