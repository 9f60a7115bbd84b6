"""Cases whose statements must be refused: by a typed error, before anything runs."""

from __future__ import annotations

import tempfile
from pathlib import Path

from strandline.jobs.catalog.catalog import Catalog
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from tests.conformance.cases import Case
from tests.conformance.program import Stopped, build
from tests.conformance.report import Outcome


def run_refusal(case: Case) -> Outcome:
    """Passed when a statement is refused. Its WITH clauses are taken as they are written."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        lake = LakeLayout(Path(folder))
        try:
            build(case, Catalog(lake), lake, verbatim=True)
        except Stopped as stopped:
            error = stopped.error
            if isinstance(error, StrandlineError):
                return Outcome(case.file, case.name, case.kind, "-", "passed", str(error), error.code)
            reason = f"{stopped.stage}: {type(error).__name__}: {error}"
            return Outcome(case.file, case.name, case.kind, "-", "failed", reason, stopped.stage)
    return Outcome(case.file, case.name, case.kind, "-", "failed", f"accepted; expected: {case.message}", "accepted")
