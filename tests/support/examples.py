"""How many random examples a property test runs, and whether each run draws new ones.

`make test` says whether a change broke something, so it runs the same examples every time. `make nightly` looks for
what nobody has thought of: twenty times as many, drawn anew; what fails says how to run it again.
"""

from __future__ import annotations

import os
import random
from typing import Final

from hypothesis import HealthCheck

AT_LENGTH = os.environ.get("STRANDLINE_NIGHTLY") == "1"
"""`make nightly` asks for it: nobody waits for the answer."""

_GIVEN: Final = os.environ.get("STRANDLINE_SEED", "1")
ANEW: Final = AT_LENGTH or _GIVEN == "anew"
"""Examples are not those of the last run."""

SLOWNESS: Final = (HealthCheck.too_slow,)
"""What hypothesis takes for a fault of a test, and may be one of the machine."""

# A nightly run of the rules' tests then takes about as long as the 20,000 views.
_TIMES = 20


def examples(few: int) -> int:
    """So many examples; twenty times as many at length."""
    return few * _TIMES if AT_LENGTH else few


def seed_of(part: int) -> int:
    """The seed of a part of the random examples: by `STRANDLINE_SEED`, a number or `anew`."""
    return (random.randrange(10**9) if _GIVEN == "anew" else int(_GIVEN)) + part
