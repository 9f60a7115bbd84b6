"""What tables come from, and the checks of it: event logs from their topics, views from the versions that they name.

An event log has every record of its topic, or the dead letters have it, exactly once. Offsets of the local log have no
gaps. Kafka's may: a transaction's markers and its aborted records take offsets too.

A view comes from the definition of its rows and the commits of its inputs: the versions that its vector names, whose
rows are read as they were.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from strandline.jobs.ingest.foreign.table import origin_of
from strandline.jobs.ingest.topics import check_last_records, check_same
from strandline.jobs.ivm.compiled import plan_to_json, read_stored, what_it_is_made_from
from strandline.jobs.ivm.refresh.begun_logs import moment
from strandline.jobs.ivm.refresh.epoch import FROM_TOPIC
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import SourceUnavailable, TopicMissing
from strandline.jobs.model.tables import PARTITIONS_EACH
from strandline.jobs.operate.verify.findings import Outcome, counted, failed, passed, skipped
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError, VersionGone
from strandline.state_store.tablespec import STATE
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.ingest.logs.log import Log
    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.operate.verify.subjects import Opened, Subject
    from strandline.state_store.commits import TableVersion, Trimmed
    from strandline.state_store.layout import LakeLayout
    from strandline.state_store.paths import LakePath


class InputUnreadable(Exception):
    """An input cannot be read as it was: nothing can be said of what was computed from it. Verify the input."""


def versions(vector: Mapping[str, TableVersion], names: Collection[str], lake: LakeLayout) -> dict[str, int]:
    """{input: the version of it that the rows reflect}, an inner stage standing for what it reads.

    Args:
        vector: of the rows: {table: its commit}.
        names: the inputs.

    Raises:
        InputUnreadable: the record of a stage does not read, or the vector lacks an input.
    """
    found = _flat(vector, names, lake)
    missing = sorted(set(names) - found.keys())
    if missing:
        raise InputUnreadable(sentence("its vector says nothing of '{}': not computed from it yet", Name(missing[0])))
    return found


def input_rows(name: str, version: int, lake: LakeLayout, columns: Collection[str] = (), *, state: bool) -> pa.Table:
    """The visible columns of an input at one version, and `__state` if it is asked for.

    Args:
        columns: those that are needed; one that the input was given after the version is NULL.

    Raises:
        InputUnreadable: they do not read, or are not the rows that the record of that version speaks of.
    """
    path = lake.table(name)
    try:
        visible = reader.schema(path, version).names
        later = [column for column in columns if column not in visible]
        return reader.read_rows(path, version, [*visible, *later, STATE] if state else [*visible, *later])
    except StoreError as error:
        raise InputUnreadable(
            sentence("'{}' does not read at version {}: verify '{}'", Name(name), version, Name(name))
        ) from error


def _flat(vector: Mapping[str, TableVersion], names: Collection[str], lake: LakeLayout) -> dict[str, int]:
    found: dict[str, int] = {}
    for name, at in vector.items():
        said = {name: at.version} if name in names else _flat(_vector(name, at.version, lake), names, lake)
        # A stage whose rows do not change makes no commit, so its vector may be behind: the newest one said counts.
        found |= {each: max(version, found.get(each, version)) for each, version in said.items()}
    return found


def _vector(name: str, version: int, lake: LakeLayout) -> Mapping[str, TableVersion]:
    try:
        return reader.record_at(lake.table(name), version).vector
    except StoreError as error:
        raise InputUnreadable(
            sentence("its stage '{}' does not read at version {}: verify '{}'", Name(name), version, Name(name))
        ) from error


# Whether the events that a view was computed from are still there: retention may have taken the first of them.
#
#     log        e0 e1 e2 │ e3 e4 e5 …        what is left of it at the view's vector
#     totals     since e0                     its SQL over what is left lacks e0 to e2: nothing can be said by it
#     newcomer   since e3                     its SQL over what is left is what it must equal
#
# The rest of what is proved of a view (its feed, its digest, its files) needs no event; `kept_rows` has those rows
# that need only what is left.


class BegunLater(Exception):
    """An input no longer has all events that the rows were computed from: its history begins later than theirs.

    Attributes:
        log: the input.
        trimmed: what retention has taken of it.
    """

    def __init__(self, log: str, trimmed: Trimmed) -> None:
        super().__init__(
            sentence(
                "the history of '{}' begins after {}: retention has taken {} events, and the rows hold what was "
                "computed from them",
                Name(log),
                moment(trimmed.until),
                f"{trimmed.rows:,}",
            )
        )
        self.log, self.trimmed = log, trimmed


def check_begun(
    since: Mapping[str, int], vector: Mapping[str, TableVersion], at: Mapping[str, int], lake: LakeLayout
) -> None:
    """Check that every input still has the events that the rows were computed from.

    Args:
        since: {table of the vector: how many of its events were gone when the rows were computed from it}.
        vector: of the rows: {table: its commit}.
        at: {input: the version of it that the rows reflect}, inner stages standing for what they read.

    Raises:
        BegunLater: one has not.
        VersionGone, CorruptState: a record does not read.
    """
    begun: dict[str, int] = {}
    for name, gone in _begun(since, vector, at, lake):
        begun[name] = min(gone, begun.get(name, gone))
    for name, version in at.items():
        trimmed = reader.record_at(lake.table(name), version).trimmed
        if trimmed is not None and trimmed.rows > begun.get(name, 0):
            raise BegunLater(name, trimmed)


def _begun(
    since: Mapping[str, int], vector: Mapping[str, TableVersion], names: Collection[str], lake: LakeLayout
) -> Iterator[tuple[str, int]]:
    """(input, how many of its events were gone when the rows were computed from it), also by way of inner stages."""
    for name, at in vector.items():
        if name in names:
            yield name, since.get(name, 0)
        else:
            inner = reader.record_at(lake.table(name), at.version)
            yield from _begun(inner.since, inner.vector, names, lake)


PUT_BACK: Final = "its rows were put back from its changelog topic"


def was_put_back(table: Opened) -> bool:
    """True of rows that `strandline rebuild VIEW --from-topic` stored: their inputs are not known."""
    return table.record.fingerprint == FROM_TOPIC


def check_known(subject: Subject) -> Outcome | None:
    """The definition of the table is in the catalog, whole and with a plan; None: it is."""
    if subject.fault is not None:
        return failed(subject.fault.message, subject.fault.where, subject.fault.hint)
    if subject.definition is None:
        return failed("no definition in the catalog owns it")
    return None


def check_definition(table: Opened) -> Outcome:
    """The rows were made by the definition that is in the catalog."""
    unknown = check_known(table.subject)
    if unknown is not None:
        return unknown
    if was_put_back(table):
        return failed(f"{PUT_BACK}: they are those that it held, and no run goes on from them")
    wanted, found = table.subject.fingerprint, table.record.fingerprint
    if wanted is None:
        return skipped(sentence("the plan of '{}' has no such stage any more", Name(table.subject.owner)))
    # A query that inserts into a stream may come first, and leaves the place free.
    if found not in ("", wanted):
        return failed(f"its rows were made by another definition: fingerprint {found}, and not {wanted}")
    return passed(f"fingerprint {found}" if found else "rows that carry no fingerprint")


def check_plan(subject: Subject, catalog: Catalog) -> Outcome:
    """Each compiled plan that is stored, and would be used, is the one that its definition has."""
    from strandline.jobs.ivm.plan.plan import plan  # Dagster knows the checks by this module, and compiles nothing

    definitions: list[Definition] = [] if subject.definition is None or subject.role != "rows" else [subject.definition]
    definitions += catalog.insert_queries(subject.table)
    unused = []
    for each in definitions:
        stored = read_stored(each.name, catalog.lake)
        if stored.state != "whole":
            unused.append(stored.why or "none is stored")
        elif stored.made_from != what_it_is_made_from(each, catalog) or stored.plan is None:
            unused.append("it is of a former definition, or of another compiler")
        elif plan_to_json(stored.plan) != plan_to_json(plan(each, catalog)):
            return failed(
                sentence("the compiled plan of '{}' is another one than its definition has", Name(each.name)),
                stored.file,
                sentence(
                    "remove the file, which is made anew: rm '{}'; then look at the rows: strandline verify --deep {}",
                    stored.file,
                    Name(each.name),
                ),
            )
    if unused:
        return skipped(f"{unused[0]}: it is compiled anew, and the next run stores it")
    return passed(counted(len(definitions), "compiled plan"))


def check_vector(table: Opened, lake: LakeLayout) -> Outcome:
    """Each entry of the vector is a commit that its input has, and the same one."""
    if was_put_back(table):
        return skipped(PUT_BACK)
    unseen = []
    for entry, at in table.record.vector.items():
        name = table.subject.input_of(entry)
        outcome = _check_input(name, at, lake)
        if outcome is not None and not outcome.ok:
            if outcome.ok is not None:
                return outcome
            unseen.append(outcome.what)
    if unseen:
        return skipped(joined("; ", unseen))
    return passed(counted(len(table.record.vector), "input"))


def _check_input(name: str, at: TableVersion, lake: LakeLayout) -> Outcome | None:
    """What is wrong with one entry; None when nothing is."""
    path = lake.table(name)
    try:
        kept, newest = log.versions(path), log.newest_version(path)
        if newest is None or not kept:
            return failed(sentence("its input '{}' is not there", Name(name)), path)
        if at.version > newest:
            return failed(
                sentence(
                    "'{}' ends at version {}, and its rows were computed from version {}",
                    Name(name),
                    newest,
                    at.version,
                )
            )
        if at.version < kept[0]:
            return skipped(
                sentence("the log of '{}' begins with version {}, after version {}", Name(name), kept[0], at.version)
            )
        found = reader.version_at(path, at.version)
    except VersionGone:
        return skipped(sentence("the log of '{}' lacks version {}: verify '{}'", Name(name), at.version, Name(name)))
    except StoreError as error:
        return skipped(sentence("the log of '{}' is broken, verify '{}': {}", Name(name), Name(name), error.message))
    if at.same(found):
        return None
    if at.table and found.table and at.table != found.table:
        return failed(sentence("its input '{}' was removed and made anew", Name(name)))
    return failed(
        sentence("version {} of '{}' is another commit than the one it was computed from", at.version, Name(name))
    )


_Offsets = dict[int, Any]
"""{partition: its offsets, sorted, as an array of int64}"""


def check_offsets(table: Opened, source: Source, lake: LakeLayout, log: Log, *, dense: bool) -> Outcome:
    """No offset stands twice, and none at or above the recorded one; with `dense` none is missing below it.

    Args:
        table: the event log of the source, or its dead letters, of which alone nothing can be missing.
        dense: the offsets of the topic have no gaps.

    Raises:
        VersionGone, CorruptState: the rows do not read.
    """
    recorded = {int(name): upto for name, upto in table.record.offsets.get(source.topic, {}).items()}
    found = _offsets(table.path, table.version)
    for partition, offsets in found.items():
        upto = recorded.get(partition, 0)
        if offsets[-1] >= upto:
            return failed(f"partition {partition} holds offset {offsets[-1]}, and the record says it ends at {upto}")
    if table.subject.role == "event log":
        try:
            aside = _aside(source, lake, recorded)
        except StoreError as error:
            return skipped(f"the dead letters do not read: {error.message}")
        gone = _gone(table)
        back = next((p for p, offsets in found.items() if offsets[0] < gone.get(p, 0)), None)
        if back is not None:
            return failed(f"offset {found[back][0]} of partition {back} stands in the log, and retention has taken it")
        aside = {p: offsets[offsets >= gone.get(p, 0)] for p, offsets in aside.items()}
        found = {p: np.sort(np.concatenate([s[p] for s in (found, aside) if p in s])) for p in found | aside}
    for partition, offsets in found.items():
        twice = offsets[1:][offsets[1:] == offsets[:-1]]
        if len(twice):
            return failed(f"offset {twice[0]} of partition {partition} stands twice")
    if dense and table.subject.role == "event log":
        missing = _missing(found, recorded, _begins(table, log, source.topic))
        if missing:
            return failed(f"{missing} is neither in the log nor among the dead letters")
    return passed(f"{counted(sum(map(len, found.values())), 'record')} of topic '{source.topic}'")


def check_topic(table: Opened, source: Source, log: Log) -> Outcome:
    """The topic is the one that the events were read from.

    Raises:
        TopicReplaced: it is another one of that name.
        ForeignChanged: of a table of others the version that was read last is another one.
        TopicMissing: it is not there.
    """
    wanted = table.record.topics.get(source.topic, "")
    try:
        found = log.identity(source.topic).id
    except SourceUnavailable as error:
        return skipped(f"the broker does not answer: {error.message}")
    if not wanted or not found:
        whose = "the record" if not wanted else f"topic '{source.topic}'"
        return skipped(f"{whose} has no id")
    check_same(source.topic, wanted, found, log)
    if origin_of(source.topic) is not None:
        check_last_records(source, table.record, log, {})
    return passed(f"topic '{source.topic}' has id {found} still")


def _offsets(path: LakePath, version: int) -> _Offsets:
    rows = reader.read_rows(path, version, ["_partition", "_offset"])
    partitions, offsets = (rows[each].to_numpy() for each in ("_partition", "_offset"))
    # Rows of the queries that insert into a stream have partitions of their own.
    chosen = np.unique(partitions[partitions < PARTITIONS_EACH])
    return {int(each): np.sort(offsets[partitions == each]) for each in chosen}


def _aside(source: Source, lake: LakeLayout, recorded: Mapping[int, int]) -> _Offsets:
    """The dead letters below the event log's offsets: they are written first, so a kill may leave some above."""
    path = lake.table(tables.dead_letters(source.name))
    head = reader.head(path)
    found = _offsets(path, head.version) if head is not None else {}
    below = {partition: offsets[offsets < recorded.get(partition, 0)] for partition, offsets in found.items()}
    return {partition: offsets for partition, offsets in below.items() if len(offsets)}


def _begins(table: Opened, log: Log, topic: str) -> dict[int, int]:
    """{partition: the first offset that must be there}: of the topic, or after what retention has taken of the log."""
    gone = _gone(table)
    try:
        topics = log.begin_offsets(topic)
    except TopicMissing:  # another check says so
        topics = {}
    return {each: max(gone.get(each, 0), topics.get(each, 0)) for each in gone | topics}


def _gone(table: Opened) -> dict[int, int]:
    """{partition: the offset below which retention has taken every event of the log}."""
    trimmed = table.record.trimmed
    return {int(partition): offset for partition, offset in trimmed.begins.items()} if trimmed is not None else {}


def _missing(found: _Offsets, recorded: Mapping[int, int], begins: Mapping[int, int]) -> str:
    """The first offset that should be there, in words; empty when none is missing."""
    for partition, upto in recorded.items():
        offsets = found.get(partition, np.array([], np.int64))
        # What retention has removed since may have been read before.
        first = min([begins.get(partition, upto), *offsets[:1].tolist()])
        if len(offsets) < upto - first:
            wanted = np.arange(first, upto)
            return f"offset {np.setdiff1d(wanted, offsets)[0]} of partition {partition}"
    return ""
