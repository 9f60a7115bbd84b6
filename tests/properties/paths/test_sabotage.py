"""The property turns red when any path is broken: each is broken here as a fault of it would, at the path's own place.

The example is small, and right until it is sabotaged.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from dataclasses import replace
from threading import local
from typing import Any, Final

import duckdb
import pyarrow as pa
import pytest
from sqlglot import exp

from strandline.jobs.ivm import compiled
from strandline.jobs.ivm.refresh import engines as duckdb_or_spark
from strandline.jobs.ivm.refresh import guarded_stage, on_spark, refresh
from strandline.jobs.ivm.refresh.epoch import Epoch, StageResult
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.operate import backfill
from strandline.jobs.operate.verify import verify
from strandline.jobs.operate.verify.findings import Outcome, passed
from strandline.jobs.partial.pull import Upqueries
from strandline.jobs.publish.encoder import Encoder
from strandline.jobs.run import refresh_views, standby
from strandline.jobs.run.standby import difference
from strandline.jobs.serve.pull import Computation, computation
from strandline.jobs.serve.subscription import Subscription
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.replicas.state import ReplicaReading
from tests.properties.paths import oracle
from tests.properties.paths.check import Differs, Engines, check
from tests.properties.paths.example import Example
from tests.properties.paths.expressions import Call, Column, Constant
from tests.properties.paths.history import Event
from tests.properties.paths.values import BIGINT, BOOLEAN, DATE, INT, VARCHAR
from tests.properties.paths.views import Aggregate, Block, Input, Relation, ViewOf

_DAY: Final = dt.date(2024, 2, 29)
_TABLE: Final = Relation("t0", "table", (("t0", INT), ("t1", VARCHAR), ("t2", INT), ("t3", DATE)))
_ID, _NAME, _NUMBER, _AT = (Column("a", name, kind) for name, kind in _TABLE.columns)
_QUOTIENT: Final = Call("/", (Constant(10, INT), _NUMBER), INT)
_ROWS: Final = Block((Input("a", _TABLE),), (("c0", _ID), ("c1", _NAME), ("c2", _QUOTIENT)))
_OF_ROWS: Final = ViewOf("v0", _ROWS)
_OF_DAYS: Final = ViewOf(
    "v1",
    Block(
        (Input("a", _TABLE),),
        (("c0", _AT), ("c1", Aggregate("COUNT", None, BIGINT)), ("c2", Aggregate("SUM", _NUMBER, BIGINT))),
        group=(_AT,),
    ),
)


def _row(key: int, number: int) -> Event:
    return Event("t0", {"t0": key, "t1": "a", "t2": number, "t3": _DAY}, key)


# The first epoch is empty: the first load of the one lake has no rows, that of the other has all.
_EPOCHS: Final = ((), (_row(1, 1), _row(2, 2)), (_row(1, 5), _row(3, 3), Event("t0", None, 2)))
SOUND: Final = Example((_TABLE,), (_OF_ROWS, _OF_DAYS), _EPOCHS)
_FEWER: Final = replace(_ROWS, where=Call("=", (_NUMBER, Constant(2, INT)), BOOLEAN))
_REPLACED: Final = replace(SOUND, views=(_OF_ROWS,), replaced=(2, replace(_OF_ROWS, query=_FEWER)))
_FAILING: Final = replace(SOUND, views=(_OF_ROWS,), epochs=(*_EPOCHS, (_row(4, 0),)))

Sabotage = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(scope="module")
def engines(duckdb_engine: DuckDBEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    with duckdb.connect(config={"threads": 1}) as db:
        yield Engines(duckdb_engine, db, folder=tmp_path_factory.mktemp("paths"))


@pytest.mark.parametrize(
    "example",
    [SOUND, _FAILING, _REPLACED],
    ids=["sound", "failing", "replaced"],
)
def test_what_is_not_broken_is_green(example: Example, engines: Engines) -> None:
    check(example, engines)


def _changes(patch: pytest.MonkeyPatch) -> None:
    """A refresh from changes computes nothing."""
    _rule(patch, lambda epoch: epoch.moved is not None)


def _first_load(patch: pytest.MonkeyPatch) -> None:
    """A first load computes nothing."""
    _rule(patch, lambda epoch: epoch.first)


def _spread(patch: pytest.MonkeyPatch) -> None:
    """Of what parts give to the buckets of a first load, one row is lost."""
    whole = on_spark._by_bucket
    patch.setattr(on_spark, "_by_bucket", lambda rows: whole(rows.slice(1)))


def _rule(patch: pytest.MonkeyPatch, broken: Callable[[Epoch], bool]) -> None:
    run, here = duckdb_or_spark.run, local()  # refreshes go side by side

    def rule(*args: Any) -> str:
        text = maintenance(*args)
        return f"SELECT * FROM ({text}) LIMIT 0" if here.broken else text

    def run_with_it(context: Any, epoch: Epoch, *, anew: bool) -> Any:
        here.broken = broken(epoch)
        return run(context, epoch, anew=anew)

    patch.setattr("strandline.jobs.ivm.refresh.engines.maintenance", rule)
    patch.setattr(duckdb_or_spark, "run", run_with_it)


def _push(patch: pytest.MonkeyPatch) -> None:
    """A subscriber is not told of the last change."""
    _shortened(patch, Subscription, "visible")


def _weights(patch: pytest.MonkeyPatch) -> None:
    """A subscriber in the form of weights is not told of the last change."""
    _shortened(patch, Subscription, "weighted")


def _replica(patch: pytest.MonkeyPatch) -> None:
    """A replica reads nothing."""
    patch.setattr(ReplicaReading, "scan", lambda self: iter(()))


def _topic(patch: pytest.MonkeyPatch) -> None:
    """The last change of a version is not published."""
    _shortened(patch, Encoder, "changes")


def _shortened(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    whole = getattr(owner, name)

    def shortened(*args: Any) -> Iterator[Any]:
        yield from list(whole(*args))[:-1]

    patch.setattr(owner, name, shortened)


def _pulled(patch: pytest.MonkeyPatch, *, view: bool) -> None:
    def computed(*args: Any) -> Computation:
        made = computation(*args)
        return replace(made, text=f"SELECT * FROM ({made.text}) LIMIT 0") if ("v0" in made.tables) is view else made

    patch.setattr("strandline.jobs.serve.pull.computation", computed)


def _pulled_table(patch: pytest.MonkeyPatch) -> None:
    """A pull of a view finds nothing."""
    _pulled(patch, view=True)


def _pulled_select(patch: pytest.MonkeyPatch) -> None:
    """A pull of sources finds nothing."""
    _pulled(patch, view=False)


def _partial(patch: pytest.MonkeyPatch) -> None:
    """An upquery finds nothing."""
    whole = Upqueries.rows

    def rows(*args: Any) -> pa.Table:
        return whole(*args).slice(0, 0)

    patch.setattr(Upqueries, "rows", rows)


def _verified(patch: pytest.MonkeyPatch) -> None:
    """`verify --deep` finds every view right."""

    def check_recompute(*args: Any) -> Outcome:
        return passed("so it seems")

    patch.setattr(verify, "check_recompute", check_recompute)


def _blamed(patch: pytest.MonkeyPatch) -> None:
    """`verify --deep` finds every view wrong."""

    def check_recompute(*args: Any) -> Outcome:
        return Outcome(False, "so it seems")

    patch.setattr(verify, "check_recompute", check_recompute)


def _backfilled(patch: pytest.MonkeyPatch) -> None:
    """A backfill stores nothing."""
    _idle(patch, backfill, "backfill_decided")


def _rebuilt(patch: pytest.MonkeyPatch) -> None:
    """A rebuild stores nothing."""
    _idle(patch, refresh, "rebuild_stage")


def _idle(patch: pytest.MonkeyPatch, module: Any, name: str) -> None:
    def idle(*args: Any) -> StageResult:
        return StageResult("v0", {}, {}, "none", "it does nothing")

    patch.setattr(module, name, idle)


def _letters(patch: pytest.MonkeyPatch) -> None:
    """Rows that fail are left out, and not kept."""
    whole = guarded_stage.guarded

    def guarded(*args: Any) -> Any:
        found = whole(*args)
        if found.aside is None:
            return found
        none = tuple(replace(core, where=exp.false()) for core in found.aside.body)
        return replace(found, aside=replace(found.aside, body=none))

    patch.setattr(guarded_stage, "guarded", guarded)


def _nulls(patch: pytest.MonkeyPatch) -> None:
    """What fails is NULL, whatever the view says."""
    patch.setattr(
        guarded_stage, "decide", lambda stage, *_: guarded_stage.StageDecision(guarded_stage.null_instead(stage))
    )
    patch.setattr(refresh_views, "decide", guarded_stage.decide)


_OF_SOUND: Final[dict[str, Sabotage]] = {
    "epoch 1, table": _changes,
    "one load": _first_load,
    "spread, spread": _spread,
    "epoch 1, push": _push,
    "at rest, weights": _weights,
    "epoch 1, replica": _replica,
    "epoch 2, topic": _topic,
    "at rest, pulled table": _pulled_table,
    "pulled select": _pulled_select,
    "at rest, partial": _partial,
    "verify --deep does not miss a row": _verified,
    "verify --deep: {": _blamed,
    "at rest, backfilled": _backfilled,
    "after a rebuild, rebuilt": _rebuilt,
}
_OF_FAILING: Final[dict[str, Sabotage]] = {"epoch 3, dead letters": _letters, "epoch 3, table": _nulls}


@pytest.fixture(autouse=True)
def _planned_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is made of a stage is kept with it, and would hide what breaks later: nothing is kept here."""
    monkeypatch.setattr(compiled, "_KNOWN", {})
    for module, name in ((duckdb_or_spark, "_text_of"), (guarded_stage, "_decisions")):
        monkeypatch.setattr(module, name, getattr(module, name).__wrapped__)


@pytest.mark.parametrize("says", _OF_SOUND)
def test_a_broken_path_is_red(says: str, engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    _OF_SOUND[says](monkeypatch)
    with pytest.raises(Differs, match=f"^{says}"):
        check(SOUND, engines)


@pytest.mark.parametrize("says", _OF_FAILING)
def test_a_broken_policy_on_errors_is_red(says: str, engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    _OF_FAILING[says](monkeypatch)
    with pytest.raises(Differs, match=f"^{says}"):
        check(_FAILING, engines)


def test_a_replacement_that_tells_nobody_what_changed_is_red(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "difference", lambda *given: f"SELECT * FROM ({difference(*given)}) LIMIT 0")
    with pytest.raises(Differs, match=r"^replaced, push"):
        check(_REPLACED, engines)


def test_the_second_oracle_is_asked(engines: Engines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oracle, "value_of", lambda *_, **__: 0)
    with pytest.raises(Differs, match=r"^epoch 1, table"):
        check(SOUND, engines)
