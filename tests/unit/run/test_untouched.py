"""Units that what has come does not touch: they are not computed, and everything is as if they had been."""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm import compiled
from strandline.jobs.ivm.refresh import refresh
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import SqlError
from strandline.jobs.model.settings import load_settings
from strandline.jobs.run import untouched
from strandline.jobs.run.refresh_views import Refreshed, refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import heads
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.duckdb.statements import Statements
from strandline.state_store.layout import LakeLayout
from tests.support.event_commits import commit_events
from tests.support.invariants import assert_correct
from tests.support.lake_tables import NOON

if TYPE_CHECKING:
    from strandline.jobs.ivm.refresh.epoch import Epoch
    from strandline.jobs.run.schedule import RefreshUnit

_SEEDS = int(os.environ.get("STRANDLINE_UNTOUCHED_EXAMPLES", "2"))
_VIEWS, _FEWEST, _EPOCHS = 14, 8, 4

SOURCES = """
CREATE STREAM s (k VARCHAR, n INT, x DOUBLE, d DECIMAL(8, 2), at TIMESTAMP, day DATE, b BOOLEAN, l ARRAY<INT>)
  WITH (KAFKA_TOPIC = 's', PARTITIONS = 1);
CREATE TABLE t (id INT PRIMARY KEY, k VARCHAR, n INT) WITH (KAFKA_TOPIC = 't', PARTITIONS = 1);
"""
COLUMNS = {"s": ("k", "n", "x", "d", "at", "day", "b", "l"), "t": ("id", "k", "n")}
PIPELINE = "test"

_AT = dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC)
# What decides a comparison: a value, both its sides, and what is like none.
VALUES: dict[str, list[Any]] = {
    "k": [None, "", "a", "A", "ä", "b", "a ", "\x00"],
    "n": [None, -1, 0, 1, 2, 2_147_483_647],
    "x": [None, -1.5, -0.0, 0.0, 1.0, float("nan"), float("inf"), float("-inf")],
    "d": [None, Decimal("-0.01"), Decimal("0.00"), Decimal("0.01"), Decimal("1.10")],
    "at": [None, _AT, _AT - dt.timedelta(microseconds=1), _AT + dt.timedelta(microseconds=1)],
    "day": [None, _AT.date(), _AT.date() - dt.timedelta(days=1)],
    "b": [None, True, False],
    "l": [None, [], [1], [0, 2]],
    "id": [0, 1, 2, 3],
}
CONSTANTS = {
    "k": ["''", "'a'", "'A'", "'ä'"],
    "n": ["-1", "0", "1", "2147483647"],
    "x": ["0.0", "-0.0", "1.0", "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"],
    "d": ["0.00", "0.01", "1.1", "1"],
    "at": ["TIMESTAMP '2024-02-29 12:00:00'", "TIMESTAMP '2024-02-29 12:00:00.000001'"],
    "day": ["DATE '2024-02-29'"],
}
# Conditions that fail on some rows, which are dead letters where the sure terms let them through.
UNSURE = ["10 / {a}.n > 1", "CAST({a}.k AS INT) > 0", "{a}.n + 2147483647 > 0"]


def condition(pick: random.Random, alias: str, *, terms: int) -> str:
    """Some terms over one input, of which some can fail."""
    found = []
    for _ in range(terms):
        columns = [name for name in CONSTANTS if alias != "t" or name in COLUMNS["t"]]
        column = pick.choice(columns)
        constant = pick.choice(CONSTANTS[column])
        word = pick.choice(["=", "<>", "<", ">", "<=", ">="])
        found.append(
            pick.choices(
                [
                    f"{alias}.{column} {word} {constant}",
                    f"{alias}.{column} IS {pick.choice(['', 'NOT '])}NULL",
                    f"({alias}.{column} {word} {constant} OR {alias}.n = 2)",
                    f"NOT ({alias}.{column} {word} {constant})",
                    pick.choice(UNSURE).format(a=alias),
                ],
                [6, 1, 1, 1, 2],
            )[0]
        )
    return " AND ".join(found)


def view(pick: random.Random) -> str:
    """A SELECT with filters, of any of the rules."""
    over = condition(pick, "s", terms=pick.choice([1, 1, 2, 3]))
    both = f"{over} AND {condition(pick, 't', terms=1)}"
    return pick.choice(
        [
            f"SELECT k, COUNT(*) AS c, SUM(n) AS total FROM s WHERE {over} GROUP BY k",
            f"SELECT COUNT(*) AS c, MAX(x) AS m FROM s WHERE {over}",
            f"SELECT k, n, 100 / n AS q FROM s WHERE {over}",
            f"SELECT s.k, i FROM s CROSS JOIN UNNEST(s.l) AS u (i) WHERE {over}",
            f"SELECT * FROM (SELECT k, n, ROW_NUMBER() OVER (PARTITION BY k ORDER BY n) AS r FROM s WHERE {over}) AS o"
            " WHERE r <= 2",
            f"SELECT s.k, MAX(t.n) AS m FROM s JOIN t ON s.n = t.id WHERE {both} GROUP BY s.k",
            f"SELECT s.k, t.n FROM s LEFT JOIN t ON s.n = t.id WHERE {pick.choice([over, both])}",
            f"SELECT s.k, t.n FROM s JOIN t ON CAST(s.k AS INT) = t.id WHERE {both}",
            f"SELECT t.id, t.n FROM t WHERE {condition(pick, 't', terms=2)}",
            f"SELECT t.id FROM t WHERE {condition(pick, 't', terms=1)} AND EXISTS (SELECT 1 FROM s WHERE s.n = t.id)",
            f"SELECT k FROM s WHERE {over} UNION ALL SELECT k FROM t WHERE {condition(pick, 't', terms=1)}",
            f"SELECT DISTINCT k FROM s WHERE {over}",
        ]
    )


class Lake:
    """Views over `s` and `t`, refreshed by one process after the other.

    Args:
        views: of which those that are refused for what they are are left out.
    """

    def __init__(self, root: Path, views: Sequence[str], engine: DuckDBEngine) -> None:
        self.lake = LakeLayout(root)
        interpreter = Interpreter(load_settings(lake=root), PIPELINE)
        list(interpreter.run(SOURCES))
        self.views = []
        for number, text in enumerate(views):
            with suppress(SqlError):
                list(interpreter.run(f"CREATE MATERIALIZED VIEW v{number} AS {text};"))
                self.views.append(f"v{number}")
        self.catalog = Catalog(self.lake)
        self.levels = maintained(self.catalog.definitions(), self.catalog)
        self._offsets = dict.fromkeys(COLUMNS, 0)
        self.use(engine)
        self.came("t", {"id": 0, "k": "b", "n": 0})

    def use(self, engine: DuckDBEngine) -> None:
        """Go on as another process, which remembers nothing."""
        self.context = RunContext(None, self.lake, "test/1", duckdb_engine=engine, engine="duckdb")

    def came(self, name: str, *rows: Mapping[str, Any]) -> None:
        """A commit of events."""
        source = self.catalog.get(name)
        assert isinstance(source, Source)
        made = []
        for row in rows:
            at = NOON + dt.timedelta(seconds=self._offsets[name])
            place = {"_partition": 0, "_offset": self._offsets[name], "_timestamp": at, "_stream_time": at}
            made.append(
                {**dict.fromkeys(COLUMNS[name]), **({"_tombstone": False} if name == "t" else {}), **row, **place}
            )
            self._offsets[name] += 1
        commit_events(self.lake, source, made)

    def refresh(self) -> Refreshed:
        done = refresh_all(self.context, self.levels, frozenset())
        assert not done.failures, done.failures
        return done

    def said(self) -> dict[str, Any]:
        """What the newest commits of the views and of their dead letters say, but for whose they are."""
        names = [name for each in self.views for name in (each, tables.dead_letters(each))]
        found = {name: heads.head(self.lake, name) for name in names}
        return {
            name: (head.record.digest, head.record.versions, head.record.epoch, head.record.mode)
            for name, head in found.items()
            if head is not None
        }


def drawn(pick: random.Random, name: str) -> list[dict[str, Any]]:
    """One to three events."""
    count = pick.choice([1, 1, 2, 3])
    gone = {"_tombstone": pick.random() < 0.2} if name == "t" else {}
    return [{**{column: pick.choice(VALUES[column]) for column in COLUMNS[name]}, **gone} for _ in range(count)]


@pytest.fixture(autouse=True)
def planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other tests have found out of the same views is forgotten."""
    monkeypatch.setattr(compiled, "_KNOWN", {})


@pytest.fixture
def engine() -> Iterator[DuckDBEngine]:
    with DuckDBEngine("500MB", 1) as made:
        yield made


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that were computed, in order."""
    found: list[str] = []
    before = refresh.committed

    def noted(context: RunContext, epoch: Epoch, *, anew: bool) -> Any:
        found.append(epoch.stage.table)
        return before(context, epoch, anew=anew)

    monkeypatch.setattr(refresh, "committed", noted)
    return found


def compare(seed: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Play a drawn history with and without asking, and compare after every epoch; what was met on the way.

    The one that asks also keeps its statements prepared, and the other prepares none.
    """
    pick = random.Random(seed)
    views = [view(pick) for _ in range(_VIEWS)]
    find, tally = untouched.Untouched.find, Counter[str]()

    def found(self: untouched.Untouched, units: Sequence[RefreshUnit]) -> Any:
        resting, others = find(self, units)
        if self._context.lake.root == folder / "plain":
            return {}, frozenset()
        tally.update(resting=len(resting), others=len(others), touched=len(units) - len(resting) - len(others))
        return resting, others

    are_worth = Statements.are_worth

    def asked(self: Statements, of: str, rule: str) -> bool:
        return are_worth(self, of, rule) and not Path(of).is_relative_to(folder / "plain")

    monkeypatch.setattr(untouched.Untouched, "find", found)
    monkeypatch.setattr(Statements, "are_worth", asked)
    with ExitStack() as stack:

        def engine() -> DuckDBEngine:
            return stack.enter_context(DuckDBEngine("300MB", 1))

        asking, plain = (Lake(folder / name, views, engine()) for name in ("asking", "plain"))
        assert len(asking.views) >= _FEWEST
        for _ in range(_EPOCHS):
            for name in pick.choice(["s", "s", "t", "st"]):
                rows = drawn(pick, name)
                for lake in (asking, plain):
                    lake.came(name, *rows)
            if pick.random() < 0.5:
                asking.use(engine())
            for lake in (asking, plain):
                lake.refresh()
            assert asking.said() == plain.said(), (seed, views)
    tally.update(letters=sum(tables.dead_letters(each) in asking.said() for each in asking.views))
    return tally


def test_views_are_the_same_whether_it_is_asked_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    met = Counter[str]()
    for seed in range(_SEEDS):
        (tmp_path / str(seed)).mkdir()
        met += compare(seed, tmp_path / str(seed), monkeypatch)
    assert all(met[each] >= _SEEDS for each in ("resting", "others", "touched", "letters")), met


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("passing", lambda context, upto, asked: [False] * len(asked)),
        ("can_fail", lambda term: False),
    ],
)
def test_the_comparison_finds_what_is_wrong(
    name: str, wrong: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untouched, name, wrong)
    for seed in range(20):
        (tmp_path / str(seed)).mkdir()
        try:
            compare(seed, tmp_path / str(seed), monkeypatch)
        except AssertionError:
            return
    pytest.fail("nothing was found")


FILTERS = [f"SELECT k, COUNT(*) AS c FROM s WHERE n > {n} GROUP BY k" for n in range(10, 50, 10)]


def test_what_no_change_touches_is_not_computed(tmp_path: Path, engine: DuckDBEngine, computed: list[str]) -> None:
    lake = Lake(tmp_path, FILTERS, engine)
    lake.came("s", {"k": "a", "n": 100})
    lake.refresh()
    computed.clear()
    lake.came("s", {"k": "a", "n": 25}, {"k": "a", "n": None})
    done = lake.refresh()
    assert sorted(computed) == ["v0", "v1"]
    modes = {each.table: each.mode for each in done.stages if each.table in lake.views}
    assert modes == {"v0": "delta", "v1": "delta", "v2": "none", "v3": "none"}
    assert_correct(lake.lake, PIPELINE)


def test_fewer_than_some_units_are_not_asked_about(tmp_path: Path, engine: DuckDBEngine, computed: list[str]) -> None:
    lake = Lake(tmp_path, FILTERS[:3], engine)
    lake.came("s", {"k": "a", "n": 100})
    lake.refresh()
    lake.came("s", {"k": "a", "n": 1})
    lake.refresh()
    assert sorted(computed) == ["t", "v0", "v0", "v1", "v1", "v2", "v2"]


def test_another_process_asks_again_and_moves_vectors_that_are_far_behind(
    tmp_path: Path, engine: DuckDBEngine, computed: list[str]
) -> None:
    lake = Lake(tmp_path, FILTERS, engine)
    lake.came("s", {"k": "a", "n": 100})
    lake.refresh()
    computed.clear()
    for _ in range(21):
        lake.came("s", {"k": "a", "n": 1})
    with DuckDBEngine("300MB", 1) as other:
        lake.use(other)
        done = lake.refresh()
    assert computed == []
    assert {each.mode for each in done.stages if each.table in lake.views} == {"advance"}
    assert {said[1]["s"] for said in lake.said().values()} == {heads.head(lake.lake, "s").version}  # type: ignore[union-attr]


def test_one_process_lets_a_vector_be_further_behind(
    tmp_path: Path, engine: DuckDBEngine, computed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(untouched, "_MOST_BEHIND", 25)
    monkeypatch.setattr(untouched, "_SPREAD", 1)
    lake = Lake(tmp_path, FILTERS, engine)
    lake.came("s", {"k": "a", "n": 100})
    lake.refresh()
    computed.clear()
    modes = []
    for _ in range(26):
        lake.came("s", {"k": "a", "n": 1})
        modes += [each.mode for each in lake.refresh().stages if each.table == "v0"]
    # The log itself has some versions more, in which its small files are merged.
    assert modes.count("advance") == 1
    assert 20 < modes.index("advance") <= 25
    lake.came("s", {"k": "a", "n": 15})
    lake.refresh()
    assert computed == ["v0"]
    assert_correct(lake.lake, PIPELINE)


def test_after_an_hour_a_vector_moves(tmp_path: Path, engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(untouched, "_MOST_BEHIND", 200)
    lake = Lake(tmp_path, FILTERS, engine)
    for _ in range(22):
        lake.came("s", {"k": "a", "n": 1})
        lake.refresh()
    monkeypatch.setattr(untouched, "_LONGEST_SECONDS", 0.0)
    lake.came("s", {"k": "a", "n": 1})
    assert {each.mode for each in lake.refresh().stages if each.table in lake.views} == {"advance"}


def test_a_row_that_fails_is_kept_aside_though_it_passes_no_filter(tmp_path: Path, engine: DuckDBEngine) -> None:
    lake = Lake(tmp_path, [f"SELECT k, n FROM s WHERE 10 / n > {n}" for n in range(20, 24)], engine)
    lake.came("s", {"k": "a", "n": 1})
    lake.refresh()
    lake.came("s", {"k": "a", "n": 0})
    lake.refresh()
    letters = [heads.head(lake.lake, tables.dead_letters(each)) for each in lake.views]
    assert [head and head.record.rows for head in letters] == [1] * 4


@pytest.mark.parametrize("believed", [False, True])
def test_a_padded_row_goes_with_a_change_that_passes_no_filter(
    believed: bool, tmp_path: Path, engine: DuckDBEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the padded side is believed to be linear, the row stays: then the test would tell."""
    if believed:
        monkeypatch.setattr(untouched, "is_linear", lambda core, place: True)
    padded = [f"SELECT s.k, s.n FROM s LEFT JOIN t ON s.n = t.id WHERE t.n IS NULL AND s.n > {n}" for n in range(-4, 0)]
    lake = Lake(tmp_path, padded, engine)
    lake.came("s", {"k": "a", "n": 1})
    lake.came("t", {"id": 7, "k": "b", "n": 7})
    lake.refresh()
    lake.came("t", {"id": 1, "k": "b", "n": 7})
    lake.refresh()
    assert {said[0].rpartition(":")[2] for said in lake.said().values()} == {"1" if believed else "0"}


def test_a_view_over_views_rests_with_them(tmp_path: Path, engine: DuckDBEngine, computed: list[str]) -> None:
    above = [f"SELECT c, COUNT(*) AS o FROM v{n} GROUP BY c" for n in range(4)]
    lake = Lake(tmp_path, [*FILTERS, *above], engine)
    lake.came("s", {"k": "a", "n": 100})
    lake.refresh()
    computed.clear()
    for n in (25, 5, 45):
        lake.came("s", {"k": "a", "n": n})
        lake.refresh()
    assert Counter(computed) == {"v0": 2, "v1": 2, "v4": 2, "v5": 2, "v2": 1, "v3": 1, "v6": 1, "v7": 1}
    assert_correct(lake.lake, PIPELINE)


def test_a_table_that_went_back_is_computed_from_where_it_is(tmp_path: Path, engine: DuckDBEngine) -> None:
    lake = Lake(tmp_path / "lake", FILTERS, engine)
    lake.came("s", {"k": "a", "n": 100})
    lake.refresh()
    table = lake.lake.table("v0")
    assert isinstance(table, Path)
    shutil.copytree(table, tmp_path / "before")
    lake.came("s", {"k": "a", "n": 100})
    lake.refresh()
    shutil.rmtree(table)
    shutil.copytree(tmp_path / "before", table)
    lake.came("s", {"k": "a", "n": 1})
    lake.refresh()
    assert_correct(lake.lake, PIPELINE)


def test_a_file_that_does_not_read_stops_those_who_read_it(tmp_path: Path, engine: DuckDBEngine) -> None:
    lake = Lake(tmp_path, [*FILTERS, "SELECT id, n FROM t WHERE n > 5"], engine)
    lake.came("s", {"k": "a", "n": 100})
    lake.came("t", {"id": 1, "k": "b", "n": 7})
    lake.refresh()
    lake.came("s", {"k": "a", "n": 1})
    table = lake.lake.table("s")
    assert isinstance(table, Path)
    newest = max(table.glob("epoch-*.parquet"), key=lambda file: file.stat().st_mtime_ns)
    newest.write_bytes(newest.read_bytes()[:-9] + bytes(9))
    done = refresh_all(lake.context, lake.levels, frozenset())
    assert {name: type(error).__name__ for name, error in done.failures.items()} == dict.fromkeys(
        ("v0", "v1", "v2", "v3"), "CorruptState"
    )


def test_a_change_of_what_is_hidden_alone_is_seen(tmp_path: Path, engine: DuckDBEngine) -> None:
    recent = [
        f"SELECT id, ROWTIME AS at FROM t WHERE ROWTIME > {int(NOON.timestamp() * 1000) + 1000 * n}" for n in range(4)
    ]
    lake = Lake(tmp_path, recent, engine)
    lake.came("t", {"id": 1, "k": "b", "n": 7})
    lake.refresh()
    lake.came("t", {"id": 1, "k": "b", "n": 7})
    lake.refresh()
    assert lake.said()["v0"][0].endswith(":1")
    assert_correct(lake.lake, PIPELINE)
