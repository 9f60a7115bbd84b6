"""The inputs of a view as they were: the versions that its vector names, and their rows; and the checks of what a table
comes from.

A table comes from the definition of its rows, and the commits of its inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.jobs.ivm.compiled import read_stored, what_it_is_made_from
from strandline.jobs.ivm.plan_json import to_json
from strandline.jobs.ivm.refresh.begun_logs import moment
from strandline.jobs.ivm.refresh.epoch import FROM_TOPIC
from strandline.jobs.operate.verify.findings import Outcome, counted, failed, passed, skipped
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError, VersionGone
from strandline.state_store.tablespec import STATE
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.operate.verify.subjects import Opened, Subject
    from strandline.state_store.commits import TableVersion, Trimmed
    from strandline.state_store.layout import LakeLayout


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
        elif to_json(stored.plan) != to_json(plan(each, catalog)):
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
