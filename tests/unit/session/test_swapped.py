"""ALTER … SWAP WITH: a lake whose names were swapped answers as one that was made with the swapped names."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.catalog import name_map
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.errors import InvalidQuery, NotSupported, SqlError, UnknownName
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.serve.results import Document, Message
from strandline.jobs.serve.results import Rows as Answered
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.status import status
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout
from tests.support.altered_lake import PIPELINE, run, take_in
from tests.support.begun_lake import begins_with
from tests.support.invariants import assert_correct
from tests.support.waiting import wait_until
from tests.support.warm_process import exit_code

KILLED = -9
SOURCES = """
CREATE STREAM {sales} (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'one', PARTITIONS = 1);
CREATE STREAM {returns} (shop VARCHAR, qty INT) WITH (KAFKA_TOPIC = 'two', PARTITIONS = 1);
"""
VIEWS = """
CREATE TABLE {now} AS SELECT shop, COUNT(*) AS n FROM {sales} GROUP BY shop;
CREATE TABLE {later} AS SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM {sales} GROUP BY shop;
CREATE MATERIALIZED VIEW large AS SELECT x.shop, x.n FROM {now} x WHERE x.n > 1;
CREATE MATERIALIZED VIEW both AS
  SELECT a.shop, a.n, b.total, r.qty
  FROM {now} a JOIN {later} b ON a.shop = b.shop LEFT JOIN {returns} r ON r.shop = a.shop;
CREATE MATERIALIZED VIEW named AS
  WITH part AS (SELECT x.shop, x.n FROM {later} x)
  SELECT w.n, w.shop FROM part w WHERE w.shop IN (SELECT q.shop FROM {now} q);
"""
EVENTS = """
INSERT INTO {sales} (shop, qty) VALUES ('a', 1), ('a', 5), ('b', 2);
INSERT INTO {returns} (shop, qty) VALUES ('a', 9);
"""
AS_MADE = {"sales": "sales", "returns": "returns", "now": "now", "later": "later"}
SWAPPED = {"sales": "returns", "returns": "sales", "now": "later", "later": "now"}
SWAP = "ALTER STREAM sales SWAP WITH returns; ALTER TABLE now SWAP WITH later;"
BY_HAND = """
ALTER STREAM sales RENAME TO aside; ALTER STREAM returns RENAME TO sales; ALTER STREAM aside RENAME TO returns;
ALTER TABLE now RENAME TO aside; ALTER TABLE later RENAME TO now; ALTER TABLE aside RENAME TO later;
"""


def lake_with(names: dict[str, str]) -> Callable[[Settings], LakeLayout]:
    def made(settings: Settings) -> LakeLayout:
        run(settings, (SOURCES + VIEWS + EVENTS).format_map(names))
        take_in(settings)
        return LakeLayout(settings.lake)

    return made


template, lake = begins_with(lake_with(AS_MADE))

MORE = """
INSERT INTO sales (shop, qty) VALUES ('b', 7), ('c', 8);
INSERT INTO returns (shop, qty) VALUES ('c', 4), ('a', 1);
"""
"""In the names as they are after the swap: of either lake."""
MADE_LATER = """
CREATE MATERIALIZED VIEW joined AS SELECT now.shop, now.total, later.n FROM now JOIN later ON now.shop = later.shop;
CREATE OR REPLACE MATERIALIZED VIEW large AS SELECT later.shop, n FROM later WHERE n > 0;
CREATE OR REPLACE TABLE later AS SELECT shop, COUNT(*) AS n, MAX(qty) AS most FROM returns GROUP BY shop;
"""
ASKED = (
    "SELECT * FROM now",
    "SELECT now.total, later.n FROM now JOIN later ON now.shop = later.shop",
    "SELECT * FROM later WHERE shop = 'a'",
    "SELECT (SELECT MAX(later.n) FROM later WHERE later.shop = now.shop) AS most, now.shop FROM now",
    "WITH later AS (SELECT shop, total FROM now) SELECT later.total FROM later",
    "WITH now AS (SELECT * FROM now) SELECT now.total FROM now",
    "SELECT shop, qty FROM sales",
    "SELECT qty FROM returns WHERE shop IN (SELECT shop FROM sales)",
    "SELECT * FROM large",
    "SELECT * FROM both",
    "SELECT * FROM named",
    "SELECT shop, total FROM table_changes('now', 1)",
    "SELECT shop, n FROM CHANGES(later, 1)",
    "SHOW TABLES",
    "SHOW VIEWS",
    "SHOW STREAMS",
    "DESCRIBE now",
    "DESCRIBE later",
    "DESCRIBE both EXTENDED",
    "DESCRIBE returns",
)
REFUSED = (
    "DROP TABLE now",
    "DROP STREAM returns",
    "SELECT nope FROM later",
    "SELECT now.most FROM now",
    "INSERT INTO later VALUES ('x', 1)",
    "INSERT INTO sales (shop, total) VALUES ('x', 1)",
    "CREATE TABLE now AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop",
    "ALTER TABLE large RENAME TO now",
    "CREATE STREAM t AS SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop",
)
_PARTICULAR = re.compile(
    r"stored|sql|path|location|vector|committed|file|rows|created|reason|version|bytes|digest|epoch"
)
"""Of a lake, or of how its history went: what was made later has fewer versions."""


def told(settings: Settings, text: str) -> object:
    """What one statement shows, without what is a lake's own."""
    [answer] = Interpreter(settings, PIPELINE).run(text)
    if isinstance(answer, Document):
        return {name: _sorted(value) for name, value in answer.data.items() if not _PARTICULAR.search(name)}
    if isinstance(answer, Message):
        return answer.text
    assert isinstance(answer, Answered)
    return sorted(map(tuple, answer.rows), key=str) if text.startswith(("SELECT", "WITH")) else _set(answer)


def _set(answer: Answered) -> set[str]:
    return {str([_sorted(each) for each in row if not isinstance(each, int)]) for row in answer.rows}


def _sorted(value: object) -> object:
    return sorted(value, key=str) if isinstance(value, list) else value


def refused(settings: Settings, text: str) -> str:
    with pytest.raises(SqlError) as caught:
        run(settings, text)
    return f"{caught.value.message}; {caught.value.hint}"


def everything(settings: Settings) -> dict[str, object]:
    """All that is shown of a lake in the names that people say."""
    found: dict[str, object] = {text: told(settings, text) for text in ASKED}
    found |= {text: refused(settings, text) for text in REFUSED}
    found["status"] = {(row[1], row[2]) for row in status(settings).rows}
    checks = verify(settings, [], deep=True)
    of = Catalog(LakeLayout(settings.lake)).name_map.of
    found["wrong"] = [str(each) for each in checks if each.ok is False]
    found["verified"] = {of(each.table) for each in checks if each.check == "recompute"}
    return found


@pytest.mark.parametrize("swap", [SWAP, BY_HAND])
def test_a_lake_with_swapped_names_is_as_one_that_was_made_so(
    swap: str, settings: Settings, lake: LakeLayout, tmp_path: Path
) -> None:
    other = load_settings(lake=tmp_path / "other")
    lake_with(SWAPPED)(other)
    run(settings, swap)
    assert everything(settings) == everything(other)
    for each in (settings, other):
        run(each, MORE)
        take_in(each)
    assert everything(settings) == everything(other)
    said = [run(each, MADE_LATER) for each in (settings, other)]
    assert said[0] == said[1]
    for each in (settings, other):
        run(each, MORE.replace("'c'", "'d'"))
        take_in(each)
        assert_correct(LakeLayout(each.lake), PIPELINE)
    found = everything(settings)
    assert found == everything(other)
    assert found["wrong"] == []
    assert told(settings, "SELECT * FROM joined") == told(other, "SELECT * FROM joined")


def test_what_is_said_and_back_again(settings: Settings, lake: LakeLayout) -> None:
    assert run(settings, "ALTER TABLE now SWAP WITH later") == [
        "`now` is called `later` from now on, and `later` is called `now`"
    ]
    assert Catalog(lake).name_map.names == {"now": "later", "later": "now"}
    assert run(settings, "ALTER VIEW later SWAP WITH now") == [
        "`later` is called `now` from now on, and `now` is called `later`"
    ]
    assert Catalog(lake).name_map.names == {}
    assert run(settings, "ALTER TABLE now SWAP WITH now") == ["'now' is called so already"]
    run(settings, "ALTER TABLE now RENAME TO x; ALTER TABLE x SWAP WITH later;")
    assert Catalog(lake).name_map.names == {"now": "later", "later": "x"}
    assert told(settings, "SELECT * FROM x") == [("a", 2, 6), ("b", 1, 2)]
    with pytest.raises(UnknownName):
        run(settings, "SELECT * FROM now")


@pytest.mark.parametrize(
    ("text", "error", "why"),
    [
        ("ALTER TABLE now SWAP WITH nope", UnknownName, "nope"),
        ("ALTER TABLE nope SWAP WITH now", UnknownName, "nope"),
        ("ALTER TABLE now SWAP WITH sales", InvalidQuery, "'sales' is no table"),
        ("ALTER STREAM now SWAP WITH sales", InvalidQuery, "'now' is no stream"),
        ("ALTER VIEW plain SWAP WITH now", NotSupported, "'plain' cannot be renamed"),
        ("ALTER VIEW now SWAP WITH plain", NotSupported, "'plain' cannot be renamed"),
    ],
)
def test_what_is_refused(text: str, error: type[SqlError], why: str, settings: Settings, lake: LakeLayout) -> None:
    run(settings, "CREATE VIEW plain AS SELECT shop FROM now")
    with pytest.raises(error, match=why) as caught:
        run(settings, text)
    assert caught.value.line == 1
    assert Catalog(lake).name_map.names == {}


def swapped(folder: Path) -> None:
    """The swap, as a process makes it."""
    run(load_settings(lake=folder), "ALTER TABLE now SWAP WITH later")


@pytest.mark.kill
@pytest.mark.parametrize(
    ("point", "done"),
    [
        ("before-swap-intent", False),
        ("after-swap-intent", True),
        ("after-swap-file", True),
        ("after-swap-file:2", True),
        ("after-swap-end", True),
    ],
)
def test_killed_at_any_point_both_have_their_names_or_both_have_the_others(
    point: str, done: bool, settings: Settings, lake: LakeLayout
) -> None:
    assert isinstance(lake.root, Path)
    assert exit_code(swapped, lake.root, failpoint=point) == KILLED
    names = {"now": "later", "later": "now"} if done else {}
    assert Catalog(lake).name_map.names == names
    asked = told(settings, "SELECT * FROM now")
    assert asked == ([("a", 2, 6), ("b", 1, 2)] if done else [("a", 2), ("b", 1)])
    run(settings, "ALTER VIEW large RENAME TO larger")  # the next change ends it
    assert name_map.begun_swaps(lake) == {}
    assert Catalog(lake).name_map.names == {**names, "large": "larger"}
    assert_correct(lake, PIPELINE)


def test_a_reader_never_finds_one_name_twice(settings: Settings, lake: LakeLayout) -> None:
    ended = threading.Event()
    found: list[dict[str, str]] = []

    def read() -> None:
        while not ended.is_set():
            found.append(dict(Catalog(lake).name_map.names))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(20):
        run(settings, "ALTER TABLE now SWAP WITH later")
    wait_until(lambda: len(found) > 20, "the reader reads")
    ended.set()
    reader.join()
    assert [each for each in found if each not in ({}, {"now": "later", "later": "now"})] == []


@pytest.mark.kill
def test_an_intent_that_does_not_read_back_is_no_swap_in_silence(settings: Settings, lake: LakeLayout) -> None:
    assert isinstance(lake.root, Path)
    assert exit_code(swapped, lake.root, failpoint="after-swap-file") == KILLED
    [intent] = (lake.root / "catalog" / name_map.SWAPS_FOLDER).iterdir()
    intent.write_bytes(intent.read_bytes().replace(b"later", b"latex"))
    with pytest.raises(CorruptState, match="a swap of two names was begun") as caught:
        Catalog(lake)
    assert caught.value.where == str(intent)
    intent.unlink()
    run(settings, "ALTER TABLE later RENAME TO x")
    names: dict[str, Any] = dict(Catalog(lake).name_map.names)
    assert len(set(names.values())) == len(names)
