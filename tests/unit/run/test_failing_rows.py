"""Rows on which an expression fails, along every path that gives a view its rows: by epochs, however they are cut, by a
rebuild, by the recomputation of `verify --deep`."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlglot import exp

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ivm import compiled
from strandline.jobs.ivm.refresh import guarded_stage
from strandline.jobs.ivm.refresh.context import Heads, RunContext
from strandline.jobs.ivm.refresh.guarded_stage import Guarded, decide, guarded
from strandline.jobs.ivm.refresh.refresh import rebuild_decided
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import RowFailed, SqlError, ViewsStopped
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.stage import Stage
from strandline.jobs.operate.rebuild import rebuild
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.refresh_views import refresh_all
from strandline.jobs.run.schedule import maintained
from strandline.jobs.serve.results import Rows as ResultRows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout
from tests.support.event_commits import commit_events
from tests.support.lake_tables import NOON

SOURCES = """
CREATE TABLE s (id INT PRIMARY KEY, n INT, t VARCHAR, kind VARCHAR) WITH (KAFKA_TOPIC = 's', PARTITIONS = 1);
CREATE TABLE u (id INT PRIMARY KEY, n INT, t VARCHAR) WITH (KAFKA_TOPIC = 'u', PARTITIONS = 1);
CREATE STREAM e (id INT KEY, n INT, t VARCHAR) WITH (KAFKA_TOPIC = 'e', PARTITIONS = 1);
"""
Values = tuple[int, int | None, str | None, str | None]
Rows = Sequence[tuple[Any, ...]]


class Failing:
    """A lake with one view `v` over `s`, `u` and `e`."""

    def __init__(self, settings: Settings, lake: LakeLayout, view: str) -> None:
        self.settings, self.lake = settings, lake
        self._offsets = dict.fromkeys("sue", 0)
        list(Interpreter(settings, "sources").run(SOURCES))
        list(Interpreter(settings, "views").run(view))

    def came(self, s: Rows = (), u: Rows = (), e: Rows = (), gone: Sequence[int] = ()) -> None:
        """Events of each source, and a refresh of everything."""
        self._events("s", [dict(zip(("id", "n", "t", "kind"), row, strict=False)) | {"_tombstone": False} for row in s])
        self._events("s", [{"id": key, "_tombstone": True} for key in gone])
        self._events("u", [dict(zip(("id", "n", "t"), row, strict=False)) | {"_tombstone": False} for row in u])
        self._events("e", [dict(zip(("id", "n", "t"), row, strict=False)) for row in e])
        catalog = Catalog(self.lake)
        with DuckDBEngine(*self.settings.kernel_size) as duckdb_engine:
            context = RunContext(None, self.lake, "test/1", duckdb_engine=duckdb_engine, engine="duckdb")
            done = refresh_all(context, maintained(catalog.definitions(), catalog), frozenset())
        for error in done.failures.values():
            raise error

    def _events(self, name: str, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        source = Catalog(self.lake).get(name)
        assert isinstance(source, Source)
        for row in rows:
            at = NOON + dt.timedelta(seconds=self._offsets[name])
            row |= {"_partition": 0, "_offset": self._offsets[name], "_timestamp": at, "_stream_time": at}
            self._offsets[name] += 1
        commit_events(self.lake, source, rows)

    def rows(self, view: str = "v") -> list[tuple[Any, ...]]:
        names = [name for name in reader.schema(self.lake.table(view)).names if not name.startswith("_")]
        found = reader.read_rows(self.lake.table(view), columns=names).to_pylist()
        return sorted((tuple(row.values()) for row in found), key=repr)

    def letters(self, view: str = "v") -> list[tuple[dict[str, Any], str]]:
        """The rows kept aside, with the reasons; none while there is no table of them."""
        path = self.lake.table(f"{view}__dead_letters")
        if reader.head(path) is None:
            return []
        found = reader.read_rows(path, columns=["row", "reason"]).to_pylist()
        return sorted(((json.loads(row["row"]), row["reason"]) for row in found), key=repr)

    def aside(self) -> list[tuple[int | None, ...]]:
        """The ids in the rows that are kept aside."""
        found = [{name: row[name] for name in sorted(row) if name.endswith("_id")} for row, _ in self.letters()]
        return sorted((tuple(row.values()) for row in found), key=repr)

    def everything(self) -> dict[str, Any]:
        """{view: its rows and dead letters}."""
        return {view: (self.rows(view), self.letters(view)) for view in NAMES.values()}

    def rebuild_all(self) -> None:
        """Compute every view anew, with its inner stages and dead letters."""
        catalog = Catalog(self.lake)
        heads = Heads(self.lake)
        with DuckDBEngine(*self.settings.kernel_size) as duckdb_engine:
            context = RunContext(None, self.lake, "test/2", duckdb_engine=duckdb_engine, engine="duckdb")
            for item in (item for level in maintained(catalog.definitions(), catalog) for item in level):
                for stage in item.stages:
                    decision = decide(stage, item.options.errors, item.letters(stage), heads)
                    rebuild_decided(context, heads, decision, item.owner(stage))

    def wrong(self, *views: str) -> list[str]:
        """What `verify --deep` has to say of the views and what belongs to them."""
        found = verify(self.settings, views or ["v"], deep=True)
        assert all(each.ok is not None for each in found if each.check == "recompute"), found
        return [f"{each.table} {each.check}: {each.what}" for each in found if each.ok is False]

    def rebuild(self) -> tuple[list[tuple[Any, ...]], list[tuple[dict[str, Any], str]]]:
        """The rows and dead letters after a rebuild of the view."""
        rebuild(self.settings, "v")
        return self.rows(), self.letters()


EXAMPLE = "CREATE MATERIALIZED VIEW v AS SELECT id, 10 / n AS x FROM s;"


def test_one_bad_row_is_one_dead_letter_on_every_path(settings: Settings, lake: LakeLayout) -> None:
    """The checks are green without a rebuild, and a rebuild changes nothing."""
    made = Failing(settings, lake, EXAMPLE)
    made.came([(1, 0), (2, 2), (3, 3)])
    assert made.rows() == [(2, 5), (3, 3)]
    assert made.aside() == [(1,)]
    assert made.wrong() == []
    assert made.rebuild() == (made.rows(), made.letters())
    assert made.rows() == [(2, 5), (3, 3)]
    assert made.wrong() == []
    made.came([(1, 5)])
    assert (made.rows(), made.letters()) == ([(1, 2), (2, 5), (3, 3)], [])
    assert made.wrong() == []


def test_a_text_that_is_no_number_is_a_dead_letter(settings: Settings, lake: LakeLayout) -> None:
    view = "CREATE MATERIALIZED VIEW v AS SELECT id, CAST(t AS INT) AS x, CAST(kind AS TIME) AS at FROM s;"
    made = Failing(settings, lake, view)
    made.came([(1, 0, "x", None), (2, 0, "7", "10:00:00"), (3, 0, None, "noon"), (4, 0, None, None)])
    assert [row[0] for row in made.rows()] == [2, 4]
    assert made.aside() == [(1,), (3,)]
    assert made.wrong() == []


def test_dead_letters_that_are_lost_are_found(
    settings: Settings, lake: LakeLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = Failing(settings, lake, EXAMPLE)
    with monkeypatch.context() as patch:
        patch.setattr(compiled, "_KNOWN", {})  # what is made of the plan's stages is kept with them
        patch.setattr(guarded_stage, "guarded", _kept_nowhere)
        made.came([(1, 0), (2, 2), (3, 3)])
    assert (made.rows(), made.letters()) == ([(2, 5), (3, 3)], [])
    assert [each.partition(":")[0] for each in made.wrong()] == ["v__dead_letters recompute"]
    assert made.rebuild()[0] == [(2, 5), (3, 3)]
    assert made.aside() == [(1,)]
    assert made.wrong() == []


def _kept_nowhere(stage: Stage, letters: str) -> Guarded:
    found = guarded(stage, letters)
    if found.aside is None:
        return found
    none = tuple(replace(core, where=exp.false()) for core in found.aside.body)
    return replace(found, aside=replace(found.aside, body=none))


VIEWS = {
    "filter": "SELECT id, 10 / n AS x FROM s WHERE kind = 'a'",
    "a filter that fails": "SELECT id FROM s WHERE 10 / n > 1 AND kind = 'a'",
    "a filter that fails last": "SELECT id FROM s WHERE kind = 'a' AND CAST(t AS INT) > 1 AND 10 / n > 1",
    "total": "SELECT COUNT(*) AS c, SUM(10 / n) AS x FROM s",
    "group": "SELECT 10 / n AS g, COUNT(*) AS c FROM s GROUP BY 10 / n",
    "filtered aggregate": "SELECT COUNT(*) AS c, SUM(10 / n) FILTER (WHERE n <> 0) AS x FROM s",
    "filter of an aggregate": "SELECT COUNT(*) AS c, SUM(n) FILTER (WHERE 10 / n > 1) AS x FROM s",
    "having": "SELECT kind, SUM(n) AS x, 10 / COUNT(t) AS y FROM s GROUP BY kind HAVING SUM(n) >= 0",
    "distinct": "SELECT DISTINCT 10 / n AS x FROM s",
    "unread column": "SELECT id FROM (SELECT id, 10 / n AS x FROM s) AS q",
    "outer filter": "SELECT id, x FROM (SELECT id, n, 10 / n AS x FROM s) AS q WHERE n <> 0",
    "inner filter": "SELECT id FROM (SELECT id, kind FROM s WHERE 10 / n > 1) AS q WHERE kind = 'a'",
    "two deep": "SELECT y + 1 AS z FROM (SELECT id, x * 2 AS y FROM (SELECT id, 10 / n AS x FROM s) AS p)"
    " AS q WHERE id > 1",
    "outer case": "SELECT id, CASE WHEN id > 1 THEN x END AS x FROM (SELECT id, 10 / n AS x FROM s) AS q",
    "coalesce": "SELECT id, COALESCE(kind, t || CAST(10 / n AS VARCHAR)) AS x FROM s",
    "if": "SELECT id, IF(n = 0, 0, 10 / n) AS x FROM s",
    "inner group": "SELECT x, c FROM (SELECT 10 / n AS x, COUNT(*) AS c FROM s GROUP BY 10 / n) AS q WHERE c > 0",
    "unread of a group": "SELECT c FROM (SELECT kind, COUNT(*) AS c, SUM(10 / n) AS x FROM s GROUP BY kind) AS q",
    "union": "SELECT id, 10 / n AS x FROM s UNION ALL SELECT id, CAST(t AS INT) AS x FROM u",
    "over a union": "SELECT SUM(x) AS x FROM (SELECT 10 / n AS x FROM s UNION ALL SELECT CAST(t AS INT) AS x"
    " FROM u) AS q",
    "filter over a union": "SELECT x FROM (SELECT id, 10 / n AS x FROM s UNION ALL SELECT id, n AS x FROM u) AS q"
    " WHERE id > 1",
    "except": "SELECT 10 / n AS x FROM s EXCEPT SELECT CAST(t AS INT) AS x FROM u",
    "join": "SELECT s.id, s.n / u.n AS x FROM s JOIN u ON s.id = u.id",
    "left join": "SELECT s.id, 10 / u.n AS x FROM s LEFT JOIN u ON s.id = u.id",
    "on, one side": "SELECT s.id, u.id AS uid FROM s JOIN u ON s.id = u.id AND 10 / u.n > 1",
    "on, both sides": "SELECT s.id, u.id AS uid FROM s LEFT JOIN u ON s.id = u.id AND s.n / u.n >= 0",
    "full join": "SELECT s.id, u.id AS uid FROM s FULL JOIN u ON s.id = u.id AND s.n / u.n >= 0",
    "on, equality": "SELECT s.id, u.id AS uid FROM s JOIN u ON CAST(s.t AS INT) = u.id",
    "left join, equality": "SELECT s.id, u.id AS uid FROM s LEFT JOIN u ON CAST(s.t AS INT) = u.id",
    "right join, equality": "SELECT s.id, u.id AS uid FROM s RIGHT JOIN u ON CAST(s.t AS INT) = u.id",
    "filtered equality": "SELECT s.id, u.id AS uid FROM s JOIN u ON CAST(s.t AS INT) = u.id WHERE s.kind = 'a'",
    "subquery in a join": "SELECT s.id, q.x FROM s JOIN (SELECT id, 10 / n AS x FROM u) AS q ON s.id = q.id",
    "filter in a join": "SELECT s.id FROM s JOIN (SELECT id FROM u WHERE 10 / n > 1) AS q ON s.id = q.id",
    "filter in a left join": "SELECT s.id, q.id AS qid FROM s LEFT JOIN (SELECT id FROM u WHERE 10 / n > 1) AS q ON"
    " s.id = q.id",
    "joined subqueries": "SELECT p.x, q.x AS y FROM (SELECT id, 10 / n AS x FROM s) AS p JOIN (SELECT id, CAST(t AS"
    " INT) AS x FROM u) AS q ON p.x = q.x",
    "in": "SELECT id FROM s WHERE n IN (SELECT CAST(t AS INT) FROM u)",
    "not in": "SELECT id FROM s WHERE NOT EXISTS (SELECT 1 FROM u WHERE CAST(u.t AS INT) = s.n)",
    "exists": "SELECT id FROM s WHERE EXISTS (SELECT 1 FROM u WHERE u.id = s.id AND s.n / u.n > 0)",
    "scalar subquery": "SELECT id, n / (SELECT COUNT(*) FROM u) AS x FROM s",
    "window": "SELECT id, SUM(n) OVER (PARTITION BY 10 / n ORDER BY id) AS x FROM s",
    "window's argument": "SELECT id, SUM(10 / n) OVER (ORDER BY id) AS x FROM s",
    "window over a subquery": "SELECT id, RANK() OVER (ORDER BY x) AS r FROM (SELECT id, 10 / n AS x FROM s) AS q",
    "explode": "SELECT id, EXPLODE(GENERATE_SERIES(1, 10 / n)) AS x FROM s",
    "item of explode": "SELECT id, 10 / x AS y FROM (SELECT id, EXPLODE(ARRAY[n, 1]) AS x FROM s) AS q",
    "stream": "SELECT id, 10 / n AS x FROM e WHERE CAST(t AS INT) > 0",
    "rollup": "SELECT kind, SUM(10 / n) AS x FROM s GROUP BY ROLLUP (kind)",
    "shared": "SELECT s.id, s.n / u.n AS x FROM s JOIN (SELECT id, n FROM u WHERE CAST(t AS INT) > 0) AS"
    " u ON s.id = u.id",
}
HISTORY: list[dict[str, Rows | Sequence[int]]] = [
    {"s": [(1, 1, "1", "a"), (2, 2, "2", "a"), (3, 3, "x", "b")], "e": [(1, 1, "1")]},
    {"u": [(1, 1, "1"), (2, 0, "x"), (4, 4, "7")], "s": [(4, 0, "4", "a"), (5, None, "x", None)]},
    {"s": [(1, 0, "x", "b"), (6, 0, None, "b"), (2, 5, "0", "a")], "e": [(2, 0, "2"), (3, 3, "x"), (4, 2, "0")]},
    {"u": [(1, 0, "x"), (2, 3, "2")], "gone": [3]},
    {"s": [(4, 2, "1", "b"), (1, 3, "2", None), (7, 0, "y", "a")], "u": [(5, 5, "y"), (6, 0, "0")]},
]


NAMES = {name: f"v{number}" for number, name in enumerate(VIEWS)}


def created(name: str) -> str:
    kind = "STREAM" if "stream" in name else "MATERIALIZED VIEW"
    shared = " WITH (STATE = 'shared')" if name == "shared" else ""
    return f"CREATE {kind} {NAMES[name]}{shared} AS {VIEWS[name]};"


@dataclass(frozen=True)
class Ways:
    """What each view has come to, by its name: (rows, dead letters).

    Attributes:
        epochs: by many epochs. one: by one. rebuilt: by a rebuild of the first.
        wrong: what `verify --deep` has to say of the first.
    """

    epochs: dict[str, Any]
    one: dict[str, Any]
    rebuilt: dict[str, Any]
    wrong: list[str]


@pytest.fixture(scope="module")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Ways:
    text = "\n".join(map(created, VIEWS))
    many, one = (
        Failing(settings, LakeLayout(settings.lake), text)
        for settings in (Settings(lake=tmp_path_factory.mktemp(each) / "lake") for each in ("many", "one"))
    )
    whole: dict[str, list[Any]] = {"s": [], "u": [], "e": [], "gone": []}
    for step in HISTORY:
        many.came(**step)  # type: ignore[arg-type]
        for source, rows in step.items():
            whole[source] += rows
    newest = {row[0]: row for row in whole["s"]}
    one.came(list(newest.values()), list({row[0]: row for row in whole["u"]}.values()), whole["e"], whole["gone"])
    epochs, wrong = many.everything(), many.wrong(*NAMES.values())
    many.rebuild_all()
    return Ways(epochs, one.everything(), many.everything(), wrong)


@pytest.mark.parametrize("name", VIEWS)
def test_a_row_fails_by_what_is_there_however_it_came(ways: Ways, name: str) -> None:
    """Many epochs, one, a rebuild and the recomputation agree, on the rows and on the dead letters."""
    view = NAMES[name]
    assert ways.epochs[view] == ways.one[view]
    assert ways.epochs[view] == ways.rebuilt[view]
    assert [said for said in ways.wrong if said.startswith((f"{view} ", f"{view}__"))] == []


def test_nothing_that_the_views_share_is_wrong(ways: Ways) -> None:
    assert ways.wrong == []


def test_a_view_that_stops_goes_on_when_the_row_is_corrected(settings: Settings, lake: LakeLayout) -> None:
    made = Failing(settings, lake, EXAMPLE.replace("v AS", "v WITH (ERRORS = 'stop') AS"))
    made.came([(2, 2)])
    with pytest.raises(StrandlineError) as stopped:
        made.came([(1, 0)])
    assert "v__dead_letters" in str(stopped.value)
    assert made.rows() == [(2, 5)]
    assert made.wrong() == []
    with pytest.raises(StrandlineError):
        made.rebuild()
    assert made.rows() == [(2, 5)]
    made.came([(1, 5)])
    assert made.rows() == [(1, 2), (2, 5)]
    assert made.wrong() == []


def test_null_is_null_on_every_path(settings: Settings, lake: LakeLayout) -> None:
    made = Failing(settings, lake, EXAMPLE.replace("v AS", "v WITH (ERRORS = 'null') AS"))
    made.came([(1, 0), (2, 2)])
    assert made.rows() == [(1, None), (2, 5)]
    assert made.wrong() == []
    assert made.rebuild() == ([(1, None), (2, 5)], [])
    assert made.wrong() == []


def test_an_error_that_no_row_of_the_join_has_stops_nothing(settings: Settings, lake: LakeLayout) -> None:
    """An engine may ask for the quotient before the join; the row joins nothing."""
    view = "SELECT s.id, 10 / s.n AS x FROM s JOIN u ON s.id = u.id"
    made = Failing(settings, lake, f"CREATE MATERIALIZED VIEW v WITH (ERRORS = 'stop') AS {view};")
    made.came([(1, 0), (2, 2)], [(2, 1, "1")])
    assert made.rows() == [(2, 5)]
    with pytest.raises(StrandlineError):
        made.came(u=[(1, 1, "1")])


BIG = 2**62
SUMS: dict[str, Callable[[list[int]], int]] = {
    "SUM(n * 4611686018427387904)": lambda values: sum(values) * BIG,
    "SUM(DISTINCT n * 4611686018427387904 - id)": lambda values: (
        sum(values) * BIG - len(values) * (len(values) + 1) // 2
    ),
    "SUM_LIST(ARRAY[n * 4611686018427387904])": lambda values: sum(values) * BIG,
    "MAX(n) + SUM(n * 4611686018427387904)": lambda values: max(values) + sum(values) * BIG,
}


@pytest.mark.parametrize("call", SUMS)
def test_a_sum_out_of_range_is_null_and_comes_back(settings: Settings, lake: LakeLayout, call: str) -> None:
    view = f"CREATE MATERIALIZED VIEW v WITH (ERRORS = 'null') AS SELECT kind, {call} AS x FROM s GROUP BY kind;"
    made = Failing(settings, lake, view)
    present: dict[int, int] = {}
    for key, n in ((1, 1), (2, 1), (3, 1), (2, -1)):
        present[key] = n
        made.came([(key, n, None, "a")])
        wanted = SUMS[call](list(present.values()))
        assert made.rows() == [("a", wanted if -(2**63) <= wanted < 2**63 else None)]
        assert made.wrong() == []
    before = made.rows()
    assert made.rebuild() == (before, [])


def test_a_running_sum_out_of_range_is_null(settings: Settings, lake: LakeLayout) -> None:
    call = f"SUM(n * {BIG}) OVER (ORDER BY id)"
    made = Failing(
        settings, lake, f"CREATE MATERIALIZED VIEW v WITH (ERRORS = 'null') AS SELECT id, {call} AS x FROM s;"
    )
    made.came([(1, 1), (2, 1), (3, -1)])
    assert made.rows() == [(1, BIG), (2, None), (3, BIG)]
    assert made.wrong() == []


def test_a_sum_out_of_range_stops_a_view_and_a_pull(settings: Settings, lake: LakeLayout) -> None:
    query = f"SELECT kind, SUM(n * {BIG}) AS x FROM s GROUP BY kind"
    made = Failing(settings, lake, f"CREATE MATERIALIZED VIEW v AS {query};")
    made.came([(1, 1, None, "a")])
    with pytest.raises(RowFailed):
        made.came([(2, 1, None, "a")])
    assert made.rows() == [("a", BIG)]
    assert made.wrong() == []
    with pytest.raises(SqlError):
        list(Interpreter(settings, "views").run(f"{query};"))


def test_a_pull_of_its_own_select_has_an_error_where_a_row_fails(settings: Settings, lake: LakeLayout) -> None:
    """It has no dead letters to put the row in; its own text says what is to be done with it."""
    made = Failing(settings, lake, "")
    made.came([(1, 0, "x"), (2, 2, "7")], [(2, 1, "1")])
    for expression, said in {"10 / n": "10 / s.n", "CAST(t AS INT)": "CAST(s.t AS INT)"}.items():
        with pytest.raises(SqlError) as refused:
            list(Interpreter(settings, "views").run(f"SELECT id, {expression} AS x FROM s;"))
        assert said in refused.value.message
        assert "TRY_CAST" in (refused.value.hint or "")
    for sound in (
        "SELECT id, 10 / n AS x FROM s WHERE n <> 0",
        "SELECT s.id, 10 / s.n AS x FROM s JOIN u ON s.id = u.id",
        "SELECT id, TRY_CAST(t AS INT) AS x, 10 / NULLIF(n, 0) AS y FROM s",
    ):
        list(Interpreter(settings, "views").run(f"{sound};"))


@pytest.mark.parametrize(("reads", "stops"), [("s", False), ("v", True)])
def test_a_rebuild_fails_only_where_what_reads_it_stands_still(
    settings: Settings, lake: LakeLayout, reads: str, *, stops: bool
) -> None:
    views = f"""
        CREATE MATERIALIZED VIEW v AS SELECT id, n FROM s;
        CREATE MATERIALIZED VIEW w WITH (ERRORS = 'stop') AS SELECT id, 10 / n AS x FROM {reads};
    """
    failing = Failing(settings, lake, views)
    with pytest.raises(RowFailed):
        failing.came(s=[(1, 0, "a", "k")])
    with pytest.raises(ViewsStopped) if stops else nullcontext():
        rebuild(settings, "v")
    assert failing.rows() == [(1, 0)]


def test_a_row_that_is_in_several_groups_is_one_dead_letter(settings: Settings, lake: LakeLayout) -> None:
    views = """
        CREATE MATERIALIZED VIEW v AS SELECT t, COUNT(10 / n) AS c FROM e
          WINDOW HOPPING (SIZE 9 SECONDS, ADVANCE BY 3 SECONDS) GROUP BY t;
        CREATE MATERIALIZED VIEW w AS SELECT t, id, SUM(10 / n) AS x FROM e GROUP BY GROUPING SETS ((t), (id), (t, id));
    """
    made = Failing(settings, lake, views)
    made.came(e=[(1, 0, "a"), (2, 2, "a"), (3, 0, "b"), (4, 5, "b")])
    assert [row["e_id"] for row, _ in made.letters("v")] == [1, 3]
    assert [row["e_id"] for row, _ in made.letters("w__stage_1") or made.letters("w")] == [1, 3]
    assert made.wrong("v", "w") == []


def test_a_row_whose_grouping_column_fails_is_in_no_grouping_set(settings: Settings, lake: LakeLayout) -> None:
    sets = {"v": "ROLLUP (10 / n)", "w": "GROUPING SETS ((10 / n), (kind), ())", "x": "CUBE (10 / n, kind)"}
    made = Failing(
        settings,
        lake,
        "".join(
            f"CREATE MATERIALIZED VIEW {name} AS SELECT 10 / n AS g, COUNT(*) AS c FROM s GROUP BY {by};"
            for name, by in sets.items()
        ),
    )
    made.came([(1, 0, None, "a"), (2, 2, None, "a"), (3, 5, None, "a")])
    assert made.rows("v") == [(2, 1), (5, 1), (None, 2)]
    assert made.rows("w") == [(2, 1), (5, 1), (None, 2), (None, 2)]
    assert [row for row in made.rows("x") if row[0] is None] == [(None, 2), (None, 2)]
    assert made.wrong(*sets) == []
    made.came([(1, 1, None, "b")])
    assert (None, 3) in made.rows("v")
    assert made.wrong(*sets) == []


FILTERED = (
    *("SUM(10 / n)", "COUNT_IF(10 / n > 1)", "COUNT_IF(DISTINCT 10 / n > 1)", "MIN(10 / n, 2)"),
    *("ARG_MAX(10 / n, id)", "MAX_BY(id, 10 / n, 2)", "ARG_MIN(10 / n, id, 2)", "ANY_VALUE(10 / n ORDER BY id)"),
    *("TOPK(10 / n, 2)", "QUANTILE_CONT(10 / n, [0.5])", "PRODUCT(10 / n)", "MEDIAN(DISTINCT 10 / n)"),
    *("ARRAY_AGG(10 / n IGNORE NULLS)", "LAST_VALUE(10 / n IGNORE NULLS ORDER BY id)"),
)


@pytest.mark.parametrize("call", FILTERED)
def test_what_an_aggregate_is_of_is_not_computed_where_its_filter_is_null(
    settings: Settings, lake: LakeLayout, call: str
) -> None:
    select = f"SELECT {call} FILTER (WHERE kind = 'a') AS x FROM s"
    made = Failing(settings, lake, f"CREATE MATERIALIZED VIEW v AS {select};")
    made.came([(1, 0, None, None), (2, 5, None, "a")])
    assert made.aside() == []
    (pulled,) = Interpreter(settings).run(f"{select};")
    assert isinstance(pulled, ResultRows)
    assert [str(row) for row in pulled.rows] == [str(row) for row in made.rows()]
    made.came([(1, 0, None, "a")])
    assert made.aside() == [(1,)]
    assert made.wrong() == []


def test_nor_are_its_different_values(settings: Settings, lake: LakeLayout) -> None:
    """They have rows of their own, which know nothing of the columns that their set lacks."""
    view = "CREATE MATERIALIZED VIEW v AS SELECT COUNT(DISTINCT kind) AS d FROM s GROUP BY CUBE (10 / n, kind);"
    made = Failing(settings, lake, view)
    made.came([(1, 0, None, "a"), (2, 2, None, "b")])
    assert made.rows("v") == [(1,)] * 4
    assert made.wrong("v") == []


def test_a_row_that_fails_beside_a_window_function_is_in_no_window(settings: Settings, lake: LakeLayout) -> None:
    """What stands beside the call is the row's own: it does not stop the view, whatever QUALIFY keeps."""
    ranked = "ROW_NUMBER() OVER (PARTITION BY kind ORDER BY id)"
    views = f"""
        CREATE MATERIALIZED VIEW v AS SELECT id, 10 / n AS x, {ranked} AS r FROM s;
        CREATE MATERIALIZED VIEW w AS SELECT id, 10 / n AS x FROM s QUALIFY {ranked} = 1;
    """
    made = Failing(settings, lake, views)
    made.came([(1, 0, None, "a"), (2, 2, None, "a"), (3, 5, None, "a")])
    assert made.rows("v") == [(2, 5, 1), (3, 2, 2)]
    assert made.rows("w") == [(2, 5)]
    assert [row["s_id"] for name in ("v", "w") for row, _ in made.letters(name)] == [1, 1]
    assert made.wrong("v", "w") == []
    made.came([(1, 1, None, "a")])
    assert (made.rows("v"), made.rows("w")) == ([(1, 10, 1), (2, 5, 2), (3, 2, 3)], [(1, 10)])
    assert made.wrong("v", "w") == []


def test_the_nearest_row_fails_and_no_other_takes_its_place(settings: Settings, lake: LakeLayout) -> None:
    made = Failing(
        settings,
        lake,
        "CREATE MATERIALIZED VIEW v AS SELECT s.id, 10 / u.n AS x FROM s ASOF JOIN u ON s.kind = u.t AND s.id >= u.id;",
    )
    made.came([(2, None, None, "a"), (5, None, None, "a")], [(1, 0, "a"), (2, 5, "a"), (4, 0, "a"), (9, 0, "a")])
    assert made.rows() == [(2, 2)]
    assert len(made.letters()) == 1
    assert made.wrong("v") == []


def test_a_distance_leads_out_of_no_range(settings: Settings, lake: LakeLayout) -> None:
    views = """
        CREATE MATERIALIZED VIEW v WITH (ERRORS = 'stop') AS SELECT id,
          COUNT(*) OVER (ORDER BY n RANGE BETWEEN 1 PRECEDING AND 2 FOLLOWING) AS c FROM s;
    """
    made = Failing(settings, lake, views)
    made.came([(1, 2**31 - 1, None, ""), (2, 2**31 - 2, None, ""), (3, -(2**31), None, ""), (4, None, None, "")])
    assert made.rows() == [(1, 2), (2, 2), (3, 1), (4, 1)]
    assert made.wrong("v") == []


def test_arithmetic_over_a_scalar_subquery_that_fails(settings: Settings, lake: LakeLayout) -> None:
    """What says on which rows it fails names the subquery, which is no text of any dialect."""
    select = "SELECT n + (SELECT COUNT(*) FROM u WHERE u.id = s.id) AS x FROM s"
    made = Failing(settings, lake, f"CREATE MATERIALIZED VIEW v WITH (ERRORS = 'null') AS {select};")
    made.came(s=[(1, 5, None, None), (2, 7, None, None)], u=[(1, 1, None)])
    assert [each.check for each in verify(settings, ["v"], deep=True) if each.ok is False] == []
    assert sorted(made.rows()) == [(6,), (7,)]
    (pulled,) = Interpreter(settings).run(f"{select};")
    assert isinstance(pulled, ResultRows)
    assert sorted(tuple(row) for row in pulled.rows) == [(6,), (7,)]
