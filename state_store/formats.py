"""Formats of stored state: what a later version of Strandline wrote is refused, and never read as if it were known."""

from __future__ import annotations

from importlib.metadata import version
from typing import Final

from strandline.state_store.errors import CorruptState, FormatNewer

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
