"""A rule in two texts, for a first refresh that many tasks share: what a part of the rows gives, and what comes of all.

    visit ⋈ category, COUNT(*), MAX(n) GROUP BY kind        parts deal out the files of visit; category is read whole

    part 0   new_visit (its files) ⋈ new_category ──> kind, rows, max ──┐ rows meet by      bucket 0   kind, COUNT, MAX
    part 1   new_visit (its files) ⋈ new_category ──> kind, rows, max ──┘ hash(kind)        bucket 1   kind, COUNT, MAX

A part's text ends with the relation in which the rule goes on with rows that have to meet: `delta`, the changes of the
body; `body_new`, its rows; or `__d`, the rows of a group folded into accumulators, where parts of those can be added
up. The other text is the rule's own, which takes that relation from the parts. So there is no second meaning of a rule:
it is cut, never written again. Where nothing has to meet (filter and project over rows that are only ever added) the
parts give the rows to be stored.

A join may be dealt out by an input in which it is linear (`delta_join`): each of its rows gives the same rows of the
join whatever the others are. The other inputs are read whole by every part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.jobs.engines.engine import Dialect, Engine, engine_of
from strandline.jobs.ivm.rules.aggregate import combined, folds
from strandline.jobs.ivm.rules.computed_again import computed_again
from strandline.jobs.ivm.rules.delta_join import all_rows, changes, is_linear
from strandline.jobs.ivm.rules.maintenance import late_rows, maintenance
from strandline.jobs.ivm.rules.stored import STEP, value_of
from strandline.jobs.model.stage import (
    AggregateStage,
    AnalyticStage,
    Core,
    LatestStage,
    RecursiveStage,
    Stage,
    body_of,
)
from strandline.jobs.model.stage_columns import key_names, storage_of
from strandline.jobs.model.tables import ROW_HASH
from strandline.state_store.errors import StrandlineError
from strandline.state_store.tablespec import WEIGHT

PARTS: Final = "spread_parts"
"""The relation of what the parts gave, in the text of a bucket."""

_DIALECT: Final[Dialect] = "duckdb"


@dataclass(frozen=True)
class SpreadRule:
    """The two texts, in DuckDB's SQL.

    Attributes:
        dealt: the aliases of the inputs of which a part reads its files alone.
        rows: of the inputs that are dealt out.
        whole: rows of the inputs that every part reads.
        part: SELECT of what a part gives.
        meet: expressions over its columns; rows of which all are equal go to one bucket. Without any, all rows do.
        bucket: the rule's text over `PARTS`; None: the parts give the rows to be stored.
        late: SELECT of the number of a part's late rows; None: no row is ever late.
    """

    dealt: frozenset[str]
    rows: int
    whole: int
    part: str
    meet: tuple[str, ...]
    bucket: str | None
    late: str | None


def spread_rule(stage: Stage, rows: Mapping[str, int]) -> SpreadRule | None:
    """The texts of a first refresh that tasks share; None where one task has to see all rows.

    Args:
        rows: {name of a relation: its rows} of every input.
    """
    if isinstance(stage, RecursiveStage):
        return None
    dealt = _dealt(body_of(stage), rows)
    if dealt is None:
        return None
    read = [(each.alias in dealt, rows[each.relation.name]) for core in body_of(stage) for each in core.inputs]
    many, whole = (sum(count for is_dealt, count in read if is_dealt is asked) for asked in (True, False))
    try:
        part, meet, bucket = _texts(stage, engine_of(_DIALECT))
    except StrandlineError:
        return None  # DuckDB lacks a function
    return SpreadRule(dealt, many, whole, part, meet, bucket, late_rows(stage, _DIALECT, None))


def _dealt(cores: Sequence[Core], rows: Mapping[str, int]) -> frozenset[str] | None:
    """Of each core one input in which it is linear, the largest; None where there is none.

    Cores share inputs by their alias, as the dead letters of a join and of its sides do: what one of them deals out no
    other may read whole, for it would lose the rows that meet in different parts.
    """
    choices = [
        [each for place, each in enumerate(core.inputs) if is_linear(core, place) and not each.frozen] for core in cores
    ]
    dealt: set[str] = set()
    for choice in sorted(choices, key=len):
        if not choice:
            return None
        shared = [each for each in choice if each.alias in dealt]
        dealt.add(max(shared or choice, key=lambda each: rows[each.relation.name]).alias)
    once = all(sum(each.alias in dealt for each in core.inputs) == 1 for core in cores)
    return frozenset(dealt) if once else None


def _texts(stage: Stage, engine: Engine) -> tuple[str, tuple[str, ...], str | None]:
    """What a part gives, where its rows meet, and what comes of them."""
    rule = maintenance(stage, _DIALECT, None)
    if storage_of(stage) == "append":
        return rule, (), None
    again = computed_again(stage, first=True) if isinstance(stage, AggregateStage) and stage.session is None else ()
    if isinstance(stage, AggregateStage) and stage.session is None and not again:
        folded = combined(stage, PARTS, engine)
        if folded is not None:
            own = ", ".join(folds(stage, (), engine, None))
            meet = tuple(engine.name(each.name) for each in stage.group)
            return f"WITH {own}\nSELECT * FROM __d", meet, _cut(rule, own, folded)
    # All of these are the same rows: each change is a row that is there once, with a weight of 1.
    body, given = body_of(stage), f"SELECT * FROM {PARTS}"
    delta, rows = changes(body, engine, None), all_rows(body, engine)
    # Of one core the marks of a change are the same in every row: they need not travel.
    alone = len(body) == 1
    marks = f"SELECT *, CAST(1 AS BIGINT) AS {WEIGHT}, 0 AS {STEP} FROM {PARTS}" if alone else given
    bucket = _cut(rule, f"delta AS (\n{delta}\n)", f"delta AS ({marks})")
    for each in again:
        # What a call does not take of them, it filters out.
        own = f"body_new{each.number} AS (\n{all_rows(each.rows, engine)}\n)"
        bucket = _cut(bucket, own, f"body_new{each.number} AS ({given})")
    if not again and rows in bucket:
        bucket = _cut(bucket, f"body_new AS (\n{rows}\n)", f"body_new AS ({given})")
    return rows if alone else delta, _where_rows_meet(stage, engine), bucket


def _where_rows_meet(stage: Stage, engine: Engine) -> tuple[str, ...]:
    """Expressions over the columns of the body: what comes of a row depends on those alone for which all are equal."""
    match stage:
        case LatestStage() if stage.bag:
            return (engine.name(ROW_HASH),)
        case LatestStage():
            return tuple(value_of(each, engine) for each in stage.outputs if each.name in stage.key)
        case AggregateStage():
            return tuple(value_of(each, engine) for each in stage.group)
        case AnalyticStage():
            return tuple(value_of(each, engine) for each in stage.partition)
        case _:
            return tuple(engine.name(name) for name in key_names(stage))


def _cut(rule: str, own: str, given: str) -> str:
    """The rule's text, with that in the place of its own relation."""
    assert rule.count(own) == 1, "a rule's text has the relation that it begins with once"
    return rule.replace(own, given)
