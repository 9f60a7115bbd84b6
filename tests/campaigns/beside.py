"""What is kept beside the tables of the small lake, and its readers: whatever else a process believes when it begins.

begun, approvals, leases     files of the lake
proved, acknowledged, drills, runs   what operators go by
definitions.json, topics.json
beside/inserts               idempotency keys: a request that was answered, and one whose server was killed before
beside/tokens.json           of a server
beside/backup                the lake as it was then
beside/rocksdb, lmdb         replicas of `averages`, as a server leaves them
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.expect.expectations import Approval, read_approval, write_approval
from strandline.jobs.ingest.logs.local_log import LocalLog
from strandline.jobs.ingest.topics import remember, remembered
from strandline.jobs.ivm.compiled import _KNOWN, compiled, plan_to_json
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.settings import load_settings
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.drill_history import DrillResult, history, record
from strandline.jobs.operate.recovery.restore import execute_restore, plan_restore
from strandline.jobs.operate.verify.findings import Check, last_proof, note_proofs
from strandline.jobs.operate.watch import acknowledge, acknowledgements, alerts
from strandline.jobs.run.heartbeat import Heartbeat, is_unread, read_beat, write_beat
from strandline.jobs.serve.errors import Unauthenticated
from strandline.jobs.server.state.access import Tokens, make_token
from strandline.jobs.server.state.inserts import Inserts
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import heads, reader
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout
from strandline.state_store.leases import ReaderLease, living
from strandline.state_store.processes import Process
from strandline.state_store.replicas.follow import Follower
from strandline.state_store.replicas.lmdb import LmdbStore
from strandline.state_store.replicas.replica import Replica
from strandline.state_store.replicas.rocksdb import RocksStore
from strandline.state_store.replicas.state import Layout
from tests.support.on_disk import on_disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from strandline.state_store.replicas.store import Store

BESIDE: Final = (
    "definitions.json",
    "compiled",
    "topics.json",
    "begun",
    "leases",
    "approvals",
    "proved",
    "acknowledged",
    "drills",
    "runs",
    "inserts",
    "tokens.json",
    "backup",
    "rocksdb",
    "lmdb",
)
"""The parts, as `readers.part_of` names them."""

_STORES: Final[dict[str, Callable[[Path], Store]]] = {"rocksdb": RocksStore, "lmdb": LmdbStore}
_ROWS: Final = [{"id": number, "name": f"name {number}"} for number in range(3)]
_KEYS: Final = ("answered", "killed")
_ALERT: Final = "stale averages"
_RUN: Final = Process(2, "3", "boot", "host")
_BEAT: Final = Heartbeat("campaign", "continuous", _RUN, 1, 2, 2, None, 1, {"readings": 0}, {"averages": "why"}, ())
_DRILL: Final = DrillResult("recompute", "averages", 1, 0.5, 0, 0, 40, True, 60.0, True, "all rows are back")


def write_beside(lake: LakeLayout) -> None:
    """Keep all of it, for a lake that is complete otherwise."""
    settings, folder = load_settings(lake=lake.root), on_disk(lake.root) / "beside"
    list(Interpreter(settings, "campaign").run("CREATE STREAM orders (id INT KEY, name VARCHAR);"))
    heads.note_all(lake)
    remember(settings, lake)
    head = reader.head(lake.table("averages"))
    assert head is not None
    write_approval(lake, "averages", Approval("what was asked", approved=head.at))
    ReaderLease(lake.table("averages"), "a reader").publish(40)
    averages = Catalog(lake).get("averages")
    assert isinstance(averages, View)
    note_proofs(lake, [averages], [Check("averages", "recompute", True, "")], 1, {})
    acknowledge(lake, _ALERT, "ana", 1, "on it")
    write_beat(lake, _BEAT)
    record(lake, [_DRILL])
    [drawn] = on_disk(lake.drills).iterdir()
    drawn.rename(drawn.with_name("000000000000001-0.json"))  # the same files for the same seed
    _insert(settings, lake, folder / "inserts")
    for name, scope in (("reader", "read:*"), ("writer", "write:readings")):
        make_token(folder / "tokens.json", name, (scope,), None)
    for name, store in _STORES.items():
        with _replica(lake, folder / name, store) as (_, follower):
            follower.catch_up()
    # Outside of the lake: a backup is never part of what it is of.
    with tempfile.TemporaryDirectory() as outside:
        backup = Path(outside) / "backup"
        execute_backup(settings, plan_backup(settings, backup))
        shutil.copytree(backup, folder / "backup")


def beside(part: str, lake: LakeLayout) -> Iterator[tuple[str, Callable[[], object]]]:
    """The questions about a part."""
    folder = on_disk(lake.root) / "beside"
    questions: dict[str, dict[str, Callable[[], object]]] = {
        "definitions.json": {"definitions": partial(_definitions, lake)},
        "compiled": {name: partial(_plan, lake, name) for name in ("averages", "placed", "sensors")},
        "topics.json": {"kind": partial(remembered, lake)},
        "begun": {"marks": lambda: sorted(heads.marked(lake)), "identities": partial(_identities, lake)},
        "leases": {"living": partial(living, lake.table("averages"), 0)},
        "approvals": {"approval": partial(read_approval, lake, "averages")},
        "proved": {"proof": partial(last_proof, lake, "averages")},
        "acknowledged": {"alerts": partial(_acknowledged, lake)},
        "drills": {"history": partial(history, lake)},
        "runs": {"heartbeat": partial(_beat, lake)},
        "inserts": {key: partial(_inserted_again, lake, folder / "inserts", key) for key in _KEYS},
        "tokens.json": {
            "tokens": lambda: sorted(map(repr, Tokens(folder / part)._known.values())),
            "a stranger": partial(_stranger, folder / part),
        },
        "backup": {"restored": partial(_restored, folder / part)},
        **{name: {"rows": partial(_replicated, lake, folder / name, store)} for name, store in _STORES.items()},
    }
    yield from questions[part].items()


def _definitions(lake: LakeLayout) -> object:
    catalog = Catalog(lake)
    catalog.check_pipeline("campaign")
    return list(catalog.definitions())


def _plan(lake: LakeLayout, name: str) -> object:
    """The plan as a process finds it that begins now: the stored one, or, where that is damaged, one made anew."""
    _KNOWN.clear()
    catalog = Catalog(lake)
    definition = catalog.get(name)
    assert isinstance(definition, View | Source)
    return plan_to_json(compiled(definition, catalog))


def _acknowledged(lake: LakeLayout) -> object:
    """Who takes care of what. What is damaged is told by an alert, and refused here."""
    told = [each for each in alerts(load_settings(lake=lake.root), 1) if each.kind == "broken"]
    if told:
        raise CorruptState(told[0].what)
    return acknowledgements(lake, 1)


def _beat(lake: LakeLayout) -> object:
    """What the last run said. That it is damaged is told by an alert, and refused here."""
    if is_unread(lake, _BEAT.pipeline):
        raise CorruptState("a heartbeat does not read back")
    return read_beat(lake, _BEAT.pipeline)


def _identities(lake: LakeLayout) -> object:
    """That of each table, where it is noted: what is not noted is not compared."""
    found = {name: heads.identity(lake, name) for name in sorted(heads.marked(lake))}
    wrong = {name: noted for name, noted in found.items() if noted not in (None, _identity(lake, name))}
    return wrong or "those of the tables"


def _identity(lake: LakeLayout, name: str) -> str | None:
    head = reader.head(lake.table(name))
    return None if head is None else head.record.table


def _insert(settings: Any, lake: LakeLayout, folder: Path) -> None:
    """Two requests. Of the second the records are written, and its server is killed before it says so."""
    source = Catalog(lake).get("orders")
    assert isinstance(source, Source)
    Inserts(settings, lake, folder).insert(source, _ROWS, _KEYS[0])
    with patch("strandline.jobs.server.state.inserts.failpoint", _killed_after_the_records), suppress(_Killed):
        Inserts(settings, lake, folder).insert(source, _ROWS, _KEYS[1])


class _Killed(BaseException):
    """In the place of a kill."""


def _killed_after_the_records(name: str) -> None:
    if name == "after-insert-records":
        raise _Killed


def _inserted_again(lake: LakeLayout, folder: Path, key: str) -> object:
    """What a client is told that asks once more: the places of before, and nothing new in the topic."""
    source = Catalog(lake).get("orders")
    assert isinstance(source, Source)
    ends = LocalLog(lake).end_offsets(source.topic)
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        found = Inserts(load_settings(lake=lake.root), lake, Path(copy)).insert(source, _ROWS, key)
    return found, LocalLog(lake).end_offsets(source.topic) == ends


def _stranger(file: Path) -> object:
    try:
        return Tokens(file).find("Bearer sl_reader_" + "0" * 43)
    except Unauthenticated:
        return "nobody"


def _restored(backup: Path) -> object:
    with tempfile.TemporaryDirectory() as folder:
        restored = LakeLayout(Path(folder) / "lake")
        execute_restore(plan_restore(backup, restored.root))
        tables = {name: _digest(restored, name) for name in ("averages", "readings")}
        return tables, list(Catalog(restored).definitions()), LocalLog(restored).end_offsets("readings")


def _digest(lake: LakeLayout, name: str) -> object:
    return sorted(map(repr, reader.read_rows(lake.table(name)).to_pylist()))


def _replicated(lake: LakeLayout, folder: Path, store: Callable[[Path], Store]) -> object:
    """The rows as a server gives them: by what the folder holds, and once it has followed its table."""
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        with _replica(lake, Path(copy), store) as (replica, follower):
            follower.catch_up()
            with replica.reading() as now:
                rows = [repr(row) for batch in now.scan() for row in batch.to_pylist()]
            found = [repr(replica.get([f"s{number}"])) for number in range(40)]
        return sorted(rows), found


@contextmanager
def _replica(lake: LakeLayout, folder: Path, store: Callable[[Path], Store]) -> Iterator[tuple[Replica, Follower]]:
    table = lake.table("averages")
    opened = store(folder)
    try:
        replica = Replica("averages", opened, Layout(reader.schema(table), ("sensor",)))
        yield replica, Follower(table, replica, "a replica")
    finally:
        opened.close()
