"""Any view over any history, by the production path and through interruptions; of Spark and the kernel one is drawn for
each refresh, so that each goes on from what the other has stored.

`STRANDLINE_SPARK_EXAMPLES` says how many examples (views with a history) are run: 20 unless it says so, 500 in
`make nightly`, of new seeds. The seed is printed with what fails; `STRANDLINE_SEED` says which to run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from jobs.catalog.catalog import Catalog
from state_store.kernel.kernel import Kernel
from state_store.layout import Lake
from tests.properties import on_delta
from tests.properties.picker import Picker
from tests.properties.scenario import Tally, scenario
from tests.support.examples import seed_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("STRANDLINE_SPARK_EXAMPLES", "20"))
KILLS = os.environ.get("STRANDLINE_KILLS") == "1"

# One pipeline serves so many views: an epoch costs Spark a second or two for each, four side by side. Some of those
# that are drawn are refused; so many are left at least.
VIEWS = 24
_LEFT = 20


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(-(-EXAMPLES // _LEFT)))
def test_views_on_spark_are_their_own_selects_after_every_epoch(
    part: int, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = seed_of(part)
    pick, tally, lake = Picker.seeded(seed), Tally(), Lake(tmp_path / "lake")
    example = scenario(pick, VIEWS, tally, catalog=Catalog(lake), most=40, cuts=2, in_order=True)
    with Kernel("1GB", 2) as kernel:
        try:
            on_delta.check(on_delta.contexts(lake, pick, spark=spark, kernel=kernel), lake, example, pick, kill=KILLS)
        except Exception as error:
            error.add_note(f"STRANDLINE_SEED={seed}\n{example}")
            raise
    with capsys.disabled():
        print(f"\nseed {seed}: {tally}")
    assert tally.examples >= _LEFT
