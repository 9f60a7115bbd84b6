"""Swaps of two names that a kill cannot leave half done: an intent is put first, then both files, then the intent goes.

    intent ──> file of the one ──> file of the other ──> intent removed

From the intent on, every reader of the catalog sees both definitions under their new names. Whoever changes the catalog
first ends the swaps that somebody else began and did not end. All of it happens under the lock of the catalog.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.state_store.checksum import members_in, sealed_members
from strandline.state_store.errors import CorruptState
from strandline.state_store.failpoints import failpoint
from strandline.state_store.files import make_folder, remove_file, replace, sync_folder
from strandline.state_store.layout import LakeLayout, safe_name
from strandline.state_store.paths import LakePath, files_in

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = "swapping"
"""Below the catalog's folder."""


def begin(called: Mapping[str, str], lake: LakeLayout) -> None:
    """Put the intent, durably.

    Args:
        called: {stored name: name that people will see}, of both definitions.
    """
    folder = lake.catalog / FOLDER
    make_folder(folder)
    failpoint("before-swap-intent")
    replace(folder / f"{safe_name(min(called))}.json", sealed_members({"called": dict(called)}))
    sync_folder(lake.catalog)
    failpoint("after-swap-intent")


def begun(lake: LakeLayout) -> dict[str, str]:
    """{stored name: name that people see} of the swaps that have begun and not ended.

    Raises:
        CorruptState: an intent does not read back.
    """
    called: dict[str, str] = {}
    for path in files_in(lake.catalog / FOLDER, ".json"):
        called |= _read(path)
    return called


def end(lake: LakeLayout) -> None:
    """Remove all intents, once both files of each say its names."""
    for path in files_in(lake.catalog / FOLDER, ".json"):
        remove_file(path)
    sync_folder(lake.catalog / FOLDER)
    failpoint("after-swap-end")


def _read(path: LakePath) -> dict[str, str]:
    try:
        called = members_in(path.read_bytes())["called"]
        return {str(stored): str(name) for stored, name in called.items()}
    except FileNotFoundError:
        return {}  # ended since the folder was listed
    except (ValueError, KeyError, AttributeError) as error:
        raise CorruptState(
            "a swap of two names was begun, and its file does not read back",
            where=str(path),
            hint="remove the file; DESCRIBE shows `stored_as` of both names, and ALTER … RENAME TO gives them theirs",
        ) from error
