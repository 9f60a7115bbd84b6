"""The measures of the house: what counts as a circle, and as against the floors."""

from __future__ import annotations

import pytest

from infra.house.breaches import breaches
from infra.house.graph import Edge, against_the_floors, between_rooms, circles, circles_by_scope, folder
from infra.house.measures import File, measure
from infra.house.page import first_sentence
from infra.house.plan import ROOMS, below, floor_of, not_below


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
    edges = [Edge("jobs.ivm.plan.a", "jobs.ivm.rules.a"), Edge("jobs.ivm.rules.b", "jobs.ivm.plan.b")]
    found = circles_by_scope(edges)
    assert found["files"] == []
    assert len(found["folders"]) == 1
    assert found["rooms"] == []


def test_a_package_is_its_own_folder() -> None:
    assert folder("jobs.ivm.plan") == "jobs.ivm.plan"
    assert folder("jobs.ivm.plan.plan") == "jobs.ivm.plan"


@pytest.mark.parametrize(
    ("importer", "imported", "refused"),
    [
        ("jobs.query.clauses.read", "jobs.sql.trees", False),
        ("jobs.sql.trees", "jobs.sql.dialect", False),
        ("jobs.sql.trees", "jobs.query.clauses.read", True),
        ("jobs.sql.trees", "jobs.ingest.source", True),
        ("jobs.serve.pull", "jobs.ivm.plan.plan", True),
        ("jobs.cli.main", "orchestration.up", True),
        ("jobs.attic.x", "jobs.model.types", True),
        ("state_store.replicas.follow", "state_store.delta.reader", False),
        ("state_store.delta.reader", "state_store.replicas.follow", True),
        ("jobs.serve.pull", "state_store.replicas.follow", False),
    ],
)
def test_only_what_stands_below_may_be_imported(importer: str, imported: str, refused: bool) -> None:
    edge = Edge(importer, imported)
    assert against_the_floors([edge]) == ([edge] if refused else [])


def test_imports_between_rooms_are_counted() -> None:
    edges = [
        Edge("jobs.ivm.a", "jobs.sql.a"),
        Edge("jobs.ivm.b", "jobs.sql.a"),
        Edge("jobs.ivm.b", "jobs.ivm.a"),
        Edge("jobs.sql.a", "state_store.a"),
    ]
    assert between_rooms(edges) == {("ivm", "sql"): 2, ("sql", "state_store"): 1}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_is_below_or_not(room: str) -> None:
    assert set(below(room)) | set(not_below(room)) | {room} == set(ROOMS)
    assert not set(below(room)) & set(not_below(room))
    assert all(floor_of(other) < floor_of(room) for other in below(room))


def test_parameters_are_those_that_a_caller_names() -> None:
    file = measure("jobs/model/x.py", "class A:\n    def f(self, a, /, b, *rest, c=1, **more):\n        return a\n")
    (function,) = file.functions
    assert (function.name, function.line, function.lines, function.parameters) == ("f", 2, 2, 3)


def test_options_of_a_command_are_named_by_users() -> None:
    text = "def f(a: int, b: Annotated[int, typer.Option(help='b')] = 1) -> None:\n    return None\n"
    (function,) = measure("jobs/model/x.py", text).functions
    assert function.parameters == 1


def test_a_room_off_the_plan_is_told() -> None:
    files = [File("state_store/x.py", 900, ()), File("jobs/attic/x.py", 21, ())]
    assert breaches([], files) == ["jobs/attic: stands on no floor of the plan"]


def test_an_import_against_the_floors_is_told() -> None:
    (line,) = breaches([Edge("jobs.sql.trees", "jobs.ingest.source")], [])
    assert "ingest does not stand below sql" in line


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
