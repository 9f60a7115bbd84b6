"""What an aggregate function is to the engine: five answers, all of them SQL.

    Δ rows of a group ──add──> accumulator of the batch ─┐
                                                         ├─merge──> accumulator ──result──> what the view shows
    __state of the group's stored row ───────────────────┘

Contract of `add` and `merge`: cutting the same changes into other batches gives the same accumulator (for DOUBLE, up to
rounding). `FUNCTIONS` in `jobs.ivm.aggregates` is the list; a new function is a subclass and one entry there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from sqlglot import exp

from jobs.errors import NotSupported, TypeMismatch
from jobs.ivm.engine import Engine, filtered
from jobs.ivm.stage import AggregateCall
from jobs.sql.types import Kind, SqlType


@dataclass(frozen=True)
class Bound:
    """A call whose types are checked: the parts of an `AggregateCall` that the function decides.

    Attributes:
        arguments: the value expressions; none for COUNT(*).
        argument_types: a type for each argument.
        parameters: the constants (N, ignoreNulls), in the order that the function documents.
        type: the type of the result.
    """

    arguments: tuple[exp.Expression, ...]
    argument_types: tuple[SqlType, ...]
    parameters: tuple[int | bool, ...]
    type: SqlType


@dataclass(frozen=True)
class Changes:
    """The columns of a batch of changes, as SQL text, that `add` aggregates over.

    Attributes:
        arguments: the evaluated arguments.
        weight: +1 for a row that came, −1 for one that went.
        order: struct of `EVENT_ORDER`; only there when the function is `ordered`.
        where: the condition of FILTER (WHERE …); None when there is none.
    """

    arguments: tuple[str, ...]
    weight: str
    order: str
    where: str | None

    def only(self, aggregate: str, *conditions: str) -> str:
        """`aggregate` over the changes that the call's own filter and the conditions let through."""
        return filtered(aggregate, self.where, *conditions)


class AggregateFunction(ABC):
    """One function: which calls it accepts, and the SQL that maintains its result.

    Attributes:
        name: upper case, as in statements.
        retractable: rows may also be taken away; otherwise the input must be append-only.
        ordered: `add` needs `Changes.order`; otherwise the input needs no order of events.
    """

    name: str
    retractable: bool = False
    ordered: bool = False

    def bind(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        """Check a call and find the type of its result.

        Args:
            arguments: as written, constants included; `*` is an `exp.Star` or no argument at all.
            types: a type for each argument (whatever for `*` and constants).

        Raises:
            TypeMismatch: the number, types or constants of the arguments do not fit.
            NotSupported: DISTINCT.
        """
        if any(isinstance(argument, exp.Distinct) for argument in arguments):
            raise NotSupported(
                f"{self.name}(DISTINCT …) is not maintained yet", hint=f"write {self.name} without DISTINCT"
            )
        return self.check(arguments, types)

    @abstractmethod
    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        """`bind`, DISTINCT being dealt with."""

    @abstractmethod
    def accumulator(self, call: AggregateCall) -> SqlType:
        """What is kept for a group."""

    @abstractmethod
    def add(self, engine: Engine, call: AggregateCall, changes: Changes) -> str:
        """Aggregate over a batch of changes of one group, giving an accumulator (never NULL, except where said)."""

    @abstractmethod
    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        """The accumulator of both; `old` is NULL for a group that is new."""

    @abstractmethod
    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        """The visible value of an accumulator, of the call's type once cast."""

    def must_recompute(self, engine: Engine, call: AggregateCall, old: str, changes: Changes) -> str | None:
        """Condition, over a batch of changes, under which the group must be computed again from its rows.

        None: never. That holds for every function here: the linear ones merge any change, the others see no
        retractions.
        """
        return None

    def one_value(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> SqlType:
        """The type of the only argument.

        Raises:
            TypeMismatch: there is none, there are more, or it is a bare NULL or `*`.
        """
        if len(arguments) != 1 or isinstance(arguments[0], exp.Star):
            raise TypeMismatch(f"{self.name} takes one argument, not {len(arguments)}", hint=f"{self.name}(column)")
        return self.known(types[0])

    def known(self, kind: SqlType) -> SqlType:
        """That type, unless it is that of a bare NULL (TypeMismatch)."""
        if kind.kind is Kind.NULL:
            raise TypeMismatch(f"{self.name}(NULL) has no type", hint=f"{self.name}(CAST(NULL AS …))")
        return kind

    def refuse(self, kind: SqlType, accepted: str) -> TypeMismatch:
        """The error for an argument of a type that the function does not take."""
        return TypeMismatch(f"{self.name} does not take {kind}", hint=f"it takes {accepted}")


def constant(expression: exp.Expression) -> int | bool | None:
    """The value of an integer or boolean literal; None for anything else."""
    if isinstance(expression, exp.Boolean):
        return bool(expression.this)
    if isinstance(expression, exp.Literal) and expression.is_int:
        return int(expression.this)
    return None
