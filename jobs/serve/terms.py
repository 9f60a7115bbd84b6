"""The terms of a pull query: what it may take, and what its answer must reflect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.jobs.query.pulled import Unnamed
from strandline.jobs.serve.at_least import Least
from strandline.jobs.serve.limits import NO_LIMITS, Limits
from strandline.jobs.serve.pinned import Pinned


@dataclass(frozen=True)
class Terms:
    """On what terms a query is answered.

    Attributes:
        at_least: {table: the least of it that the answer must reflect}.
        unnamed: whose names the columns get that nobody named.
        pinned: the cut that is read; None: the newest one.
    """

    limits: Limits = NO_LIMITS
    at_least: Mapping[str, Least] = field(default_factory=dict)
    unnamed: Unnamed = "postgres"
    pinned: Pinned | None = None


FREELY: Final = Terms()
"""As on the command line: it takes what it needs, and answers by the newest cut."""
