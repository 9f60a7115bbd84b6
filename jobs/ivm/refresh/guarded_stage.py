"""A stage rewritten for rows on which an expression fails, by the view's ERRORS.

    checked(stage)      an error on a row that fails: what an epoch runs while there are none
    guarded(stage)      the stage without the rows that fail, and a stage of those rows: its dead letters
    null_instead(stage) NULL wherever an expression fails

Which rows fail, `jobs.functions.failing_rows` says. The dead letters are a maintained table like any other,
`<view>__dead_letters`: a row that is corrected or retracted leaves it, and nothing is in it twice.

Guarded are the expressions over the rows that a stage reads: its columns, conditions and joins, and what is computed
for an aggregate or a window. What is computed of a whole group or of a window's result (`SUM(a) / SUM(b)`), or
overflows while it is added up, concerns no single row: there the view stops, unless its ERRORS are 'null'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from sqlglot import exp

from strandline.jobs.functions.failing import failing, lenient, strict
from strandline.jobs.functions.failing_rows import Apart, Needed, RowCheck, join_check, row_check, said_of, truth
from strandline.jobs.model import types as t
from strandline.jobs.model.stage import (
    PART,
    AggregateStage,
    AnalyticStage,
    Core,
    Input,
    LatestStage,
    MapStage,
    Output,
    RecursiveStage,
    Stage,
    body_of,
    kept_with_stage,
    storage_of_body,
)
from strandline.jobs.model.tables import FAILED_ROW_COLUMNS, ITEM
from strandline.jobs.sql.trees import Place, all_of, any_of, columns_in, replaced

if TYPE_CHECKING:
    from strandline.jobs.ivm.refresh.context import Heads
    from strandline.jobs.model.definitions import ErrorPolicy


REASON, ROW = (name for name, _ in FAILED_ROW_COLUMNS)

Change = Callable[[exp.Expression], exp.Expression]
BodyStage = MapStage | AggregateStage | AnalyticStage | RecursiveStage


@dataclass(frozen=True)
class Guarded:
    """A stage under which rows may fail, in two.

    Attributes:
        sound: the stage without the rows that fail.
        aside: the stage of those rows; None when no row can fail.
        always: some of those rows join nothing, so that `checked` may not see them: the two must always be run.
    """

    sound: Stage
    aside: MapStage | None = None
    always: bool = False


def checked(stage: Stage) -> Stage:
    """The stage with an error on every joined row that fails."""
    return _rewritten(stage, lambda core, check: check.checked(_read(core)), top=strict, arrays=True)


def null_instead(stage: Stage) -> Stage:
    """The stage with NULL wherever an expression fails."""
    return _rewritten(stage, lambda _, check: check.lenient, top=lenient, nulls=True)


def guarded(stage: Stage, letters: str) -> Guarded:
    """The stage without the rows that fail, and the stage that keeps those in the table `letters`."""
    sound = _rewritten(stage, lambda _, check: check.sound, top=strict)
    if isinstance(stage, RecursiveStage):
        # What would follow from a row that fails is unknown, so it concerns no single row.
        return Guarded(checked(stage))
    if isinstance(stage, LatestStage):
        return Guarded(sound)
    aside = list(_aside(stage))
    if not aside:
        return Guarded(sound)
    return Guarded(sound, _dead_letters(aside, letters), any(each.joins_nothing for each in aside))


@dataclass(frozen=True)
class _FailingRows:
    """The rows of a core that fail, as a core: one row for each.

    Attributes:
        numbered: its rows are told apart by the items that they are repeated for.
        joins_nothing: they are no joined rows of the stage.
    """

    core: Core
    fails: exp.Expression
    reason: exp.Expression
    numbered: bool = False
    joins_nothing: bool = False


def _rewritten(
    stage: Stage,
    where: Callable[[Core, RowCheck], exp.Expression | None],
    *,
    top: Change,
    arrays: bool = False,
    nulls: bool = False,
) -> Stage:
    """The stage with total expressions over its rows.

    Args:
        where: the condition of the rows that stay.
        top: what becomes of the expressions over groups and over windows' results.
        arrays: a row is an error when an array fails for whose items it is to be repeated.
        nulls: pairs of rows of which one fails do not join.
    """
    if isinstance(stage, LatestStage):
        return stage
    body = []
    for core in body_of(stage):
        check = _check(stage, core)
        made = replace(_lenient_core(core, check, nulls=nulls), where=where(core, check))
        if arrays:
            change = partial(strict, among=check.own_terms(_items(core)))
            made = replace(made, expand=_outputs(core.expand, change))
        body.append(made)
    if isinstance(stage, RecursiveStage):
        begin = len(stage.seed)
        return replace(stage, seed=tuple(body[:begin]), steps=tuple(body[begin:]))
    stage = replace(stage, body=tuple(body))
    if isinstance(stage, MapStage):
        return stage
    stage = replace(stage, outputs=_outputs(stage.outputs, top))
    if isinstance(stage, AggregateStage):
        # To count late rows must never stop a view.
        late = tuple(
            replace(_lenient_core(core, check, nulls=True), where=check.lenient)
            for core in stage.late
            for check in [_check(stage, core)]
        )
        return replace(stage, late=late)
    calls = tuple(
        replace(
            call,
            arguments=tuple(map(lenient, call.arguments)),
            order=tuple((lenient(by), down, first) for by, down, first in call.order),
        )
        for call in stage.calls
    )
    keep = top(stage.keep) if stage.keep is not None else None
    return replace(stage, calls=calls, partition=_outputs(stage.partition, lenient), keep=keep)


def _check(stage: BodyStage, core: Core) -> RowCheck:
    return row_check(core.where, _needed(stage, core), [join_check(i.alias, i.join, i.on) for i in core.inputs])


def _needed(stage: BodyStage, core: Core) -> Iterator[Needed]:
    """What a stage computes of each row: the columns; the arguments of an aggregate only where its FILTER holds."""
    columns = {each.name: each.expression for each in core.columns}
    conditions = _filters(stage) if isinstance(stage, AggregateStage) else {}
    for name, expression in columns.items():
        for condition in conditions.get(name, [None]):
            yield Needed(expression, None if condition is None else replaced(condition, _values(columns)))
    if isinstance(stage, AnalyticStage):
        trees = [each.expression for each in stage.partition]
        for call in stage.calls:
            trees += [*call.arguments, *(by for by, _, _ in call.order)]
        for tree in trees:
            if not isinstance(tree, exp.Column):
                yield Needed(replaced(tree, _values(columns)))


def _filters(stage: AggregateStage) -> dict[str, list[exp.Expression | None]]:
    """{column: the filters under which it is read} of those columns that only calls with FILTER read."""
    found: dict[str, list[exp.Expression | None]] = {}
    elsewhere = {each.name for group in stage.group for each in columns_in(group.expression)}
    for call in stage.aggregates:
        names = {each.name for argument in call.arguments for each in columns_in(argument)}
        if call.filter is None:
            elsewhere |= names
            continue
        elsewhere |= {each.name for each in columns_in(call.filter)}
        for name in names:
            found.setdefault(name, []).append(call.filter)
    return {name: filters for name, filters in found.items() if name not in elsewhere}


def _values(columns: dict[str, exp.Expression]) -> dict[Place, exp.Expression]:
    return {("", name): expression for name, expression in columns.items()}


def _lenient_core(core: Core, check: RowCheck, *, nulls: bool) -> Core:
    """The core with columns that are NULL where they fail; its WHERE is still to be rewritten."""
    inputs = tuple(
        replace(each, on=join.lenient if nulls else join.on) if each.on is not None else each
        for each, join in zip(core.inputs, check.joins, strict=True)
    )
    return replace(core, inputs=inputs, columns=_outputs(core.columns, lenient), expand=_outputs(core.expand, lenient))


def _outputs(outputs: tuple[Output, ...], change: Change) -> tuple[Output, ...]:
    return tuple(replace(each, expression=change(each.expression)) for each in outputs)


def _aside(stage: MapStage | AggregateStage | AnalyticStage) -> Iterator[_FailingRows]:
    """The rows of a stage that fail: first those of its cores, then those that its cores do not see."""
    checks = [(core, _check(stage, core)) for core in stage.body]
    some = any(check.fails is not None or check.apart or _arrays_fail(core) is not None for core, check in checks)
    if not some:
        return
    for core, check in checks:
        if _is_of_values(core):
            continue
        sound = [exp.Not(this=each.fails) for each in check.apart if each.shown]
        fails = all_of(check.fails or exp.false(), *sound)
        assert fails is not None
        made = _lenient_core(core, check, nulls=False)
        letter = _FailingRows(made, truth(fails), check.reason(stage.table), numbered=bool(core.expand))
        yield _once(letter) if core.repeated else letter
    for core, check in checks:
        arrays = _arrays_fail(core)
        if arrays is not None:
            reason = said_of([each.expression for each in core.expand], stage.table)
            made = replace(_lenient_core(core, check, nulls=False), expand=())
            yield _FailingRows(made, truth(all_of(check.own_terms(_items(core)), arrays)), exp.Literal.string(reason))
        for each in check.apart:
            reason = said_of([each.term], stage.table)
            made = replace(_read_apart(_lenient_core(core, check, nulls=False), each), expand=())
            yield _FailingRows(made, each.fails, exp.Literal.string(reason), joins_nothing=True)


def _is_of_values(core: Core) -> bool:
    """True if a core has the values of groups, which an inner stage has computed: none of them fails."""
    return any(each.name == PART and each.expression != exp.Literal.number(0) for each in core.columns)


def _once(letter: _FailingRows) -> _FailingRows:
    """The rows that fail, once each and not for every group that they are in."""
    (groups,) = letter.core.expand
    first = {("", groups.name): groups.expression.expressions[0]}
    core = replace(letter.core, expand=(), repeated=False)
    return replace(
        letter,
        core=core,
        fails=replaced(letter.fails, first),
        reason=replaced(letter.reason, first),
        numbered=False,
    )


def _arrays_fail(core: Core) -> exp.Expression | None:
    """The condition under which an array fails for whose items a row is to be repeated."""
    return any_of(failing(each.expression) for each in core.expand)


def _items(core: Core) -> set[str]:
    return {ITEM, *(each.name for each in core.expand)}


def _read(core: Core) -> list[exp.Expression]:
    """A column of each input whose columns joined rows have; of a row of one input none has to be read."""
    giving = [each for each in core.inputs if each.join not in ("semi", "anti")]
    return [_column(each.alias, each.relation.columns[0][0]) for each in giving] if len(giving) > 1 else []


def _read_apart(core: Core, rows: Apart) -> Core:
    """The core over the inputs alone whose rows, or pairs of rows, fail."""
    if len(rows.aliases) == 1:
        (alone,) = (each for each in core.inputs if each.alias in rows.aliases)
        return replace(core, inputs=(Input(alone.alias, alone.relation),))
    last = max(place for place, each in enumerate(core.inputs) if each.alias in rows.aliases)
    inputs = core.inputs[: last + 1]
    if rows.shown:
        return replace(core, inputs=inputs)
    return replace(core, inputs=(*inputs[:-1], replace(inputs[-1], join="inner")))


def _dead_letters(aside: list[_FailingRows], letters: str) -> MapStage:
    """The stage of the rows that fail: what they are (JSON of the inputs' columns) and why, by the identity of the rows
    they come from. Those of a body that only grows are only added, and need none."""
    grows = storage_of_body(tuple(each.core for each in aside)) == "append"
    cores = []
    for number, each in enumerate(aside):
        identity = [] if grows else list(_identity(each, number))
        columns = (Output(REASON, each.reason, t.VARCHAR), Output(ROW, _row(each.core), t.VARCHAR), *identity)
        cores.append(replace(each.core, where=each.fails, columns=columns, key=tuple(one.name for one in identity)))
    # Branches have identities of their own: all columns, NULL where they are another branch's.
    names = {each.name: each.type for core in cores for each in core.columns}
    body = tuple(_padded(core, names) for core in cores)
    key = tuple(name for name in names if name not in (REASON, ROW))
    return MapStage(letters, tuple(replace(core, key=key) for core in body), (REASON, ROW), key)


def _identity(aside: _FailingRows, number: int) -> Iterator[Output]:
    for at, each in enumerate(aside.core.inputs):
        if each.join in ("semi", "anti"):
            continue
        for name in each.relation.row_identity:
            yield Output(f"__i{number}_{at}_{name}", _column(each.alias, name), each.relation.type_of(name))
    if aside.numbered:
        yield Output(f"__i{number}{ITEM}", exp.column(ITEM), t.INT)


def _padded(core: Core, names: dict[str, t.SqlType]) -> Core:
    own = {each.name: each for each in core.columns}
    return replace(
        core, columns=tuple(own.get(name) or Output(name, exp.Null(), sql_type) for name, sql_type in names.items())
    )


def _row(core: Core) -> exp.Expression:
    """The visible columns of the inputs as one JSON text."""
    fields = [
        exp.PropertyEQ(
            this=exp.to_identifier(f"{each.alias}_{name}", quoted=True), expression=_column(each.alias, name)
        )
        for each in core.inputs
        if each.join not in ("semi", "anti")
        for name, _ in each.relation.columns
        if not name.startswith("_")
    ]
    return exp.Anonymous(this="ROW_JSON", expressions=[exp.Anonymous(this="STRUCT", expressions=fields)])


def _column(alias: str, name: str) -> exp.Column:
    return exp.column(name, table=alias, quoted=True)


# The view's ERRORS policy: which stages a refresh runs, and which instead when a row fails.
#
# | policy | an epoch with a row that fails |
# | --- | --- |
# | `dead_letter` (default) | the row is left out and kept in the stage's dead letters; all others go on |
# | `stop` | the view stops at its last commit, typed, and the others go on |
# | `null` (default of ksqlDB's semantics) | the expression is NULL |
#
# The dead letters are a table that is there from the first such row on; also with `stop`, where they say which rows
# are to be corrected. Its being there is what says that the stage runs guarded, so nothing else has to be remembered,
# and a kill between the two commits is answered by the next refresh.
#
# While there is none, an epoch has an error on a row that fails. An engine may raise it for a row that no join takes
# in the end; so the dead letters, not the error, decide whether there is such a row.


@dataclass(frozen=True)
class StageDecision:
    """The stages that a refresh runs.

    Attributes:
        sound: the stage in the form that is run.
        aside: the stage of its dead letters, which comes before it; None: it runs without.
        instead: what to refresh in place of it when a row fails (RowFailed); None: the view stops.
        stops: a row among the dead letters stops the view.
    """

    sound: Stage
    aside: MapStage | None = None
    instead: StageDecision | None = None
    stops: bool = False

    @property
    def stages(self) -> tuple[Stage, ...]:
        """All stages that may be run, in order."""
        first = () if self.aside is None else (self.aside,)
        return (*first, self.sound, *(self.instead.stages if self.instead is not None else ()))


def decide(stage: Stage, policy: ErrorPolicy, letters: str, heads: Heads) -> StageDecision:
    """The stages that stand for `stage` under the policy.

    Args:
        letters: the name of the table of its dead letters.
    """
    if isinstance(stage, LatestStage):
        return StageDecision(stage)  # it computes nothing that could fail
    plain, both, always = _decisions(stage, policy, letters)
    # The dead letters come first: while the stage stands behind them, it is refreshed guarded next time.
    if both is not None and (always or heads.find(letters) is not None):
        return both
    return plain


@kept_with_stage
def _decisions(stage: Stage, policy: ErrorPolicy, letters: str) -> tuple[StageDecision, StageDecision | None, bool]:
    """The decision while there are no dead letters, that with them where there can be some, and whether the latter is
    always the one."""
    if policy == "null":
        return StageDecision(null_instead(stage)), None, False
    found = guarded(stage, letters)
    if found.aside is None:
        return StageDecision(checked(stage)), None, False
    both = StageDecision(found.sound, found.aside, stops=policy == "stop")
    return StageDecision(checked(stage), instead=both), both, found.always
