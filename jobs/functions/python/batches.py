"""Functions over Arrow columns, made from functions of plain Python values: both engines call these.

A scalar gets a value for each parameter and gives one. An aggregate becomes three functions:

    fold    [(x, …), …]              ->  state     the inserted values, from init() on
    merge   old, state, [(x, …), …]  ->  state     merged with the stored state, then without the retracted values
    finish  state                    ->  result

A state is JSON text. NULL is None, and None as a state means init(); values are as Arrow gives them to Python: Decimal,
datetime with its zone, date, bytes, dict for STRUCT and MAP, list. TIME is a number: milliseconds of the day.
"""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from strandline.jobs.model.errors import FunctionFailed
from strandline.jobs.model.types import VARCHAR, BaseType, SqlType, array, struct

if TYPE_CHECKING:
    import pyarrow as pa

    from strandline.jobs.functions.python.code import Code

_Convert = Callable[[Any], Any]


class ColumnFunction(ABC):
    """A function over columns of one length; it loads its Python when it is first called.

    Attributes:
        name: as in statements, for errors.
        parameters: the types of the columns.
        returns: the type of the result.
    """

    name: str
    parameters: tuple[SqlType, ...]
    returns: SqlType

    def __init__(self, name: str, code: Code, parameters: tuple[SqlType, ...], returns: SqlType) -> None:
        self.name = name
        self.parameters = parameters
        self.returns = returns
        self._code = code
        # DuckDB counts the parameters of a function that it is given.
        passed = inspect.Parameter.POSITIONAL_ONLY
        self.__signature__ = inspect.Signature([inspect.Parameter(f"a{i}", passed) for i in range(len(parameters))])

    def __call__(self, *columns: pa.Array) -> pa.Array:
        """The column of results.

        Raises:
            FunctionFailed: the Python raised, or gave a value that is not of the type.
        """
        import pyarrow as pa

        try:
            row = self.row(self._code.load())
            from_arrow = [_from_arrow(sql_type) for sql_type in self.parameters]
            to_arrow = _to_arrow(self.returns)
            given = [map(convert, column.to_pylist()) for convert, column in zip(from_arrow, columns, strict=True)]
            return pa.array([to_arrow(row(*values)) for values in zip(*given, strict=True)], self.returns.arrow())
        except Exception as error:  # whatever the function does
            raise FunctionFailed(f"the function {self.name} failed: {type(error).__name__}: {error}") from error

    @abstractmethod
    def row(self, found: Any) -> Callable[..., Any]:
        """The function that is called with the values of one row, made from the loaded Python."""


class ScalarColumn(ColumnFunction):
    """A scalar function: its Python, called for each row."""

    def row(self, found: Any) -> Callable[..., Any]:
        called: Callable[..., Any] = found
        return called


class Fold(ColumnFunction):
    """The state of a list of values, from init() on."""

    def __init__(self, name: str, code: Code, parameters: tuple[SqlType, ...]) -> None:
        super().__init__(name, code, (array(item_type(parameters)),), VARCHAR)

    def row(self, found: Any) -> Callable[..., Any]:
        def fold(items: list[dict[str, Any]] | None) -> str:
            made = found()
            state = made.init()
            for item in items or ():
                state = made.update(state, *item.values())
            return _text(state)

        return fold


class MergeColumn(ColumnFunction):
    """The stored state merged with that of the inserted values, then without the retracted values."""

    def __init__(self, name: str, code: Code, parameters: tuple[SqlType, ...]) -> None:
        super().__init__(name, code, (VARCHAR, VARCHAR, array(item_type(parameters))), VARCHAR)

    def row(self, found: Any) -> Callable[..., Any]:
        def merge(old: str | None, new: str | None, retracted: list[dict[str, Any]] | None) -> str:
            made = found()
            state = _state(made, new) if old is None else made.merge(_state(made, old), _state(made, new))
            for item in retracted or ():
                state = made.retract(state, *item.values())
            return _text(state)

        return merge


class Finish(ColumnFunction):
    """The result that a state stands for."""

    def __init__(self, name: str, code: Code, returns: SqlType) -> None:
        super().__init__(name, code, (VARCHAR,), returns)

    def row(self, found: Any) -> Callable[..., Any]:
        def finish(state: str | None) -> Any:
            made = found()
            return made.finish(_state(made, state))

        return finish


def item_type(parameters: tuple[SqlType, ...]) -> SqlType:
    """The values of one row, as an item of the list that is folded: `STRUCT<a0 …, a1 …>`."""
    return struct(*((f"a{number}", sql_type) for number, sql_type in enumerate(parameters)))


def _state(made: Any, text: str | None) -> Any:
    return made.init() if text is None else json.loads(text)


def _text(state: Any) -> str:
    # Sorted: equal states are stored equal.
    return json.dumps(state, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def _from_arrow(sql_type: SqlType) -> _Convert:
    """Conversion of a value that Arrow gives: a MAP, there a list of pairs, becomes a dict."""
    return _converted(sql_type, lambda pairs, key, value: {key(k): value(v) for k, v in pairs})


def _to_arrow(sql_type: SqlType) -> _Convert:
    """Conversion to a value that Arrow takes: a dict becomes a list of pairs."""
    return _converted(sql_type, lambda entries, key, value: [(key(k), value(v)) for k, v in entries.items()])


def _converted(sql_type: SqlType, of_map: Callable[[Any, _Convert, _Convert], Any]) -> _Convert:
    """Conversion of the MAPs inside a value; everything else stays."""
    match sql_type.base:
        case BaseType.MAP:
            key, value = (_converted(inner, of_map) for inner in sql_type.args)
            return lambda found: None if found is None else of_map(found, key, value)
        case BaseType.ARRAY:
            each = _converted(sql_type.args[0], of_map)
            return lambda found: None if found is None else [each(item) for item in found]
        case BaseType.STRUCT:
            members = {name: _converted(inner, of_map) for name, inner in sql_type.fields}
            return lambda found: None if found is None else {n: c(found.get(n)) for n, c in members.items()}
        case _:
            return lambda found: found
