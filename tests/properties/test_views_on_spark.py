"""Any view over any history, by the production path and through interruptions; of Spark and DuckDB one is drawn for
each refresh, so that each goes on from what the other has stored.

`STRANDLINE_SPARK_EXAMPLES` says how many examples (views with a history) are run: 20 unless it says so, 500 in
`make nightly`, of new seeds. The seed is printed with what fails; `STRANDLINE_SEED` says which to run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.properties.on_delta import FEWEST, check_drawn

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("STRANDLINE_SPARK_EXAMPLES", "20"))
KILLS = os.environ.get("STRANDLINE_KILLS") == "1"


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(-(-EXAMPLES // FEWEST)))
def test_views_on_spark_are_their_own_selects_after_every_epoch(
    part: int, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, tally = check_drawn(part, tmp_path, cuts=2, kill=KILLS, spark=spark)
    with capsys.disabled():
        print(f"\nseed {seed}: {tally}")
    assert tally.examples >= FEWEST
