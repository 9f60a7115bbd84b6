"""The runtime of a refresh on DuckDB and Delta: a rule's relations are temporary views over the files of tables.

No JVM takes part: an epoch of a few changes takes tens of milliseconds. Only the views that a text names are made; a
relation that it names once stands in the text itself, since making a view takes a millisecond. Columns kept in
`__state` become plain ones.

Of a large table the rows that the rule can make use of are looked up by key, where that is known before the text runs
(`jobs.ivm.rules.lookups`); otherwise, and of small tables, all are scanned.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.engines.engine import Dialect, engine_of, listed
from strandline.jobs.ivm.refresh.runtime import Runtime
from strandline.jobs.ivm.rules.delta_join import ctes, relations
from strandline.jobs.ivm.rules.lookups import SELF, plan_lookups
from strandline.jobs.ivm.rules.stored import consolidated, spec_of, without_null_keys
from strandline.jobs.model.stage_columns import Columns, spec_of_input
from strandline.state_store.commits import REBUILD
from strandline.state_store.duckdb.rows import Keys
from strandline.state_store.duckdb.statements import MOST_ROWS, Held
from strandline.state_store.duckdb.table import DuckDBTable, changed_upserts
from strandline.state_store.tablespec import EXISTS, FILE, POSITION, VERSION, WEIGHT
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    import duckdb
    import pyarrow as pa

    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.ivm.refresh.epoch import Epoch
    from strandline.jobs.ivm.rules.delta_join import Side
    from strandline.jobs.model.stage import Input
    from strandline.jobs.model.tables import Relation
    from strandline.state_store.commits import CommitRecord, Head
    from strandline.state_store.duckdb.rows import Computed, Part, PlacedRows


_ENGINE: Final = engine_of("duckdb")
_CHANGES: Final = "__changes"
_KEPT_CHANGES: Final = f"delta AS (SELECT * FROM {_CHANGES})"


class DuckDbRuntime(Runtime[str]):
    """One epoch on a connection of its own. Rows that are not computed yet are the text of a SELECT.

    Args:
        parts: {alias of an input: the only part of its rows that is read}.
    """

    dialect: Dialect = "duckdb"

    def __init__(
        self,
        context: RunContext,
        connection: duckdb.DuckDBPyConnection,
        epoch: Epoch,
        parts: Mapping[str, Part] | None = None,
    ) -> None:
        assert context.duckdb_engine is not None
        self._context = context
        self._duckdb_engine = context.duckdb_engine
        self._connection = connection
        self._stage = epoch.stage
        self._head = epoch.head
        self._moved = epoch.moved
        self._changed = epoch.changed
        self._parts = parts or {}
        self._asked: dict[str, list[Keys]] = {}
        self._found: dict[str, PlacedRows] = {}
        self._spans = {span.relation.name: span for span in epoch.spans}
        path = context.lake.table(epoch.stage.table)
        self._table = DuckDBTable(connection, self._duckdb_engine.kept, path, spec_of(epoch.stage), SELF)
        self._before: PlacedRows | None = None
        self._held: Held | Computed | None = None
        self._given = epoch.given
        self._computed: tuple[str, pa.Table] | None = None

    def run(self, text: str, *, stored: bool = True) -> str:
        self._held = None
        if stored and self._given is not None:
            self._before, self._held = self._given.stored, self._given
            return text
        if stored:
            over = self._hold(text)
            if over is not None:
                return over
            text = self._look_up(text)
        text = self._over_inputs(text)
        self._register(text)
        if self._table.spec.storage == "keyed":
            self._before = self._table.read(self._head.version if stored else None, self._asked.get(SELF, ()))
            text = self._without_null_keys(text, self._before)
            text = self._reading(text, SELF, self._before.text)
        return text

    def _hold(self, text: str, *, stored: bool = True) -> str | None:
        """The text over rows that are held in memory, by a statement that stays prepared; None: they are too many.

        It names neither files nor versions, so that it is the same in the next epoch.

        Args:
            stored: as of `run`.
        """
        statements, of = self._duckdb_engine.statements, str(self._table.path)
        changed = self._changed if self._moved is not None else None
        few = self._computed is not None or not stored or (changed is not None and changed <= MOST_ROWS)
        if not few or self._parts or not statements.are_worth(of, text):
            return None
        self._register(text)
        held, whole = Held(statements, of, [], {}), text
        if self._computed is not None:
            name, held.rows[name] = self._computed
        for name, side, each in relations(self._stage, whole, _ENGINE):
            read = replace(each, relation=of_columns(each.relation, whole))
            rows = self._held_side(side, read)
            if rows is None:
                return None
            raw = f"given_{side}_{each.alias}"
            held.rows[raw] = rows
            given = f"SELECT * FROM {_ENGINE.name(raw)}"
            over = self._changed_side(read, given) if side == "delta" else flat(given, read.relation)
            text = _reading(text, name, over, held.views.append)
        if self._table.spec.storage == "keyed":
            found = self._held_stored() if stored else self._table.held(None)
            if found is None:
                return None
            self._before, held.rows["given_self"] = found
            text = self._without_null_keys(text, self._before)
            text = _reading(text, SELF, 'SELECT * FROM "given_self"', held.views.append)
        self._held = held
        return text

    def _held_stored(self) -> tuple[PlacedRows, pa.Table] | None:
        return self._table.held(self._head.version)

    def _held_side(self, side: Side, each: Input) -> pa.Table | None:
        span, source = self._spans[each.relation.name], self._source(side, each)
        if side == "delta":
            changes = None if span.after is None else source.held_changes(span.after, span.upto)
            # What changes of a row beside its visible columns, records do not count.
            return None if changes is None or changes.num_rows > MOST_ROWS else changes
        version = self._version(side, each)
        found = None if version is None else source.held(version, shared=True)
        return None if found is None else found[1].drop_columns([FILE, POSITION])

    def _register(self, text: str) -> None:
        functions = self._context.functions
        if functions is not None:
            self._duckdb_engine.register(lambda connection: functions.register_duckdb(connection, text))

    def _without_null_keys(self, text: str, stored: PlacedRows) -> str:
        if stored.without_nulls.issuperset(self._table.spec.key):
            return without_null_keys(self._stage, text, _ENGINE)
        return text

    def _over_inputs(self, text: str) -> str:
        """The text over the relations of the inputs that it names, of which it is given the columns that it names."""
        whole = text
        for name, side, each in relations(self._stage, whole, _ENGINE):
            asked = self._asked.get(f"{side}_{each.alias}", ())
            keys = {column.rpartition(".")[2] for key in asked for column in key.columns}
            read = replace(each, relation=of_columns(each.relation, whole, keys))
            text = self._reading(text, name, self._side(side, read))
        return text

    def _look_up(self, text: str) -> str:
        """Find out by which keys the rule makes use of the large relations that it names; the text to be run then.

        Keys are found by the changes of the body, which stand in the text too: they are computed once.
        """
        changed = self._changed
        if self._duckdb_engine.kept.arrangements is None or self._moved is None or changed is None:
            return text
        large = set()
        for _, side, each in relations(self._stage, text, _ENGINE):
            if side != "delta" and self._source(side, each).suits_lookup(self._version(side, each), changed):
                large.add(f"{side}_{each.alias}")
        if self._table.spec.storage == "keyed" and self._table.suits_lookup(self._head.version, changed):
            large.add(SELF)
        if not large:
            return text
        plan = plan_lookups(self._stage, _ENGINE, self._moved)
        [delta] = ctes(self._stage, _ENGINE, self._moved)
        kept = False
        for number, lookup in plan.needed(large):
            if delta in lookup.keys and not kept:
                # The look-ups before this one are those of the relations that it reads.
                changes = self._over_inputs(f"WITH {delta} SELECT * FROM delta")
                self._connection.execute(f"CREATE OR REPLACE TEMP TABLE {_CHANGES} AS {changes}")
                kept = True
            keys = self._over_inputs(lookup.keys.replace(delta, _KEPT_CHANGES))
            if SELF in keys:
                keys = self._reading(keys, SELF, self._table.read(self._head.version, self._asked.get(SELF, ())).text)
            values = self._connection.sql(keys).to_arrow_table()
            self._connection.register(f"__keys{number}", values)
            # The keys of a relation that is scanned may be needed for those of another one.
            if lookup.relation in large and lookup.relation not in plan.scanned:
                asked = Keys(lookup.columns, values.select(range(len(lookup.columns))))
                self._asked.setdefault(lookup.relation, []).append(asked)
        return text.replace(delta, _KEPT_CHANGES) if kept else text

    def computed(self, text: str) -> pa.Table | None:
        """All that a rule's text gives, to be appended or upserted; None: what it reads is not held in memory."""
        over = self._hold(text)
        if over is None or self._held is None:
            return None
        return self._held.run(over if self._table.spec.storage == "append" else changed_upserts(over, self._table.spec))

    def compute(self, name: str, text: str) -> None:
        held = self._hold(text, stored=False)
        if held is None or self._held is None:
            self.keep(name, self.run(text, stored=False))
            return
        rows = self._held.run(f"SELECT * FROM ({held}) WHERE {EXISTS}")
        self._connection.register(name, rows)
        if rows.num_rows <= MOST_ROWS:
            self._computed = name, rows

    def keep(self, name: str, settled: str) -> None:
        # A table, since the views that the text reads are about to be made anew.
        self._connection.execute(f"CREATE TEMP TABLE {_ENGINE.name(name)} AS SELECT * FROM ({settled}) WHERE {EXISTS}")

    def number(self, text: str) -> int:
        [(found,)] = self._connection.execute(self.run(text, stored=False)).fetchall()
        return int(found)

    def append(self, rows: str, record: CommitRecord) -> Head | None:
        return self._table.append_if_any(rows, self._said(record), self._held)

    def settle(self, settled: str, record: CommitRecord) -> Head | None:
        assert self._before is not None, "the text was run"
        record = self._said(record)
        after = self._head if record.mode == REBUILD else None
        return self._table.apply(settled, self._before, record, after, self._held)

    def _said(self, record: CommitRecord) -> CommitRecord:
        """The record, whose reason says what was looked up and scanned of the relations that were asked by key."""
        read = [*self._found.values(), *([self._before] if self._before is not None else [])]
        found, scanned = sum(each.found for each in read), sum(each.scanned for each in read)
        if not found:
            return record
        said = f"{found:,} rows looked up, {scanned:,} scanned"
        return replace(record, reason=sentence("{}; {}", record.reason, said))

    def _reading(self, text: str, name: str, rows: str) -> str:
        """The text, in which `name` stands for these rows."""
        return _reading(text, name, rows, self._connection.execute)

    def _source(self, side: Side, each: Input) -> DuckDBTable:
        path, spec = self._context.lake.table(each.relation.name), spec_of_input(each.relation)
        return DuckDBTable(self._connection, self._duckdb_engine.kept, path, spec, f"{side}_{each.alias}_of")

    def _version(self, side: Side, each: Input) -> int | None:
        span = self._spans[each.relation.name]
        return span.upto if side == "new" else span.after

    def _side(self, side: Side, each: Input) -> str:
        span, source = self._spans[each.relation.name], self._source(side, each)
        if side != "delta":
            name = f"{side}_{each.alias}"
            keys, part = self._asked.get(name, ()), self._parts.get(each.alias)
            rows = self._found[name] = source.read(self._version(side, each), keys, part)
            return flat(rows.text, each.relation)
        return self._changed_side(each, source.changes(span.after, span.upto))

    def _changed_side(self, each: Input, changes: str) -> str:
        """The changes of an input, of which these are those of each commit."""
        span, changes = self._spans[each.relation.name], flat(changes, each.relation, WEIGHT, VERSION)
        if each.relation.storage == "append" or span.lag <= 1 or span.after is None:
            return changes
        return consolidated(each.relation, f"({changes}) AS __raw", _ENGINE)


def _reading(text: str, name: str, rows: str, make: Callable[[str], object]) -> str:
    """The text, in which `name` stands for these rows.

    Args:
        make: makes a view by a statement, where the text names it more than once.
    """
    named = f" {name} AS "
    before, _, after = text.partition(named)
    # Within a constant it would stand after an odd number of quotes.
    if text.count(name) == 1 and after and before.count("'") % 2 == 0:
        return f"{before} ({rows}) AS {after}"
    make(f"CREATE OR REPLACE TEMP VIEW {name} AS {rows}")
    return text


def of_columns(relation: Relation, text: str, keys: Collection[str] = ()) -> Relation:
    """The relation with its key, these keys, and the columns whose names stand in a text: it can read no other.

    DuckDB binds every column that it is given, and takes what is in `__state` apart for it.
    """
    said = text.lower()

    def named(columns: Columns) -> Columns:
        wanted = {*relation.key, *keys}
        return tuple(each for each in columns if each[0] in wanted or _ENGINE.name(each[0])[1:-1].lower() in said)

    made = replace(relation, columns=named(relation.columns), hidden=named(relation.hidden))
    # A row has a column at least.
    return made if made.columns or made.hidden else replace(made, columns=relation.columns[:1])


def flat(rows: str, relation: Relation, *more: str) -> str:
    """The rows with what they have in `__state` as plain columns."""
    if not relation.hidden:
        return rows
    return f"SELECT {', '.join([*listed(relation, _ENGINE), *more])} FROM ({rows})"
