"""Aggregate functions that users wrote in Python, as rules see them: scalar functions over lists of values.

    Δ rows of a group ──list──> fold ──> state of the epoch ─┐
                                                             ├─merge──> state ──finish──> result
    __state of the group's stored row ───────────────────────┘

With `retract` the accumulator also carries the retracted values, which merge removes. Without it a group that
loses a value is computed again from its rows, here for the longest word:

    self_old              Δ (weight)            settled
    a 'pear'  ("pear")    a 'pear' (−1)         a 'fig' ("fig")      computed again: 'fig' is left
    b 'kiwi'  ("kiwi")    b 'banana' (+1)       b 'banana'           merge("kiwi", "banana")
"""

from __future__ import annotations

from sqlglot import exp

from strandline.jobs.engines.engine import Engine
from strandline.jobs.functions.aggregates.contract import AggregateFunction, Bound, GroupChanges
from strandline.jobs.functions.declared import FINISH, FOLD, MERGE, part_of, registered
from strandline.jobs.functions.python import item_type
from strandline.jobs.functions.scalars.contract import takes
from strandline.jobs.model.definitions import Function
from strandline.jobs.model.errors import TypeMismatch
from strandline.jobs.model.stage import AggregateCall
from strandline.jobs.model.types import BIGINT, VARCHAR, SqlType, array, struct


class CustomAggregate(AggregateFunction):
    """One function, for calls with given types.

    `parameters` of a bound call are the registered name and whether the function can retract: with the types of
    the call that is all that its maintenance needs.

    Args:
        registered: its name in the engines.
        parameters: the declared types.
        returns: the declared type of the result.
        retracts: it has `retract`.
    """

    def __init__(
        self, name: str, registered: str, parameters: tuple[SqlType, ...], returns: SqlType, *, retracts: bool
    ) -> None:
        self.name = name
        self.retractable = retracts
        self._registered = registered
        self._parameters = parameters
        self._returns = returns

    @classmethod
    def declared(cls, function: Function) -> CustomAggregate:
        """The aggregate as CREATE FUNCTION declares it."""
        types = tuple(parameter.type for parameter in function.parameters)
        return cls(function.name, registered(function), types, function.returns, retracts=function.retracts)

    @classmethod
    def bound(cls, call: AggregateCall) -> CustomAggregate:
        """The aggregate as a bound call has it."""
        name, retracts = call.parameters
        return cls(call.function, str(name), call.argument_types, call.type, retracts=bool(retracts))

    def check(self, arguments: tuple[exp.Expression, ...], types: tuple[SqlType, ...]) -> Bound:
        if any(isinstance(argument, exp.Star) for argument in arguments):
            raise TypeMismatch(f"{self.name} takes values, not *")
        widened, result = takes(self._returns, *self._parameters)(self.name, types)
        return Bound(arguments, widened, (self._registered, self.retractable), result)

    def accumulator(self, call: AggregateCall) -> SqlType:
        if not self.retractable:
            return VARCHAR
        return struct(("state", VARCHAR), ("went", array(item_type(self._parameters))))

    def add(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str:
        item = engine.cast(
            engine.struct([(f"a{number}", argument) for number, argument in enumerate(changes.arguments)]),
            item_type(self._parameters),
        )
        state = self._call(FOLD, self._list(engine, changes.came(engine.items(item))))
        if not self.retractable:
            return state
        return engine.struct([("state", state), ("went", self._list(engine, changes.went(engine.items(item))))])

    def merge(self, engine: Engine, call: AggregateCall, old: str, new: str) -> str:
        nothing = engine.cast("NULL", array(item_type(self._parameters)))
        if not self.retractable:
            return self._call(MERGE, old, new, nothing)
        parts = (engine.field(old, "state"), engine.field(new, "state"), engine.field(new, "went"))
        return engine.struct([("state", self._call(MERGE, *parts)), ("went", nothing)])

    def result(self, engine: Engine, call: AggregateCall, kept: str) -> str:
        return self._call(FINISH, engine.field(kept, "state") if self.retractable else kept)

    def lost_type(self, call: AggregateCall) -> SqlType | None:
        return None if self.retractable else BIGINT

    def lost(self, engine: Engine, call: AggregateCall, changes: GroupChanges) -> str | None:
        """The number of retracted values."""
        return None if self.retractable else engine.cast(changes.went("COUNT(*)"), BIGINT)

    def must_recompute(self, engine: Engine, call: AggregateCall, merged: str, lost: str) -> str:
        return "FALSE" if self.retractable else f"{lost} > 0"

    def _list(self, engine: Engine, items: str) -> str:
        return engine.cast(items, array(item_type(self._parameters)))

    def _call(self, part: str, *arguments: str) -> str:
        return f"{part_of(self._registered, part)}({', '.join(arguments)})"
