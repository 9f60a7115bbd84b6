"""What `strandline rebuild --dry-run` says: what is done, in order, and that nothing was."""

from __future__ import annotations

import shutil

import pytest

from strandline.jobs.model.errors import OffsetsVanished, UnknownName
from strandline.jobs.operate.rebuild import PlannedTable, execute_rebuild, plan_rebuild
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log, reader
from tests.support.lakes import below
from tests.support.on_disk import on_disk
from tests.unit.operate.verify.lakes import MadeLake


def rows_of(made: MadeLake, table: str) -> int:
    head = reader.head(made.lake.table(table))
    assert head is not None
    return head.record.rows


def test_a_view_is_computed_anew_and_stored_as_the_difference(made: MadeLake) -> None:
    before = below(made.lake.root)
    plan = plan_rebuild(made.settings, "totals")
    events = rows_of(made, "visits")
    assert plan.computed == (PlannedTable("totals", {"visits": events}, begun_anew=False),)
    assert (plan.topics, plan.aside, plan.follow, plan.elsewhere) == ({}, (), ("owned",), ())
    assert str(plan).splitlines() == [
        "totals: rebuild it in pipeline 'shop', which must not be running",
        f"  compute 'totals' from 'visits' ({events} rows); store the difference in one commit",
        "  then 'owned' takes in the difference",
    ]
    assert below(made.lake.root) == before


def test_every_stage_of_a_view_is_computed(made: MadeLake) -> None:
    plan = plan_rebuild(made.settings, "spread")
    assert [(each.table, each.begun_anew) for each in plan.computed] == [("spread__stage_1", False), ("spread", False)]
    assert plan.follow == ()


def test_the_plan_is_what_is_done(made: MadeLake) -> None:
    plan = plan_rebuild(made.settings, "totals")
    done = execute_rebuild(made.settings, plan)
    assert [stage.table for stage in done.stages] == [each.table for each in plan.computed]
    assert (done.aside, done.elsewhere) == ((), plan.elsewhere)
    head = reader.head(made.lake.table("totals"))
    assert head is not None
    assert head.record.mode == "rebuild"


def test_a_table_that_cannot_be_read_is_begun_anew_with_its_readers(made: MadeLake) -> None:
    """Also those of other pipelines, which are only named."""
    list(Interpreter(made.settings, "elsewhere").run("CREATE MATERIALIZED VIEW many AS SELECT page, n FROM totals"))
    file = on_disk(log.commit_file(made.lake.table("totals"), 1))
    file.write_bytes(file.read_bytes()[:-40])
    plan = plan_rebuild(made.settings, "totals")
    assert plan.computed[0] == PlannedTable("totals", {"visits": rows_of(made, "visits")}, begun_anew=True)
    assert plan.computed[1].table == "owned"
    assert plan.computed[1].reads["totals"] is None
    assert not plan.computed[1].begun_anew
    assert plan.elsewhere == ("many",)
    assert "'many' of another pipeline: strandline rebuild many, afterwards" in str(plan)


@pytest.mark.parametrize(
    ("name", "aside", "computed"),
    [
        ("visits", ("visits", "visits__dead_letters"), ["spread__stage_1", "totals", "spread"]),
        ("pages", ("pages", "pages__log"), ["owned", "pages"]),
    ],
)
def test_a_source_is_read_again_and_its_readers_computed(
    made: MadeLake, name: str, aside: tuple[str, ...], computed: list[str]
) -> None:
    plan = plan_rebuild(made.settings, name)
    assert plan.aside == aside
    topic = {"visits": "clicks", "pages": "pages"}[name]
    records = sum(made.log.end_offsets(topic).values())
    assert plan.topics == {name: (topic, records)}
    assert sorted(each.table for each in plan.computed) == sorted(computed)
    assert f"read the topic '{topic}' from its beginning: {records:,} records" in str(plan)


def test_what_cannot_be_rebuilt_is_refused_by_the_plan(made: MadeLake) -> None:
    with pytest.raises(UnknownName):
        plan_rebuild(made.settings, "nothing")
    topic = on_disk(made.lake.topic("clicks"))
    for segment in sorted(topic.rglob("*.log"))[:1]:
        segment.unlink()
    shutil.rmtree(on_disk(made.lake.table("spread")))
    with pytest.raises(OffsetsVanished, match="no longer has the records 0 to"):
        plan_rebuild(made.settings, "visits")
