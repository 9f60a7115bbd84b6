"""Rows on which an expression fails, on Spark and Delta: kept aside, or the view stops. Never NULL, never lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from strandline.jobs.functions.scalars.domains import meets
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import RowFailed
from strandline.jobs.model.stage import AggregateStage, MapStage, Output
from strandline.jobs.query.expressions.infer import infer
from strandline.jobs.query.expressions.scope import Scope
from strandline.state_store.delta import reader
from tests.spark.refresh_bench import EVENTS, KEYED, TABLE, VISIBLE, Bench, meta_outputs
from tests.support.parsed import parse_expression
from tests.support.rule_harness import call, core, mapped, output

RATIO = Output("q", infer(parse_expression("CAST(k AS BIGINT) / v"), Scope(TABLE, ("t",))).expression, t.BIGINT)


def stage() -> AggregateStage:
    """The sum of the quotients of each id's row: an aggregate, so that what is left out must leave the sum as well."""
    calls = (call("__a0", "SUM", [("q", t.BIGINT)]),)
    return AggregateStage(
        "ratios",
        (core(TABLE, None, (VISIBLE[0], RATIO)),),
        (output("id", "id", t.INT),),
        calls,
        (output("id", "id", t.INT), output("total", "__a0", t.BIGINT)),
        ("id",),
    )


@pytest.fixture
def bench(bench: Bench) -> Bench:
    bench.append(EVENTS, [event(1, "10", 2), event(2, "x", 1), event(3, "5", 0)])
    bench.refresh(KEYED)
    return bench


def event(key: int, text: str | None, divisor: int | None) -> dict[str, object]:
    return {"id": key, "k": text, "v": divisor, "_tombstone": text is None}


def letters(bench: Bench) -> list[dict[str, Any]]:
    rows = reader.read_rows(bench.lake.table("ratios__dead_letters"))
    table = rows if isinstance(rows, pa.Table) else rows.read_all()
    return list(table.to_pylist())


def test_a_row_that_fails_goes_to_the_dead_letters_until_it_is_corrected(bench: Bench) -> None:
    results = bench.refresh_under(stage(), "dead_letter", "ratios__dead_letters")
    assert [result.table for result in results] == ["ratios__dead_letters", "ratios"]
    assert set(bench.rows(stage())) == {(1, 5)}
    rows = {json.loads(row["row"])["s_id"]: row["reason"] for row in letters(bench)}
    assert rows.keys() == {2, 3}
    assert "TRY_CAST" in rows[2] or "CAST" in rows[2]

    bench.append(EVENTS, [event(2, "8", 4), event(3, None, None)])
    bench.refresh(KEYED)
    bench.refresh_under(stage(), "dead_letter", "ratios__dead_letters")
    assert set(bench.rows(stage())) == {(1, 5), (2, 2)}
    assert letters(bench) == []


def test_the_dead_letters_of_a_stream_only_grow(bench: Bench) -> None:
    """The view over the log appends what is sound, its dead letters what is not, each event once."""
    appended = mapped(EVENTS, None, (VISIBLE[0], RATIO, *meta_outputs()), table="ratios")
    for _ in range(2):
        bench.refresh_under(appended, "dead_letter", "ratios__dead_letters")
    bench.append(EVENTS, [event(4, "9", 3), event(5, "9", 0)])
    bench.refresh_under(appended, "dead_letter", "ratios__dead_letters")
    assert sorted(row[:2] for row in bench.rows(appended)) == [(1, 5), (4, 3)]
    assert sorted(json.loads(row["row"])["s_id"] for row in letters(bench)) == [2, 3, 5]


def test_a_view_that_is_to_stop_stops_and_stores_nothing(bench: Bench) -> None:
    with pytest.raises(RowFailed) as stopped:
        bench.refresh_under(stage(), "stop", "ratios__dead_letters")
    assert "ratios" in str(stopped.value.where)
    assert bench.versions("ratios") == 0


def test_a_row_that_breaks_an_expectation_is_kept_aside_until_it_is_corrected(bench: Bench) -> None:
    positive = parse_expression("s.v IS NULL OR s.v > 0")
    rows_of_table = replace(core(TABLE, None, VISIBLE), where=meets(positive, "positive"), key=("id",))
    sound = MapStage("sound", (rows_of_table,), ("id", "k", "v"), ("id",))
    bench.refresh_under(sound, "dead_letter", "sound__dead_letters")
    assert sorted(bench.rows(sound)) == [(1, "10", 2), (2, "x", 1)]
    rows = reader.read_rows(bench.lake.table("sound__dead_letters")).to_pylist()
    assert [row["reason"] for row in rows] == ["breaks positive of sound"]

    bench.append(EVENTS, [event(1, "10", -2), event(3, "5", 4)])
    bench.refresh(KEYED)
    bench.refresh_under(sound, "dead_letter", "sound__dead_letters")
    assert sorted(bench.rows(sound)) == [(2, "x", 1), (3, "5", 4)]
    rows = reader.read_rows(bench.lake.table("sound__dead_letters")).to_pylist()
    assert [json.loads(row["row"])["s_id"] for row in rows] == [1]
