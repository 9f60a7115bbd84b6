"""A checkpoint that says otherwise than the commits, sealed as ours are."""

from __future__ import annotations

from collections.abc import Callable

from strandline.state_store.delta import log
from strandline.state_store.delta.checkpoint import as_rows, live_actions, write_checkpoint
from strandline.state_store.delta.commit import make_checkpoint
from strandline.state_store.delta.entry import Action
from strandline.state_store.files import remove_file
from tests.support.arrow_table import ArrowTable
from tests.support.keyed_table import head_of

Change = Callable[[list[Action]], list[Action]]


def forged(table: ArrowTable, change: Change, *, cleaned: bool = False) -> None:
    """Put a changed checkpoint of the head in place.

    Args:
        cleaned: the commits before it are gone.
    """
    version = head_of(table).version
    make_checkpoint(table.path, version)
    file = log.checkpoint_file(table.path, version)
    actions = live_actions(file)
    assert actions is not None
    remove_file(file)
    write_checkpoint(file, log.hint_file(table.path), version, change(actions), as_rows([]))
    for before in range(version if cleaned else 0):
        remove_file(log.commit_file(table.path, before))
