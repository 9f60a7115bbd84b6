"""The process that Spark keeps for a source's plans ends without a word when the run that asked it is gone."""

from __future__ import annotations

import base64
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from strandline.jobs.ingest.source import IntakeRange
from strandline.jobs.model.settings import Settings
from strandline.state_store.layout import LakeLayout
from tests.unit.ingest.committed import EVENTS

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("error", "told"),
    [("BrokenPipeError(32, 'gone')", False), ("ConnectionResetError(104, 'gone')", False), ("ValueError('x')", True)],
)
def test_only_a_lost_connection_goes_untold(error: str, told: bool, settings: Settings, lake: LakeLayout) -> None:
    plan = base64.b64encode(pickle.dumps(IntakeRange(settings, lake, (EVENTS,), {}, {}))).decode()
    script = f"""
from pyspark.sql.types import StructType
from strandline.jobs.ingest.source import StrandlineSource
StrandlineSource({{"secret_plan": {plan!r}}}).streamReader(StructType([]))
raise {error}
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert ("Traceback" in done.stderr) is told, done.stderr
    assert ("ValueError: x" in done.stderr) is told
