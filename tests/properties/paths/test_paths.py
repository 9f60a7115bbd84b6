"""Any view over any history means one thing, by whichever path its rows are had; see `ways` for the paths.

`STRANDLINE_PATHS_EXAMPLES` says how many examples (views with a history) are run: 200 unless it says so, 20,000 in
`make nightly`, of new seeds. What fails is made smaller and printed so that it can be pasted, with its seed:
`python -m tests.properties.paths.replay SEED` runs it again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import duckdb
import pytest

from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.properties.paths.check import Engines, check
from tests.properties.paths.example import VIEWS, example
from tests.properties.paths.shrink import shrunk
from tests.properties.picker import Picker
from tests.support.examples import seed_of

EXAMPLES = int(os.environ.get("STRANDLINE_PATHS_EXAMPLES", "200"))


@pytest.fixture(scope="module")
def engines(duckdb_engine: DuckDBEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    with duckdb.connect(config={"threads": 1}) as db:
        yield Engines(duckdb_engine, db, folder=tmp_path_factory.mktemp("paths"))


@pytest.mark.timeout(0)  # twenty thousand examples take hours
def test_every_path_gives_the_rows_of_the_oracle(engines: Engines, capsys: pytest.CaptureFixture[str]) -> None:
    for part in range(-(-EXAMPLES // VIEWS)):
        seed = seed_of(part)
        made = example(Picker.seeded(seed), engines.tally)
        try:
            check(made, engines)
        except Exception as error:
            error.add_note(f"python -m tests.properties.paths.replay {seed}\n{shrunk(made, engines)}")
            raise
    with capsys.disabled():
        print(f"\n{engines.tally}")
    assert engines.tally.examples >= EXAMPLES
