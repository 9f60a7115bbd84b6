"""Tables that are made apart: found, taken for the shared ones, and adopted, also where a kill cut the copy in two."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from strandline.jobs.model.definitions import View
from strandline.jobs.run import shared
from strandline.jobs.run.shared import adopt, at_one_cut, cut, made_apart, made_elsewhere, standing_in
from strandline.state_store import files
from strandline.state_store.commits import CommitRecord, Head, TableVersion
from strandline.state_store.delta import reader
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.layout import LakeLayout
from tests.support.keyed_table import SPEC
from tests.support.lakes import s3_folder
from tests.support.s3_server import S3Server

OWN, SHARED = "v__stage_3", "shared__a"


class Killed(Exception):
    """Stands for the end of the process."""


@dataclass
class Dies:
    """A failpoint at which the process dies, after so many hits."""

    place: str
    left: int

    def __call__(self, name: str) -> None:
        if name == self.place:
            if self.left == 0:
                raise Killed
            self.left -= 1


@pytest.fixture
def view() -> View:
    return View("v", "table", (), "", (), "p", "", "", storage="keyed", first_stage=3)


def table(lake: LakeLayout, name: str, epochs: int, **vector: int) -> Head:
    """A table that was computed so often, without rows."""
    stored = StoredTable(lake.table(name), replace(SPEC, name=name))
    head = stored.ensure(CommitRecord(epoch=0, writer="p/1"))
    for epoch in range(1, epochs + 1):
        at = {each: TableVersion(version) for each, version in vector.items()}
        head = stored.advance(replace(head.record, epoch=epoch, mode="advance", vector=at))
    return head


def test_what_nobody_has_is_made_apart_and_what_stands_is_not(lake: LakeLayout, view: View) -> None:
    assert made_apart(view, [SHARED], lake) == {SHARED: OWN}
    seen = standing_in({SHARED: OWN}, lake)
    assert seen.table(SHARED) == lake.table(OWN)
    assert seen.table(f"{SHARED}__dead_letters") == lake.table(f"{OWN}__dead_letters")
    assert seen.table("v") == lake.table("v")
    table(lake, SHARED, 0)
    assert made_apart(view, [SHARED], lake) == {SHARED: OWN}, "nothing was computed for it yet"
    table(lake, SHARED, 1)
    assert made_apart(view, ["shared__b", SHARED], lake) == {"shared__b": OWN}


def test_a_table_that_was_made_elsewhere_is_told_from_a_copy(lake: LakeLayout, view: View) -> None:
    table(lake, OWN, 1)
    assert not made_elsewhere({SHARED: OWN}, lake)
    table(lake, SHARED, 1)
    assert made_apart(view, [SHARED], lake) == {SHARED: OWN}
    assert made_elsewhere({SHARED: OWN}, lake)


def test_the_cut_has_the_newest_versions_that_are_said(lake: LakeLayout) -> None:
    table(lake, "shared__a", 1, sales=4, shops=2)
    head = table(lake, "shared__b", 2, sales=5, shared__a=1)
    assert cut(["shared__a", "shared__b"], lake) == {"sales": 5, "shops": 2, "shared__a": 1, "shared__b": 2}
    assert not at_one_cut({"shared__b": head.at}, lake)
    assert at_one_cut({"shared__a": TableVersion(1), "shops": TableVersion(2)}, lake)
    assert not at_one_cut({"shared__a": TableVersion(1), "shops": TableVersion(3)}, lake)


@pytest.mark.parametrize("place", ["inside-copy", "inside-removal"])
def test_an_adoption_that_was_cut_in_two_is_ended(
    place: str, view: View, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store has no folders to rename: after each object the next process finds a part of the copy."""
    for hit in range(3):
        lake = LakeLayout(s3_folder(s3_server))
        made = table(lake, OWN, 2)
        to_adopt = made_apart(view, [SHARED], lake)
        with monkeypatch.context() as patched:
            patched.setattr(files, "failpoint", Dies(place, hit))
            with pytest.raises(Killed):
                adopt(to_adopt, lake)
        assert not made_elsewhere(made_apart(view, [SHARED], lake), lake)
        adopt(made_apart(view, [SHARED], lake), lake)
        assert reader.head(lake.table(SHARED)) == made
        assert made_apart(view, [SHARED], lake) == {}


def test_an_adoption_on_a_disk_is_one_step(lake: LakeLayout, view: View, monkeypatch: pytest.MonkeyPatch) -> None:
    made = table(lake, OWN, 2)
    seen: list[str] = []
    monkeypatch.setattr(shared, "failpoint", seen.append)
    adopt(made_apart(view, [SHARED], lake), lake)
    adopt(made_apart(view, [SHARED], lake), lake)
    assert reader.head(lake.table(SHARED)) == made
    assert not lake.table(OWN).exists()
    assert seen == ["after-adoption"]
