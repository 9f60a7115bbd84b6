"""Any view over any history, by the rules on DuckDB: after every epoch it is what its own SELECT gives.

`STRANDLINE_EXAMPLES` says how many examples at least are run (200 unless it says so; `make nightly` asks for 20,000,
drawn anew).
What fails is printed so that it can be pasted; `python -m tests.properties.replay SEED` runs all examples of a seed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.properties.picker import Picker
from tests.properties.scenario import Scenario, Tally, scenario
from tests.properties.shrink import shrunk

EXAMPLES = int(os.environ.get("STRANDLINE_EXAMPLES", "200"))

# Views that share a history share its making and feeding.
VIEWS = 8

# Few views are refused: this many scenarios hold the examples that are asked for.
_SCENARIOS = EXAMPLES // VIEWS * 9 // 8 + 1


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


@st.composite
def scenarios(draw: st.DrawFn, tally: Tally) -> Scenario:
    """Scenarios of up to eight views."""
    return scenario(Picker.drawn(draw), VIEWS, tally)


@pytest.mark.timeout(0)  # twenty thousand examples take half an hour
def test_every_view_is_its_own_select_after_every_epoch(
    db: duckdb.DuckDBPyConnection, capsys: pytest.CaptureFixture[str]
) -> None:
    tally = Tally()

    @settings(
        max_examples=_SCENARIOS,
        suppress_health_check=list(HealthCheck),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
    @given(scenarios(tally))
    def check(example: Scenario) -> None:
        try:
            example.check(db)
        except Exception as error:
            error.add_note(str(shrunk(example)))
            raise

    check()
    with capsys.disabled():
        print(f"\n{tally}")
    assert tally.examples >= EXAMPLES
