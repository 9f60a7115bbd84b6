"""The watch over a lake: what an operator must hear of, found from heartbeats, commits and leases alone.

| alert | when |
| --- | --- |
| `silent` | a continuous run should be alive and has said nothing for a minute |
| `killed` | a continuous run's process is gone, and nobody stopped it |
| `failed` | a run ended with an error |
| `stopped` | a view failed in the last run, and is not refreshed any more |
| `held` | a table breaks a blocking expectation, and what reads it waits |
| `stale` | a view is staler than its FRESHNESS |
| `lease` | a reader's lease has ended, or ends within a day: what it needs may go then |
| `broken` | the file of a definition, an acknowledgement or a run's heartbeat does not read back |

Acknowledgements of alerts: who takes care of one, until when.

    firing ──acknowledge──> acknowledged ──over──> resolved
      ^                          │
      └────── its time is up ────┘

    <lake>/acknowledged/<hash of the alert's identity>.json

An acknowledgement holds until its alert is over, and at most for its hours: what somebody has taken, and forgotten, is
told again. It is a file of its own, so that whoever acknowledges and whoever watches never write the same one. What
one says that is damaged is not believed: its alert is told again, and so is the damage.
"""

from __future__ import annotations

import hashlib
import shlex
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.expect.expectations import read_approval
from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.definitions import Ownership, Source, View
from strandline.jobs.operate.health_checks import HealthChecks, Waiting
from strandline.jobs.run.heartbeat import is_unread, read_beat
from strandline.state_store import leases
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.errors import HINTED, CorruptState
from strandline.state_store.files import make_folder, remove_file
from strandline.state_store.files import replace as replace_file
from strandline.state_store.layout import LakeLayout, name_of
from strandline.state_store.paths import files_in, folders_in
from strandline.state_store.stored_state import members_since, sealed_members
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from strandline.jobs.model.definitions import Severity
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.run.heartbeat import Heartbeat
    from strandline.state_store.paths import LakePath


LEASE_ENDS_WITHIN_MS: Final = 86_400_000
"""A living reader renews its lease of a week every minute: one with a day left has been away for six."""

_SEVERITIES: Final[Mapping[str, Severity]] = {"held": "warn", "stale": "warn", "lease": "warn"}
"""Of what still goes on, or goes on by itself once its cause is gone; everything else waits for somebody."""


@dataclass(frozen=True)
class Alert:
    """One thing to hear of.

    Attributes:
        kind: see the table above; `check` for a failed check of Dagster's.
        subject: the pipeline, view, table or reader.
        what: one sentence, without numbers that grow: the same alert reads the same a minute later.
        hint: what to type next.
        severity: `error`: rows are late or lost until somebody acts; `warn`: they may be.
        owner: whose it is, by OWNER of the definition: `team:NAME` or an address, several with commas.
    """

    kind: str
    subject: str
    what: str
    hint: str = ""
    severity: Severity = "error"
    owner: str = ""

    @property
    def identity(self) -> str:
        """The same as long as it is the same alert, whatever it says of it."""
        return f"{self.kind} {self.subject}"

    def as_json(self) -> dict[str, str]:
        """The alert as an object, for monitors."""
        return asdict(self)


def alerts(settings: Settings, now_ms: int) -> list[Alert]:
    """The alerts of a lake at a moment, in milliseconds since the epoch. No rows are read."""
    lake = LakeLayout(settings.lake)
    catalog = Catalog(lake)
    errors = {name: broken.error() for name, broken in catalog.broken.items()}
    found = [Alert("broken", name, error.message, error.hint or "") for name, error in errors.items()]
    for pipeline in catalog.pipelines():
        beat = read_beat(lake, pipeline)
        found += _of_run(pipeline, beat, now_ms) if beat is not None else ()
        if beat is None and is_unread(lake, pipeline):
            what = "what its last run said of itself does not read back: nobody knows whether it failed or was killed"
            found.append(Alert("broken", pipeline, what, f"type: strandline run {pipeline}, which says it anew"))
    found += _held(catalog, lake)
    found += _stale(catalog, settings, lake, now_ms)
    for folder in folders_in(lake.tables):
        table = name_of(folder.name)
        found += _of_leases(table, lake, now_ms)
    found += _unread(found, lake)
    return [replace(each, severity=_SEVERITIES.get(each.kind, "error"), owner=owners(catalog, each)) for each in found]


def owners(catalog: Catalog, alert: Alert) -> str:
    """The owners of what an alert is about: of the definition, or of all definitions of the pipeline."""
    if alert.subject in catalog.broken:
        return ""
    found = catalog.find(alert.subject)
    about = [found] if found is not None else catalog.pipeline(alert.subject)
    known = (Ownership.read(each.options).owners for each in about if isinstance(each, View | Source))
    return ", ".join(dict.fromkeys(owner for each in known for owner in each))


def _of_run(pipeline: str, beat: Heartbeat, now_ms: int) -> Iterator[Alert]:
    restart = f"type: strandline run {pipeline} --mode {beat.mode}"
    if beat.ended and beat.error is not None:
        hint = beat.error.get("hint") or restart
        yield Alert("failed", pipeline, f"[{beat.error.get('code')}] {beat.error.get('message')}", hint)
    elif not beat.ended and not beat.is_running:
        yield Alert("killed", pipeline, f"process {beat.process.pid} is gone, and nobody stopped it", restart)
    elif beat.is_silent(now_ms):
        what = f"process {beat.process.pid} on '{beat.process.host}' gives no heartbeat"
        yield Alert("silent", pipeline, what, f"look whether it works; to end it: kill {beat.process.pid}")
    for table, why in beat.failures.items():
        said, _, hint = why.partition(HINTED)
        yield Alert("stopped", table, said, hint or sentence("type: strandline rebuild {}", Name(table, shlex.quote)))


def _held(catalog: Catalog, lake: LakeLayout) -> Iterator[Alert]:
    for each in catalog.definitions():
        if isinstance(each, View | Source) and Ownership.read(each.options).blocking:
            try:
                approval = read_approval(lake, each.name)
            except CorruptState as error:
                yield Alert("held", each.name, error.message, error.hint or "")
                continue
            if approval.refused is not None:
                hint = "correct what it is computed from, or the expectation"
                yield Alert("held", each.name, f"what reads it waits: it breaks {approval.why}", hint)


def _stale(catalog: Catalog, settings: Settings, lake: LakeLayout, now_ms: int) -> Iterator[Alert]:
    signs = HealthChecks(catalog, lake, Waiting(catalog, WholeHeads(lake), open_log(settings, lake)), now_ms)
    for view in catalog.definitions():
        if isinstance(view, View) and not view.partial:
            verdict = signs.check(view, "freshness")
            if verdict.ok is False:
                target = verdict.numbers["freshness target seconds"]
                yield Alert("stale", view.name, f"staler than its {target:g} s", f"is '{view.pipeline}' running?")


def _of_leases(table: str, lake: LakeLayout, now_ms: int) -> Iterator[Alert]:
    path = lake.table(table)
    try:
        dying = [each for each in leases.living(path, now_ms) if each.until <= now_ms + LEASE_ENDS_WITHIN_MS]
        dead = leases.expired(path, now_ms)
    except CorruptState as error:
        yield Alert("lease", table, error.message, error.hint or "")
        return
    for each in dying:
        what = sentence(
            "its lease of '{}' at version {} ends within a day: process {} on '{}'",
            Name(table),
            each.version,
            each.pid,
            each.host,
        )
        yield Alert("lease", f"{each.reader} of {table}", what, "start the reader again, or let it go")
    for each in dead:
        what = sentence(
            "its lease of '{}' at version {} has ended: that version may be cleaned up", Name(table), each.version
        )
        yield Alert("lease", f"{each.reader} of {table}", what, "start the reader again soon, or let it go")


_HOURS: Final = 24.0
"""A working day and the night after it: the next shift hears of what the last one left."""
_FORMAT: Final = 2
"""Since it they have a checksum."""
_HOUR_MS: Final = 3_600_000


@dataclass(frozen=True)
class Acknowledgement:
    """One acknowledgement. Moments are milliseconds since the epoch.

    Attributes:
        identity: of the alert.
        by: who takes care of it.
        note: what they say.
    """

    identity: str
    by: str
    at: int
    until: int
    note: str = ""

    def __str__(self) -> str:
        return f"acknowledged by {self.by}{f': {self.note}' if self.note else ''}"


def acknowledge(lake: LakeLayout, identity: str, by: str, now_ms: int, note: str = "", hours: float = _HOURS) -> None:
    """Acknowledge an alert, in the place of an earlier acknowledgement of it.

    Raises:
        DiskFailed, StorageDenied, StorageUnavailable: it could not be written.
    """
    made = Acknowledgement(identity, by, now_ms, now_ms + int(hours * _HOUR_MS), note)
    make_folder(lake.acknowledged)
    replace_file(_path(lake, identity), sealed_members({"format": _FORMAT, **asdict(made)}))


def acknowledgements(lake: LakeLayout, now_ms: int) -> dict[str, Acknowledgement]:
    """{identity of an alert: its acknowledgement}, of those whose time is not up. Of one that does not read back
    `alerts` tells."""
    made = (_acknowledgement(file) for file in files_in(lake.acknowledged, ".json"))
    return {each.identity: each for each in made if each is not None and each.until > now_ms}


def _acknowledgement(file: LakePath) -> Acknowledgement | None:
    """That in a file; None: it does not read back."""
    try:
        return Acknowledgement(**members_since(file.read_bytes(), _FORMAT))
    except (OSError, ValueError, TypeError):
        return None


def _unread(found: Iterable[Alert], lake: LakeLayout) -> Iterator[Alert]:
    """The acknowledgements that do not read back. Whose they were is told by their names, as long as it fires."""
    by_file = {_path(lake, each.identity).name: each for each in found}
    for file in files_in(lake.acknowledged, ".json"):
        if _acknowledgement(file) is not None:
            continue
        what, hint = "an acknowledgement does not read back, and is taken for none", f"remove {file}"
        of = by_file.get(file.name)
        if of is not None:
            what = sentence("the acknowledgement of '{} {}' does not read back", of.kind, Name(of.subject))
            hint = sentence("type: strandline acknowledge {} {}", of.kind, Name(of.subject, shlex.quote))
        yield Alert("broken", file.name, what, hint)


def forget(lake: LakeLayout, identities: Iterable[str]) -> None:
    """Forget the acknowledgements of alerts that are over: when they fire again, they are new."""
    for identity in identities:
        remove_file(_path(lake, identity))


def _path(lake: LakeLayout, identity: str) -> LakePath:
    # An identity may hold any text, and be longer than a file's name.
    return lake.acknowledged / f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.json"
