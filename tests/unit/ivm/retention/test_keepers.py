"""Who keeps events of a log: views that read them again, and those that have not taken them in."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.ivm.retention.keepers import keepers_of
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.settings import load_settings
from strandline.state_store.delta import reader
from strandline.state_store.leases import ReaderLease
from tests.support.retained_lake import FOLDS, LOOK_BACK, RetainedLake

WHY = {
    "joined": "its join looks up former events",
    "visits": "its sessions are cut again",
    "ranked": "its functions OVER a window",
    "pairs": "its join looks up former events",
    "anew": "REFRESH = 'full'",
    "asked": "STATE = 'partial'",
}


def keepers(made: RetainedLake, name: str = "s") -> dict[str, str]:
    """{who keeps every event: why}."""
    source = made.catalog.get(name)
    assert isinstance(source, Source)
    found = keepers_of(source, made.lake, made.catalog, made.now)
    return {each.who: each.why for each in found if each.upto is None}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> RetainedLake:
    settings = load_settings(lake=tmp_path_factory.mktemp("keepers") / "lake")
    made = RetainedLake(settings, [*FOLDS.values(), *LOOK_BACK.values()])
    made.feed("s", [("a", 1), ("b", 4), ("a", 5)])
    made.feed("t", [("a", 1), ("b", 2)])
    made.refreshed()
    return made


def test_who_looks_back_is_named_and_says_why(lake: RetainedLake) -> None:
    found = keepers(lake)
    assert found.keys() == {f"'{name}'" for name in LOOK_BACK}
    assert all(found[f"'{name}'"].startswith(why) for name, why in WHY.items())


def test_a_keyed_source_needs_no_former_event(lake: RetainedLake) -> None:
    assert keepers(lake, "t") == {}


def test_a_view_keeps_what_it_has_not_taken_in(tmp_path: Path) -> None:
    made = RetainedLake(load_settings(lake=tmp_path / "lake"), [FOLDS["counts"]])
    made.feed("s", [("a", 1), ("b", 2)])
    assert keepers(made) == {"'counts'": "it was not computed yet"}
    made.refreshed()
    made.feed("s", [("a", 3)])
    ReaderLease(made.lake.table("s"), "slow").publish(0)
    source = made.catalog.get("s")
    assert isinstance(source, Source)
    found = {each.who: each.upto for each in keepers_of(source, made.lake, made.catalog, made.now)}
    assert found == {"'counts'": {0: 1, 1: 1}, "the lease of 'slow'": {}}


def test_a_stream_that_queries_insert_into_keeps_its_events(tmp_path: Path) -> None:
    made = RetainedLake(load_settings(lake=tmp_path / "lake"), ["CREATE STREAM r (k VARCHAR KEY, v INT)"])
    made.sql("INSERT INTO s SELECT k, v FROM r;")
    assert keepers(made)["'s__insert_1'"].startswith("it inserts into the stream")


def test_a_definition_that_does_not_read_keeps_every_event(tmp_path: Path) -> None:
    made = RetainedLake(load_settings(lake=tmp_path / "lake"), [FOLDS["counts"]])
    made.feed("s", [("a", 1)])
    made.refreshed()
    (file,) = Path(str(made.lake.catalog)).glob("counts.json")
    file.write_text("{")
    assert keepers(made)["'counts'"] == "its definition does not read"
    assert reader.head(made.lake.table("counts")) is not None
