"""The inputs of a view as they were: the versions that its vector names, and their rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ivm.refresh.begun_logs import moment
from strandline.state_store.delta import reader
from strandline.state_store.errors import StoreError
from strandline.state_store.tablespec import STATE
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    import pyarrow as pa

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
