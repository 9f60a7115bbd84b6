"""Filter and projection, maintained from changes on DuckDB, equal the same SELECT over all rows."""

from __future__ import annotations

from typing import Any

from duckdb import DuckDBPyConnection
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.jobs.model import types as t
from strandline.jobs.model.stage import MapStage
from strandline.jobs.model.tables import Relation
from tests.support.examples import examples
from tests.support.rule_harness import RuleBench, append_log, insert, mapped, multiset, output

EXAMPLES = examples(12)

TABLE = Relation("t", (("id", t.INT), ("v", t.INT), ("m", t.map_of(t.VARCHAR, t.INT))), "keyed", ("id",))
values = st.fixed_dictionaries(
    {"v": st.none() | st.integers(-2, 2), "m": st.none() | st.dictionaries(st.sampled_from("xy"), st.integers(0, 1))}
)
operations = st.tuples(st.sampled_from([None, 0, 1, 2]), st.none() | values)
# The quotient has no value for the rows that the filter keeps out: it must not be computed for them.
WHERE = "v <> 0"
QUOTIENT = output("q", "CASE WHEN v = 0 THEN CAST(error('computed') AS INT) ELSE 4 // v END", t.INT)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(st.fixed_dictionaries({"v": st.none() | st.integers(-2, 2)}), max_size=4), max_size=4))
def test_rows_of_a_log_are_appended_once_each(duck: DuckDBPyConnection, batches: list[list[dict[str, Any]]]) -> None:
    """Equal rows stay as many as they are; the filter leaves out what is NULL."""
    stage = mapped(append_log([("v", t.INT)]), WHERE, (output("w", "v * 10", t.BIGINT), QUOTIENT))
    bench = RuleBench(duck, stage)
    for batch in batches:
        bench.epoch([(row, 1, 0) for row in batch])
        assert bench.visible() == multiset(bench.query("SELECT v * 10, 4 // v FROM history WHERE v <> 0"))


def run_table(
    duck: DuckDBPyConnection,
    stage: MapStage,
    epochs: list[list[tuple[int | None, dict[str, Any] | None]]],
    recomputed: str,
) -> None:
    """Rows come, change and go, several times within an epoch; the filter lets them in and out."""
    bench = RuleBench(duck, stage)
    rows: dict[int | None, dict[str, Any]] = {}
    version = 0
    for epoch in epochs:
        changes = []
        for key, value in epoch:
            version += 1
            if key in rows:
                changes.append((rows.pop(key), -1, version))
            if value is not None:
                rows[key] = {"id": key, **value}
                changes.append((rows[key], 1, version))
        bench.epoch(changes)
        bench.db.execute("CREATE OR REPLACE TABLE present AS SELECT id, v, m FROM history LIMIT 0")
        insert(bench.db, "present", [[row["id"], row["v"], row["m"]] for row in rows.values()])
        assert bench.visible() == multiset(bench.query(recomputed))


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(operations, max_size=5), max_size=5))
def test_rows_of_a_table_keep_their_key(
    duck: DuckDBPyConnection, epochs: list[list[tuple[int | None, dict[str, Any] | None]]]
) -> None:
    outputs = (output("pid", "id", t.INT), QUOTIENT, output("m", "m", t.map_of(t.VARCHAR, t.INT)))
    stage = mapped(TABLE, WHERE, outputs, ("pid",))
    run_table(duck, stage, epochs, "SELECT id, 4 // v, m FROM present WHERE v <> 0")


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.lists(st.lists(operations, max_size=5), max_size=5))
def test_a_key_that_nobody_selected_still_tells_rows_apart(
    duck: DuckDBPyConnection,
    epochs: list[list[tuple[int | None, dict[str, Any] | None]]],
) -> None:
    stage = mapped(TABLE, None, (output("v", "v", t.INT),), ("__k0",), (output("__k0", "id", t.INT),))
    run_table(duck, stage, epochs, "SELECT v FROM present")


def test_the_one_row_of_a_global_aggregate_stays_while_nothing_changes(duck: DuckDBPyConnection) -> None:
    """A keyed input without a key: an empty batch of changes does not say that its row has gone."""
    one_row = Relation("total", (("n", t.BIGINT),), "keyed", ())
    bench = RuleBench(duck, mapped(one_row, "n < 3", (output("n", "n", t.BIGINT),)))
    for changes, expected in [
        ([({"n": 1}, 1, 0)], [(1,)]),
        ([], [(1,)]),
        ([({"n": 1}, -1, 1), ({"n": 2}, 1, 1)], [(2,)]),
        ([({"n": 2}, -1, 2), ({"n": 3}, 1, 2)], []),
        ([({"n": 3}, -1, 3), ({"n": 0}, 1, 3)], [(0,)]),
    ]:
        bench.epoch(changes)
        assert bench.visible() == multiset(expected)
