"""Functions that users write in Python: their types and names in the language, their code, and both engines' calls.

[functions]
modules = ["geo"]          CREATE FUNCTION distance(a DOUBLE, b DOUBLE) RETURNS DOUBLE
                           LANGUAGE PYTHON AS 'geo:distance'

Code is loaded from allowed modules only, and identified by a hash of its source. Functions of plain Python values
become functions over Arrow columns, which Spark and DuckDB call under the names that rules and queries use. A scalar
gets a value for each parameter and gives one. An aggregate becomes three functions:

    fold    [(x, …), …]              ->  state     the inserted values, from init() on
    merge   old, state, [(x, …), …]  ->  state     merged with the stored state, then without the retracted values
    finish  state                    ->  result

A state is JSON text. NULL is None, and None as a state means init(); values are as Arrow gives them to Python: Decimal,
datetime with its zone, date, bytes, dict for STRUCT and MAP, list. TIME is a number: milliseconds of the day.

In the text of a stage functions have `registered` names, so that they never clash with a function of an engine.
"""

from __future__ import annotations

import hashlib
import importlib
import inspect
import json
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from strandline.jobs.functions.scalars.contract import Scalar, takes
from strandline.jobs.model.definitions import Function
from strandline.jobs.model.errors import EngineRefused, FunctionFailed, FunctionRefused, InvalidQuery, RefreshFailed
from strandline.jobs.model.types import VARCHAR, BaseType, SqlType, array, struct
from strandline.jobs.sql.from_text import tokenize

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa
    from pyspark.sql import SparkSession

    from strandline.state_store.duckdb import elementary


E = TypeVar("E", bound=exp.Expr)
_META = "function"

FOLD, MERGE, FINISH = "fold", "merge", "finish"
"""The parts of an aggregate, each a scalar function of the engines."""


def registered(function: Function) -> str:
    """The name of a function in the engines and in the expressions of a stage.

    The name changes with the function's code and types: so do the fingerprints of the views that call it.
    """
    types = ", ".join(str(parameter.type) for parameter in function.parameters)
    parts = (types, function.returns, function.module, function.attribute, function.source, function.retracts)
    version = hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()[:8]
    return f"py_{function.name.lower()}_{version}"


def part_of(name: str, part: str) -> str:
    """The name in the engines of a part of an aggregate, given the aggregate's registered name."""
    return f"{name}__{part}"


def scalar_of(function: Function) -> Scalar:
    """The function as a scalar of the language; arguments widen to the declared types.

    Raises:
        InvalidQuery: it is an aggregate.
    """
    if function.aggregate:
        raise InvalidQuery(
            f"the aggregate {function.name} cannot stand here",
            hint="aggregates belong into the SELECT list or HAVING of a query with GROUP BY, and not into each other",
        )
    signature = takes(function.returns, *(parameter.type for parameter in function.parameters))
    name = registered(function)
    return Scalar(name.upper(), signature, name)


def attach(tree: E, functions: Mapping[str, Function]) -> E:
    """Note at each call which function it calls, before the query is read."""
    for node in tree.find_all(exp.Anonymous):
        if node.name in functions:
            node.meta[_META] = functions[node.name]
    return tree


def function_at(node: exp.Expr) -> Function | None:
    """The function that a user wrote and that is called here; None for anything else."""
    found: Function | None = node.meta.get(_META) if isinstance(node, exp.Anonymous) else None
    return found


def calls(text: str, function: str) -> bool:
    """True if a query's text calls the function of that upper-case name."""
    return any(
        token.text.upper() == function and after.token_type is TokenType.L_PAREN
        for token, after in pairwise(tokenize(text))
    )


METHODS = ("init", "update", "merge", "finish")
"""The methods that the class of an aggregate must have; `retract` is optional."""


@dataclass(frozen=True)
class Code:
    """The place of a function's Python code; it can be sent to another process and loaded there.

    Attributes:
        path: where this process looks for modules: a worker's own path may be shorter.
    """

    module: str
    attribute: str
    path: tuple[str, ...] = ()

    def load(self) -> Any:
        """The Python object: a function, or the class of an aggregate.

        Raises:
            FunctionRefused: it cannot be imported, or is not there.
        """
        sys.path.extend(each for each in self.path if each not in sys.path)
        module = _imported(self.module)
        try:
            return getattr(module, self.attribute)
        except AttributeError as error:
            raise FunctionRefused(
                f"the module '{self.module}' has no '{self.attribute}'", hint="AS 'module:name'"
            ) from error

    def source(self) -> str:
        """16 hex digits that change with the text of the module. What the module imports does not count."""
        file = _imported(self.module).__file__
        text = Path(file).read_bytes() if file else b""
        return hashlib.sha256(text).hexdigest()[:16]


def code_of(text: str, allowed: Collection[str]) -> Code:
    """The code that `'module:name'` means.

    Raises:
        FunctionRefused: the text is not of that form, or the module is not on the allow-list; nothing was imported.
    """
    module, _, attribute = text.partition(":")
    if not attribute.isidentifier() or not all(part.isidentifier() for part in module.split(".")):
        raise FunctionRefused(f"'{text}' does not name Python code", hint="AS 'module:name'")
    check_allowed(module, allowed)
    return Code(module, attribute, tuple(sys.path))


def check_allowed(module: str, allowed: Collection[str]) -> None:
    """Check that the operator lets functions come from a module. Raises FunctionRefused: not so."""
    if module not in allowed:
        listed = ", ".join(f'"{each}"' for each in (*allowed, module))
        raise FunctionRefused(
            f"functions may not come from the module '{module}'",
            hint=f"the operator allows it in strandline.toml: [functions] modules = [{listed}]",
        )


def retracts(found: Any) -> bool:
    """True if the class of an aggregate can retract values."""
    return callable(getattr(found, "retract", None))


def check_scalar(code: Code, found: Any) -> None:
    """Check that an object can be called. Raises FunctionRefused: not so."""
    if not callable(found):
        raise FunctionRefused(f"'{code.module}:{code.attribute}' cannot be called", hint="it must be a function")


def check_aggregate(code: Code, found: Any) -> None:
    """Check that an object has an aggregate's methods. Raises FunctionRefused: one is missing."""
    missing = [name for name in METHODS if not callable(getattr(found, name, None))]
    if missing:
        raise FunctionRefused(
            f"'{code.module}:{code.attribute}' has no {', '.join(missing)}",
            hint="an aggregate is a class with init(), update(state, x), merge(a, b), finish(state)",
        )


def _imported(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Exception as error:  # whatever a module does when it is imported
        raise FunctionRefused(
            f"the module '{name}' cannot be imported: {type(error).__name__}: {error}",
            hint="it must be on Python's path (PYTHONPATH) wherever Strandline runs",
        ) from error


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


class Library:
    """The functions of a catalog; those that a text calls, and no others, are loaded, checked and registered.

    Args:
        allowed: the modules that the operator allows.
    """

    def __init__(self, functions: Iterable[Function], allowed: Collection[str]) -> None:
        self._functions = {registered(function): function for function in functions}
        self._allowed = allowed

    def register_spark(self, session: SparkSession, text: str) -> None:
        """Register what `text` calls; a session that has it already gets it again.

        Raises:
            FunctionRefused: a module is not allowed any more, or cannot be imported.
            RefreshFailed: a module's source has changed since CREATE FUNCTION.
        """
        from pyspark.sql.pandas.functions import arrow_udf

        for name, function in self._called(text):
            # The stubs ask for a third argument that Spark itself advises against.
            made = arrow_udf(_annotated(function), function.returns.spark())  # type: ignore[call-overload]
            session.udf.register(name, made)

    def register_duckdb(self, connection: duckdb.DuckDBPyConnection, text: str) -> None:
        """Register what `text` calls and the connection does not know yet. Raises as `register_spark`."""
        self._register(connection, self._called(text))

    def declare_duckdb(self, connection: duckdb.DuckDBPyConnection, text: str) -> None:
        """Make names and types known of what `text` calls, for a text that is bound and not run: no code is read."""
        for function in self._named(text):
            self._register(connection, _column_functions(function, Code(function.module, function.attribute)))

    def _register(self, connection: duckdb.DuckDBPyConnection, functions: Iterable[tuple[str, ColumnFunction]]) -> None:
        from duckdb.func import ARROW, SPECIAL

        for name, function in functions:
            known = connection.execute("SELECT 1 FROM duckdb_functions() WHERE function_name = ?", [name]).fetchone()
            if known is None:
                parameters: list[Any] = [sql_type.duckdb() for sql_type in function.parameters]
                returns: Any = function.returns.duckdb()
                # SPECIAL: the function sees NULLs, as in Spark.
                connection.create_function(name, function, parameters, returns, type=ARROW, null_handling=SPECIAL)

    def _called(self, text: str) -> Iterator[tuple[str, ColumnFunction]]:
        for function in self._named(text):
            yield from _column_functions(function, _code(function, self._allowed))

    def _named(self, text: str) -> Iterator[Function]:
        lowered = text.lower()
        return (function for name, function in self._functions.items() if name in lowered)


def register_elementary(session: SparkSession, text: str) -> None:
    """Register with Spark what `text` calls of `state_store.duckdb.elementary`, which every DuckDB engine has.

    Raises:
        EngineRefused: it calls one for the items of an array.
    """
    from strandline.state_store.duckdb import elementary

    if elementary.PREFIX not in text:
        return
    if any(elementary.PREFIX in body for body in _lambdas(text)):
        raise EngineRefused(
            "Spark calls no function of Python for the items of an array, and EXP, LN, SIN and their like are such",
            hint="leave STRANDLINE_ENGINE out, or set it to duckdb: DuckDB does",
        )
    from pyspark.sql.pandas.functions import arrow_udf

    for name in elementary.FUNCTIONS:
        if f"{name}(" in text:
            made = arrow_udf(_annotated(elementary.OfColumns(name)), "DOUBLE")  # type: ignore[call-overload]
            session.udf.register(name, made)


def _lambdas(text: str) -> Iterator[str]:
    """The bodies of the lambdas in a text of Spark's: up to the comma or bracket behind them."""
    for arrow in re.finditer("->", text):
        depth = 0
        for place in range(arrow.end(), len(text)):
            depth += {"(": 1, ")": -1}.get(text[place], 0)
            if depth < 0 or (depth == 0 and text[place] == ","):
                yield text[arrow.end() : place]
                break


def _code(function: Function, allowed: Collection[str]) -> Code:
    check_allowed(function.module, allowed)
    code = Code(function.module, function.attribute, tuple(sys.path))
    if code.source() != function.source:
        raise RefreshFailed(
            f"the source of '{function.module}' has changed since CREATE FUNCTION {function.name}",
            hint=f"drop the views that use {function.name}, then CREATE OR REPLACE the function and the views",
        )
    return code


def _column_functions(function: Function, code: Code) -> Iterator[tuple[str, ColumnFunction]]:
    types = tuple(parameter.type for parameter in function.parameters)
    name = registered(function)
    if not function.aggregate:
        yield name, ScalarColumn(function.name, code, types, function.returns)
        return
    yield part_of(name, FOLD), Fold(function.name, code, types)
    yield part_of(name, MERGE), MergeColumn(function.name, code, types)
    yield part_of(name, FINISH), Finish(function.name, code, function.returns)


def _annotated(function: ColumnFunction | elementary.OfColumns) -> Any:
    """A plain function whose annotations tell Spark that it takes and gives Arrow columns."""
    import pyarrow as pa

    def run(*columns: pa.Array) -> pa.Array:
        return function(*columns)

    run.__annotations__ = {"columns": pa.Array, "return": pa.Array}
    return run
