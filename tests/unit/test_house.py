"""The measures of the house: what counts as a circle, and as against the plan."""

from __future__ import annotations

import pytest

from infra.house.graph import Edge, between_rooms, breaches, circles, circles_by_scope, folder
from infra.house.measures import File, measure
from infra.house.page import first_sentence
from infra.house.plan import ROOMS, ROOT, TOPS, below, floor_of, standing


def _edge(importer: str, imported: str) -> Edge:
    return Edge(f"strandline.{importer}", f"strandline.{imported}")


def test_a_graph_without_circles_has_none() -> None:
    assert circles({"a": ["b", "c"], "b": ["c"]}) == []


def test_every_circle_is_found() -> None:
    found = circles({"a": ["b"], "b": ["a", "c"], "c": ["d"], "d": ["c"]})
    assert sorted(sorted(set(ring)) for ring in found) == [["a", "b"], ["c", "d"]]
    assert all(ring[0] == ring[-1] for ring in found)


def test_a_ring_reads_in_the_direction_of_its_imports() -> None:
    (ring,) = circles({"a": ["b"], "b": ["c"], "c": ["a"]})
    assert "".join(ring) in ("abca", "bcab", "cabc")


def test_folders_can_go_in_circles_where_files_do_not() -> None:
    edges = [_edge("jobs.ivm.plan.a", "jobs.ivm.rules.a"), _edge("jobs.ivm.rules.b", "jobs.ivm.plan.b")]
    found = circles_by_scope(edges)
    assert found["files"] == []
    assert len(found["folders"]) == 1
    assert found["rooms"] == []


def test_a_package_is_its_own_folder() -> None:
    assert folder("strandline.jobs.ivm.plan") == "strandline.jobs.ivm.plan"
    assert folder("strandline.jobs.ivm.plan.plan") == "strandline.jobs.ivm.plan"


@pytest.mark.parametrize(
    ("importer", "imported", "refused"),
    [
        ("jobs.query.clauses.read", "jobs.sql.trees", ""),
        ("jobs.sql.trees", "jobs.sql.dialect", ""),
        ("jobs.sql.trees", "jobs.query.clauses.read", "query does not stand below sql"),
        ("jobs.sql.trees", "jobs.ingest.source", "ingest does not stand below sql"),
        ("jobs.serve.pull", "jobs.ivm.plan.plan", "ivm does not stand below serve"),
        ("jobs.cli.main", "orchestration.up", "orchestration does not stand below cli"),
        ("jobs.attic.x", "jobs.model.types", "model does not stand below attic"),
        ("state_store.replicas.follow", "state_store.delta.reader", ""),
        ("state_store.delta.reader", "state_store.replicas.follow", "replicas does not stand below state_store"),
        ("jobs.serve.pull", "state_store.replicas.follow", ""),
        ("lake", "jobs.run.drain", ""),
    ],
)
def test_only_what_stands_below_may_be_imported(importer: str, imported: str, refused: str) -> None:
    found = breaches([_edge(importer, imported)], [])
    assert [refused in line for line in found] == ([True] if refused else [])


@pytest.mark.parametrize(
    ("importer", "library", "refused"),
    [
        ("jobs.run.drain", "dagster", True),
        ("jobs.run.drain", "dagster_pipes", False),
        ("orchestration.definitions", "dagster", False),
        ("dagster", "dagster", False),
        ("state_store.table", "sqlglot", True),
        ("jobs.sql.trees", "sqlglot", False),
        ("jobs.run.drain", "tests", True),
        ("jobs.run.drain", "infra", True),
        ("jobs.run.drain", "jobs", True),
    ],
)
def test_some_libraries_belong_to_some_rooms(importer: str, library: str, refused: bool) -> None:
    """Neither tests and tools, nor the product by a name that stands in no environment but its own."""
    assert len(breaches([Edge(f"strandline.{importer}", library)], [])) == refused


@pytest.mark.parametrize(
    ("importer", "imported", "refused"),
    [
        ("infra.kafka.broker", "strandline.jobs.run.jars", True),
        ("infra.kafka.broker", "tests.support.waiting", True),
        ("infra.house.graph", "infra.house.plan", False),
        ("benchmarks.serve", "strandline.jobs.serve.pull", False),
        ("benchmarks.serve", "infra.ports", False),
        ("benchmarks.serve", "tests.support.waiting", True),
        ("benchmarks.serve", "jobs", True),
        ("tests.unit.test_house", "benchmarks.serve", False),
    ],
)
def test_what_stands_beside_the_product_has_an_order_too(importer: str, imported: str, refused: bool) -> None:
    """infra knows nothing of the product, and nothing imports the tests."""
    assert len(breaches([Edge(importer, imported)], [])) == refused


def test_the_rooms_of_the_tree_are_on_the_plan() -> None:
    found = {path.parent.name for path in (ROOT / "jobs").glob("*/__init__.py")}
    assert found == set(standing()) - {*TOPS, "replicas", "strandline"}


def test_imports_between_rooms_are_counted() -> None:
    edges = [
        _edge("jobs.ivm.a", "jobs.sql.a"),
        _edge("jobs.ivm.b", "jobs.sql.a"),
        _edge("jobs.ivm.b", "jobs.ivm.a"),
        _edge("jobs.sql.a", "state_store.a"),
    ]
    assert between_rooms(edges) == {("ivm", "sql"): 2, ("sql", "state_store"): 1}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_stands_above_what_it_may_import(room: str) -> None:
    assert all(floor_of(other) < floor_of(room) for other in below(room))


def test_sizes_are_those_of_the_text() -> None:
    source = (
        "import a\nfrom b import (\n    c,\n)\n\n\n"
        "class A:\n    def f(self, a, /, b, *rest, c=1, **more):\n        return a\n"
    )
    file = measure("jobs/model/x.py", source)
    (function,) = file.functions
    assert (file.module, file.lines, file.imports) == ("strandline.jobs.model.x", 9, 4)
    assert (function.name, function.line, function.lines, function.parameters) == ("f", 8, 2, 3)


def test_options_of_a_command_are_named_by_users() -> None:
    text = "def f(a: int, b: Annotated[int, typer.Option(help='b')] = 1) -> None:\n    return None\n"
    (function,) = measure("jobs/model/x.py", text).functions
    assert function.parameters == 1


def test_a_room_off_the_plan_is_told() -> None:
    files = [File("state_store/x.py", 900, 0, ()), File("jobs/attic/x.py", 21, 0, ())]
    assert breaches([], [file.module for file in files]) == ["jobs/attic: stands on no floor of the plan"]


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ('"""One thing."""', "One thing"),
        ('"""One thing\nover two lines. And more.\n\nAnd more."""', "One thing over two lines"),
        ('"""WITH (…) of version 2.1: `a.b`. `c` comes later."""', "WITH (…) of version 2.1: `a.b`"),
        ("x = 1", ""),
    ],
)
def test_a_file_is_told_by_its_first_sentence(source: str, sentence: str) -> None:
    assert first_sentence(source) == sentence
