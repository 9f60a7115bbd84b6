"""The process that answers queries: what it imports before its first one."""

from __future__ import annotations

import subprocess
import sys

from fastapi.testclient import TestClient

from tests.support.served_lake import ServedLake

FIRST_QUERY = """
import sys
from pathlib import Path
from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.terms import FREELY
from strandline.jobs.server.state.access import EVERYTHING
from strandline.jobs.server.state.worker import QueryRequest, Shared, load
settings = load_settings(lake=Path(sys.argv[1]))
load()
loaded = set(sys.modules)
asked = QueryRequest("SELECT town, SUM(n) AS n FROM by_town GROUP BY town", FREELY, EVERYTHING, "objects")
asked.answered(Shared.of(settings))
print(*sorted(set(sys.modules) - loaded))
"""


def test_the_first_query_imports_nothing(client: TestClient, served: ServedLake) -> None:
    """Its time limit would pay for it: on a busy machine that were seconds."""
    command = [sys.executable, "-c", FIRST_QUERY, str(served.settings.lake)]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout.split() == []
