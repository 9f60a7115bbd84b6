"""Keys: the names of objects, relative to the root of their storage and separated by '/'.

A key means the same on every kind of storage. What a disk and an object store read differently is refused: a part that
is empty, and a part that begins with a dot: '..' leaves the root, and a hidden name may be a file still being written.
"""

from __future__ import annotations

import re

from strandline.state_store.errors import KeyRefused

# A control character is legal on a disk, and breaks the listings (XML) and the headers of object stores; a backslash is
# a separator to some of their tools.
_REFUSED = re.compile(r"[\x00-\x1f\x7f\\]")
# The limit of S3, Google and Azure in UTF-8 bytes, less 124 bytes for the root's own prefix.
_LONGEST = 900
# Disks allow 255 bytes, and a file that is being written has a name of 38 more.
_LONGEST_PART = 217


def checked_key(key: str) -> str:
    """The key itself.

    Raises:
        KeyRefused: it is empty, leaves the root, or holds a part or character that is not the same everywhere.
    """
    if not key:
        raise KeyRefused("an object needs a name, and this one is empty")
    for part in key.split("/"):
        if not part or part.startswith("."):
            raise _refused(key, f"a part may not be empty or begin with a dot: '{part}'")
        if len(part.encode()) > _LONGEST_PART:
            raise _refused(f"{key[:80]}…", f"a part is longer than {_LONGEST_PART} bytes")
    if _REFUSED.search(key):
        raise _refused(key, "control characters and backslashes are not the same everywhere")
    if len(key.encode()) > _LONGEST:
        raise _refused(f"{key[:80]}…", f"it is longer than {_LONGEST} bytes")
    return key


def checked_folder(folder: str) -> str:
    """The folder's key, without the '/' at its end; empty for the root.

    Raises:
        KeyRefused: as for a key.
    """
    return checked_key(folder.removesuffix("/")) if folder else ""


def joined(folder: str, name: str) -> str:
    """The key of `name` in `folder`; neither needs to be there."""
    return f"{folder}/{name}" if folder else name


def hidden(key: str) -> bool:
    """True if a part of the key begins with a dot: never listed."""
    return key.startswith(".") or "/." in key


def _refused(key: str, reason: str) -> KeyRefused:
    return KeyRefused(f"'{key}' is not a key: {reason}", hint="use letters, digits, '_', '-' and inner dots")
