"""What stored state says of itself: its checksum and its format.

Checksums that stand inside what they cover: in bytes, as eight hex digits behind a mark; in JSON, as a member.

The digits count as zeros in their own sum, the member not at all. CRC-32 notices every flipped bit and every burst of
up to 32 bits.

Formats of stored state: what a later version of Strandline wrote is refused, and never read as if it were known.
"""

from __future__ import annotations

import json
import re
import zlib
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.errors import CorruptState, FormatNewer

if TYPE_CHECKING:
    from collections.abc import Mapping


EMPTY: Final = "00000000"
"""The digits before the sum is known."""

PLACE: Final = f"strandline-crc32:{EMPTY}"
MARK: Final = re.compile(rb"strandline-crc32:([0-9a-f]{8})")
"""A text for the checksum in what has room for any text of ours, and the mark that finds it."""


def sealed(data: bytes, mark: re.Pattern[bytes]) -> bytes:
    """The data with its checksum in the first group of the mark, where the zeros of `EMPTY` are.

    Raises:
        ValueError: the mark is not there.
    """
    return _with(data, mark, f"{zlib.crc32(_with(data, mark, EMPTY)):08x}")


def intact(data: bytes, mark: re.Pattern[bytes]) -> bool:
    """Check the checksum behind the mark; False also where there is no mark."""
    found = mark.search(data)
    return found is not None and found[1] == f"{zlib.crc32(_with(data, mark, EMPTY)):08x}".encode()


def of_members(members: Mapping[str, Any], *, ascii_only: bool) -> int:
    """The checksum of an object's members, without that of the checksum itself: by value, in the order of their names.
    Blanks and line ends of the file do not count.

    Args:
        ascii_only: other letters count as their escapes, not as UTF-8. Both are in files, so neither may change.
    """
    return zlib.crc32(json.dumps(members, ensure_ascii=ascii_only, sort_keys=True).encode())


def sealed_members(members: Mapping[str, Any]) -> bytes:
    """An object as JSON, with its checksum as the member `crc`; `members_in` reads it."""
    return json.dumps({"crc": of_members(members, ascii_only=True), **members}).encode()


def sealed_text(members: str) -> bytes:
    """`sealed_members` of an object that is text already: as `json.dumps` writes it, names in order and in ASCII."""
    return f'{{"crc": {zlib.crc32(members.encode())}, {members[1:]}'.encode()


def members_in(data: bytes) -> dict[str, Any]:
    """The members of an object that `sealed_members` wrote.

    Raises:
        ValueError: it does not read back, or not as it was written.
    """
    members = json.loads(data)
    if not isinstance(members, dict) or members.pop("crc", None) != of_members(members, ascii_only=True):
        raise ValueError("the checksum is not that of the members")
    return members


def members_since(data: bytes, sealed: int) -> dict[str, Any]:
    """The members, but for `format`, of an object of a kind that has had a checksum since one of its formats.

    Args:
        sealed: that format. Objects of the one before it are read as they are: they were written without.

    Raises:
        ValueError: it does not read back, not as it was written, or has another format.
    """
    plain = json.loads(data)
    earlier = isinstance(plain, dict) and plain.get("format") == sealed - 1 and "crc" not in plain
    members: dict[str, Any] = plain if earlier else members_in(data)
    if members.pop("format", None) not in (sealed - 1, sealed):
        raise ValueError("a format that is not known")
    return members


def _with(data: bytes, mark: re.Pattern[bytes], digits: str) -> bytes:
    found = mark.search(data)
    if found is None:
        raise ValueError(mark.pattern)
    return data[: found.start(1)] + digits.encode() + data[found.end(1) :]


_PACKAGE: Final = "strandline"


def check_format(what: str, found: object, known: int, where: str | None = None) -> None:
    """Check that the format of something stored is the one that this version reads.

    Args:
        what: is stored, for people.

    Raises:
        FormatNewer: it is a later one.
        CorruptState: it is an earlier one, that is not read any more, or none.
    """
    if found == known:
        return
    installed = version(_PACKAGE)
    message = f"{what} has format {found}, Strandline {installed} reads format {known}"
    if isinstance(found, int) and found > known:
        raise FormatNewer(
            message,
            where=where,
            hint=f"install the version that wrote it, or a later one: pip install --upgrade 'strandline>{installed}'",
        )
    raise CorruptState(message, where=where, hint="see the 'Stored state' lines of CHANGELOG.md")
