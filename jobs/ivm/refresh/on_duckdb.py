"""The runtime of a refresh on DuckDB and Delta: a rule's relations are temporary views over the files of tables.

No JVM takes part: an epoch of a few changes takes tens of milliseconds. Only the views that a text names are made; a
relation that it names once stands in the text itself, since making a view takes a millisecond. Columns kept in
`__state` become plain ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.engines.engine import Dialect, engine_of, listed
from strandline.jobs.ivm.refresh.runtime import Runtime
from strandline.jobs.ivm.rules.delta_join import relations
from strandline.jobs.ivm.rules.stored import consolidated, spec_of
from strandline.jobs.ivm.rules.upserts import without_null_keys
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.state_store.commits import REBUILD
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.tablespec import EXISTS, VERSION, WEIGHT

if TYPE_CHECKING:
    import duckdb

    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.ivm.refresh.epoch import Epoch
    from strandline.jobs.ivm.rules.delta_join import Side
    from strandline.jobs.model.relation import Relation
    from strandline.jobs.model.stage import Input
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.duckdb.rows import PlacedRows

_SELF = "self_old"


class DuckDbRuntime(Runtime[str]):
    """One epoch on a connection of its own. Rows that are not computed yet are the text of a SELECT."""

    dialect: Dialect = "duckdb"

    def __init__(self, context: RunContext, connection: duckdb.DuckDBPyConnection, epoch: Epoch) -> None:
        assert context.duckdb_engine is not None
        self._context = context
        self._duckdb_engine = context.duckdb_engine
        self._connection = connection
        self._stage = epoch.stage
        self._head = epoch.head
        self._spans = {span.relation.name: span for span in epoch.spans}
        self._engine = engine_of(self.dialect)
        path = context.lake.table(epoch.stage.table)
        self._table = DuckDBTable(connection, self._duckdb_engine.kept, path, spec_of(epoch.stage), _SELF)
        self._before: PlacedRows | None = None

    def run(self, text: str, *, stored: bool = True) -> str:
        for name, side, each in relations(self._stage, text, self._engine):
            text = self._reading(text, name, self._side(side, each))
        functions = self._context.functions
        if functions is not None:
            self._duckdb_engine.register(lambda connection: functions.register_duckdb(connection, text))
        if self._table.spec.storage == "keyed":
            self._before = self._table.read(self._head.version if stored else None)
            if self._before.without_nulls.issuperset(self._table.spec.key):
                text = without_null_keys(self._stage, text, self._engine)
            text = self._reading(text, _SELF, self._before.text)
        return text

    def keep(self, name: str, settled: str) -> None:
        # A table, since the views that the text reads are about to be made anew.
        self._connection.execute(
            f"CREATE TEMP TABLE {self._engine.name(name)} AS SELECT * FROM ({settled}) WHERE {EXISTS}"
        )

    def number(self, text: str) -> int:
        [(found,)] = self._connection.execute(self.run(text, stored=False)).fetchall()
        return int(found)

    def append(self, rows: str, record: CommitRecord) -> Head | None:
        return self._table.append_if_any(rows, record)

    def settle(self, settled: str, record: CommitRecord) -> Head | None:
        assert self._before is not None, "the text was run"
        return self._table.apply(settled, self._before, record, self._head if record.mode == REBUILD else None)

    def _reading(self, text: str, name: str, rows: str) -> str:
        """The text, in which `name` stands for these rows."""
        named = f" {name} AS "
        before, _, after = text.partition(named)
        # Within a constant it would stand after an odd number of quotes.
        if text.count(name) == 1 and after and before.count("'") % 2 == 0:
            return f"{before} ({rows}) AS {after}"
        self._connection.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {rows}")
        return text

    def _side(self, side: Side, each: Input) -> str:
        span = self._spans[each.relation.name]
        path, spec = self._context.lake.table(each.relation.name), spec_of_input(each.relation)
        name = f"{side}_{each.alias}_of"
        source = DuckDBTable(self._connection, self._duckdb_engine.kept, path, spec, name)
        if side != "delta":
            return self._flat(source.read(span.upto if side == "new" else span.after).text, each.relation)
        changes = self._flat(source.changes(span.after, span.upto), each.relation, WEIGHT, VERSION)
        if each.relation.storage == "append" or span.lag <= 1 or span.after is None:
            return f"SELECT * EXCLUDE ({VERSION}) FROM ({changes})"
        return consolidated(each.relation, f"({changes}) AS __raw", self._engine)

    def _flat(self, rows: str, relation: Relation, *more: str) -> str:
        return f"SELECT {', '.join([*listed(relation, self._engine), *more])} FROM ({rows})"
