"""WITH RECURSIVE over random graphs with circles, which grow and shrink: every path gives the rows of plain Python.

The oracle walks the graph in sets and lists; it has no SQL and shares no code. The paths are those of
`tests.properties.paths`: the table after each epoch, push, replica, topic, pulls, a rebuild, `verify --deep`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from strandline.state_store.duckdb.engine import DuckDBEngine
from tests.properties.paths import ways
from tests.properties.paths.history import Epoch, Event, standing
from tests.properties.paths.lake import ViewLake
from tests.properties.paths.oracle import Expected
from tests.properties.paths.views import Query, Relation, ViewOf
from tests.properties.picker import Picker
from tests.support.examples import examples, seed_of

NODES = 6
EDGES = Relation("edges", "table", (("id", "INT"), ("a", "INT"), ("b", "INT")))
STEPS = Relation("steps", "stream", (("a", "INT"), ("b", "INT")))

Row = tuple[Any, ...]
Edges = list[tuple[Any, Any]]


@dataclass(frozen=True)
class Recursive:
    """A query as the paths need one."""

    sql: str
    types: tuple[tuple[str, str], ...]

    @property
    def can_fail(self) -> bool:
        return False


def closure(begin: Iterable[Row], following: Callable[[Row], Iterable[Row]]) -> list[Row]:
    """A set of rows with all that follows."""
    found = set(begin)
    new = list(found)
    while new:
        new = [each for row in new for each in set(following(row)) if each not in found]
        found.update(new)
        new = list(set(new))
    return list(found)


def everything(begin: Sequence[Row], following: Callable[[Row], Iterable[Row]]) -> list[Row]:
    """A bag of rows with all that follows, as often as it does."""
    found, new = list(begin), list(begin)
    while new:
        new = [each for row in new for each in following(row)]
        found += new
    return found


def beyond(edges: Edges, node: int | None) -> list[int | None]:
    """Where the edges of a node lead; NULL is no node."""
    return [b for a, b in edges if node is not None and a == node]


def reach(edges: Edges, _steps: Edges) -> list[Row]:
    """UNION without a depth: it ends in circles too."""
    return closure(edges, lambda row: [(row[0], b) for b in beyond(edges, row[1])])


def depths(edges: Edges, _steps: Edges) -> list[Row]:
    """UNION with a value that is computed: the lengths of the ways from each node, up to four."""
    begin = [(a, b, 1) for a, b in edges]
    return closure(begin, lambda row: [(row[0], b, row[2] + 1) for b in beyond(edges, row[1]) if row[2] < 4])


def ways_there(edges: Edges, steps: Edges) -> list[Row]:
    """UNION ALL over two relations, one of them append-only: each way is a row."""
    begin = [(a, b, 1) for a, b in steps]
    return everything(begin, lambda row: [(row[0], b, row[2] + 1) for b in beyond(edges, row[1]) if row[2] < 3])


def from_steps(edges: Edges, steps: Edges) -> list[Row]:
    """UNION over two relations, one of which stands in both branches: either may bring what follows."""
    ends = {b for _, b in steps}
    return closure(steps, lambda row: [(row[0], b) for b in beyond(edges, row[1]) if row[1] in ends])


def padded(edges: Edges, _steps: Edges) -> list[Row]:
    """A LEFT JOIN: what leads nowhere leads to NULL. And a join of what the recursion gave, in counts."""

    def following(row: Row) -> list[Row]:
        return [(row[0], b) for b in beyond(edges, row[1])] or [(row[0], None)]

    rows = closure([(a, b) for a, b in edges if a == 1], following)
    return sorted(Counter(b for _, b in rows).items(), key=str)


VIEWS: tuple[tuple[str, Recursive, Callable[[Edges, Edges], list[Row]]], ...] = (
    (
        "reach",
        Recursive(
            "WITH RECURSIVE r (a, b) AS (SELECT a, b FROM edges UNION SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a)"
            " SELECT a, b FROM r",
            (("a", "INT"), ("b", "INT")),
        ),
        reach,
    ),
    (
        "depths",
        Recursive(
            "WITH RECURSIVE r (a, b, d) AS (SELECT a, b, 1 FROM edges UNION SELECT r.a, e.b, d + 1 FROM edges e JOIN r"
            " ON r.b = e.a WHERE d < 4) SELECT a, b, d FROM r",
            (("a", "INT"), ("b", "INT"), ("d", "INT")),
        ),
        depths,
    ),
    (
        "ways_there",
        Recursive(
            "WITH RECURSIVE r (a, b, d) AS (SELECT a, b, 1 FROM steps UNION ALL SELECT r.a, e.b, d + 1 FROM r, edges e"
            " WHERE r.b = e.a AND d < 3) SELECT a, b, d FROM r",
            (("a", "INT"), ("b", "INT"), ("d", "INT")),
        ),
        ways_there,
    ),
    (
        "from_steps",
        Recursive(
            "WITH RECURSIVE r (a, b) AS (SELECT a, b FROM steps UNION SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a"
            " JOIN steps s ON s.b = r.b) SELECT a, b FROM r",
            (("a", "INT"), ("b", "INT")),
        ),
        from_steps,
    ),
    (
        "padded",
        Recursive(
            "WITH RECURSIVE r AS (SELECT a, b FROM edges WHERE a = 1 UNION SELECT r.a, e.b FROM r LEFT JOIN edges e"
            " ON r.b = e.a) SELECT b, COUNT(*) AS n FROM r GROUP BY b",
            (("b", "INT"), ("n", "BIGINT")),
        ),
        padded,
    ),
)


def random_epochs(pick: Picker) -> list[Epoch]:
    """Epochs in which edges come, move and go, and steps come."""
    epochs = []
    for _ in range(pick.count(2, 5)):
        events = []
        for at in range(pick.count(0, 5)):
            a, b = (None if pick.chance(6) else pick.count(1, NODES) for _ in range(2))
            key = pick.count(1, 9)
            if pick.chance(20):
                events.append(Event("steps", {"a": a, "b": b}, None, at))
            elif pick.chance(35):
                events.append(Event("edges", None, key, at))
            else:
                events.append(Event("edges", {"id": key, "a": a, "b": b}, key, at))
        epochs.append(tuple(events))
    return epochs


def growing_epochs(pick: Picker) -> list[Epoch]:
    """Epochs in which edges and steps only come, so that what follows from them alone is followed."""
    epochs, key = [], 0
    for _ in range(pick.count(3, 6)):
        events = []
        for at in range(pick.count(0, 4)):
            a, b = (pick.count(1, NODES + 2) for _ in range(2))
            key += 1
            of_step = pick.chance(30)
            row = {"a": a, "b": b} if of_step else {"id": key, "a": a, "b": b}
            events.append(Event("steps" if of_step else "edges", row, None if of_step else key, at))
        epochs.append(tuple(events))
    return epochs


def check(epochs: Sequence[Epoch], duckdb_engine: DuckDBEngine, folder: Path) -> None:
    """Compare every path with the oracle after each epoch, and those that are asked once at the end."""
    views = {name: ViewOf(name, cast(Query, query)) for name, query, _ in VIEWS}
    events: list[Event] = []
    with ViewLake(folder, (EDGES, STEPS), tuple(views.values())) as lake:
        asked: list[ways.At] = []
        for epoch in epochs:
            lake.take(epoch)
            events += epoch
            assert not lake.refresh(duckdb_engine)
            edges, steps = ([(row["a"], row["b"]) for row in standing(each, events)] for each in (EDGES, STEPS))
            asked = [ways.At(lake, views[name], Expected(tuple(of(edges, steps)), 0)) for name, _, of in VIEWS]
            for at in asked:
                compare(at, ways.EACH_EPOCH, epochs)
        assert ways.verified(lake, list(views)) == {}
        for at in asked:
            compare(at, {**ways.AT_REST, "pulled select": ways.pulled_select}, epochs)
            if ways.lose_a_row(at) is not None:
                assert at.view.name in ways.verified(lake, [at.view.name])
            compare(at, {"rebuilt": ways.rebuilt, **ways.EACH_EPOCH}, epochs)


def compare(at: ways.At, asked: dict[str, ways.Way], epochs: Sequence[Epoch]) -> None:
    for name, way in asked.items():
        found = way(at)
        if found is not None:
            wanted = at.expected.rows
            assert found == wanted, f"{at.view.name}, {name}: more {found - wanted}, less {wanted - found}\n{epochs}"


@pytest.mark.timeout(0)  # at length it takes an hour
@pytest.mark.parametrize("part", range(examples(5)))
def test_every_path_gives_what_follows_by_plain_python(part: int, duckdb_engine: DuckDBEngine, tmp_path: Path) -> None:
    check(random_epochs(Picker.seeded(seed_of(part))), duckdb_engine, tmp_path / "lake")


@pytest.mark.timeout(0)  # at length it takes an hour
@pytest.mark.parametrize("part", range(examples(3)))
def test_every_path_gives_what_follows_where_rows_only_come(
    part: int, duckdb_engine: DuckDBEngine, tmp_path: Path
) -> None:
    check(growing_epochs(Picker.seeded(seed_of(part))), duckdb_engine, tmp_path / "lake")


def test_a_circle_that_is_opened_leaves_what_is_reached_another_way(
    duckdb_engine: DuckDBEngine, tmp_path: Path
) -> None:
    """The row that counting alone would keep: each edge of a circle that nothing leads to supports the next."""
    rows = [{"id": 1, "a": 1, "b": 2}, {"id": 2, "a": 2, "b": 3}, {"id": 3, "a": 3, "b": 2}, {"id": 4, "a": 1, "b": 3}]
    come = tuple(Event("edges", row, row["id"]) for row in rows)
    check([come, (Event("edges", None, 1),), (Event("edges", None, 4),)], duckdb_engine, tmp_path / "lake")
