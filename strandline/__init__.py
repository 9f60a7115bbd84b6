"""Strandline's Python API, for notebooks and for Dagster projects: open a lake, read its tables, keep them fresh.

    import strandline

    lake = strandline.open_lake("lake")
    lake.arrow("longest")

What is in here is public and stays as it is; the packages beneath (`jobs`, `state_store`, `orchestration`) are not.
`strandline.dagster` is a module of its own: only it loads Dagster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strandline.lake import Lake, open_lake
    from strandline.state_store.errors import Action, StrandlineError

__all__ = ("Action", "Lake", "StrandlineError", "open_lake")


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used: every import of a module below passes here, and most need none."""
    if name in ("Lake", "open_lake"):
        from strandline import lake as module
    elif name in ("Action", "StrandlineError"):
        from strandline.state_store import errors as module  # type: ignore[no-redef]
    else:
        raise AttributeError(f"module 'strandline' has no attribute '{name}'")
    return getattr(module, name)


def __dir__() -> list[str]:
    return sorted(__all__)
