"""The live files of a version of a table: the last checkpoint before it, and the commits since.

    checkpoint(v)  ──>  files, table, protocol  ──commit v+1──> … ──commit n──>  snapshot of n

A commit that removes a file and adds it again has given it another deletion vector.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from state_store.delta import log
from state_store.errors import CorruptState
from state_store.layout import table_at
from state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from state_store.delta.entry import Action
    from state_store.paths import LakePath


@dataclass(frozen=True)
class Snapshot:
    """A table at one version.

    Attributes:
        files: {path as the log has it: the file's `add` action}.
        transactions: {application: the `txn` action}.
    """

    version: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    transactions: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def table_id(self) -> str:
        """The identity that the table was given when it was made."""
        return str(self.metadata["id"])

    @property
    def actions(self) -> list[Action]:
        """What a checkpoint of it holds."""
        live: list[Action] = [{"protocol": dict(self.protocol)}, {"metaData": dict(self.metadata)}]
        live += [{"txn": dict(body)} for body in self.transactions.values()]
        # In a checkpoint no file is news.
        return live + [{"add": {**body, "dataChange": False}} for body in self.files.values()]


def read_snapshot(path: LakePath, version: int) -> Snapshot:
    """The table at `version`.

    Raises:
        TableMissing: there is no table.
        VersionGone: the log no longer holds the version, or does not hold it yet.
        CorruptState: a commit since the last checkpoint is broken.
    """
    first, state = _from_checkpoint(path, version)
    return _after(path, version, state, log.read_entries(path, first, version))


def moved_on(path: LakePath, before: Snapshot, commits: Sequence[Sequence[Action]]) -> Snapshot:
    """The table after some more commits.

    Args:
        commits: the actions of each version after `before`.

    Raises:
        CorruptState: one of the commits is broken.
    """
    state = _State(before.metadata, before.protocol, dict(before.files), dict(before.transactions))
    return _after(path, before.version + len(commits), state, commits)


def _after(path: LakePath, version: int, state: _State, commits: Iterable[Sequence[Action]]) -> Snapshot:
    try:
        for actions in commits:
            state.take(actions)
    except (KeyError, TypeError, AttributeError) as error:
        raise CorruptState(sentence("a commit of '{}' does not read back", table_at(path)), where=str(path)) from error
    if "id" not in state.metadata:
        raise CorruptState(sentence("the log of '{}' says nothing about the table", table_at(path)), where=str(path))
    return Snapshot(version, state.metadata, state.protocol, state.files, state.transactions)


@dataclass
class _State:
    """A snapshot in the making: one commit after the other is taken in, without a copy for each."""

    metadata: Mapping[str, Any] = field(default_factory=dict)
    protocol: Mapping[str, Any] = field(default_factory=dict)
    files: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    transactions: dict[str, Mapping[str, Any]] = field(default_factory=dict)

    def take(self, actions: Sequence[Action]) -> None:
        """The actions of the next commit."""
        for action in actions:
            if "remove" in action:
                self.files.pop(action["remove"]["path"], None)
        for action in actions:
            if "add" in action:
                self.files[action["add"]["path"]] = action["add"]
            self.metadata = action.get("metaData", self.metadata)
            self.protocol = action.get("protocol", self.protocol)
            if "txn" in action:
                self.transactions[action["txn"]["appId"]] = action["txn"]


def _from_checkpoint(path: LakePath, version: int) -> tuple[int, _State]:
    """The newest checkpoint that reads back, and its version; −1 and nothing without one."""
    # Arrow is loaded for it: what reads only heads, or plans, does without.
    from state_store.delta.checkpoint import live_actions

    state = _State()
    for number in log.checkpoints_before(path, version):
        actions = live_actions(log.checkpoint_file(path, number))
        if actions is not None:
            state.take(actions)
            return number, state
    return -1, state
