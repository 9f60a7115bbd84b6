"""A trim that is killed, and whatever random histories, kills and refusals do: views are those of all events ever."""

from __future__ import annotations

import random
import signal
from pathlib import Path

import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.operate.maintenance import execute_maintenance, plan_maintenance
from strandline.jobs.operate.verify.verify import verify
from strandline.state_store.commits import TRIM
from strandline.state_store.delta import reader
from tests.support.examples import examples, seed_of
from tests.support.retained_lake import FOLDS, LOOK_BACK, RetainedLake
from tests.support.warm_process import exit_code

PLACES = ("after-trim-digest", "before-log-entry", "before-link", "after-log-entry")


def maintain(root: Path, now: int) -> None:
    """A maintenance of all tables, in this process."""
    settings = load_settings(lake=root)
    execute_maintenance(settings, plan_maintenance(settings, now=now), now)


@pytest.mark.kill
@pytest.mark.parametrize("place", PLACES)
def test_a_trim_that_is_killed_is_there_whole_or_not_at_all(tmp_path: Path, place: str) -> None:
    made = RetainedLake(load_settings(lake=tmp_path / "lake"), [FOLDS["counts"]])
    for _ in range(3):
        made.feed("s", [("ab"[each % 2], each) for each in range(10)])
        made.refreshed()
    before, rows = reader.head(made.lake.table("s")), made.rows("counts")
    assert exit_code(maintain, made.settings.lake, made.now, failpoint=place) == -signal.SIGKILL
    after = reader.head(made.lake.table("s"))
    assert before is not None
    assert after is not None
    done = place == "after-log-entry"
    assert (after.version - before.version, after.record.gone) == ((1, 10) if done else (0, 0))
    assert [each for each in verify(made.settings, deep=True) if each.ok is False] == []
    made.trimmed()
    made.refreshed()
    head = reader.head(made.lake.table("s"))
    assert head is not None
    assert (made.gone("s"), head.record.mode, made.rows("counts")) == (10, TRIM, rows)
    made.feed("s", [("a", 1)])
    made.refreshed()
    assert [each for each in verify(made.settings, deep=True) if each.ok is False] == []


class History:
    """A random lake and its twin, which is never trimmed."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.pick = random.Random(seed)
        views = self.pick.sample(sorted(FOLDS.keys() - {"large", "of_large", "counts", "named"}), 3)
        views += self.pick.choice([["large", "of_large"], ["counts", "named"]])
        views += self.pick.sample(sorted(LOOK_BACK.keys() - {"asked"}), 1) if self.pick.random() < 0.4 else []
        statements = [(FOLDS | LOOK_BACK)[name] for name in views]
        self.views = views
        self.made, self.twin = (
            RetainedLake(load_settings(lake=folder / name / "lake"), statements) for name in ("made", "twin")
        )
        self.killed = 0

    def step(self) -> None:
        """Some events, a refresh of both or of neither, and now and then a trim, which may be killed."""
        name = self.pick.choice("sst")
        values: list[int | None] = [*range(8), *([None] if name == "t" else [])]
        events = [(self.pick.choice("abcd"), self.pick.choice(values)) for _ in range(self.pick.randint(1, 9))]
        for lake in (self.made, self.twin):
            lake.feed(name, events)
        if self.pick.random() < 0.7:
            self.refresh()
        if self.pick.random() < 0.6:
            self.trim()

    def refresh(self) -> None:
        for lake in (self.made, self.twin):
            lake.refreshed()

    def trim(self) -> None:
        if self.pick.random() < 0.15:
            place = self.pick.choice(PLACES)
            code = exit_code(maintain, self.made.settings.lake, self.made.now, failpoint=place)
            assert code in (0, -signal.SIGKILL)
            self.killed += code != 0
        else:
            assert self.made.trimmed().proved

    def check(self) -> None:
        """Every view is the twin's, which DuckDB recomputes from all events ever; nothing is red in either."""
        for name in (*self.views, "t"):
            assert self.made.rows(name) == self.twin.rows(name), name
        for lake in (self.made, self.twin):
            wrong = [each for each in verify(lake.settings, deep=True) if each.ok is False]
            assert not wrong, wrong
        proved = {each.table: each.ok for each in verify(self.twin.settings, self.views, deep=True)}
        assert all(proved.values())


@pytest.mark.kill
def test_random_views_over_random_histories_with_random_trims(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = killed = 0
    for part in range(examples(1)):
        seed = seed_of(part)
        history = History(tmp_path / str(seed), seed)
        try:
            for name in ("s", "t"):
                for lake in (history.made, history.twin):
                    lake.feed(name, [("a", 1)])
            for _ in range(8):
                history.step()
            history.refresh()
            history.check()
        except Exception as error:
            error.add_note(f"STRANDLINE_SEED={seed} {history.views}")
            raise
        gone += history.made.gone("s") + history.made.gone("t__log")
        killed += history.killed
    with capsys.disabled():
        print(f"\n{gone} events went, {killed} trims were killed")
    assert gone
