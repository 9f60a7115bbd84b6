"""Any view over any history means one thing on Spark too: it runs every other epoch, so that each engine goes on from
what the other has stored, and the load of everything at once. What is compared is that of `test_paths`.

`STRANDLINE_PATHS_SPARK_EXAMPLES` says how many examples (views with a history) are run: 8 unless it says so, since an
epoch costs Spark seconds, 200 in `make nightly`, of new seeds. Which path Spark has no part in (pulls, push, replicas,
topics) is compared here on what Spark has written.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import duckdb
import pytest

from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.properties.paths.check import Differs, Engines, check
from tests.properties.paths.example import VIEWS, example
from tests.properties.paths.test_sabotage import SOUND
from tests.properties.picker import Picker
from tests.support.examples import seed_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

EXAMPLES = int(os.environ.get("STRANDLINE_PATHS_SPARK_EXAMPLES", "8"))


@pytest.fixture(scope="module")
def engines(
    duckdb_engine: DuckDBEngine, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Engines]:
    with duckdb.connect(config={"threads": 1}) as db:
        yield Engines(duckdb_engine, db, spark, folder=tmp_path_factory.mktemp("paths"))


@pytest.mark.timeout(0)
def test_every_path_gives_the_rows_of_the_oracle_whichever_engine_wrote_them(
    engines: Engines, capsys: pytest.CaptureFixture[str]
) -> None:
    for part in range(-(-EXAMPLES // VIEWS)):
        seed = seed_of(part)
        made = example(Picker.seeded(seed), engines.tally)
        try:
            check(made, engines)
        except Exception as error:
            error.add_note(f"STRANDLINE_SEED={seed}\n{made}")
            raise
    with capsys.disabled():
        print(f"\n{engines.tally}")
    assert engines.tally.examples >= EXAMPLES


def test_spark_that_is_broken_is_red(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    from strandline.jobs.ivm.refresh.on_spark import SparkRuntime

    whole = SparkRuntime.run

    def nothing(self: SparkRuntime, text: str, *args: object, **options: object) -> object:
        return whole(self, f"SELECT * FROM ({text}) LIMIT 0", *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(SparkRuntime, "run", nothing)
    with pytest.raises(Differs, match=r"^(epoch 2, table|one load)"):
        check(SOUND, engines)
