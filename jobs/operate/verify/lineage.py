"""The checks of what a table comes from: the definition of its rows, and the commits of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.jobs.ivm.refresh.epoch import FROM_TOPIC
from strandline.jobs.operate.verify.findings import Outcome, counted, failed, passed, skipped
from strandline.state_store.delta import log, reader
from strandline.state_store.errors import StoreError, VersionGone
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from strandline.jobs.operate.verify.opened import Opened
    from strandline.jobs.operate.verify.subjects import Subject
    from strandline.state_store.commits import TableVersion
    from strandline.state_store.layout import LakeLayout


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
