"""WITH RECURSIVE at work: what of it fails, and how it ends; what is said of it; and what is maintained above it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.lineage import InputColumn, column_origins
from strandline.jobs.ivm.plan.plan import plan
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.ivm.rules.maintenance import looks_back
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import EngineRefused, InvalidQuery, NotSupported, RecursionEndless, RowFailed
from strandline.jobs.model.settings import EngineChoice, Settings
from strandline.jobs.model.stage import AggregateStage, MapStage, RecursiveStage
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.serve.results import Document, Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log, reader
from tests.support.served_lake import ServedLake

EDGES = "CREATE TABLE edges (id INT PRIMARY KEY, a INT, b INT) WITH (KAFKA_TOPIC = 'edges');"
WALKS = "SELECT a, b FROM edges UNION ALL SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a"
DIVIDED = "SELECT a, 60 FROM edges UNION SELECT e.b, r.n / e.b FROM r JOIN edges e ON r.a = e.a"


def lake_of(settings: Settings, *views: str) -> ServedLake:
    return ServedLake(settings, EDGES + "".join(f"CREATE MATERIALIZED VIEW {each};" for each in views))


def edges(lake: ServedLake, *pairs: tuple[int, int]) -> None:
    """An edge for each pair, by a key of its own."""
    lake.append("edges", [{"id": 100 * a + b, "a": a, "b": b} for a, b in pairs])


def refreshed(lake: ServedLake, engine: EngineChoice = "duckdb") -> dict[str, Exception]:
    """What failed of a refresh, by view."""
    catalog = Catalog(lake.lake)
    with lake.duckdb_engine() as duckdb_engine:
        context = RunContext(None, lake.lake, "test/1", duckdb_engine=duckdb_engine, engine=engine)
        return dict(refresh_all(context, maintained(catalog.definitions(), catalog), frozenset()).failures)


def rows(lake: ServedLake, sql: str) -> list[tuple[Any, ...]]:
    (found,) = Interpreter(lake.settings).run(sql)
    assert isinstance(found, Rows)
    return sorted((tuple(row) for row in found.rows), key=str)


def test_a_bag_that_leads_in_a_circle_stops_typed_and_goes_on_when_it_is_opened(settings: Settings) -> None:
    lake = lake_of(settings, f"v AS WITH RECURSIVE r (a, b) MAX RECURSION LEVEL 9 AS ({WALKS}) SELECT a, b FROM r")
    edges(lake, (1, 2), (2, 3))
    assert refreshed(lake) == {}
    edges(lake, (3, 1))
    failed = refreshed(lake)["v"]
    assert isinstance(failed, RecursionEndless)
    assert "beyond 9 rounds" in failed.message
    assert rows(lake, "SELECT * FROM v") == [(1, 2), (1, 3), (2, 3)]
    lake.append("edges", [{"id": 301, "_tombstone": True}])
    assert refreshed(lake) == {}
    assert rows(lake, "SELECT * FROM v") == [(1, 2), (1, 3), (2, 3)]


@pytest.mark.parametrize("union", ["UNION", "UNION ALL"])
def test_the_last_round_is_counted_alike_by_both_kinds(settings: Settings, union: str) -> None:
    lake = lake_of(settings)

    def counted(most: int) -> list[tuple[Any, ...]]:
        series = (
            f"WITH RECURSIVE r (n) MAX RECURSION LEVEL 30 AS (SELECT 1 {union} SELECT n + 1 FROM r WHERE n < {most})"
        )
        return rows(lake, f"{series} SELECT COUNT(*) AS n FROM r")

    assert counted(31) == [(31,)]
    with pytest.raises(RecursionEndless, match="beyond 30 rounds"):
        counted(32)


def test_a_row_that_fails_in_what_follows_stops_the_view(settings: Settings) -> None:
    text = f"WITH RECURSIVE r (a, n) AS ({DIVIDED}) SELECT a, n FROM r"
    lake = lake_of(settings, f"v AS {text}", f"w WITH (ERRORS = 'null') AS {text}")
    edges(lake, (1, 2), (2, 3))
    assert refreshed(lake) == {}
    before = rows(lake, "SELECT * FROM v")
    assert before == [(1, 60), (2, 30), (2, 60), (3, 10), (3, 20)]
    edges(lake, (3, 0))
    failed = refreshed(lake)
    assert {name: type(error) for name, error in failed.items()} == {"v": RowFailed}
    assert rows(lake, "SELECT * FROM v") == before
    assert rows(lake, "SELECT * FROM w") == sorted([*before, (3, 60), (0, None)], key=str)
    with pytest.raises(InvalidQuery, match="fails on a row"):
        rows(lake, text)


def test_a_row_that_fails_where_it_begins_is_kept_aside(settings: Settings) -> None:
    begin = "SELECT b, 10 / a FROM edges UNION SELECT e.b, r.n FROM r JOIN edges e ON r.a = e.a"
    lake = lake_of(settings, f"v AS WITH RECURSIVE r (a, n) AS ({begin}) SELECT a, n FROM r")
    edges(lake, (0, 1), (1, 2), (5, 1))
    assert refreshed(lake) == {}
    assert rows(lake, "SELECT * FROM v") == [(1, 2), (2, 10), (2, 2)]
    assert reader.read_rows(lake.lake.table("v__stage_1__dead_letters")).num_rows == 1


def test_what_stands_above_is_maintained_from_the_difference(settings: Settings) -> None:
    reach = "SELECT a, b FROM edges UNION SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a"
    lake = lake_of(settings, f"v AS WITH RECURSIVE r (a, b) AS ({reach}) SELECT a, COUNT(*) AS n FROM r GROUP BY a")
    edges(lake, *((at, at + 1) for at in range(1, 20)))
    assert refreshed(lake) == {}
    edges(lake, (20, 21))
    assert refreshed(lake) == {}
    records = [head.record for name in ("v__stage_1", "v") if (head := reader.head(lake.lake.table(name))) is not None]
    assert [(each.mode, each.inserted, each.deleted) for each in records] == [("delta", 20, 0), ("delta", 20, 19)]
    lake.append("edges", [{"id": 2021, "a": 20, "b": 21}])
    version = log.newest_version(lake.lake.table("v"))
    assert refreshed(lake) == {}
    assert log.newest_version(lake.lake.table("v")) == version, "the same edge once more changes no row"


REACH = "SELECT a, b FROM edges UNION SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a"
DEPTHS = "SELECT a, 0 FROM edges UNION SELECT e.b, r.b + 1 FROM r JOIN edges e ON r.a = e.a WHERE r.b < 3"


@pytest.mark.parametrize(
    ("view", "added", "mode"),
    [
        (REACH, {"a": 3, "b": 4}, "delta"),
        (REACH, {"a": 1, "b": 2}, "full"),  # no row changes: the commit is that of the first refresh
        (REACH, {"id": 102, "a": 1, "b": 4}, "full"),
        (REACH, {"id": 102, "_tombstone": True}, "full"),
        (REACH.replace("UNION", "UNION ALL"), {"a": 3, "b": 4}, "full"),
        (DEPTHS, {"a": 3, "b": 4}, "full"),
        (REACH.replace("JOIN", "LEFT JOIN"), {"a": 3, "b": 4}, "full"),
        (REACH.replace("JOIN", "JOIN edges f ON f.id = r.a LEFT JOIN"), {"a": 3, "b": 4}, "full"),
        (REACH.replace("SELECT a, b FROM edges", "SELECT id, ROWTIME FROM edges"), {"a": 3, "b": 4}, "full"),
    ],
)
def test_only_new_rows_are_followed_where_none_goes(
    settings: Settings, view: str, added: dict[str, Any], mode: str
) -> None:
    lake = lake_of(settings, f"v AS WITH RECURSIVE r (a, b) AS ({view}\n) SELECT a, b FROM r")
    edges(lake, (1, 2), (2, 3), (2, 1) if "ALL" not in view else (5, 6))
    assert refreshed(lake) == {}
    lake.append("edges", [{"id": 999, "a": 3, "b": 5, **added}])
    assert refreshed(lake) == {}
    head = reader.head(lake.lake.table("v__stage_1"))
    assert head is not None
    assert head.record.mode == mode
    assert rows(lake, "SELECT a, b FROM v") == rows(lake, f"WITH RECURSIVE r (a, b) AS ({view}\n) SELECT a, b FROM r")


def test_new_rows_that_begin_and_new_ones_that_they_follow_by_come_apart(settings: Settings) -> None:
    """An epoch brings rows of one input alone."""
    lake = ServedLake(
        settings,
        EDGES + "CREATE TABLE s (a INT PRIMARY KEY) WITH (KAFKA_TOPIC = 's');"
        "CREATE MATERIALIZED VIEW v AS WITH RECURSIVE r (a, b) AS (SELECT a, a FROM s UNION SELECT r.a, e.b FROM"
        " (SELECT a, b FROM edges WHERE a > 0) e JOIN r ON r.b = e.a) SELECT a, b FROM r;"
        "CREATE MATERIALIZED VIEW one AS WITH RECURSIVE r (n) AS (SELECT 1 UNION SELECT n FROM r) SELECT n FROM r;",
    )
    for source, row in (("s", {"a": 1}), ("edges", {"id": 1, "a": 1, "b": 2}), ("s", {"a": 2}), ("s", {"a": 7})):
        lake.append(source, [row])
        assert "v" not in refreshed(lake)
    lake.append("edges", [{"id": 2, "a": 2, "b": 7}])
    assert refreshed(lake) == {}
    assert rows(lake, "SELECT a, b FROM v") == [(1, 1), (1, 2), (1, 7), (2, 2), (2, 7), (7, 7)]
    head = reader.head(lake.lake.table("v__stage_1"))
    assert head is not None
    assert head.record.mode == "delta"
    assert rows(lake, "SELECT n FROM one") == [(1,)]


def test_a_join_of_queries_beside_it_is_pulled_and_maintained_alike(settings: Settings) -> None:
    text = (
        "WITH RECURSIVE r (i, x) AS (SELECT 0, 0 UNION ALL (WITH k AS (SELECT a FROM edges WHERE a > 0)"
        " SELECT r.i + 1, m.a FROM k m JOIN r ON m.a = 1 JOIN k n ON n.a = m.a WHERE r.i < 3)) SELECT i, x FROM r"
    )
    lake = lake_of(settings, f"v AS {text}")
    edges(lake, (1, 2))
    assert refreshed(lake) == {}
    assert rows(lake, "SELECT i, x FROM v") == rows(lake, text) == [(0, 0), (1, 1), (2, 1), (3, 1)]


def test_events_that_only_come_are_kept_for_those_that_go(settings: Settings) -> None:
    """What begins is an append-only stream: all rounds read it again, so retention must leave its events."""
    lake = ServedLake(
        settings,
        EDGES + "CREATE STREAM s (a INT, b INT) WITH (KAFKA_TOPIC = 's');"
        "CREATE MATERIALIZED VIEW v AS WITH RECURSIVE r (a, b) AS (SELECT a, b FROM s UNION SELECT r.a, e.b FROM r"
        " JOIN edges e ON r.b = e.a) SELECT a, b FROM r;",
    )
    view = Catalog(lake.lake).get("v")
    assert isinstance(view, View)
    first, *_ = plan(view, Catalog(lake.lake)).stages
    assert looks_back(first) == {"s", "edges"}


def test_spark_alone_runs_none(settings: Settings) -> None:
    series = "SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3"
    lake = lake_of(settings, f"v AS WITH RECURSIVE r (n) AS ({series}) SELECT n FROM r")
    failed = refreshed(lake, "spark")["v"]
    assert isinstance(failed, EngineRefused)
    assert failed.hint is not None
    assert "STRANDLINE_ENGINE=auto" in failed.hint
    assert "v" not in refreshed(lake)
    assert rows(lake, "SELECT n FROM v") == [(1,), (2,), (3,)]


def planned(settings: Settings, text: str) -> tuple[View, Any]:
    lake = lake_of(settings, f"v AS {text}")
    catalog = Catalog(lake.lake)
    view = catalog.get("v")
    assert isinstance(view, View)
    return view, plan(view, catalog)


@pytest.mark.parametrize(
    ("begin", "kinds"),
    [
        ("SELECT a, b FROM edges", [RecursiveStage, MapStage]),
        ("SELECT a, 1 / b FROM edges", [MapStage, RecursiveStage, MapStage]),
        ("SELECT a, MAX(b) FROM edges GROUP BY a", [AggregateStage, RecursiveStage, MapStage]),
    ],
)
def test_what_begins_has_a_table_where_it_can_fail_or_groups(
    settings: Settings, begin: str, kinds: Sequence[type[Any]]
) -> None:
    follows = "SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a"
    _, made = planned(settings, f"WITH RECURSIVE r (a, b) AS ({begin} UNION {follows}) SELECT a, b FROM r")
    assert [type(each) for each in made.stages] == kinds
    assert made.inputs == ("edges",)


def test_a_column_comes_from_those_that_it_follows_from(settings: Settings) -> None:
    swapped = "SELECT id, a, 1 FROM edges UNION SELECT r.b, r.a, e.b FROM r JOIN edges e ON r.b = e.a"
    _, made = planned(settings, f"WITH RECURSIVE r (a, b, c) AS ({swapped}) SELECT a, c FROM r")
    assert column_origins(made) == {
        "a": (InputColumn("edges", "a"), InputColumn("edges", "id")),
        "c": (InputColumn("edges", "b"),),
    }


def test_explain_says_that_all_rounds_are_computed_again_and_why(settings: Settings) -> None:
    lake = lake_of(settings, f"v AS WITH RECURSIVE r (a, b) AS ({WALKS}) SELECT a, b FROM r")
    (found,) = Interpreter(lake.settings).run("EXPLAIN MAINTENANCE v")
    assert isinstance(found, Document)
    for said in (
        "all rounds of the recursion are computed again",
        "because  not incremental: WITH RECURSIVE",
        "rounds   at most 1,000",
        "r (the rows of the round before)",
        'WITH RECURSIVE "__itself"',
    ):
        assert said in str(found.text)


@pytest.mark.parametrize(
    ("view", "error", "words"),
    [
        ("v WITH (REFRESH = 'incremental') AS {}", InvalidQuery, "computes all rounds again"),
        ("v WITH (STATE = 'partial') AS {} WHERE a = 1", NotSupported, "partial"),
    ],
)
def test_what_a_view_of_it_cannot_be(settings: Settings, view: str, error: type[Exception], words: str) -> None:
    text = "WITH RECURSIVE r (a, b) AS (SELECT a, b FROM edges UNION SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a)"
    with pytest.raises(error, match=words):
        lake_of(settings, view.format(f"{text} SELECT a, b FROM r"))


def test_a_join_of_it_that_can_fail_is_refused(settings: Settings) -> None:
    text = "SELECT a, b FROM edges UNION SELECT r.a, e.b FROM r JOIN edges e ON r.b = 10 / e.a"
    with pytest.raises(NotSupported, match="an ON inside of WITH RECURSIVE that can fail"):
        lake_of(settings, f"v AS WITH RECURSIVE r (a, b) AS ({text}) SELECT a, b FROM r")
