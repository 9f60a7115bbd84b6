"""A location is to a storage what a path is to a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.state_store.errors import KeyRefused
from strandline.state_store.paths import Location
from strandline.state_store.storage_disk import DiskStorage
from tests.unit.state_store.storage.places import Place


def test_names_parents_and_equality(place: Place) -> None:
    root = place.location("")
    log = root / "tables" / "t/_delta_log"
    assert (log.key, log.name, log.parent) == ("tables/t/_delta_log", "_delta_log", root / "tables/t")
    assert (root.name, root.parent) == ("", root)
    assert log == place.location("tables/t/_delta_log")
    assert len({log, place.location("tables/t/_delta_log"), log.parent}) == 2
    assert str(log) == log.url == f"{place.root}/tables/t/_delta_log"
    assert root.url == place.root


def test_only_a_disk_has_paths(place: Place) -> None:
    path = (place.location("") / "a").local_path
    assert path == (None if place.root.startswith("s3:") else Path(place.root) / "a")


def test_every_verb(place: Place) -> None:
    folder = place.location("topics/t")
    folder.make_folder()
    one, two = folder / "1", folder / "2"
    assert one.create(b"first")
    assert not one.create(b"second")
    two.replace(b"two")
    assert (one.read_bytes(), one.read_range(1, 3), one.size(), one.exists()) == (b"first", b"irs", 5, True)
    data, etag = one.read_with_etag()
    assert data == b"first"
    assert one.update(b"changed", etag)
    assert list(folder.list()) == [one, two]
    assert list(folder.list("1")) == [two]
    assert list(place.location("").list(recursive=True)) == [one, two]
    assert list(place.location("").folders()) == [folder.parent]
    one.delete()
    assert not one.exists()


@pytest.mark.parametrize("name", ["..", "a/../../b", "/etc", "", ".hidden", "a/"])
def test_a_location_outside_the_root_cannot_be_named(place: Place, name: str) -> None:
    with pytest.raises(KeyRefused):
        place.location("a") / name


def test_a_disk_needs_its_folder_made(tmp_path: Path) -> None:
    """What was removed is not begun again by a late writer."""
    location = Location(DiskStorage(tmp_path), "tables/t/_delta_log/0.json")
    for write in (location.create, location.replace, lambda data: location.update(data, None)):
        with pytest.raises(FileNotFoundError, match=r"store\.object_missing"):
            write(b"")
    assert not (tmp_path / "tables").exists()
    for _ in range(2):
        location.parent.make_folder()
    assert location.create(b"")


def test_a_file_being_written_is_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".a.0123.tmp").write_bytes(b"half")
    (tmp_path / ".git").mkdir()
    root = Location(DiskStorage(tmp_path))
    assert [*root.list(recursive=True), *root.folders()] == []
