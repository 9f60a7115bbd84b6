"""Whether what has come for a stage can pass its filters: found out for many stages by one query, before any is run.

    SELECT … FROM sales WHERE sales.qty > 37 AND sales.shop = 4        sales   qty > 37, shop = 4
    … JOIN shops ON … WHERE sales.qty > 37 AND shops.city = 'Rome'     sales   qty > 37       shops   city = 'Rome'

Where no changed row of any input that moved meets the terms of WHERE over that input alone, every row of the stage's
body is as it was, and no row of it fails: terms that cannot fail decide first (`jobs.functions.failing_rows`). Then the
stage changes nothing, whatever stands above its body.

It only ever says "surely nothing". What it cannot tell (an input without such a term, or that an outer join pads; rows
that are too many, or do not read) is to be computed. The terms are the rule's own, in the words of its text and by the
same engine: there is no second meaning of a condition.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import duckdb
import numpy as np
import pyarrow as pa
from sqlglot import exp

from strandline.jobs.functions.failing import can_fail
from strandline.jobs.functions.render import lower
from strandline.jobs.ivm.refresh.on_duckdb import flat, of_columns
from strandline.jobs.ivm.rules.delta_join import is_linear
from strandline.jobs.model.stage import AggregateStage, AnalyticStage, MapStage, Stage, kept_with_stage
from strandline.jobs.model.stage_columns import spec_of_input
from strandline.jobs.sql.trees import all_of, columns_in, conjuncts, replaced
from strandline.state_store.delta.log import read_record
from strandline.state_store.duckdb.statements import MOST_ROWS
from strandline.state_store.duckdb.table import DuckDBTable, streamed
from strandline.state_store.errors import StrandlineError
from strandline.state_store.tablespec import VERSION, WEIGHT

if TYPE_CHECKING:
    from strandline.jobs.ivm.refresh.context import RunContext
    from strandline.jobs.model.relation import Relation
    from strandline.jobs.model.stage import Core, Input

log = logging.getLogger("strandline")

_MOST: Final = 4_000_000
"""Rows times filters that are looked at: a byte each in memory, and some milliseconds."""
_CHANGED: Final = "__changed"


@dataclass(frozen=True)
class Filter:
    """A condition over one relation.

    Attributes:
        text: in DuckDB's words, over the columns of `relation` under the name `__changed`.
    """

    relation: Relation
    text: str


Filters = Mapping[str, tuple[Filter, ...]]
"""{an input's table: filters of which a changed row must meet one, to change anything}; of an input without any, no
change does."""


@kept_with_stage
def filters_of(stage: Stage) -> Filters | None:
    """The filters of a stage's inputs; None where some input has none, so that every change of it is to be computed."""
    if not isinstance(stage, MapStage | AggregateStage | AnalyticStage) or _counts_late(stage):
        return None
    found: dict[str, list[Filter]] = {}
    for core in stage.body:
        for place, each in enumerate(core.inputs):
            filters = found.setdefault(each.relation.name, [])
            if each.frozen:
                continue
            condition = _over(core, each) if is_linear(core, place) else None
            if condition is None:
                return None
            filters.append(Filter(each.relation, lower(condition, "duckdb")))
    return {name: tuple(filters) for name, filters in found.items()}


def _counts_late(stage: Stage) -> bool:
    return isinstance(stage, AggregateStage) and bool(stage.late)


def _over(core: Core, read: Input) -> exp.Expression | None:
    """The terms of WHERE that cannot fail and read that input, and nothing else."""
    terms = [
        term
        for term in conjuncts(core.where)
        if {column.table for column in columns_in(term)} == {read.alias} and not can_fail(term)
    ]
    condition = all_of(*terms)
    if condition is None:
        return None
    columns = {(column.table, column.name) for column in columns_in(condition)}
    return replaced(condition, {place: exp.column(place[1], table=_CHANGED, quoted=True) for place in columns})


@dataclass(frozen=True)
class Asked:
    """A question: does a change of the versions after `after` meet the filter?"""

    filter: Filter
    after: int


def passing(context: RunContext, upto: int, asked: Sequence[Asked]) -> list[bool]:
    """For each question about one table whether the answer may be yes; False is surely no.

    Args:
        upto: the version that the changes end with.
    """
    after = min(each.after for each in asked)
    # By the object, of which each view has its own or shares one: to hash a thousand of them takes 15 ms.
    relations: list[Relation] = []
    number: dict[int, int] = {}
    for each in asked:
        relation = each.filter.relation
        if id(relation) not in number:
            if relation not in relations:
                relations.append(relation)
            number[id(relation)] = relations.index(relation)
    places = [number[id(each.filter.relation)] for each in asked]
    try:
        last = [
            _last_met(context, relation, _texts(asked, places, place), after, upto)
            for place, relation in enumerate(relations)
        ]
    except (duckdb.Error, StrandlineError) as error:  # whoever computes it says what is wrong with it
        log.debug("what has come is not looked through: %s", error)
        return [True] * len(asked)
    return [last[place].get(each.filter.text, -1) > each.after for place, each in zip(places, asked, strict=True)]


def _texts(asked: Sequence[Asked], places: Sequence[int], wanted: int) -> list[str]:
    """The different filters over one of the relations."""
    found = (each.filter.text for place, each in zip(places, asked, strict=True) if place == wanted)
    return list(dict.fromkeys(found))


def _last_met(context: RunContext, relation: Relation, filters: Sequence[str], after: int, upto: int) -> dict[str, int]:
    """{filter: the last version of which a change meets it}; of filters that none meets, nothing."""
    if _changed_rows(context, relation.name, after, upto) * len(filters) > _MOST:
        return dict.fromkeys(filters, upto)
    assert context.duckdb_engine is not None
    found = np.full(len(filters), -1, np.int64)
    whole = ", ".join(f"COALESCE({text}, FALSE)" for text in filters)
    if context.functions is not None:
        functions = context.functions
        context.duckdb_engine.register(lambda connection: functions.register_duckdb(connection, whole))
    with context.duckdb_engine.connection() as connection:
        path, read = context.lake.table(relation.name), of_columns(relation, whole)
        table = DuckDBTable(connection, context.duckdb_engine.kept, path, spec_of_input(read), _CHANGED)
        # One list, not a column each: DuckDB takes as long for the names of columns as for what is in them.
        for batch in _rows(context, table, read, f"list_value({whole}) AS met", after, upto):
            met = np.asarray(batch["met"].flatten().cast(pa.uint8())).reshape(batch.num_rows, len(filters))
            versions = np.asarray(batch[VERSION])
            found = np.maximum(found, np.where(met, versions[:, None], -1).max(axis=0))
    return {text: int(last) for text, last in zip(filters, found, strict=True) if last >= 0}


def _rows(
    context: RunContext, table: DuckDBTable, read: Relation, computed: str, after: int, upto: int
) -> Iterable[pa.RecordBatch]:
    """What is computed of each change, and its version; from the second time on by a statement that stays prepared."""
    assert context.duckdb_engine is not None
    statements, of = context.duckdb_engine.statements, f"{table.path} changes"

    def over(changes: str) -> str:
        return f"SELECT {computed}, {VERSION} FROM ({flat(changes, read, WEIGHT, VERSION)}) AS {_CHANGED}"

    held = table.held_changes(after, upto) if statements.are_worth(of, computed) else None
    if held is None or held.num_rows > MOST_ROWS:
        return streamed(table.connection, over(table.changes(after, upto)))
    found: list[pa.RecordBatch] = statements.run(
        of, over("SELECT * FROM given_changes"), [], {"given_changes": held}
    ).to_batches()
    return found


def _changed_rows(context: RunContext, name: str, after: int, upto: int) -> float:
    """The rows that the commits say they changed; infinite where one does not say."""
    path = context.lake.table(name)
    records = [read_record(path, version) for version in range(after + 1, upto + 1)]
    return sum(math.inf if each is None else each.inserted + each.deleted for each in records)
