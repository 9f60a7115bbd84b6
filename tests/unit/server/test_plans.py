"""Plans of texts that are asked again: made once, but not where definitions, the token or the time make others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from strandline.jobs.model.settings import load_settings
from strandline.jobs.serve.errors import Forbidden
from strandline.jobs.serve.pull import plan_pull
from strandline.jobs.serve.terms import FREELY
from strandline.jobs.server.state import worker
from strandline.jobs.server.state.access import EVERYTHING, Token
from strandline.jobs.server.state.worker import QueryRequest, Shared
from strandline.jobs.session.interpreter import Interpreter
from tests.support.served_lake import ServedLake

DEFINITIONS = """
    CREATE STREAM visits (id BIGINT KEY, town VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'visits');
    CREATE MATERIALIZED VIEW by_town AS SELECT town, COUNT(*) AS visits FROM visits GROUP BY town;
    CREATE VIEW busy AS SELECT town FROM by_town WHERE visits > 1;
"""
TEXT = "SELECT SUM(visits) AS n FROM by_town"


@pytest.fixture
def served(tmp_path: Path) -> ServedLake:
    served = ServedLake(load_settings(lake=tmp_path / "lake"), DEFINITIONS)
    visit(served, "Rome", "Rome", "Oslo")
    return served


def visit(served: ServedLake, *towns: str) -> None:
    served.append("visits", [{"id": 1, "town": town, "n": 1} for town in towns])
    with served.duckdb_engine() as duckdb_engine:
        served.refresh(duckdb_engine)


@pytest.fixture
def shared(served: ServedLake) -> Iterator[Shared]:
    shared = Shared.of(served.settings)
    with shared.database:
        yield shared


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The statements that were planned."""
    found: list[object] = []

    def counted(statement, *others):  # type: ignore[no-untyped-def]
        found.append(statement)
        return plan_pull(statement, *others)

    monkeypatch.setattr(worker, "plan_pull", counted)
    return found


def ask(shared: Shared, text: str, token: Token = EVERYTHING) -> list[tuple[object, ...]]:
    body = QueryRequest(text, FREELY, token, "arrow").answered(shared).body
    return [tuple(row.values()) for row in pa.ipc.open_stream(body).read_all().to_pylist()]


def test_a_text_is_planned_once_and_computed_each_time(
    served: ServedLake, shared: Shared, planned: list[object]
) -> None:
    assert ask(shared, TEXT) == [(3,)]
    visit(served, "Rome")
    assert ask(shared, TEXT) == [(4,)]
    assert len(planned) == 1


def test_a_plan_that_is_kept_is_for_those_who_may_read(shared: Shared) -> None:
    assert ask(shared, "SELECT town FROM busy") == [("Rome",)]
    assert ask(shared, "SELECT town FROM busy", Token("one", "", ("read:b*",))) == [("Rome",)]
    for scope in ("read:busy", "read:visits", "write:*"):
        with pytest.raises(Forbidden):
            ask(shared, TEXT, Token("other", "", (scope,)))


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ("CREATE OR REPLACE VIEW busy AS SELECT town FROM by_town WHERE visits > 0", [("Oslo",), ("Rome",)]),
        ("DROP VIEW busy; CREATE VIEW busy AS SELECT 'none' AS town", [("none",)]),
    ],
)
def test_other_definitions_have_other_plans(
    served: ServedLake, shared: Shared, change: str, rows: list[tuple[object, ...]]
) -> None:
    text = "SELECT town FROM busy ORDER BY town"
    assert ask(shared, text) == [("Rome",)]
    assert list(Interpreter(served.settings).run(change))
    assert ask(shared, text) == rows


def test_what_changes_by_itself_is_planned_each_time(served: ServedLake, shared: Shared, planned: list[object]) -> None:
    texts = (
        "SELECT NOW() AS n, COUNT(*) AS c FROM by_town",
        "SELECT COUNT(*) AS c FROM by_town WHERE CURRENT_DATE > DATE '2020-01-01'",
        "SELECT SUM(visits) AS c FROM by_town AS OF VERSION 1",
    )
    first = [ask(shared, text) for text in texts]
    visit(served, "Rome")
    second = [ask(shared, text) for text in texts]
    assert len(planned) == 6
    assert first[0] != second[0]
    assert (first[2], second[2]) == ([(3,)], [(3,)])


def test_as_much_is_kept_as_fits(shared: Shared, planned: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"SELECT town, {number} AS n FROM by_town WHERE visits > 1" for number in range(10, 14)]
    monkeypatch.setattr(worker, "_KEPT_LETTERS", 2 * len(texts[0]))
    for text in (*texts[:3], texts[2], texts[1], texts[3], texts[1], texts[0]):
        assert ask(shared, text) == [("Rome", int(text.split()[2]))]
    assert len(planned) == 5
