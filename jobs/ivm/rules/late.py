"""The number of the rows that came too late for their window and are left out: one more query over the same changes.

Lateness is a property of the row, so the number is one of the inputs at a vector, as the rows of the view are: a row
that is late counts from the epoch that takes it in, and one that is retracted later counts no more. A row counts once
for each window that it missed, as in Kafka Streams.

The rule itself filters these rows out below its joins and groups. To count them there would keep them in every step.
"""

from __future__ import annotations

from collections.abc import Collection

from strandline.jobs.engines.engine import Dialect, engine_of
from strandline.jobs.ivm.rules.aggregate import chosen
from strandline.jobs.ivm.rules.delta_join import changes
from strandline.jobs.model.stage import AggregateStage, Stage
from strandline.jobs.model.types import BIGINT
from strandline.state_store.tablespec import WEIGHT


def late_rows(stage: Stage, dialect: Dialect, changed: Collection[str] | None) -> str | None:
    """The SELECT of one number: by how much the changes move the number of late rows. None: no row is ever late.

    Args:
        changed: the aliases of the inputs that moved; None: all rows there are.
    """
    if not isinstance(stage, AggregateStage) or not stage.late:
        return None
    engine = engine_of(dialect)
    number = engine.cast(f"COALESCE(SUM({WEIGHT}), 0)", BIGINT)
    return (
        f"SELECT {number} AS __late\nFROM (\n{changes(stage.late, engine, changed)}\n) AS delta{chosen(stage, engine)}"
    )
