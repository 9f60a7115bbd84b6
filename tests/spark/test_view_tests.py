"""`strandline test` on Spark: the views of a suite are refreshed by Spark's own plans, and compared all the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.jobs.model.settings import Settings
from strandline.jobs.testing import trials
from strandline.jobs.testing.suite import read_suite
from strandline.jobs.testing.trials import Trial, prepared, run_trial
from strandline.state_store.delta import reader
from strandline.state_store.layout import LakeLayout

LONGEST = Path(__file__).parents[2] / "jobs" / "pipelines" / "longest_visits.sql"


def test_a_test_passes_on_spark(spark: SparkSession, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def kept(folder: Path) -> None:
        head = reader.head(LakeLayout(folder).table("longest"))
        assert head is not None
        seen.append(head.record.reason)

    monkeypatch.setattr(trials, "discard_folder", kept)
    with prepared(settings, read_suite(LONGEST)) as (bench, cases):
        found = run_trial(replace(bench, spark=spark), cases[1], Trial("on Spark"), bench.template.with_name("lake"))
    assert found.faults == ()
    assert ["by Spark: STRANDLINE_ENGINE=spark" in reason for reason in seen] == [True]
