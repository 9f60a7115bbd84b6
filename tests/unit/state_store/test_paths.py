"""Paths in a lake say the same of a folder on a disk and of a prefix on an object store."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from strandline.state_store import files
from strandline.state_store.errors import CorruptState, KeyRefused
from strandline.state_store.files import (
    copy_to_disk,
    discard_folder,
    move_folder,
    remove_file,
    remove_folder,
    remove_if_empty,
)
from strandline.state_store.layout import LakeLayout, name_of
from strandline.state_store.paths import (
    LakePath,
    any_file,
    file_names,
    file_size,
    files_in,
    folders_in,
    is_folder,
    open_file,
    side_by_side,
    sizes_below,
    within,
)
from tests.support.lakes import below

LOG = [f"_delta_log/{version:020d}.json" for version in range(3)]
TABLE = [*LOG, "_delta_log/_last_checkpoint", "deletion_vector_1.bin", "epoch-1/part-0.parquet"]


@pytest.fixture
def root(folder: LakePath) -> LakePath:
    return folder


def filled(folder: LakePath) -> LakePath:
    for name in TABLE:
        files.make_folder((folder / name).parent)
        assert files.create(folder / name, name.encode())
    return folder


def test_what_lies_in_a_folder(root: LakePath) -> None:
    table = filled(root / "tables" / "t")
    assert [path.name for path in folders_in(table)] == ["_delta_log", "epoch-1"]
    assert folders_in(root / "none") == []
    assert [path.name for path in files_in(table / "_delta_log", ".json")] == [Path(name).name for name in LOG]
    assert files_in(root / "none", ".json") == []
    assert set(file_names(table / "_delta_log")) == {Path(name).name for name in TABLE if name.startswith("_delta")}
    assert (is_folder(table), is_folder(table / "none"), (table / TABLE[-1]).exists()) == (True, False, True)
    assert (any_file(table, ".parquet"), any_file(table / "_delta_log", ".parquet")) == (True, False)
    assert file_size(table / TABLE[-1]) == len(TABLE[-1])
    assert sizes_below(table) == {name: len(name) for name in TABLE}
    assert sizes_below(root / "none") == {}
    assert within(table / TABLE[-1], table) == TABLE[-1]
    assert within(table, root) == "tables/t"
    assert (table / "a.b.json").stem == "a.b"
    assert (table / "x").with_name("y") == table / "y"
    with pytest.raises(ValueError, match="t"):
        within(table, table / "_delta_log")


def test_a_name_is_given_once_and_a_missing_file_is_a_missing_file(root: LakePath) -> None:
    assert files.create(root / "a", b"first")
    assert not files.create(root / "a", b"second")
    files.replace(root / "a", b"third")
    assert (root / "a").read_bytes() == b"third"
    remove_file(root / "a")
    remove_file(root / "a")
    for read in ((root / "a").read_bytes, lambda: file_size(root / "a"), lambda: open_file(root / "a").read(1)):
        with pytest.raises(FileNotFoundError):
            read()


def test_a_file_is_read_at_any_place(root: LakePath) -> None:
    data = bytes(range(256)) * 3000  # more than an answer brings at once
    files.write_new(root / "a", data)
    with open_file(root / "a") as file:
        assert file.read(10) == data[:10]
        file.seek(700_000)
        assert file.read(300) == data[700_000:700_300]
        file.seek(255)
        assert file.read(2) == b"\xff\x00"
        file.seek(-3, io.SEEK_END)
        assert file.read(10) == data[-3:]
        file.seek(len(data) + 5)
        assert file.read(1) == b""


def test_reads_come_in_the_order_of_their_keys_and_the_first_error_ends_them(root: LakePath) -> None:
    for number in range(20):
        files.write_new(root / f"n{number}", b"%d" % number)
    found = side_by_side(lambda n: (root / f"n{n}").read_bytes(), range(20), root)
    assert [int(each) for each in found] == list(range(20))
    with pytest.raises(FileNotFoundError):
        list(side_by_side(lambda n: (root / f"n{n}").read_bytes(), [1, 99, 2], root))


def test_whole_folders_are_moved_copied_and_removed(root: LakePath, tmp_path: Path) -> None:
    filled(root / "t")
    filled(root / "t2")
    copy_to_disk(root / "t", tmp_path / "copies" / "t")
    copy_to_disk(root / "none", tmp_path / "copies" / "none")
    assert below(tmp_path / "copies") == sorted(f"t/{name}" for name in TABLE)
    files.make_folder(root / "aside")
    move_folder(root / "t", root / "aside" / "t-1")
    assert not is_folder(root / "t")
    assert below(root / "aside") == sorted(f"t-1/{name}" for name in TABLE)
    assert ((root / "aside" / "t-1") / TABLE[-1]).read_bytes() == TABLE[-1].encode()
    remove_folder(root / "t2")
    discard_folder(root / "t2")
    discard_folder(root / "aside" / "t-1")
    assert not is_folder(root / "t2")
    assert below(root / "aside") == []


def test_a_folder_is_removed_if_it_is_empty_whoever_else_fills_or_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, empty = tmp_path / "full", tmp_path / "empty"
    files.make_folder(empty)
    files.make_folder(full / "t")
    for folder in (full, empty, empty, tmp_path / "none"):
        remove_if_empty(folder)
    assert [path.name for path in tmp_path.iterdir()] == ["full"]
    # What a look at the folder says may be wrong a moment later.
    monkeypatch.setattr(Path, "exists", lambda _: True)
    monkeypatch.setattr(Path, "iterdir", lambda _: iter(()))
    remove_if_empty(full)
    remove_if_empty(empty)
    assert (full / "t").is_dir()


@pytest.mark.parametrize("name", ["orders", "Größe", "a b", "100%", "~x", "a!b", ".x", "a.b", "x/y", "$", "%2E"])
def test_a_table_of_any_name_is_found_again_by_its_folder(root: LakePath, name: str) -> None:
    folder = LakeLayout(root).table(name)
    assert name_of(folder.name) == name
    # delta-rs and Spark would decode a '%', or encode it once more.
    assert isinstance(root, Path) or "%" not in str(folder)


def test_a_name_that_leaves_the_lake_is_refused(root: LakePath) -> None:
    from strandline.state_store.delta.log import inside

    for name in ("../x", "/x", "s3://other/x", "a/../../x"):
        with pytest.raises((KeyRefused, CorruptState)):
            inside(root / "t", name)
