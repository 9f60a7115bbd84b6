"""Runs the example of a seed again, and makes it smaller while it fails.

python -m tests.properties.paths.replay 17            one seed
python -m tests.properties.paths.replay 0 2500        seeds from 0 to 2,500 (not included), told where one fails
python -m tests.properties.paths.replay 17 --print    what it is, whether it fails or not
"""

from __future__ import annotations

import argparse
import sys

import duckdb

from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.properties.paths.check import Engines, failure
from tests.properties.paths.example import example
from tests.properties.paths.shrink import shrunk
from tests.properties.picker import Picker


def main() -> int:
    """The number of seeds that fail, at most 100."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?")
    parser.add_argument("--print", action="store_true", dest="shown")
    given = parser.parse_args()
    failed = 0
    with DuckDBEngine("500MB", 1) as duckdb_engine, duckdb.connect(config={"threads": 1}) as db:
        engines = Engines(duckdb_engine, db)
        for seed in range(given.first, given.end if given.end is not None else given.first + 1):
            made = example(Picker.seeded(seed), engines.tally)
            message = failure(made, engines)
            if message:
                failed += 1
                print(f"seed {seed}: {message}", flush=True)
            if message and given.end is None:
                print(shrunk(made, engines))
            elif given.shown:
                print(made)
        print(engines.tally)
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
