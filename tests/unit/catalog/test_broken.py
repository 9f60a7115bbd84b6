"""A broken catalog file stops what needs it, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Definition, Function, InsertQuery, Source, View
from strandline.jobs.model.errors import UnknownName
from strandline.state_store.errors import Action, CorruptState
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import LakePath
from tests.support.on_disk import on_disk

SOURCE = Source("s", "stream", (Column("id", t.INT),), "s", "KAFKA", "JSON", "p", "…")
OTHER = Source("o", "stream", (Column("id", t.INT),), "o", "KAFKA", "JSON", "q", "…")
VIEW = View("v", "stream", (Column("id", t.INT),), "SELECT f(id) AS id FROM s", ("s",), "p", "…", "0123456789abcdef")
QUERY = InsertQuery("s", 1, "SELECT id FROM o", ("o",), "p", "…", "fedcba9876543210")
FUNCTION = Function("F", (Column("a", t.INT),), t.INT, "m", "f", "0", "…")


@pytest.fixture
def catalog(lake: LakeLayout) -> Catalog:
    made = Catalog(lake)
    definitions: list[Definition] = [SOURCE, OTHER, VIEW, QUERY]
    for definition in definitions:
        made.add(definition)
    return made


def spoil(path: LakePath) -> None:
    """One wrong byte, in the middle."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    on_disk(path).write_bytes(data)


def flipped(data: bytes) -> Iterator[bytes]:
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        yield bytes(changed)


@pytest.mark.parametrize("definition", [SOURCE, VIEW, QUERY, FUNCTION], ids=lambda definition: definition.name)
def test_after_any_wrong_bit_a_definition_is_equal_or_its_file_is_broken(
    lake: LakeLayout, definition: Definition | Function
) -> None:
    catalog, name = Catalog(lake), definition.name
    catalog.add(OTHER)
    catalog.put_function(definition) if isinstance(definition, Function) else catalog.add(definition)
    (path,) = (each for each in on_disk(lake.catalog).rglob("*.json") if each.stem == name)
    for data in flipped(path.read_bytes()):
        path.write_bytes(data)
        found = Catalog(lake)
        if name in {**found.broken, **found.broken_functions}:
            with pytest.raises(CorruptState, match=f"'{name}' is broken"):
                found.functions.get(name) if isinstance(definition, Function) else found.find(name)
            assert found.definitions() == [OTHER]
            assert not found.functions
        else:
            assert found.definitions() == catalog.definitions()
            assert found.functions == catalog.functions


def test_what_does_not_need_a_broken_definition_goes_on(lake: LakeLayout, catalog: Catalog) -> None:
    spoil(lake.catalog / "v.json")
    catalog.reload()
    assert catalog.names() == ("s", "o", "s__insert_1")
    assert catalog.get("s") == SOURCE
    catalog.check_pipeline("q")
    with pytest.raises(UnknownName):
        catalog.get("unheard_of")
    for use in (catalog.find, catalog.get):
        with pytest.raises(CorruptState) as caught:
            use("v")
        assert caught.value.action is Action.RESTORE
        assert "strandline apply" in str(caught.value.hint)
        assert "v.json" in str(caught.value.where)


@pytest.mark.parametrize(
    ("broken", "stopped"),
    [("v", {"p"}), ("s", {"p", "r"}), ("s__insert_1", {"p"}), ("o", {"p", "q"}), ("functions/F", {"p"})],
)
def test_a_broken_file_stops_its_pipeline_and_those_that_read_it(
    lake: LakeLayout, catalog: Catalog, broken: str, stopped: set[str]
) -> None:
    """Pipeline p: s, v and the query, which reads q's o; v calls F. Pipeline r reads s."""
    catalog.add(View("w", "stream", (), "SELECT id FROM s", ("s",), "r", "…", ""))
    catalog.add(Source("o2", "stream", (), "o", "KAFKA", "JSON", "q", "…"))
    if broken == "functions/F":
        on_disk(lake.catalog / "functions").mkdir()
        on_disk(lake.catalog / "functions" / "F.json").touch()
    else:
        spoil(lake.catalog / f"{broken}.json")
    catalog.reload()
    found = set()
    for pipeline in ("p", "q", "r"):
        try:
            catalog.check_pipeline(pipeline)
        except CorruptState:
            found.add(pipeline)
    assert found == stopped


def test_a_wrong_bit_in_the_name_of_the_pipeline_does_not_make_the_pipeline_run_without_it(
    lake: LakeLayout, catalog: Catalog
) -> None:
    """Its table has no commit yet, which would name the pipeline."""
    catalog.add(Source("o2", "stream", (), "o", "KAFKA", "JSON", "quite_another", "…"))
    path = on_disk(lake.catalog / "v.json")
    whole = path.read_bytes()
    place = whole.index(b'"pipeline": ')
    others = 0
    for bit in range(8 * place, 8 * (place + len(b'"pipeline": "p",'))):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        found = Catalog(lake)
        assert list(found.broken) == ["v"]
        with pytest.raises(CorruptState, match="'v' is broken"):
            found.check_pipeline("p")
        try:
            found.check_pipeline("quite_another")
        except CorruptState:
            others += 1
    # Where the file does not say whose it is, and two pipelines' names may stand in it.
    assert others < 8 * len(b'"pipeline": ')


def test_a_file_of_which_nothing_is_left_stops_what_has_no_other_definition(lake: LakeLayout) -> None:
    on_disk(lake.catalog).mkdir(parents=True)
    on_disk(lake.catalog / "x.json").touch()
    with pytest.raises(CorruptState):
        Catalog(lake).check_pipeline("p")


def test_what_a_broken_file_may_read_is_not_removed(lake: LakeLayout, catalog: Catalog) -> None:
    spoil(lake.catalog / "v.json")
    with pytest.raises(CorruptState, match="'v' is broken"):
        catalog.remove("s")
    catalog.add(Source("free", "stream", (), "free", "KAFKA", "JSON", "q", "…"))
    assert catalog.remove("free") == ("free",)
    assert catalog.remove("v") == ("v",)
    assert catalog.remove("s") == ("s__insert_1", "s")


def test_a_stream_goes_with_the_broken_queries_that_feed_it(lake: LakeLayout, catalog: Catalog) -> None:
    catalog.remove("v")
    spoil(lake.catalog / "s__insert_1.json")
    catalog.reload()
    with pytest.raises(CorruptState):
        catalog.insert_queries("s")
    with pytest.raises(CorruptState):
        catalog.remove("o")
    assert catalog.remove("s") == ("s__insert_1", "s")
    assert Catalog(lake).names() == ("o",)
    assert not Catalog(lake).broken


def test_a_file_under_another_name_is_broken(lake: LakeLayout, catalog: Catalog) -> None:
    on_disk(lake.catalog / "copy.json").write_bytes((lake.catalog / "s.json").read_bytes())
    catalog.reload()
    assert list(catalog.broken) == ["copy"]
