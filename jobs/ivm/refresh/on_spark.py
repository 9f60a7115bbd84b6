"""The inputs of a refresh as the temporary views that a rule's text reads: `delta_…`, `old_…`, `new_…`.

Only those that the text names are made: a version of a Delta table costs a snapshot, even when no row of it is read.
Columns kept in `__state` become plain ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jobs.engines.engine import engine_of
from jobs.ivm.rules.consolidate import consolidated
from jobs.model.stage import inputs_of
from jobs.model.stage_columns import spec_of_input
from state_store.columns import STATE, VERSION, WEIGHT
from state_store.table import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from jobs.model.relation import Relation
    from jobs.model.stage import Input, Stage
    from state_store.layout import Lake


@dataclass(frozen=True)
class Span:
    """What a refresh takes in of one relation: the versions after `after` (None: everything) up to and with `upto`.

    Attributes:
        entry: its name in the version vector.
    """

    relation: Relation
    entry: str
    after: int | None
    upto: int

    @property
    def lag(self) -> int:
        """Versions to take in."""
        return self.upto - (self.after if self.after is not None else -1)


class InputViews:
    """The views of one refresh, in a session of its own.

    Args:
        few: the changes are few: the rules' hints, which broadcast them, are followed.
    """

    def __init__(self, session: SparkSession, lake: Lake, stage: Stage, spans: Sequence[Span], *, few: bool) -> None:
        self._session = session
        self._lake = lake
        self._inputs = inputs_of(stage)
        self._spans = {span.relation.name: span for span in spans}
        self._writer = engine_of("spark")
        session.conf.set("spark.sql.optimizer.disableHints", str(not few).lower())

    def register(self, text: str) -> None:
        """Make the views that `text` reads.

        Raises:
            VersionGone: an input's history no longer reaches back that far.
        """
        for each in self._inputs:
            for side in ("delta", "old", "new"):
                name = f"{side}_{each.alias}"
                if self._writer.name(name) in text:
                    self._view(side, each).createOrReplaceTempView(self._writer.name(name))

    def _view(self, side: str, each: Input) -> DataFrame:
        span = self._spans[each.relation.name]
        source = Table(self._session, self._lake.table(each.relation.name), spec_of_input(each.relation))
        if side == "delta":
            return self._changes(source, each, span)
        version = span.upto if side == "new" else span.after
        if version is None:
            return self._flat(self._session.createDataFrame([], source.spec.ddl), each.relation)
        return self._flat(source.read(version), each.relation)

    def _changes(self, source: Table, each: Input, span: Span) -> DataFrame:
        changes = self._flat(source.changes(span.after, span.upto), each.relation, WEIGHT, VERSION)
        if each.relation.storage == "append" or span.lag <= 1 or span.after is None:
            return changes.drop(VERSION)
        raw = f"raw_{each.alias}"
        changes.createOrReplaceTempView(self._writer.name(raw))
        return self._session.sql(consolidated(each.relation, self._writer.name(raw), self._writer))

    def _flat(self, rows: DataFrame, relation: Relation, *more: str) -> DataFrame:
        plain = [self._writer.name(name) for name, _ in relation.columns]
        hidden = [f"{STATE}.{self._writer.name(name)} AS {self._writer.name(name)}" for name, _ in relation.hidden]
        return rows.selectExpr(*plain, *hidden, *(name for name in more if name in rows.columns))
