"""Stages on Spark and Delta, epoch after epoch: the tables equal DuckDB's answer over the logs, and each epoch is one
commit that says what it reflects.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from strandline.jobs.ivm.refresh import epoch as epoch_module
from strandline.jobs.model import types as t
from strandline.jobs.model.errors import RefreshFailed
from strandline.jobs.model.stage import AggregateStage, Core, Input, MapStage, Output, Stage
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.jobs.model.tables import META_COLUMNS, Relation
from strandline.state_store.commits import CommitRecord, TableVersion
from strandline.state_store.delta import reader
from strandline.state_store.delta.stored_table import StoredTable
from strandline.state_store.errors import NegativeWeight
from tests.spark.refresh_bench import EVENTS, KEYED, TABLE, VISIBLE, Bench, meta_outputs
from tests.support.aggregate_cases import BEGIN, CALLS, LOG, grouped
from tests.support.rule_harness import call, core, mapped, output, parse

if TYPE_CHECKING:
    pass

BY_K = Relation("by_k", (("k", t.VARCHAR), ("top", t.BIGINT)), "keyed", ("k",))


def events(chance: random.Random, count: int) -> list[dict[str, Any]]:
    """Random events for `LOG`; stream times run backwards now and then."""
    return [
        {
            "k": chance.choice([None, "a", "b"]),
            "v": chance.choice([None, 1, -5, 2**31 - 1]),
            "s": chance.choice([None, "", "p", "q", "ü"]),
            "d": chance.choice([None, Decimal("1.123456789012345678"), Decimal(10**9)]),
            "x": chance.choice([None, 1.5, -2e5, 3.25]),
            "y": chance.choice([None, b"", b"a", b"\xff"]),
            "m": chance.choice([None, {"x": 1}]),
            "_partition": chance.randint(0, 1),
            "_stream_time": BEGIN + timedelta(seconds=chance.randint(0, 3)),
        }
        for _ in range(count)
    ]


def test_every_function_equals_recomputation_over_a_growing_log(bench: Bench) -> None:
    """Also with a batch that brings a new group, and one that is empty."""
    stage, recomputed = grouped(*CALLS)
    chance = random.Random(20)
    for batch in (events(chance, 9), [], [{"k": "new", "v": 1}, *events(chance, 25)]):
        bench.append(LOG, batch)
        result = bench.refresh(stage)
        assert bench.rows(stage) == bench.duckdb(LOG, recomputed)
        assert result.mode == ("full" if not result.from_vector else "delta" if batch else "none")


def test_a_table_and_its_views_follow_inserts_updates_and_deletes(bench: Bench) -> None:
    """Keyed source, aggregate with retractions, keyed filter with a hidden key, and a global aggregate."""
    calls = (call("__a0", "COUNT", []), call("__a1", "SUM", [("v", t.BIGINT)]), call("__a2", "AVG", [("v", t.BIGINT)]))
    # Names that the aliases of a join might shadow.
    shown = tuple(output(name, c.name, c.type) for name, c in zip(("s", "t", "source"), calls, strict=True))
    by_k = AggregateStage("by_k", (core(TABLE),), VISIBLE[1:2], calls, (VISIBLE[1], *shown), ("k",))
    total = AggregateStage("total", (core(TABLE),), (), calls, shown, ())
    large = mapped(TABLE, "v > 1", (VISIBLE[1],), ("__k0",), (output("__k0", "id", t.INT),), "large")
    table = (
        "(SELECT * FROM (SELECT * FROM history QUALIFY row_number() OVER (PARTITION BY id"
        " ORDER BY _stream_time DESC, _partition DESC, _offset DESC) = 1) WHERE NOT _tombstone)"
    )
    queries: dict[Stage, str] = {
        KEYED: f"SELECT id, k, v FROM {table}",
        by_k: f"SELECT k, count(*), sum(v), avg(v) FROM {table} GROUP BY k",
        total: f"SELECT count(*), sum(v), avg(v) FROM {table}",
        large: f"SELECT k FROM {table} WHERE v > 1",
    }
    epochs: list[list[tuple[int | None, str | None, int | None]]] = [
        [],
        [(1, "a", 1), (2, "a", 2), (None, None, 5), (3, "b", None)],
        [(1, "b", 7), (1, "c", 7), (2, None, None), (3, "b", 4), (4, "z", 9)],
        [(1, None, None), (3, None, None), (4, None, None), (None, None, None)],
    ]
    for epoch in epochs:
        rows = [{"id": key, "k": k, "v": v, "_tombstone": (k, v) == (None, None)} for key, k, v in epoch]
        bench.append(EVENTS, rows)
        for stage, recomputed in queries.items():
            bench.refresh(stage)
            assert bench.rows(stage) == bench.duckdb(EVENTS, recomputed), stage.table
    assert bench.rows(total) == Counter({(0, None, None): 1})


def test_a_stream_view_appends_and_says_what_it_reflects(bench: Bench) -> None:
    stage = mapped(LOG, "v > 1", (output("w", "v * 2", t.BIGINT), *meta_outputs()), table="big")
    bench.append(LOG, [{"v": 1}, {"v": 2}, {"v": 2}, {"v": None}])
    first = bench.refresh(stage)
    bench.append(LOG, [{"v": 3}])
    second = bench.refresh(stage)
    assert (first.mode, first.inserted, second.mode, second.inserted, second.deleted) == ("full", 2, "delta", 1, 0)
    assert (second.from_vector, second.to_vector) == ({LOG.name: 1}, {LOG.name: 2})
    head = reader.head(bench.lake.table("big"))
    assert head is not None
    assert (head.version, head.record.versions, head.record.epoch) == (second.version, {LOG.name: 2}, 2)
    names = ", ".join(name for name, _ in META_COLUMNS)
    assert bench.rows(stage) == bench.duckdb(LOG, f"SELECT v * 2, {names} FROM history WHERE v > 1")


def test_nothing_new_is_no_commit_and_a_long_silence_moves_the_vector(bench: Bench) -> None:
    """The vector follows once it is more than twenty versions behind, so that the range to read stays short."""
    stage = mapped(LOG, "v > 1", (output("v", "v", t.INT), *meta_outputs()), table="big")
    bench.append(LOG, [{"v": 2}])
    bench.refresh(stage)
    assert bench.refresh(stage).mode == "none"
    before = bench.versions("big")
    bench.append(LOG, [{"v": 0}])
    assert (bench.refresh(stage).mode, bench.versions("big")) == ("none", before)
    for _ in range(20):
        bench.append(LOG, [{"v": 0}])
    moved = bench.refresh(stage)
    assert (moved.mode, moved.version, moved.to_vector) == ("advance", before + 1, {LOG.name: bench.versions(LOG.name)})


def test_a_refresh_up_to_a_version_and_then_on_equals_one_refresh(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the changes count as too many to be broadcast."""
    monkeypatch.setattr(epoch_module, "_MAX_BROADCAST_CHANGES", 0)
    stage, recomputed = grouped("n", "sv", "l")
    chance = random.Random(7)
    for _ in range(3):
        bench.append(LOG, events(chance, 5))
    assert bench.refresh(stage, upto={LOG.name: 1}).to_vector == {LOG.name: 1}
    assert bench.refresh(stage, upto={LOG.name: 1}).mode == "none"
    assert bench.refresh(stage).to_vector == {LOG.name: 3}
    assert bench.rows(stage) == bench.duckdb(LOG, recomputed)


def test_queries_that_feed_one_stream_keep_a_vector_entry_each(bench: Bench) -> None:
    """Two inserts read the same log; the stream's own record (its offsets) is carried along."""
    outputs = (output("v", "v", t.INT), *meta_outputs())
    positive, negative = (mapped(LOG, f"v {sign} 0", outputs, table="both") for sign in "><")
    bench.append(LOG, [{"v": 1}, {"v": -1}])
    path = bench.lake.table("both")
    StoredTable(path, spec_of_input(Relation("both", tuple((o.name, o.type) for o in outputs), "append"))).ensure(
        CommitRecord(epoch=0, fingerprint="stream", offsets={"topic": {"0": 5}})
    )
    for _ in range(2):
        bench.refresh(positive, vector_prefix="one")
        bench.refresh(negative, vector_prefix="two")
    head = reader.head(path)
    assert head is not None
    assert head.record.versions == {"one/events": 1, "two/events": 1}
    assert (head.record.fingerprint, head.record.offsets) == ("stream", {"topic": {"0": 5}})
    assert sorted(row[0] for row in bench.rows(positive)) == [-1, 1]


def test_rows_of_another_definition_are_not_built_upon(bench: Bench) -> None:
    stage, _ = grouped("n")
    bench.append(LOG, [{"k": "a"}])
    bench.refresh(stage)
    with pytest.raises(RefreshFailed) as refused:
        bench.refresh(stage, fingerprint="f2")
    assert "create it again" in str(refused.value.hint)


def test_a_row_taken_away_that_is_not_there_stops_the_view_and_stores_nothing(bench: Bench) -> None:
    """The view claims to reflect an empty version of its input, from which a row then goes."""
    calls = (call("__a0", "COUNT", []),)
    stage = AggregateStage(
        "by_k", (core(TABLE),), VISIBLE[1:2], calls, (VISIBLE[1], output("n", "__a0", t.BIGINT)), ("k",)
    )
    bench.append(EVENTS, [{"id": 1, "k": "a", "v": 1, "_tombstone": False}])
    bench.refresh(KEYED)
    there = bench.versions("t")
    bench.append(EVENTS, [{"id": 1, "_tombstone": True}])
    bench.refresh(KEYED)
    bench.refresh(stage, upto={"t": 0})
    head = reader.head(bench.lake.table("by_k"))
    assert head is not None
    StoredTable(bench.lake.table("by_k"), spec_of_input(Relation("by_k", (), "append"))).advance(
        CommitRecord(
            epoch=head.record.epoch + 1,
            vector={"t": TableVersion(there)},
            fingerprint="f1",
        )
    )
    before = bench.versions("by_k")
    with pytest.raises(NegativeWeight) as stopped:
        bench.refresh(stage)
    assert "'t'" in str(stopped.value.where)
    assert bench.versions("by_k") == before


def test_an_input_without_a_table_is_nothing_to_do(bench: Bench) -> None:
    stage, _ = grouped("n")
    assert bench.refresh(stage).mode == "none"
    assert bench.versions("view") == -1


def test_a_join_takes_in_the_changes_of_each_side_and_full_is_a_difference(bench: Bench) -> None:
    """Several commits of one side at once are netted; REFRESH='full' gives the same rows by another way."""
    inputs = (
        Input("a", TABLE),
        Input("b", BY_K, "left", parse("a.k = b.k")),
    )
    columns = (
        Output("id", parse("a.id"), t.INT),
        Output("v", parse("a.v"), t.BIGINT),
        Output("top", parse("b.top"), t.BIGINT),
    )
    calls = (call("__a0", "MAX", [("v", t.BIGINT)]),)
    by_k = AggregateStage(
        "by_k", (core(TABLE),), VISIBLE[1:2], calls, (VISIBLE[1], output("top", "__a0", t.BIGINT)), ("k",)
    )
    beside = MapStage("beside", (Core(inputs, None, columns, ("id",)),), ("id", "v", "top"), ("id",))
    anew = replace(beside, table="anew")
    table = (
        "(SELECT * FROM (SELECT * FROM history QUALIFY row_number() OVER (PARTITION BY id"
        " ORDER BY _stream_time DESC, _partition DESC, _offset DESC) = 1) WHERE NOT _tombstone)"
    )
    recomputed = f"SELECT id, v, (SELECT max(v) FROM {table} i WHERE i.k = t.k) FROM {table} t"
    epochs: list[list[tuple[int, str | None, int | None]]] = [
        [(1, "a", 1), (2, "a", 9), (3, "b", 4), (4, None, 2)],
        [(2, "b", 9)],
        [(2, None, None), (3, "c", 5)],
    ]
    for epoch in epochs:
        for key, k, v in epoch:
            bench.append(EVENTS, [{"id": key, "k": k, "v": v, "_tombstone": (k, v) == (None, None)}])
            bench.refresh(KEYED)
        bench.refresh(by_k)
        for stage, option in ((beside, "incremental"), (anew, "full")):
            result = bench.refresh(stage, refresh=option)
            assert bench.rows(stage) == bench.duckdb(EVENTS, recomputed), stage.table
    assert result.mode == "full"
    assert result.deleted > 0
