"""The catalog: definitions survive a reload, keep their order, and cannot be pulled from under their readers."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from strandline.jobs.catalog import catalog as catalogs
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.definitions import Content, read_content
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Definition, InsertQuery, Source, View
from strandline.jobs.model.errors import NameInUse, NameTaken, UnknownName
from strandline.state_store.errors import CorruptState
from strandline.state_store.files import make_folder
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath, files_in, is_folder
from tests.support.lakes import below, overwrite


@pytest.fixture
def lake(folder: LakePath) -> LakeLayout:
    return LakeLayout(folder / "lake")


def source(name: str, pipeline: str = "p") -> Source:
    return Source(
        name=name,
        kind="stream",
        columns=(
            Column("id", t.BIGINT, key=True),
            Column("Who", t.struct(("name", t.VARCHAR), ("tags", t.array(t.decimal(4, 2))))),
        ),
        topic=name,
        key_format="KAFKA",
        value_format="JSON",
        pipeline=pipeline,
        sql=f"CREATE STREAM {name} …",
        partitions=3,
        timestamp="ts",
        options={"VALUE_DELIMITER": "\t"},
    )


def view(name: str, *inputs: str, pipeline: str = "p") -> View:
    return View(
        name=name,
        kind="table",
        columns=(Column("id", t.BIGINT, key=True), Column("n", t.BIGINT)),
        query=f"SELECT id, COUNT(*) AS n FROM {inputs[0]} GROUP BY id",
        inputs=inputs,
        pipeline=pipeline,
        sql="…",
        fingerprint="0123456789abcdef",
        materialized=True,
    )


def insert(target: str, number: int, reads: str) -> InsertQuery:
    return InsertQuery(
        target=target,
        number=number,
        query=f"SELECT * FROM {reads}",
        inputs=(reads,),
        pipeline="p",
        sql="",
        fingerprint="",
    )


def test_what_is_added_is_there_after_a_reload(lake: LakeLayout) -> None:
    definitions: list[Definition] = [
        source("s"),
        view("v", "s"),
        source("Ä/weird name"),
        insert("s", 1, "Ä/weird name"),
    ]
    catalog = Catalog(lake)
    for definition in definitions:
        catalog.add(definition)
    again = Catalog(lake)
    assert again.definitions() == definitions
    assert again.names() == ("s", "v", "Ä/weird name", "s__insert_1")
    assert again.relations() == ("s", "v", "Ä/weird name")
    assert again.get("v") == definitions[1]


def test_an_empty_lake_has_an_empty_catalog(lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    assert catalog.names() == ()
    assert catalog.pipelines() == ()
    assert not is_folder(lake.root)


def test_pipelines_keep_the_order_of_creation(lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    for definition in (
        source("z", "two"),
        source("b", "one"),
        view("a", "b", pipeline="one"),
        view("y", "z", pipeline="two"),
    ):
        catalog.add(definition)
    assert Catalog(lake).pipelines() == ("two", "one")
    assert [d.name for d in Catalog(lake).pipeline("one")] == ["b", "a"]


def test_replacing_keeps_the_place_in_the_order(lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    for definition in (source("s"), view("v", "s"), source("x")):
        catalog.add(definition)
    catalog.replace(source("s", "other"))
    assert Catalog(lake).names() == ("s", "v", "x")
    assert Catalog(lake).get("s").pipeline == "other"


def test_a_name_is_taken_once_even_by_two_catalogs(lake: LakeLayout) -> None:
    """The second process loaded before the first one wrote; the lock makes it look again."""
    first, second = Catalog(lake), Catalog(lake)
    first.add(source("s"))
    with pytest.raises(NameTaken, match="'s'"):
        second.add(source("s"))


def test_the_files_are_read_again_only_after_others_changed_them(
    lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script of many definitions: each sees all before it, and what another process does between two of them."""
    one, other = Catalog(lake), Catalog(lake)
    reads: list[LakeLayout] = []

    def counted(where: LakeLayout) -> Content:
        reads.append(where)
        return read_content(where)

    monkeypatch.setattr(catalogs, "read_content", counted)
    for number in range(5):
        one.add(source(f"s{number}"))
    assert len(reads) == 1  # the first, which finds whatever was defined since the catalog was made
    other.add(view("v", "s0"))
    with pytest.raises(NameTaken):
        one.add(source("v"))
    assert one.names() == (*(f"s{number}" for number in range(5)), "v")
    other.remove("v")
    one.add(source("v"))
    assert Catalog(lake).names() == one.names()
    assert one.get("v") == source("v")


def test_a_file_that_is_broken_between_two_changes_is_found_by_the_second(lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    catalog.add(source("a"))
    catalog.add(source("b"))
    overwrite(lake.catalog / "a.json", (lake.catalog / "a.json").read_bytes()[:-9])
    catalog.add(source("c"))
    assert [*catalog.broken] == ["a"]
    with pytest.raises(CorruptState):
        catalog.get("a")


def test_adding_from_many_threads_loses_nothing(lake: LakeLayout) -> None:
    # Whoever finds a lease taken looks again after a second or so.
    count = 24 if isinstance(lake.root, Path) else 4
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: Catalog(lake).add(source(f"s{n}")), range(count)))
    found = Catalog(lake)
    assert sorted(found.names()) == sorted(f"s{n}" for n in range(count))
    assert not [name for name in below(lake.catalog) if name.endswith(".tmp")]
    sequences = [json.loads(path.read_bytes())["sequence"] for path in files_in(lake.catalog, ".json")]
    assert sorted(sequences) == list(range(1, count + 1))


def test_what_others_read_cannot_go(lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    for definition in (source("s"), view("v", "s"), view("w", "v")):
        catalog.add(definition)
    with pytest.raises(NameInUse, match="'v'"):
        catalog.remove("s")
    assert catalog.remove("w") == ("w",)
    assert catalog.remove("v") == ("v",)
    assert catalog.remove("s") == ("s",)
    assert Catalog(lake).names() == ()


def test_a_stream_goes_with_the_queries_that_feed_it(lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    for definition in (source("s"), source("t"), insert("t", 1, "s"), insert("t", 2, "s")):
        catalog.add(definition)
    with pytest.raises(NameInUse, match="t__insert_1"):
        catalog.remove("s")
    assert catalog.remove("t") == ("t__insert_1", "t__insert_2", "t")
    assert Catalog(lake).names() == ("s",)


def test_an_unknown_name_gets_the_nearest(lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    catalog.add(source("readings"))
    with pytest.raises(UnknownName, match="'reedings'") as caught:
        catalog.get("reedings")
    assert "'readings'" in str(caught.value.hint)
    with pytest.raises(UnknownName):
        catalog.remove("reedings")


@pytest.mark.parametrize("text", ["", "{", '{"format": 99}', '{"format": 1, "type": "source", "definition": {}}'])
def test_a_file_that_does_not_read_back_is_corrupt_state(lake: LakeLayout, text: str) -> None:
    make_folder(lake.catalog)
    overwrite(lake.catalog / "s.json", text.encode())
    with pytest.raises(CorruptState) as caught:
        Catalog(lake).find("s")
    assert "s.json" in str(caught.value.where)
    assert caught.value.hint


def test_a_definition_that_was_registered_again_goes_before_its_readers(lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    for definition in (source("s"), view("v", "s"), view("w", "v")):
        catalog.add(definition)
    overwrite(lake.catalog / "v.json", b"")
    overwrite(lake.catalog / "s.json", b"")
    catalog.reload()
    catalog.add(view("v", "s"))
    catalog.add(source("s"))
    assert catalog.names() == Catalog(lake).names() == ("s", "v", "w")
