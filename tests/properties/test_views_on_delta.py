"""Any view over any history, by DuckDB over Delta tables, by the production path and through interruptions.

`STRANDLINE_DELTA_EXAMPLES` says how many examples (views with a history) are run: 100 unless it says so, 2,000 in
`make nightly`, of new seeds. The seed is printed with what fails; `STRANDLINE_SEED` says which to run.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.properties.on_delta import FEWEST, check_drawn

if TYPE_CHECKING:
    from pathlib import Path

EXAMPLES = int(os.environ.get("STRANDLINE_DELTA_EXAMPLES", "100"))


@pytest.mark.timeout(0)
@pytest.mark.parametrize("part", range(-(-EXAMPLES // FEWEST)))
def test_views_on_delta_are_their_own_selects_after_every_epoch(
    part: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed, tally = check_drawn(part, tmp_path, cuts=4)
    with capsys.disabled():
        print(f"\nseed {seed}: {tally}")
    assert tally.examples >= FEWEST
