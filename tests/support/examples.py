"""How many random examples a property test runs: some in `make test`, many more in `make nightly`."""

from __future__ import annotations

import os

AT_LENGTH = os.environ.get("STRANDLINE_NIGHTLY") == "1"
"""`make nightly` asks for it: nobody waits for the answer."""

# A nightly run of the rules' tests then takes about as long as the 20,000 views.
_TIMES = 20


def examples(few: int) -> int:
    """So many examples, each run new ones; twenty times as many at length."""
    return few * _TIMES if AT_LENGTH else few
