"""The checks of what a table comes from: the definition of its rows, and the commits of its inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jobs.ivm.refresh.epoch import FROM_TOPIC
from jobs.operate.verify.findings import Outcome, counted, failed, passed, skipped
from state_store.delta import log, reader
from state_store.errors import StoreError, VersionGone

if TYPE_CHECKING:
    from jobs.operate.verify.opened import Opened
    from jobs.operate.verify.subjects import Subject
    from state_store.commits import TableVersion
    from state_store.layout import Lake


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
        return skipped(f"the plan of '{table.subject.owner}' has no such stage any more")
    # A query that inserts into a stream may come first, and leaves the place free.
    if found not in ("", wanted):
        return failed(f"its rows were made by another definition: fingerprint {found}, and not {wanted}")
    return passed(f"fingerprint {found}" if found else "rows that carry no fingerprint")


def check_vector(table: Opened, lake: Lake) -> Outcome:
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
        return skipped("; ".join(unseen))
    return passed(counted(len(table.record.vector), "input"))


def _check_input(name: str, at: TableVersion, lake: Lake) -> Outcome | None:
    """What is wrong with one entry; None when nothing is."""
    path = lake.table(name)
    try:
        kept, newest = log.versions(path), log.newest_version(path)
        if newest is None or not kept:
            return failed(f"its input '{name}' is not there", path)
        if at.version > newest:
            return failed(f"'{name}' ends at version {newest}, and its rows were computed from version {at.version}")
        if at.version < kept[0]:
            return skipped(f"the log of '{name}' begins with version {kept[0]}, after version {at.version}")
        found = reader.version_at(path, at.version)
    except VersionGone:
        return skipped(f"the log of '{name}' lacks version {at.version}: verify '{name}'")
    except StoreError as error:
        return skipped(f"the log of '{name}' is broken, verify '{name}': {error.message}")
    if at.same(found):
        return None
    if at.table and found.table and at.table != found.table:
        return failed(f"its input '{name}' was removed and made anew")
    return failed(f"version {at.version} of '{name}' is another commit than the one it was computed from")
