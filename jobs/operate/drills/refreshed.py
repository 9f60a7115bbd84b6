"""The refresh of a copy by DuckDB, without a JVM: a view and all it reads, brought to the heads of the copy."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from strandline.jobs.functions.python.register import Library
from strandline.jobs.ivm.refresh.context import RunContext
from strandline.jobs.model.errors import EngineRefused
from strandline.jobs.operate.drills.closure import levels
from strandline.jobs.operate.drills.scenario import Unrehearsable
from strandline.jobs.run.refresh_views import refresh_all
from strandline.state_store.duckdb.engine import DuckDBEngine
from strandline.state_store.layout import Lake

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.settings import Settings


def refreshed(settings: Settings, view: str, catalog: Catalog) -> None:
    """Refresh a view and all that it reads.

    Raises:
        Unrehearsable: DuckDB cannot run a rule.
        StrandlineError: what stopped the first view that failed.
    """
    library = Library(catalog.functions.values(), settings.functions.modules)
    with DuckDBEngine(*settings.kernel_size) as duckdb_engine:
        context = RunContext(None, Lake(settings.lake), f"drill/{os.getpid()}", library, duckdb_engine, "duckdb")
        done = refresh_all(context, levels(view, catalog), frozenset())
    for error in done.failures.values():
        if isinstance(error, EngineRefused):
            raise Unrehearsable(f"it needs Spark: {error.message}")
        raise error
