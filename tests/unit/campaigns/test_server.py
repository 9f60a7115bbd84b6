"""A thousand of the bad requests of `tests.campaigns.server`: the server answers good clients within a second."""

from __future__ import annotations

from tests.campaigns.server import campaign, check
from tests.support.examples import seed_of


def test_bad_clients_are_nobody_elses_matter() -> None:
    check(campaign(seed_of(1), 1_000))
