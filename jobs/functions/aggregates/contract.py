"""The contract of an aggregate function: the SQL of its accumulator, of merging two, and of the visible result.

    Δ rows of a group ──add──> accumulator of the epoch ─┐
                                                         ├─merge──> accumulator ──result──> what the view shows
    __state of the group's stored row ───────────────────┘

A *linear* function adds a retraction as it adds an insertion, with the opposite sign. Any other adds insertions only,
and says by `lost` and `must_recompute` when a retracted row can have decided the result; the group is then computed
again, by `add` over all of its rows. So does a linear one whose accumulator a retraction can wear out.

    MAX   stored 9   inserted 4, 7   retracted 9   merged 9   lost 9   must_recompute
          stored 9   inserted 4      retracted 2   merged 9   lost 2   the 9 stands

Contract of `add` and `merge`: cutting the same changes into other epochs gives the same accumulator (for DOUBLE, up to
rounding). `functions` in `jobs.functions.aggregates.registry` is the list; a new function is a subclass and one entry
there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from sqlglot import exp

from strandline.jobs.engines.engine import Engine, filtered
from strandline.jobs.model.errors import NotSupported, TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.tables import EVENT_ORDER, META_COLUMNS
from strandline.jobs.model.types import BIGINT, NUMERIC, BaseType, SqlType, struct

ORDER_TYPE = struct(*((name, dict(META_COLUMNS)[name]) for name in EVENT_ORDER))
"""The place of a row in the order of events."""

SORTABLE = (*NUMERIC, BaseType.DATE, BaseType.TIME, BaseType.TIMESTAMP, BaseType.VARCHAR, BaseType.BYTES)
"""The types that MIN, MAX and TOPK take: those whose values have a meaningful order."""

OverNothing = Literal["null", "zero", "empty"]


@dataclass(frozen=True)
class Bound:
    """A call whose types are checked: the parts of an `AggregateCall` that the function decides.

    Attributes:
        arguments: the value expressions; none for COUNT(*).
        argument_types: a type for each argument.
        parameters: the constants (N, ignoreNulls), in the order that the function documents, and how the variant of
            the semantics differs.
        type: the type of the result.
    """

    arguments: tuple[exp.Expression, ...]
    argument_types: tuple[SqlType, ...]
    parameters: tuple[int | bool | str, ...]
    type: SqlType


@dataclass(frozen=True)
class GroupChanges:
    """The columns of a group's changes, as SQL text, that `add` aggregates over.

    Attributes:
        arguments: the evaluated arguments.
        weight: +1 for an insertion, −1 for a retraction.
        order: struct `ORDER_TYPE`; only there when the function is `ordered`. NULL where rows are no events.
        where: the condition of FILTER (WHERE …); None when there is none.
        upto: of a function that ranks, when it is given all rows of a group: the sum of the weights that the function
            ranks by, of the rows up to this one; and
        every: of all rows.
    """

    arguments: tuple[str, ...]
    weight: str
    order: str
    where: str | None
    upto: str = ""
    every: str = ""

    def only(self, aggregate: str, *conditions: str) -> str:
        """`aggregate` over the changes that the call's own filter and the conditions let through."""
        return filtered(aggregate, self.where, *conditions)

    def came(self, aggregate: str, *conditions: str) -> str:
        """`aggregate` over the insertions among them."""
        inserted = () if self.weight == "1" else (f"{self.weight} > 0",)
        return self.only(aggregate, *inserted, *conditions)

    def in_order(
        self, engine: Engine, value: str, keys: Sequence[str], *conditions: str, descending: bool = False
    ) -> str:
        """The values of the changes that the call's own filter and the conditions let through, as an ordered array."""
        return engine.items_in_order(value, keys, self.where, *conditions, descending=descending)

    def went(self, aggregate: str, *conditions: str) -> str:
        """`aggregate` over the retractions among them."""
        return self.only(aggregate, f"{self.weight} < 0", *conditions)


class AggregateFunction(ABC):
    """One function: which calls it accepts, and the SQL that maintains its result.

    Attributes:
        name: upper case, as in statements.
        retractable: linear; nothing is computed again but sums of DOUBLE that a retraction left without digits.
        ordered: `add` uses `GroupChanges.order`.
        needs_order: has no meaning over rows that are no events.
        of_all: a group has no accumulator but one made of all its rows by `anew`, in the first refresh too.
        kept: the accumulator is stored. One that is not is made of all rows of each group that a change touches.
        by_place: over the different values of a group, places in the order of events are part of a value.
        values_since: the least `View.by_value` of the views in which another function becomes this one over the
            different values of a group.
    """

    name: str
    retractable: bool = False
    ordered: bool = False
    needs_order: bool = False
    of_all: bool = False
    kept: bool = True
    by_place: bool = False
    values_since: int = 1

    def bind(
        self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...], *, distinct: bool = False
    ) -> Bound:
        """Check a call and find the type of its result.

        Args:
            arguments: as written, constants included; `*` is an `exp.Star` or no argument at all.
            types: a type for each argument (whatever for `*` and constants).
            distinct: the arguments were written after DISTINCT.

        Raises:
            TypeMismatch: the number, types or constants of the arguments do not fit.
            NotSupported: DISTINCT, where the function has none.
        """
        if distinct:
            raise NotSupported(f"{self.name}(DISTINCT …) is not supported", hint=f"write {self.name} without DISTINCT")
        return self.check(arguments, types)

    @abstractmethod
    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        """`bind` after DISTINCT is dealt with."""

    @abstractmethod
    def accumulator(self, call: AggregateCall) -> SqlType:
        """The type of what is kept for a group."""

    @abstractmethod
    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        """Aggregate over changes of one group: their accumulator (never NULL, except where said)."""

    def anew(self, engine: Engine, call: AggregateCall, rows: GroupChanges) -> str:
        """Aggregate over all rows of a group, when it is computed again: their accumulator."""
        return self.add(engine, call, rows)

    def ranking(self, engine: Engine, call: AggregateCall, arguments: tuple[str, ...]) -> tuple[str, str] | None:
        """What `anew` ranks the rows by, and the weight of a row; None: it does not."""
        return None

    @abstractmethod
    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        """Both accumulators as one; `old` is NULL for a group that is new."""

    def combine(self, engine: Engine, call: AggregateCall, kept: str) -> str | None:
        """Aggregate over the accumulators of parts of a group's first rows: that of all of them, to the last digit.

        None: there is no such aggregate, and all rows of a group must come to one place.
        """
        return None

    @abstractmethod
    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        """The visible value of an accumulator, of the call's type once cast. That of NULL is the value over no rows."""

    def over_nothing(self, call: AggregateCall) -> OverNothing:
        """The value over no rows: NULL, 0, or an ARRAY or MAP without items."""
        return "null"

    def of_values(
        self, call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression
    ) -> AggregateCall | None:
        """The call that gives the same over the different values of a group; None: it must see the rows themselves.

        Args:
            values: of each argument; none is NULL but where `null_values` says so, and no two rows of a group have the
                same.
            count: how many rows of the group have them.
        """
        return None

    def null_values(self, call: AggregateCall) -> tuple[bool, ...]:
        """Of each argument, whether `of_values` wants the values that are NULL too."""
        return (False,) * len(call.arguments)

    def form(self, call: AggregateCall) -> int:
        """The number of the form in which the accumulator is stored: higher than of any that meant something else."""
        return 1

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        """The type of what `lost` gives; None: the function is linear, nothing is ever computed again."""
        return None

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str | None:
        """Aggregate over changes: the facts about the retracted rows that `must_recompute` needs."""
        return None

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        """TRUE if a retracted row can have decided the merged accumulator. Never NULL; always TRUE would be correct."""
        return "FALSE"

    def may_decide(self, call: AggregateCall, value: str, known: str) -> str | None:
        """TRUE if a row with this value of the only argument may decide the accumulator of a group that has a row with
        the value `known`. None: every row may."""
        return None

    def one_value(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> SqlType:
        """The type of the only argument.

        Raises:
            TypeMismatch: there is none, there are more, or it is a bare NULL or `*`.
        """
        if len(arguments) != 1 or isinstance(arguments[0], exp.Star):
            raise TypeMismatch(f"{self.name} takes one argument, not {len(arguments)}", hint=f"{self.name}(column)")
        return self.known(types[0])

    def known(self, sql_type: SqlType) -> SqlType:
        """That type, unless it is that of a bare NULL (TypeMismatch)."""
        if sql_type.base is BaseType.NULL:
            raise TypeMismatch(f"{self.name}(NULL) has no type", hint=f"{self.name}(CAST(NULL AS …))")
        return sql_type

    def refuse(self, sql_type: SqlType, accepted: str) -> TypeMismatch:
        """The error for an argument of a type that the function does not take."""
        return TypeMismatch(f"{self.name} does not take {sql_type}", hint=f"it takes {accepted}")


OF_VALUES = " OF VALUES"
"""What ends the name of a function over the different values of a group (`jobs.functions.aggregates.of_values`)."""


def over_values(call: AggregateCall, values: tuple[exp.Expression, ...], count: exp.Expression) -> AggregateCall:
    """The call over the different values of a group and how often each is there."""
    types = (*call.argument_types, BIGINT)
    name = f"{call.function}{OF_VALUES}"
    return replace(call, function=name, arguments=(*values, count), argument_types=types, distinct=False)


def constant(expression: exp.Expression) -> int | bool | None:
    """The value of an integer or boolean literal; None for anything else."""
    if isinstance(expression, exp.Boolean):
        return bool(expression.this)
    if isinstance(expression, exp.Literal) and expression.is_int:
        return int(expression.this)
    return None
