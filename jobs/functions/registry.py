"""The scalar functions of the language, by name.

The texts of both engines give the same rows (`tests.campaigns.engine_equality`). Known difference: regular expressions
that RE2 lacks.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.jobs.functions.scalars.arrays import ARRAYS, HIGHER_ORDER
from strandline.jobs.functions.scalars.bytes import BYTES, DIGESTS
from strandline.jobs.functions.scalars.contract import Scalar
from strandline.jobs.functions.scalars.domains import FAILING, GUARDS, REACHES
from strandline.jobs.functions.scalars.json import JSON
from strandline.jobs.functions.scalars.maps import MAPS
from strandline.jobs.functions.scalars.numbers import NUMBERS
from strandline.jobs.functions.scalars.other import CONVERSIONS, OTHER
from strandline.jobs.functions.scalars.patterns import PATTERNS
from strandline.jobs.functions.scalars.text import TEXT, URLS
from strandline.jobs.functions.scalars.times import TIME_PARTS, TIME_SUMS, TIME_TEXTS, TIMES

_ALL = (
    *(*TEXT, *PATTERNS, *BYTES, *DIGESTS, *JSON, *URLS),
    *(*NUMBERS, *TIMES, *TIME_SUMS, *TIME_PARTS, *TIME_TEXTS, *ARRAYS, *MAPS, *HIGHER_ORDER, *OTHER, *CONVERSIONS),
    *(*FAILING, *GUARDS, *REACHES),
)
SCALARS: Mapping[str, Scalar] = {
    name: scalar for scalar in _ALL if not scalar.hidden for name in (scalar.name, *scalar.aliases)
}
"""The functions of the language, by each of their names."""

_HIDDEN: Mapping[str, Scalar] = {scalar.name: scalar for scalar in _ALL if scalar.hidden}

NOT_DETERMINISTIC = frozenset(
    {
        *("RAND", "RANDOM", "NOW", "CURRENT_TIMESTAMP", "CURRENT_DATE", "CURRENT_TIME"),
        *("LOCALTIMESTAMP", "GETDATE"),
    }
)
"""Functions whose value depends on when, or how often, they are computed: no view can use them."""


def find(name: str) -> Scalar | None:
    """The function of that upper-case name, hidden ones included, or None."""
    return SCALARS.get(name) or _HIDDEN.get(name)
