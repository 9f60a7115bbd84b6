"""The check of a view and of its dead letters against its SQL, run by DuckDB over its inputs at the versions of its
vector.

None of the engine's rules or accumulators is used: `jobs.query.recompute` says the whole query as one SELECT.
Inputs that are views are checked the same way, so by induction everything equals its SQL over the event logs.

Of its dead letters the rows that fail, and why, are computed again from the inputs at the table's vector. The rule of
the dead letters has no accumulators: over all rows it is one SELECT, whose conditions are those by which `recompute`
leaves the same rows out of the view.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.catalog.relations import event_log
from strandline.jobs.engines.engine import engine_of, listed
from strandline.jobs.ivm.compiled import compiled
from strandline.jobs.ivm.refresh.guarded_stage import REASON, ROW, guarded
from strandline.jobs.ivm.rules.delta_join import all_rows
from strandline.jobs.model.definitions import Source, View, ViewOptions
from strandline.jobs.model.stage import LatestStage, MapStage, inputs_of
from strandline.jobs.model.stage_columns import storage_of
from strandline.jobs.model.tables import EVENT_ORDER, PARTITIONS_EACH, ROW_HASH, TOMBSTONE, Relation
from strandline.jobs.model.types import BaseType
from strandline.jobs.operate.verify.difference import difference
from strandline.jobs.operate.verify.findings import counted, failed, passed, skipped
from strandline.jobs.operate.verify.inputs import (
    PUT_BACK,
    BegunLater,
    InputUnreadable,
    check_begun,
    input_rows,
    versions,
    was_put_back,
)
from strandline.jobs.run.schedule import maintained
from strandline.jobs.serve.query_engine import QueryEngine
from strandline.state_store.delta import reader
from strandline.state_store.errors import StrandlineError
from strandline.state_store.tablespec import STATE
from strandline.state_store.wording import Name, joined, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.functions.python import Library
    from strandline.jobs.model.definitions import InsertQuery
    from strandline.jobs.operate.verify.findings import Outcome
    from strandline.jobs.operate.verify.subjects import Opened, Subject
    from strandline.jobs.query.logical import Query
    from strandline.jobs.query.recompute_context import Fate
    from strandline.jobs.run.schedule import RefreshUnit
    from strandline.state_store.commits import TableVersion, Trimmed
    from strandline.state_store.layout import LakeLayout


# The rows of a view that come from events which are still there, where retention has taken the first of them.
#
#     log       e0 e1 e2 │ e3 e4 e5        what is left
#     filtered  r0    r2 │ r3    r5        r3 and r5 must be what its SQL gives over e3 to e5
#     newest    b@e1     │ a@e4  c@e5      so must the rows of a and c
#
# It is known of views in which each row comes from one event and carries its place: a filter or projection of a log,
# and the newest row of each key.

_PLACE = ("_partition", "_offset")


def carries_place(definition: Source | View, log: str, catalog: Catalog) -> bool:
    """True if each row of a definition comes from one event of the log, whose place it has."""
    stages = compiled(definition, catalog).stages
    alone = len(stages) == 1 and [each.relation.name for each in inputs_of(stages[0])] == [log]
    (stage, *_) = stages
    counted = isinstance(stage, LatestStage) and stage.bag  # an event that is gone may have taken one away that is left
    return (
        alone
        and not counted
        and (isinstance(stage, LatestStage) or (isinstance(stage, MapStage) and storage_of(stage) == "append"))
    )


def kept_rows(table: Opened, definition: Source | View, trimmed: Trimmed, names: Sequence[str]) -> pa.Table:
    """The stored rows of events that retention has left.

    Raises:
        VersionGone, CorruptState: the rows do not read.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    keyed = isinstance(definition, Source)
    rows = reader.read_rows(table.path, table.version, [*names, STATE] if keyed else [*names, *_PLACE])
    places = [pc.struct_field(rows[STATE], name) if keyed else rows[name] for name in _PLACE]
    begins = {int(partition): offset for partition, offset in trimmed.begins.items()}
    kept = [offset >= begins.get(p, 0) for p, offset in zip(*(each.to_pylist() for each in places), strict=True)]
    return rows.filter(pa.array(kept, pa.bool_())).select(list(names))


def of_keys(computed: pa.Table, stored: pa.Table, definition: Source | View) -> pa.Table:
    """The rows of a keyed source that are computed for keys that are stored; of anything else, all rows.

    Where a producer spreads a key over partitions, the newest of its events may be gone and an older one left.
    """
    import pyarrow as pa

    if not isinstance(definition, Source):
        return computed
    known = {str(row) for row in stored.select(list(definition.key)).to_pylist()}
    wanted = [str(row) in known for row in computed.select(list(definition.key)).to_pylist()]
    return computed.filter(pa.array(wanted, pa.bool_()))


# The queries that give a definition's rows, each as one SELECT for DuckDB.


@dataclass(frozen=True)
class Recomputed:
    """One SELECT that gives the visible columns of a table, or a part of its rows.

    Attributes:
        prefix: what stands before its entries in the table's vector.
        relations: those that the text reads, by their names.
        query: None for a keyed source, which has no query of its own.
    """

    prefix: str
    sql: str
    relations: tuple[Relation, ...]
    query: Query | None = None


def queries(definition: Source | View, catalog: Catalog) -> list[Recomputed]:
    """The queries of a view and of those that insert into it; of a keyed source, the newest event of each key.

    Raises:
        SqlError: a query no longer fits its inputs, or DuckDB has no function for it.
    """
    if isinstance(definition, Source) and definition.kind == "table":
        return [Recomputed("", _newest(definition), (event_log(definition),))]
    found = [_recomputed(definition, "", catalog)] if isinstance(definition, View) else []
    return found + [_recomputed(each, f"{each.name}/", catalog) for each in catalog.insert_queries(definition.name)]


def frozen(query: Query) -> bool:
    """True if an event of the query joins what a table was when the event came."""
    from strandline.jobs.query.logical import Recursion, SetOperation

    if isinstance(query, SetOperation | Recursion):
        return any(frozen(branch) for branch in query.branches)
    return any(part.frozen or (not isinstance(part.source, Relation) and frozen(part.source)) for part in query.inputs)


def _recomputed(definition: View | InsertQuery, prefix: str, catalog: Catalog) -> Recomputed:
    # Dagster knows the checks by this module, and loads no front end until one is made.
    from strandline.jobs.query.clauses.read import query_of
    from strandline.jobs.query.logical import relations_of
    from strandline.jobs.query.recompute import recompute_sql

    query = query_of(definition, catalog)
    options = definition.maintenance if isinstance(definition, View) else ViewOptions()
    fate: Fate = "null" if options.errors == "null" else "left out"
    text = recompute_sql(query, "duckdb", fate=fate, semantics=options.semantics, shared=options.state == "shared")
    sql = f"SELECT * FROM ({text}) AS __rows"
    return Recomputed(prefix, sql, relations_of(query), query)


def _newest(source: Source) -> str:
    """Of each key the newest event, unless it says that the key is gone."""
    quoted = engine_of("duckdb").name
    if source.bag:
        return _left(source)
    names, keys = ([quoted(name) for name in each] for each in ([c.name for c in source.columns], source.key))
    order = ", ".join(f"{name} DESC" for name in EVENT_ORDER)
    newest = f"row_number() OVER (PARTITION BY {', '.join(keys)} ORDER BY {order}) = 1"
    events = f"SELECT * FROM {quoted(event_log(source).name)} QUALIFY {newest}"
    return f"SELECT {', '.join(names)} FROM ({events}) AS __newest WHERE NOT {TOMBSTONE}"


def _left(source: Source) -> str:
    """Of equal rows as many as came more often than they went."""
    quoted = engine_of("duckdb").name
    log, names = quoted(event_log(source).name), ", ".join(quoted(column.name) for column in source.columns)
    gone = f"COUNT(*) FILTER (WHERE {TOMBSTONE}) OVER (PARTITION BY {ROW_HASH})"
    number = f"ROW_NUMBER() OVER (PARTITION BY {ROW_HASH}, {TOMBSTONE} ORDER BY _offset)"
    events = f"SELECT *, {number} AS __number, {gone} AS __gone FROM {log}"
    return f"SELECT {names} FROM ({events}) AS __events WHERE NOT {TOMBSTONE} AND __number > __gone"


_FROZEN: Final = "an event joins a table as it was when the event came: its versions do not tell that"


def has_sql(subject: Subject, catalog: Catalog) -> bool:
    """True if the table's rows, or some of them, are computed from other tables by the definition of its name."""
    definition = subject.definition
    if definition is None or subject.table != definition.name:
        return False
    fed = bool(catalog.whole_queries(definition.name))
    return fed or isinstance(definition, View) or definition.kind == "table"


def unprovable(definition: Source | View, catalog: Catalog) -> str | None:
    """Why rows of the definition cannot be compared with its SQL, as far as the definition tells; None when they can.

    Args:
        catalog: with all that the definition reads.
    """
    try:
        return _FROZEN if _any_frozen(queries(definition, catalog)) else None
    except StrandlineError as error:
        return f"its SQL does not run by itself: {error.message}"


@dataclass(frozen=True)
class PartRows:
    """Rows that are to be compared in place of the stored ones.

    Attributes:
        condition: in DuckDB's SQL, over visible columns: which of the definition's rows they should be.
    """

    rows: pa.Table
    condition: str


def check_recompute(
    table: Opened, catalog: Catalog, lake: LakeLayout, functions: Library, part: PartRows | None = None
) -> Outcome:
    """The rows equal those of the definition's SQL.

    Args:
        functions: those that users wrote, for the SQL to call.
        part: default: all rows that are stored.

    Raises:
        VersionGone, CorruptState: the rows do not read.
    """
    definition = table.subject.definition
    assert definition is not None
    if was_put_back(table):
        return skipped(PUT_BACK)
    # Constants have no inputs, and so an empty vector for good.
    if not table.record.vector and table.record.epoch == 0:
        return skipped("nothing was computed yet: its vector is empty")
    try:
        asked = queries(definition, catalog)
        if _any_frozen(asked):
            return skipped(_FROZEN)
        if part is not None:
            asked = [_only(part, each, definition) for each in asked]
        computed = [_computed(each, table, lake, functions) for each in asked]
    except BegunLater as later:
        return _compared_kept(table, catalog, lake, functions, later)
    except InputUnreadable as error:
        return skipped(str(error))
    except StrandlineError as error:
        return skipped(f"its SQL does not run over its inputs: {error.message}")
    return _compared(table, definition, computed, part)


def _compared_kept(table: Opened, catalog: Catalog, lake: LakeLayout, functions: Library, later: BegunLater) -> Outcome:
    """What can be said where an input begins later than the rows: those of events that are left, if they are known."""
    definition = table.subject.definition
    assert definition is not None
    asked = queries(definition, catalog)
    if len(asked) > 1 or not carries_place(definition, later.log, catalog):
        return skipped(str(later))
    names = [column.name for column in definition.columns]
    stored = kept_rows(table, definition, later.trimmed, names)
    computed = _computed(asked[0], table, lake, functions, whole=False).rename_columns(names)
    wrong = difference(stored, of_keys(computed, stored, definition), None)
    if wrong:
        return failed(f"the rows of events that are left are not those of its SQL: {wrong}")
    return skipped(f"{counted(stored.num_rows, 'row')} of events that are left, as its SQL gives them; {later}")


def _any_frozen(asked: Sequence[Recomputed]) -> bool:
    return any(frozen(each.query) for each in asked if each.query is not None)


def _only(part: PartRows, each: Recomputed, definition: Source | View) -> Recomputed:
    """The query with those of its rows that the part should be."""
    names = ", ".join(engine_of("duckdb").name(column.name) for column in definition.columns)
    return replace(each, sql=f"SELECT * FROM ({each.sql}) AS __part({names}) WHERE {part.condition}")


def _computed(each: Recomputed, table: Opened, lake: LakeLayout, functions: Library, *, whole: bool = True) -> pa.Table:
    """The rows of one query.

    Args:
        whole: every input must have the events that the rows were computed from.

    Raises:
        BegunLater: one has not.
        InputUnreadable: an input is not to be read at the version of the vector, or is broken there.
        SqlError, RefreshFailed, FunctionRefused: the query does not run.
    """
    names = {relation.name for relation in each.relations}
    vector = _own_vector(each, table)
    at = versions(vector, names, lake)
    if whole:
        check_begun({name: table.record.since.get(f"{each.prefix}{name}", 0) for name in vector}, vector, at, lake)
    engine = engine_of("duckdb")
    rows, texts = {}, []
    for number, relation in enumerate(each.relations):
        visible = [column for column, _ in relation.columns]
        state = bool(relation.hidden)
        rows[f"__input_{number}"] = input_rows(relation.name, at[relation.name], lake, visible, state=state)
        texts.append(
            f"{engine.name(relation.name)} AS (SELECT {', '.join(listed(relation, engine))} FROM __input_{number})"
        )
    with QueryEngine(functions) as duck:
        return duck.query(f"WITH {', '.join(texts)} {each.sql}" if texts else each.sql, rows)


def _own_vector(each: Recomputed, table: Opened) -> dict[str, TableVersion]:
    """The entries of the table's vector that are this query's."""
    entries = ((entry, table.subject.input_of(entry), at) for entry, at in table.record.vector.items())
    return {name: at for entry, name, at in entries if entry == f"{each.prefix}{name}"}


def _compared(table: Opened, definition: Source | View, parts: Sequence[pa.Table], part: PartRows | None) -> Outcome:
    import pyarrow as pa

    names = [column.name for column in definition.columns]
    stored = part.rows.select(names) if part is not None else _stored(table, definition, names)
    computed = pa.concat_tables([each.rename_columns(names) for each in parts])
    wrong = difference(stored, computed, lasting_key(definition))
    if wrong:
        return failed(f"the rows are not those of its SQL at its vector: {wrong}")
    logs = joined(" and ", (sentence("'{}'", Name(name)) for name in table.record.since))
    begun = f"; computed from the events of {logs} that retention had left by then" if logs else ""
    return passed(f"{counted(stored.num_rows, 'row')}, as its SQL gives them at its vector{begun}")


def _stored(table: Opened, definition: Source | View, names: list[str]) -> pa.Table:
    """The rows that the definition's queries give."""
    import pyarrow.compute as pc

    if isinstance(definition, View) or definition.kind == "table":
        return reader.read_rows(table.path, table.version, names)
    # A stream that queries insert into has the events of its topic too.
    rows = reader.read_rows(table.path, table.version, [*names, "_partition"])
    return rows.filter(pc.greater_equal(rows["_partition"], PARTITIONS_EACH)).select(names)


def lasting_key(definition: Source | View) -> list[int] | None:
    """The places of the key where a group that fell to zero stays, as ksqlDB has it; None where it goes.

    None also of one group over all rows, which is always there. Empty when a part of the key is not visible.
    """
    if not isinstance(definition, View) or definition.maintenance.semantics != "ksql" or definition.kind != "table":
        return None
    names = [column.name for column in definition.columns]
    if not definition.row_key:
        return None
    return [names.index(key) for key in definition.row_key] if set(definition.row_key) <= set(names) else []


# The JSON of other types is spelled by the engine that wrote the row.
_SPELLED_ALIKE = (BaseType.INT, BaseType.BIGINT, BaseType.VARCHAR, BaseType.BOOLEAN)


def check_dead_letters(table: Opened, catalog: Catalog, lake: LakeLayout, functions: Library) -> Outcome:
    """The rows kept aside are those of the inputs that fail, each where it fails or with what it breaks.

    Args:
        table: of the dead letters of a view, or of one of its stages.

    Raises:
        VersionGone, CorruptState: the rows do not read.
    """
    definition = table.subject.definition
    assert definition is not None
    try:
        found = _stage_of(table.subject.table, definition, catalog)
    except StrandlineError as error:
        return skipped(f"its view has no plan: {error.message}")
    if found is None:
        return skipped("its view keeps no rows aside any more")
    item, prefix, stage = found
    if any(each.frozen for each in inputs_of(stage)):
        return skipped("an event joins a table as it was when the event came: its versions do not tell that")
    try:
        computed = _computed_aside(stage, prefix, table, lake, functions)
    except (BegunLater, InputUnreadable) as error:
        return skipped(str(error))
    except StrandlineError as error:
        return skipped(f"its conditions do not run over its inputs: {error.message}")
    stored = reader.read_rows(table.path, table.version, [REASON, ROW])
    names = _names(stage)
    wrong = difference(_plain(stored, names), _plain(computed, names))
    if wrong:
        return failed(sentence("the rows are not those of '{}' that fail at its vector: {}", Name(item.name), wrong))
    return passed(f"{counted(stored.num_rows, 'row')}, those that fail at its vector")


def _stage_of(letters: str, definition: Source | View, catalog: Catalog) -> tuple[RefreshUnit, str, MapStage] | None:
    """What maintains a table of dead letters, and what stands before the entries in its vector; None: nothing does."""
    definitions = [definition, *catalog.insert_queries(definition.name)]
    for item in (item for level in maintained(definitions, catalog) for item in level):
        for stage in item.stages:
            if item.letters(stage) == letters and item.options.errors != "null":
                aside = guarded(stage, letters).aside
                return None if aside is None else (item, item.owner(stage).entry(""), aside)
    return None


def _computed_aside(stage: MapStage, prefix: str, table: Opened, lake: LakeLayout, functions: Library) -> pa.Table:
    """The rows that fail, and why.

    Raises:
        BegunLater, InputUnreadable: an input does not have the rows any more.
        SqlError: the text does not run.
    """
    relations = {each.relation.name: each.relation for each in inputs_of(stage)}
    entries = {name: table.record.vector.get(f"{prefix}{name}") for name in relations}
    vector = {name: commit for name, commit in entries.items() if commit is not None}
    at = versions(vector, relations, lake)
    check_begun({name: table.record.since.get(f"{prefix}{name}", 0) for name in vector}, vector, at, lake)
    engine = engine_of("duckdb")
    rows, texts = {}, []
    for number, (name, relation) in enumerate(relations.items()):
        visible = [column for column, _ in relation.columns]
        rows[f"__input_{number}"] = input_rows(name, at[name], lake, visible, state=bool(relation.hidden))
        listed_columns = ", ".join(listed(relation, engine))
        aliases = {each.alias for each in inputs_of(stage) if each.relation.name == name}
        texts += [
            f"{engine.name(f'new_{alias}')} AS (SELECT {listed_columns} FROM __input_{number})" for alias in aliases
        ]
    names = ", ".join(engine.name(name) for name in (REASON, ROW))
    with QueryEngine(functions) as duck:
        return duck.query(f"WITH {', '.join(texts)} SELECT {names} FROM ({all_rows(stage.body, engine)})", rows)


def _names(stage: MapStage) -> set[str]:
    """The names in a row's JSON whose values both engines spell alike."""
    return {
        f"{each.alias}_{name}"
        for each in inputs_of(stage)
        for name, sql_type in each.relation.columns
        if sql_type.base in _SPELLED_ALIKE
    }


def _plain(rows: pa.Table, names: set[str]) -> pa.Table:
    """The rows with those values of their JSON, in one spelling, and their reasons without the expressions.

    How an expression is written in a reason is each release's own.
    """
    import pyarrow as pa

    texts = pa.array(list(_texts(rows, names)), pa.string())
    reasons = pa.array([reason.partition(": ")[0] for reason in rows[REASON].to_pylist()], pa.string())
    return pa.table({REASON: reasons, ROW: texts})


def _texts(rows: pa.Table, names: set[str]) -> Iterator[str]:
    for text in rows[ROW].to_pylist():
        yield json.dumps({name: value for name, value in sorted(json.loads(text).items()) if name in names})
