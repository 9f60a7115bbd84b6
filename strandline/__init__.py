"""Strandline's Python API, for notebooks and for Dagster projects: open a lake, read its tables, keep them fresh.

    import strandline

    lake = strandline.open_lake("lake")
    lake.arrow("longest")

What is in here is public and stays as it is; the packages beneath (`jobs`, `state_store`, `orchestration`) are not.
`strandline.dagster` is a module of its own: only it loads Dagster.
"""

from __future__ import annotations

from strandline.lake import Lake, open_lake
from strandline.state_store.errors import Action, StrandlineError

__all__ = ("Action", "Lake", "StrandlineError", "open_lake")
