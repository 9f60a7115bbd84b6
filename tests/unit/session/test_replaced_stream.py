"""CREATE OR REPLACE of views to which rows are only ever added: those that the next definition gives beyond come."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import NotSupported, RefreshFailed
from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.apply import plan_apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import log, reader
from strandline.state_store.layout import LakeLayout
from strandline.state_store.tablespec import WEIGHT
from tests.support.begun_lake import begins_with
from tests.support.examples import AT_LENGTH
from tests.support.invariants import assert_correct
from tests.support.on_disk import on_disk
from tests.support.replaced_lake import EVENTS, PIPELINE, SALES, Rows, events, rows
from tests.support.running import running
from tests.support.shared_lake import replace_view, vouch
from tests.support.waiting import wait_until
from tests.support.warm_process import exit_code

SOLD = "CREATE STREAM sold AS SELECT shop, item, qty FROM sales WHERE qty > 1;"
READERS = """
CREATE TABLE by_item AS SELECT item, COUNT(*) AS n, LATEST_BY_OFFSET(shop) AS shop FROM sold GROUP BY item;
CREATE STREAM of_a AS SELECT item, qty FROM sold WHERE shop = 'a';
"""
TIMED = """
CREATE TABLE windows AS SELECT item, COUNT(*) AS n FROM sold
  WINDOW TUMBLING (SIZE 3 SECONDS, GRACE PERIOD 0 SECONDS) GROUP BY item EMIT FINAL;
CREATE STREAM pairs AS SELECT l.shop AS shop, l.qty AS l, r.qty AS r
  FROM sold l JOIN sold r WITHIN 2 SECONDS ON l.shop = r.shop;
"""
MORE = SOLD.replace("CREATE", "CREATE OR REPLACE").replace("qty > 1", "qty > 0 AND item <> 'w'")
FEWER = SOLD.replace("CREATE", "CREATE OR REPLACE").replace("qty > 1", "qty > 2")
KILLED = -9

BEFORE: Rows = [("a", "y", 5), ("b", "x", 2)]
AFTER: Rows = [("a", "x", 1), ("a", "y", 5), ("b", "x", 2), ("c", "x", 1)]


def made(settings: Settings) -> None:
    """The stream and what reads it, fresh."""
    lake = LakeLayout(settings.lake)
    list(Interpreter(settings, "sales").run(SALES))
    list(Interpreter(settings, PIPELINE).run(SOLD + READERS))
    events(lake, EVENTS)
    vouch(lake)
    drain(settings, PIPELINE)


template, lake = begins_with(made)


@pytest.fixture
def session(settings: Settings, lake: LakeLayout) -> Interpreter:
    return Interpreter(settings, PIPELINE)


def assert_whole(settings: Settings, lake: LakeLayout) -> None:
    assert_correct(lake, PIPELINE)
    assert [each for each in verify(settings, ["sold", "by_item", "of_a"], deep=True) if each.ok is False] == []
    assert sorted(path.name for path in on_disk(lake.tables).iterdir()) == ["by_item", "of_a", "sales", "sold"]
    assert intents.find_replacement("sold", lake) is None


def test_rows_that_only_the_next_definition_gives_are_added(
    session: Interpreter, settings: Settings, lake: LakeLayout
) -> None:
    before = reader.head(lake.table("sold"))
    list(session.run(MORE))
    after = reader.head(lake.table("sold"))
    assert before is not None
    assert after is not None
    assert (after.record.table, after.version) == (before.record.table, before.version + 1)
    commit = log.read_commit(lake.table("sold"), after.version)
    assert commit.only_adds
    changes = reader.read_changes(lake.table("sold"), after=before.version).to_pylist()
    assert sorted((row["shop"], row["item"], row["qty"], row[WEIGHT]) for row in changes) == [
        ("a", "x", 1, 1),
        ("c", "x", 1, 1),
    ]
    assert rows(lake, "sold") == AFTER
    assert_whole(settings, lake)
    drain(settings, PIPELINE)
    assert (rows(lake, "by_item"), rows(lake, "of_a")) == ([("x", 3, "c"), ("y", 1, "a")], [("x", 1), ("y", 5)])
    events(lake, [{"shop": "a", "item": item, "qty": 1} for item in "wz"], first=4, epoch=1)
    vouch(lake)
    drain(settings, PIPELINE)
    assert rows(lake, "sold") == sorted([*AFTER, ("a", "z", 1)])
    assert_whole(settings, lake)


def test_a_row_that_would_go_leaves_the_view(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    before, head = Catalog(lake).get("sold"), reader.head(lake.table("sold"))
    with pytest.raises(
        RefreshFailed, match=r"'sold' keeps its definition: 1 of its rows .* \(shop = b, item = x, qty = 2\)"
    ):
        list(session.run(FEWER))
    assert (Catalog(lake).get("sold"), reader.head(lake.table("sold"))) == (before, head)
    assert_whole(settings, lake)


def test_a_row_with_another_value_would_go(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    with pytest.raises(RefreshFailed, match="2 of its rows would go"):
        list(session.run(SOLD.replace("CREATE", "CREATE OR REPLACE").replace("item, qty", "item, qty + 1 AS qty")))
    assert_whole(settings, lake)


def test_a_moment_in_the_definition_lets_it_go_on_otherwise_from_then_on(
    session: Interpreter, settings: Settings, lake: LakeLayout
) -> None:
    """Fewer rows, or others, of events that are still to come: what is there stays, and the SQL says so."""
    moment = "ROWTIME < '2024-05-01T12:00:04'"
    list(
        session.run(
            SOLD.replace("CREATE", "CREATE OR REPLACE").replace("qty > 1", f"qty > 1 AND (qty > 4 OR {moment})")
        )
    )
    head = reader.head(lake.table("sold"))
    assert rows(lake, "sold") == BEFORE
    events(lake, [{"shop": "a", "item": "x", "qty": qty} for qty in (4, 5)], first=4, epoch=1)
    vouch(lake)
    drain(settings, PIPELINE)
    assert rows(lake, "sold") == sorted([*BEFORE, ("a", "x", 5)])
    assert_whole(settings, lake)
    assert head is not None


def test_a_definition_with_the_same_rows_adds_none(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    head = reader.head(lake.table("sold"))
    assert head is not None
    list(session.run(SOLD.replace("CREATE", "CREATE OR REPLACE").replace("qty > 1", "qty >= 2")))
    assert reader.read_changes(lake.table("sold"), after=head.version).num_rows == 0
    assert rows(lake, "sold") == BEFORE
    drain(settings, PIPELINE)
    assert_whole(settings, lake)


def test_a_branch_is_added_to_a_union(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    """The branches keep their numbers, and so their rows the partitions that these give."""
    branch = "SELECT shop, item, {} AS qty FROM sales WHERE qty = {}"
    branches = [branch.format("qty", 5), branch.format("qty * 2", 2), branch.format("0 - qty", 1)]
    list(session.run(f"CREATE STREAM parts AS {' UNION ALL '.join(branches[:2])}"))
    drain(settings, PIPELINE)
    list(session.run(f"CREATE OR REPLACE STREAM parts AS {' UNION ALL '.join(branches)}"))
    assert rows(lake, "parts") == [("a", "x", -1), ("a", "y", 5), ("b", "x", 4), ("c", "x", -1)]
    events(lake, [{"shop": "a", "item": "x", "qty": 1}], first=4, epoch=1)
    vouch(lake)
    drain(settings, PIPELINE)
    assert_correct(lake, PIPELINE)
    with pytest.raises(RefreshFailed, match=r"2 of its rows, such as .* would have another place or time"):
        list(session.run(f"{MORE.replace('qty > 0', 'qty > 1').rstrip(';')} UNION ALL {branches[2]}"))
    assert rows(lake, "sold") == BEFORE


def test_what_an_append_table_cannot_take_is_refused(
    session: Interpreter, settings: Settings, lake: LakeLayout
) -> None:
    replacing = SOLD.replace("CREATE", "CREATE OR REPLACE")
    with pytest.raises(NotSupported, match=r"keep their columns, and would change by \+twice INT"):
        list(session.run(replacing.replace("item, qty", "item, qty, qty * 2 AS twice")))
    view = "CREATE OR REPLACE MATERIALIZED VIEW {} AS SELECT {} AS n FROM sales GROUP BY shop"
    with pytest.raises(NotSupported, match="its rows are only ever added, and those of the other definition"):
        list(session.run(view.format("sold", "shop, COUNT(*)")))
    with pytest.raises(NotSupported, match="the next definition's rows are only ever added"):
        list(session.run("CREATE OR REPLACE MATERIALIZED VIEW by_item AS SELECT item, qty FROM sales"))
    list(session.run("INSERT INTO sold SELECT shop, item, qty FROM sales WHERE qty = 1"))
    with pytest.raises(NotSupported, match="query 'sold__insert_1' inserts into it as well"):
        list(session.run(MORE))


@pytest.mark.parametrize("seed", range(30 if AT_LENGTH else 1))
def test_random_replacements_of_a_stream(seed: int, settings: Settings, lake: LakeLayout) -> None:
    """Rows of the past come late to all that reads the stream: windows that are closed, joins, the newest of a key."""
    pick, session = random.Random(seed), Interpreter(settings, PIPELINE)
    list(session.run(TIMED))
    drain(settings, PIPELINE)
    at = 4
    for epoch in range(1, 10 if AT_LENGTH else 6):
        least, other = pick.choice((0, 1, 1, 2)), pick.choice(("w", "x", "y"))
        text = SOLD.replace("qty > 1", f"qty > {least} OR item = '{other}'").replace("CREATE", "CREATE OR REPLACE")
        before = rows(lake, "sold")
        with suppress(RefreshFailed):
            list(session.run(text))
        assert_correct(lake, PIPELINE)
        assert not Counter(before) - Counter(rows(lake, "sold"))
        new = [{"shop": pick.choice("abc"), "item": pick.choice("wxyz"), "qty": pick.randint(0, 3)} for _ in range(3)]
        events(lake, new, at, epoch)
        vouch(lake)
        at += len(new)
        drain(settings, PIPELINE)
        assert_correct(lake, PIPELINE)


def test_the_plan_says_that_rows_are_only_added(tmp_path: Path, settings: Settings, lake: LakeLayout) -> None:
    file = tmp_path / f"{PIPELINE}.sql"
    file.write_text(MORE + READERS)
    assert str(plan_apply(file, settings)).splitlines()[1] == (
        "  replace   stream 'sold'; the same columns; reads 4 rows of 'sales'; "
        "rows are added, and it stays as it is if one would go; 'by_item', 'of_a' follow by the difference"
    )


def test_a_run_takes_it(settings: Settings, lake: LakeLayout) -> None:
    with running(settings, lake, PIPELINE):
        list(Interpreter(settings, PIPELINE).run(MORE))
        assert rows(lake, "sold") == AFTER
        events(lake, [{"shop": "b", "item": "z", "qty": 1}], first=4, epoch=1)
        wait_until(lambda: ("z", 1, "b") in rows(lake, "by_item"), "it does not come")
    vouch(lake)
    drain(settings, PIPELINE)
    assert_whole(settings, lake)


@pytest.mark.kill
def test_said_again_after_a_kill_it_goes_on(settings: Settings, lake: LakeLayout) -> None:
    assert exit_code(replace_view, lake.root, MORE, failpoint="before-log-entry:2") == KILLED
    list(Interpreter(settings, PIPELINE).run(MORE))
    assert rows(lake, "sold") == AFTER
    assert_whole(settings, lake)


@pytest.mark.kill
@pytest.mark.parametrize(
    ("place", "stands"),
    [("before-replacement-swap", BEFORE), ("before-log-entry:2", BEFORE), ("after-log-entry:2", AFTER)]
    + ([("after-standby-proof", BEFORE), ("after-replacement-definition", AFTER)] if AT_LENGTH else []),
)
def test_a_kill_leaves_the_former_or_the_next_definition_whole(
    place: str, stands: Rows, settings: Settings, lake: LakeLayout
) -> None:
    assert exit_code(replace_view, lake.root, MORE, failpoint=place) == KILLED
    assert rows(lake, "sold") == stands
    events(lake, [{"shop": "b", "item": "z", "qty": 1}], first=4, epoch=1)
    vouch(lake)
    drain(settings, PIPELINE)  # ends what was begun
    list(Interpreter(settings, PIPELINE).run(MORE))
    drain(settings, PIPELINE)
    assert rows(lake, "sold") == sorted([*AFTER, ("b", "z", 1)])
    assert_whole(settings, lake)
