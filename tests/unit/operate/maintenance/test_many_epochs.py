"""Many small epochs with compaction and retention on: what a table holds does not grow with its age."""

from __future__ import annotations

from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from tests.campaigns.many_epochs import lived
from tests.support.examples import AT_LENGTH
from tests.support.many_epochs import ManyEpochs

# A short form of the campaign: it holds the files after every step, every proof, and the rows at the end. The campaign
# itself also holds the seconds.
EPOCHS, STEP = (2_000, 100) if AT_LENGTH else (40, 20)


def test_age_costs_nothing(settings: Settings) -> None:
    with ManyEpochs(settings, horizon_seconds=1.0) as run:
        assert lived(run, EPOCHS, STEP) == []
    assert [each for each in verify(settings, deep=True) if each.ok is False] == []
