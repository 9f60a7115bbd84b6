"""What FRESHNESS saves: a minute of an event a second through some views, at several targets.

    python -m benchmarks.patience [--views 20] [--seconds 60] [--targets 0 5 15 30]

One process takes in an event a second and refreshes by DuckDB. Its clock is moved on by hand, so that a minute takes as
long as its work does. Target 0 is a view without FRESHNESS. Ends with seconds of the processors for the minute, the
commits of the views, and what the first of that is for a day.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa

from benchmarks.histories import PIPELINE, History
from strandline.jobs.catalog.relations import event_log
from strandline.jobs.model.definitions import Source
from strandline.jobs.run.pipeline import opened
from strandline.state_store.delta import reader

STREAM = "CREATE STREAM sales (shop INT, qty INT) WITH (KAFKA_TOPIC = 'sales', PARTITIONS = 1);"
VIEW = (
    "CREATE TABLE v{n}{options} AS SELECT shop, COUNT(*) AS c, MAX(qty) AS m FROM sales WHERE qty >= {n} GROUP BY shop;"
)


@dataclass
class Clock:
    """The host's clock, moved on by hand."""

    ahead: float = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead

    def time(self) -> float:
        return time.time() + self.ahead


def main() -> None:
    """Measure each target and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--views", type=int, default=20)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--targets", type=float, nargs="+", default=[0, 5, 15, 30])
    asked = parser.parse_args()
    print(f"{'target':>8}{'processors':>14}{'a day':>14}{'commits':>10}", flush=True)
    for target in asked.targets:
        with tempfile.TemporaryDirectory() as folder:
            spent, commits = minute(Path(folder), target, asked.views, asked.seconds)
        day = spent / asked.seconds * 86_400 / 3600
        print(f"{target:>6g} s{spent:>12.2f} s{day:>12.2f} h{commits:>10}", flush=True)


def minute(folder: Path, target: float, views: int, seconds: int) -> tuple[float, int]:
    """Processor seconds of the epochs of so many seconds, and the commits of the views."""
    clock, options = Clock(), f" WITH (FRESHNESS = '{target:g} seconds')" if target else ""
    history = History.over(folder, STREAM + "".join(VIEW.format(n=n, options=options) for n in range(views)))
    sales = history.interpreter.catalog.get("sales")
    assert isinstance(sales, Source)
    log = event_log(sales)

    def take_in(at: int) -> None:
        history.append(log, pa.table({"shop": [at % 7], "qty": [at]}), "sales")

    take_in(0)
    with (
        patch("strandline.jobs.run.stream.time", clock),
        opened(history.settings, PIPELINE, None, in_driver=True) as (run, _),
    ):
        run.refresh()
        spent = 0.0
        for at in range(1, seconds + 1):
            take_in(at)
            began = time.process_time()
            run.refresh(everything=False)
            spent += time.process_time() - began
            clock.ahead += 1
    heads = [reader.head(history.lake.table(f"v{n}")) for n in range(views)]
    return spent, sum(head.version for head in heads if head is not None)


if __name__ == "__main__":
    main()
