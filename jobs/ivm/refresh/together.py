"""Stages that differ in constants alone, computed by one statement.

    SELECT … FROM sales WHERE qty >= 1  ┐
    SELECT … FROM sales WHERE qty >= 5  ┴─> SELECT …, v.number FROM sales CROSS JOIN (0 1), (1 5) AS v(number, c0)
                                              WHERE qty >= v.c0

A run of few changes costs DuckDB the same whether it gives the rows of one view or of two hundred: what it takes is
the making of its operators. So these stages are one stage, whose constants are the rows of a relation, whose key has
the number of the stage beside their own, and whose stored rows are theirs, one below the other. Its text is made by
the same rules as theirs (`jobs.ivm.rules`), and run by the same runtime. Each then commits its own rows.

It is done where all that is read is held in memory (`state_store.duckdb.statements`), and where only constants in
comparisons with a column of the same type differ: whole numbers with INT and BIGINT, texts with VARCHAR. Whatever else
differs, or fails, is left to each stage by itself, which says what is wrong with it.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

from strandline.jobs.engines.engine import engine_of
from strandline.jobs.ivm.refresh.epoch import Epoch, missing_input, planned, spans_of
from strandline.jobs.ivm.refresh.on_duckdb import DuckDbRuntime
from strandline.jobs.ivm.rules.delta_join import relations
from strandline.jobs.ivm.rules.maintenance import maintenance
from strandline.jobs.ivm.rules.stored import reads_values, spec_of, stored_columns
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import (
    AggregateStage,
    AnalyticStage,
    Core,
    Input,
    MapStage,
    Output,
    inputs_of,
    kept_with_stage,
)
from strandline.jobs.model.stage_columns import key_names, storage_of
from strandline.jobs.model.tables import Relation
from strandline.state_store.duckdb.rows import Computed, PlacedRows
from strandline.state_store.duckdb.statements import MOST_ROWS
from strandline.state_store.duckdb.table import DuckDBTable
from strandline.state_store.errors import StrandlineError
from strandline.state_store.wording import sentence

if TYPE_CHECKING:
    from strandline.jobs.ivm.refresh.context import Heads, Owner, RunContext
    from strandline.jobs.ivm.rules.delta_join import Side
    from strandline.jobs.model.definitions import Refresh
    from strandline.jobs.model.stage import Stage

log = logging.getLogger("strandline")

FEWEST: Final = 2
"""Stages that are worth it."""
_MOST_PAIRS: Final = 500_000
"""Rows of a relation times stages: each is compared with the constants of each, some nanoseconds."""
_CONSTANTS: Final = "__constants"
_NUMBER: Final = "__stage"
"""The column by which the rows of a stage are told from those of another."""
_COMPARISONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_WHOLE = (t.INT, t.BIGINT)

Constant = int | str


@dataclass(frozen=True)
class Family:
    """What a stage has in common with others, and its constants.

    Attributes:
        key: the same of all stages that differ in constants alone.
        stage: all of them as one.
        constants: of this one, in the order of the columns of the relation.
    """

    key: str
    stage: MapStage | AggregateStage | AnalyticStage
    constants: tuple[Constant, ...]


@kept_with_stage
def family_of(stage: Stage) -> Family | None:
    """The family of a stage; None where it has none."""
    if not isinstance(stage, MapStage | AggregateStage | AnalyticStage) or not _may_be_one_of_several(stage):
        return None
    found: list[Constant] = []
    bodies = [_without_constants(core, found) for core in stage.body]
    relation = Relation(
        _CONSTANTS,
        (("number", t.INT), *((f"c{place}", _type_of(each)) for place, each in enumerate(found))),
        "keyed",
        ("number",),
    )
    body = tuple(_of_all(core, relation, place) for place, core in enumerate(bodies))
    made = _as_one(stage, body)
    text = maintenance(made, "duckdb", frozenset(each.alias for each in inputs_of(made)))
    reads = tuple((each.alias, each.relation) for each in inputs_of(made))
    key = hashlib.sha256(repr((text, reads, stored_columns(made))).encode()).hexdigest()[:16]
    return Family(key, replace(made, table=f"__together_{key}"), tuple(found))


def _may_be_one_of_several(stage: MapStage | AggregateStage | AnalyticStage) -> bool:
    if not all(core.inputs for core in stage.body):
        return False  # constants have no storage of their own
    if isinstance(stage, AggregateStage) and (stage.session is not None or stage.late or reads_values(stage)):
        return False
    # What has no key has one row, which is there also when nothing is.
    return storage_of(stage) == "append" or bool(key_names(stage))


def _without_constants(core: Core, found: list[Constant]) -> Core:
    """The core with columns in the place of the constants of its condition, which are added to `found`."""
    if core.where is None:
        return core
    where = core.where.copy()
    types = {(each.alias, name): type_ for each in core.inputs for name, type_ in each.relation.columns}
    for node in [each for each in where.walk() if isinstance(each, _COMPARISONS)]:
        for column, constant in ((node.left, node.right), (node.right, node.left)):
            value = _constant(constant)
            if value is None or not isinstance(column, exp.Column):
                continue
            type_ = types.get((column.table, column.name))
            if type_ in _WHOLE if isinstance(value, int) else type_ == t.VARCHAR:
                constant.replace(exp.column(f"c{len(found)}", table=_CONSTANTS, quoted=True))
                found.append(value)
                break
    return replace(core, where=where)


def _constant(tree: exp.Expr) -> Constant | None:
    """A text, or a whole number that BIGINT holds."""
    sign = 1
    if isinstance(tree, exp.Neg):
        tree, sign = tree.this, -1
    if not isinstance(tree, exp.Literal):
        return None
    if tree.is_string:
        return str(tree.this) if sign == 1 else None
    text = str(tree.this)
    return sign * int(text) if text.isdecimal() and len(text) <= 18 else None


def _type_of(constant: Constant) -> t.SqlType:
    return t.BIGINT if isinstance(constant, int) else t.VARCHAR


def _of_all(core: Core, relation: Relation, place: int) -> Core:
    """The core over the constants of all stages, under an alias of its own."""
    alias = f"{_CONSTANTS}{place}"
    where = core.where
    if where is not None:
        for column in [each for each in where.find_all(exp.Column) if each.table == _CONSTANTS]:
            column.set("table", exp.to_identifier(alias, quoted=True))
    number = Output(_NUMBER, exp.column("number", table=alias, quoted=True), t.INT)
    key = (*core.key, _NUMBER) if core.storage == "keyed" else core.key
    return replace(
        core,
        inputs=(*core.inputs, Input(alias, relation, frozen=True)),
        where=where,
        columns=(*core.columns, number),
        key=key,
    )


def _as_one(
    stage: MapStage | AggregateStage | AnalyticStage, body: tuple[Core, ...]
) -> MapStage | AggregateStage | AnalyticStage:
    number = Output(_NUMBER, exp.column(_NUMBER, quoted=True), t.INT)
    match stage:
        case MapStage():
            key = (*stage.key, _NUMBER) if storage_of(stage) == "keyed" else stage.key
            return replace(stage, body=body, visible=(*stage.visible, _NUMBER), key=key)
        case AggregateStage():
            outputs, group = (*stage.outputs, number), (*stage.group, number)
            return replace(stage, body=body, group=group, outputs=outputs, key=(*stage.key, _NUMBER))
        case AnalyticStage():
            outputs, partition = (*stage.outputs, number), (*stage.partition, number)
            return replace(stage, body=body, partition=partition, outputs=outputs, key=(*stage.key, _NUMBER))


@dataclass(frozen=True)
class Wanted:
    """A stage that is to be refreshed.

    Attributes:
        name: by which its epoch is found.
    """

    name: str
    stage: Stage
    owner: Owner
    refresh: Refresh


@dataclass(frozen=True)
class _Member:
    name: str
    family: Family
    epoch: Epoch
    stored: PlacedRows | None
    rows: pa.Table | None


def computed_together(
    context: RunContext, heads: Heads, wanted: Sequence[Wanted], upto: Mapping[str, int]
) -> dict[str, Epoch]:
    """{name: its epoch, with its rows} of those that could be computed by statements for several; the others are to be
    refreshed as ever."""
    if context.duckdb_engine is None or context.engine == "spark":
        return {}
    families: dict[str, list[tuple[Wanted, Family]]] = {}
    for each in wanted:
        family = _family_if_met(each.stage)
        if family is not None:
            families.setdefault(family.key, []).append((each, family))
    found: dict[str, Epoch] = {}
    for members in families.values():
        if len(members) < FEWEST:
            continue
        try:
            for part in _parts(_planned(context, heads, members, upto)):
                found |= _computed(context, part)
        except (duckdb.Error, StrandlineError) as error:  # each by itself says what is wrong with it
            log.debug("stages are computed one by one: %s", error)
    return found


def _family_if_met(stage: Stage) -> Family | None:
    """The family of a stage from the second time on that it is asked for: it takes some milliseconds to be found out,
    which a process that does one epoch would not win back."""
    met = _met(stage)
    if not met:
        met.append(True)
        return None
    try:
        return family_of(stage)
    except StrandlineError as error:
        log.debug("'%s' is computed by itself: %s", stage.table, error)
        return None


@kept_with_stage
def _met(_stage: Stage) -> list[bool]:
    return []


def _planned(
    context: RunContext, heads: Heads, wanted: Sequence[tuple[Wanted, Family]], upto: Mapping[str, int]
) -> Iterator[_Member]:
    """Those that take in few changes, and of which few rows are stored."""
    assert context.duckdb_engine is not None
    with context.duckdb_engine.connection() as connection:
        for each, family in wanted:
            try:
                epoch = _epoch_of(context, heads, each, upto)
                if epoch is None:
                    continue
                if storage_of(each.stage) == "append":
                    yield _Member(each.name, family, epoch, None, None)
                    continue
                path, kept = context.lake.table(each.stage.table), context.duckdb_engine.kept
                table = DuckDBTable(connection, kept, path, spec_of(each.stage), "__of")
                held = table.held(epoch.head.version)
            except StrandlineError:
                continue
            if held is not None:
                yield _Member(each.name, family, epoch, *held)


def _epoch_of(context: RunContext, heads: Heads, wanted: Wanted, upto: Mapping[str, int]) -> Epoch | None:
    """The epoch of a stage that takes in few changes."""
    head = heads.find(wanted.stage.table)
    if head is None or missing_input(wanted.stage, heads) is not None:
        return None
    spans = spans_of(wanted.stage, wanted.owner, heads, head, upto)
    epoch = planned(context, wanted.stage, wanted.owner, head, spans, wanted.refresh)
    few = isinstance(epoch, Epoch) and epoch.moved and epoch.changed is not None and epoch.changed <= MOST_ROWS
    return epoch if isinstance(epoch, Epoch) and few else None


def _parts(members: Iterator[_Member]) -> Iterator[list[_Member]]:
    """Those that take in the same changes, no more of them than what is read allows."""
    found: dict[object, list[_Member]] = {}
    for each in members:
        spans = each.epoch.spans
        found.setdefault(tuple((span.entry, span.after, span.upto) for span in spans), []).append(each)
    for same in found.values():
        most = max(1, _MOST_PAIRS // max(1, _rows_read(same[0])))
        part: list[_Member] = []
        rows = 0
        for each in same:
            stored = 0 if each.rows is None else each.rows.num_rows
            if part and (len(part) >= most or rows + stored > MOST_ROWS):
                yield part
                part, rows = [], 0
            part.append(each)
            rows += stored
        yield part


def _rows_read(member: _Member) -> int:
    """The rows of the largest relation that the text reads."""
    epoch, stage = member.epoch, member.family.stage
    assert epoch.moved is not None
    rows = {span.relation.name: span.head.record.rows for span in epoch.spans}
    read = relations(stage, _text_of(stage, epoch.moved), engine_of("duckdb"))
    whole = (rows[each.relation.name] for _, side, each in read if side != "delta" and each.relation.name in rows)
    return max(epoch.changed or 0, *whole, 0)


class _OfAll(DuckDbRuntime):
    """The runtime of several stages as one."""

    def __init__(
        self, context: RunContext, connection: duckdb.DuckDBPyConnection, epoch: Epoch, members: Sequence[_Member]
    ) -> None:
        super().__init__(context, connection, epoch)
        self._members = members

    def _held_side(self, side: Side, each: Input) -> pa.Table | None:
        if each.relation.name != _CONSTANTS:
            return super()._held_side(side, each)
        columns = {"number": pa.array(range(len(self._members)), pa.int32())}
        for place, (name, type_) in enumerate(each.relation.columns[1:]):
            assert name == f"c{place}"
            columns[name] = pa.array([one.family.constants[place] for one in self._members], type_.arrow())
        return pa.table(columns)

    def _held_stored(self) -> tuple[PlacedRows, pa.Table] | None:
        stored = [one.stored for one in self._members if one.stored is not None]
        tables = [one.rows for one in self._members if one.rows is not None]
        numbers = np.repeat(np.arange(len(tables), dtype=np.int32), [each.num_rows for each in tables])
        rows = pa.concat_tables(tables).combine_chunks().append_column(_NUMBER, pa.array(numbers))
        known = frozenset.intersection(*(each.without_nulls for each in stored))
        return PlacedRows("", (), known | {_NUMBER}), rows


def _computed(context: RunContext, members: Sequence[_Member]) -> dict[str, Epoch]:
    if len(members) < FEWEST:
        return {}
    assert context.duckdb_engine is not None
    family, epoch = members[0].family, members[0].epoch
    assert epoch.moved is not None
    with context.duckdb_engine.connection() as connection:
        runtime = _OfAll(context, connection, replace(epoch, stage=family.stage), members)
        rows = runtime.computed(_text_of(family.stage, epoch.moved))
    if rows is None:
        return {}
    numbers = np.asarray(rows[_NUMBER])
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(len(members) + 1))
    rows = rows.take(pa.array(order)).combine_chunks()
    found = {}
    for number, each in enumerate(members):
        own = rows.slice(ends[number], ends[number + 1] - ends[number])
        record = each.epoch.record
        said = sentence("{}; with {} more that differ in constants", record.reason, len(members) - 1)
        found[each.name] = replace(each.epoch, record=replace(record, reason=said), given=Computed(own, each.stored))
    return found


@kept_with_stage
def _text_of(stage: Stage, moved: frozenset[str]) -> str:
    return maintenance(stage, "duckdb", moved)
