"""Runs the scenario of a seed again, and makes it smaller while it fails.

    python -m tests.properties.replay 17            one seed
    python -m tests.properties.replay 0 20000       seeds from 0 to 20,000 (not included), a line for each that fails
    python -m tests.properties.replay 17 --print    what it is, whether it fails or not

The scenarios of seeds are drawn by the same grammar as those of hypothesis.
"""

from __future__ import annotations

import argparse
import sys

from tests.properties.picker import Picker
from tests.properties.scenario import Tally, scenario
from tests.properties.shrink import failure, shrunk

VIEWS = 8


def main() -> int:
    """The number of seeds that fail, at most 100."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("first", type=int)
    parser.add_argument("end", type=int, nargs="?")
    parser.add_argument("--print", action="store_true", dest="shown")
    given = parser.parse_args()
    tally, failed = Tally(), 0
    for seed in range(given.first, given.end if given.end is not None else given.first + 1):
        example = scenario(Picker.seeded(seed), VIEWS, tally)
        message = failure(example)
        if message:
            failed += 1
            print(f"seed {seed}: {message}")
        if message and given.end is None:
            print(shrunk(example))
        elif given.shown:
            print(example)
    print(tally)
    return min(failed, 100)


if __name__ == "__main__":
    sys.exit(main())
