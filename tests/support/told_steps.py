"""The steps of an operation, kept in the order in which they were told."""

from __future__ import annotations

from strandline.jobs.model.report import MicroBatch


class ToldSteps:
    """Steps as they were told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begin(self, what: str, rows: int = 0) -> None:
        self.told.append(f"begin: {what}, {rows} rows" if rows else f"begin: {what}")

    def micro_batch(self, batch: MicroBatch) -> None:
        self.told.append(f"{batch.events} events")

    def done(self, what: str) -> None:
        self.told.append(what)
