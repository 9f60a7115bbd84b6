"""Any view over any history, by the kernel over Delta tables, by the production path and through interruptions.

`STRANDLINE_DELTA_EXAMPLES` says how many examples (views with a history) are run: 100 unless it says so, 2,000 in
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

EXAMPLES = int(os.environ.get("STRANDLINE_DELTA_EXAMPLES", "100"))

# Some of those that are drawn are refused; so many are left at least.
VIEWS = 24
_LEFT = 20


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(-(-EXAMPLES // _LEFT)))
def test_views_on_delta_are_their_own_selects_after_every_epoch(
    part: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = seed_of(part)
    pick, tally, lake = Picker.seeded(seed), Tally(), Lake(tmp_path / "lake")
    example = scenario(pick, VIEWS, tally, catalog=Catalog(lake), most=40, cuts=4, in_order=True)
    with Kernel("1GB", 2) as kernel:
        try:
            on_delta.check(on_delta.contexts(lake, pick, kernel=kernel), lake, example, pick, kill=False)
        except Exception as error:
            error.add_note(f"STRANDLINE_SEED={seed}\n{example}")
            raise
    with capsys.disabled():
        print(f"\nseed {seed}: {tally}")
    assert tally.examples >= _LEFT
