"""The ways to the rows of a view: a function for each path of the product, which yields what a user gets by it.

| way | what the user does |
| --- | --- |
| table | reads the table with any Delta reader |
| pulled table | `SELECT * FROM view` |
| pulled select | the view's own SELECT as a pull query |
| push | a client of `SELECT * FROM view EMIT CHANGES` |
| weights | a client that adds up every change since the view began |
| replica | a copy that follows the table |
| topic | the changelog topic, read back; not where a row has what JSON does not hold |
| partial | the same view with `STATE = 'partial'`, asked for every key |
| rebuilt | `strandline rebuild view` |
| backfilled | `strandline backfill view --from …`, where its rows can be told apart by time |
"""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from strandline.jobs.catalog.relations import visible_relation
from strandline.jobs.functions.python import Library
from strandline.jobs.ivm.rules.stored import spec_of, stored_columns
from strandline.jobs.model import tables
from strandline.jobs.model.errors import RangeInseparable
from strandline.jobs.model.report import UNWATCHED
from strandline.jobs.operate.backfill import execute_backfill, period_of, plan_backfill
from strandline.jobs.operate.rebuild import rebuild
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.partial.plan import partial_plan
from strandline.jobs.partial.pull import Upqueries
from strandline.jobs.partial.view import PartialView
from strandline.jobs.publish.encoder import decoded_rows, live_records
from strandline.jobs.publish.publisher import open_publisher, open_topic, registry_of
from strandline.jobs.publish.topic import topic_as_source
from strandline.jobs.run.schedule import maintained
from strandline.jobs.serve.errors import ChangesGone
from strandline.jobs.serve.results import Rows as Answered
from strandline.jobs.serve.results import Tombstone, Weighted
from strandline.jobs.serve.subscription import subscription
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.sql.statements import parse_one
from strandline.jobs.sql.syntax import Select
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import InputReplaced
from strandline.state_store.layout import name_of
from strandline.state_store.paths import folders_in
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.state import Layout
from strandline.state_store.replicas.store import MemoryStore
from tests.properties.paths.expressions import text
from tests.properties.paths.values import VALUES, Rows, rows_of
from tests.properties.paths.views import Block, Having, SetOperation, by_the_clock
from tests.support.arrow_table import ArrowTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.jobs.operate.backfill import BackfillPlan
    from strandline.jobs.serve.subscription import Change, Subscription
    from tests.properties.paths.lake import ViewLake
    from tests.properties.paths.oracle import Expected
    from tests.properties.paths.views import Query, ViewOf

_CACHE_BYTES: Final = 1 << 20
_FROM: Final = "0001-01-01"
"""The period of a backfill begins with the first day that there is."""


@dataclass(frozen=True)
class At:
    """A view of a lake, after an epoch.

    Attributes:
        expected: what the oracle says of it: some ways have to be asked for single keys.
    """

    lake: ViewLake
    view: ViewOf
    expected: Expected

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.view.query.types]

    @property
    def computed(self) -> bool:
        """False while the view has no table: it stopped before its first epoch."""
        return log.newest_version(self.lake.lake.table(self.view.name)) is not None


Way = Callable[[At], Rows | None]
"""The rows by one path; None: it does not lead to this view."""


def table(at: At) -> Rows:
    """The rows of the table at its head."""
    if not at.computed:
        return Counter()
    found = reader.read_rows(at.lake.lake.table(at.view.name), columns=at.names)
    return rows_of(zip(*(found[name].to_pylist() for name in at.names), strict=True))


def pulled_table(at: At) -> Rows:
    """The rows of a pull query over the view."""
    return _pulled(at, f"SELECT {', '.join(at.names)} FROM {at.view.name}")


def can_be_pulled(query: Query) -> bool:
    """False for EMIT FINAL, which is for views alone."""
    return not (isinstance(query, Block) and query.window is not None and query.window.final)


def pulled_select(at: At) -> Rows:
    """The rows of the view's own SELECT as a pull query, which has a group of NULL also where the view is ksqlDB's.

    Raises:
        StrandlineError: an expression fails on a row.
    """
    query = at.view.meant
    if isinstance(query, Block) and query.keys_are_there:
        query = replace(query, having=" AND ".join(f"{text(each)} IS NOT NULL" for each in query.group or ()))
    return _pulled(at, by_the_clock(query.sql))


def _pulled(at: At, sql: str) -> Rows:
    (found,) = Interpreter(at.lake.settings).run(f"{sql};")
    assert isinstance(found, Answered)
    return rows_of(found.rows)


def weights(at: At) -> Rows | None:
    """What a client has who adds up the changes of every version."""
    if not at.computed:
        return None
    made, newest = _subscribed(at)
    held: Counter[tuple[Any, ...]] = Counter()
    for change in made.weighted(at.lake.duck, made.changes(-1, newest, by_weight=True)):
        held.update({next(iter(rows_of([change.row]))): change.weight})
    assert not [row for row, count in held.items() if count < 0], "a row is taken back that is not there"
    return +held


def pushed(at: At) -> Rows | None:
    """What a client of `SELECT … EMIT CHANGES` has who began with the table as it was at the first epoch."""
    if not at.computed:
        return None
    made, newest = _subscribed(at)
    client: _Client = at.lake.kept.setdefault(("push", at.view.name), _Client())
    if client.version is not None and client.version > newest:
        client = at.lake.kept["push", at.view.name] = _Client()  # the table was begun anew: it subscribes again
    try:
        unseen = client.unseen(made, newest)
    except ChangesGone:
        if client.key == made.relation.key:
            raise
        client = at.lake.kept["push", at.view.name] = _Client()  # another key tells the rows apart
        unseen = client.unseen(made, newest)
    assert client.key in (None, made.relation.key), "it goes on though another key tells the rows apart"
    client.take(made, made.visible(at.lake.duck, unseen))
    client.version, client.key = newest, made.relation.key
    return client.rows()


class _Client:
    """A client of a push query: a row takes the place of its key's, a tombstone removes it, a weight adds or takes.

    Attributes:
        version: up to which it has taken the changes.
        key: of the rows that it has.
    """

    def __init__(self) -> None:
        self.version: int | None = None
        self.key: tuple[str, ...] | None = None
        self._by_key: dict[Any, tuple[Any, ...]] = {}
        self._others: Counter[tuple[Any, ...]] = Counter()

    def unseen(self, made: Subscription, newest: int) -> pa.Table:
        """The table as it is for who begins, or what changed since."""
        return made.snapshot(newest) if self.version is None else made.changes(self.version, newest)

    def take(self, made: Subscription, changes: Iterable[Change]) -> None:
        """Apply the changes."""
        for change in changes:
            row = change.row if isinstance(change, Tombstone | Weighted) else change
            (told,) = rows_of([row])
            key = tuple(value for value, of_key in zip(told, made.of_key, strict=True) if of_key)
            match change:
                case Weighted():
                    self._others.update({told: change.weight})
                case Tombstone():
                    del self._by_key[key]
                case _ if made.by_key and made.relation.storage == "keyed":
                    self._by_key[key] = told
                case _:
                    self._others[told] += 1

    def rows(self) -> Rows:
        """What it holds."""
        return Counter(self._by_key.values()) + self._others


def _subscribed(at: At) -> tuple[Subscription, int]:
    """The subscription to the view, and its newest version."""
    statement = parse_one(f"SELECT {', '.join(at.names)} FROM {at.view.name} EMIT CHANGES;")
    assert isinstance(statement, Select)
    made = subscription(statement, at.lake.catalog, at.lake.lake)
    newest = log.newest_version(made.path)
    assert newest is not None
    return made, newest


def replica(at: At) -> Rows | None:
    """The rows of a replica that has followed the table since it was first there, or has the key that it has now."""
    if not at.computed:
        return None
    follower, copy = at.lake.kept.get(("replica", at.view.name)) or _followed(at)
    if copy.layout.key != (visible_relation(at.lake.view(at.view.name)).key or None):
        follower, copy = _followed(at)
    at.lake.kept["replica", at.view.name] = follower, copy
    follower.catch_up()
    with copy.reading() as now:
        return rows_of([row[name] for name in at.names] for batch in now.scan() for row in batch.to_pylist())


def _followed(at: At) -> tuple[Follower, Replica]:
    path = at.lake.lake.table(at.view.name)
    key = visible_relation(at.lake.view(at.view.name)).key
    copy = Replica(at.view.name, MemoryStore(), Layout(reader.schema(path), key or None))
    return Follower(path, copy, "reader"), copy


def topic(at: At) -> Rows | None:
    """The rows that a reader has of the changelog topic, once the view's newest version is published."""
    if not at.computed or at.view.name not in at.lake.published or _not_json(at.expected):
        return None
    settings, lake = at.lake.settings, at.lake.lake
    publisher = open_publisher(settings, at.view.name)
    try:
        publisher.catch_up()
    finally:
        publisher.close()
    source = topic_as_source(at.lake.view(at.view.name))
    opened = open_topic(source, settings, lake)
    opened.close()
    live = live_records(opened.log, source.topic, at.view.name, lambda value: value)
    rows = decoded_rows(live, source, registry_of(settings, lake))
    return rows_of(zip(*(rows[name].to_pylist() for name in at.names), strict=True))


def _not_json(expected: Expected) -> bool:
    """True where a row has what no JSON topic holds: NaN, an infinity, a part of a millisecond."""

    def strange(value: Any) -> bool:
        if isinstance(value, float):
            return not math.isfinite(value)
        if isinstance(value, list | tuple):
            return any(map(strange, value))
        if isinstance(value, dict):
            return any(map(strange, (*value, *value.values())))
        return isinstance(value, dt.datetime) and value.microsecond % 1000 != 0

    return any(strange(value) for row in expected.values for value in row)


def partial(at: At) -> Rows | None:
    """The rows of the partial view, asked for every key that there is, and for some that are not there."""
    name = at.lake.partial.get(at.view.name)
    if name is None:
        return None
    plan = partial_plan(at.lake.view(name), at.lake.catalog)
    opened = PartialView(plan, at.lake.lake, Upqueries(plan, at.lake.lake, Library((), ())), _CACHE_BYTES)
    opened.advance()
    places = [at.names.index(each) for each in plan.key]
    keys = [tuple(row[place] for place in places) for row in at.expected.values]
    if len(places) == 1:
        keys += [(value,) for value in VALUES.get(at.view.query.types[places[0]][1], ())]
    # NaN is not equal to itself, nor are dictionaries hashable: keys are told apart as rows are.
    distinct = {next(iter(rows_of([key]))): key for key in keys}
    found = opened.read(list(distinct.values())).rows
    return rows_of([row[each] for each in at.names] for rows in found for row in rows)


def rebuilt(at: At) -> Rows | None:
    """The rows of the table once the view was computed anew."""
    if not at.computed:
        return None
    rebuild(at.lake.settings, at.view.name)
    return table(at)


def in_a_period(at: At, row: Mapping[str, Any]) -> bool:
    """True if a backfill computes the row anew: rows of the view can be told apart by a time, and the row has one."""
    try:
        plan = _backfill(at)
    except RangeInseparable:
        return False
    except InputReplaced:
        return False  # it reads a view that was rebuilt just now
    return row[plan.column.name] is not None


def backfilled(at: At) -> Rows:
    """The rows of the table once those with a time were computed anew."""
    execute_backfill(at.lake.settings, _backfill(at), UNWATCHED)
    return table(at)


def _backfill(at: At) -> BackfillPlan:
    return plan_backfill(at.lake.settings, at.view.name, period_of(_FROM, None))


def lose_a_row(at: At) -> dict[str, Any] | None:
    """Take one row out of the view's table, by a commit that says nothing wrong; None where there is none to take."""
    view = at.lake.view(at.view.name)
    if view.storage == "append" or not at.expected.values:
        return None
    item = next(each for level in maintained([view], at.lake.catalog) for each in level if each.name == view.name)
    stage = item.stages[-1]
    schema = pa.schema([(name, kind.arrow()) for name, kind in stored_columns(stage)])
    stored = ArrowTable(at.lake.lake.table(view.name), schema, spec_of(stage))
    head = reader.head(stored.path)
    assert head is not None
    record = replace(head.record, epoch=head.record.epoch + 1, mode="delta", reason="planted by a test")
    lost = stored.stored(head.version)[0]
    stored.apply([], lambda row: str(row) == str(lost), record)
    return lost


def dead_letters(at: At) -> int | None:
    """The rows that the view keeps aside; None where several of its queries could keep the same row."""
    query = at.view.query
    if at.view.shared:
        return None  # the stage's are of all views that share it
    if isinstance(query, Having):
        query = query.groups
    if isinstance(query, SetOperation) or query.queries:
        return None
    if query.sets and ("()" in query.sets or not query.sets.startswith("GROUPING")):
        return None  # the grand total is a query of its own
    # Those of inner stages too.
    names = [name_of(folder.name) for folder in folders_in(at.lake.lake.tables)]
    kept = [name for name in tables.owned_by(at.view.name, names) if name.endswith(tables.dead_letters(""))]
    return sum(int(reader.read_rows(at.lake.lake.table(name)).num_rows) for name in kept)


def verified(lake: ViewLake, names: list[str]) -> dict[str, str]:
    """What `strandline verify --deep` finds broken, by table."""
    found = verify(lake.settings, names, deep=True)
    return {each.table: f"{each.check}: {each.what}" for each in found if each.ok is False}


EACH_EPOCH: Final[dict[str, Way]] = {
    "table": table,
    "push": pushed,
    "replica": replica,
    "topic": topic,
}
"""The ways that go on from epoch to epoch."""

AT_REST: Final[dict[str, Way]] = {"weights": weights, "pulled table": pulled_table}
"""The ways of which one answer at the end is as good as many."""
