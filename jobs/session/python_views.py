"""Views that are written in Python: each is a function from the lake's relations, as tables of Ibis, to a table.

    @view(owner="team:shop")
    def largest(orders, customers):
        \"\"\"The largest order of each customer.\"\"\"
        return orders.join(customers, "customer_id").group_by("customer").agg(largest=orders.amount.max())

    CREATE OR REPLACE MATERIALIZED VIEW largest WITH (OWNER = 'team:shop') AS SELECT …

The function runs once, when it is applied, with the relations that its parameters name; what it returns is written as
SQL (`jobs.sql.from_ibis`), and from there on there is only that statement. The docstring is its DESCRIPTION, the
function's text its ORIGIN: shown beside the rows, and read by nobody.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any

from strandline.jobs.model.definitions import InsertQuery, Ownership, View
from strandline.jobs.model.errors import InvalidQuery, SqlError, UnknownName
from strandline.jobs.session.apply import Applied, ApplyPlan, option_text, plan_of, rehearse
from strandline.jobs.session.catalog_changes import Change
from strandline.jobs.session.interpreter import DEFAULT_PIPELINE, Interpreter
from strandline.jobs.sql.dialect import quote
from strandline.jobs.sql.statements import CreateView, Option, parse
from strandline.state_store.errors import SettingsError, StrandlineError

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.settings import Settings

_PASSED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class PythonView:
    """A function that is a view. Called, it is the function, so a test may give it tables of its own.

    Attributes:
        name: of the view.
        key: the columns by which its rows are told apart, where they were said; they are checked.
        options: of WITH, by their names in any case.
    """

    function: Callable[..., Any]
    name: str
    key: tuple[str, ...] | None = None
    options: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    @property
    def module(self) -> str:
        """Name of the function's module, without its packages."""
        return self.function.__module__.rpartition(".")[2]

    @property
    def where(self) -> str:
        """Place of the function, for errors."""
        code = self.function.__code__
        return f"{code.co_filename}, line {code.co_firstlineno}"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the relations that it reads: its parameters without a default.

        Raises:
            InvalidQuery: it takes any number of arguments.
        """
        parameters = inspect.signature(self.function).parameters.values()
        odd = next((each for each in parameters if each.kind not in _PASSED), None)
        if odd is not None:
            raise self.fault(
                f"the parameter '{odd.name}' names no stream, table or view", hint="name each that it reads"
            )
        return tuple(each.name for each in parameters if each.default is inspect.Parameter.empty)

    def statement(self, catalog: Catalog) -> CreateView:
        """The statement that it stands for, with the names that people see.

        Raises:
            UnknownName: a parameter names nothing in the lake.
            NotSupported: an operation has no words in the language.
            InvalidQuery: the function fails, or returns no table.
            OptionRefused: as CREATE.
            SettingsError: Ibis is not installed.
        """
        try:
            from strandline.jobs.sql import from_ibis
        except ImportError as error:
            raise SettingsError("Ibis is not installed", hint="pip install 'strandline[views]'") from error
        try:
            tables = {name: from_ibis.relation(name, _columns(name, catalog)) for name in self.inputs}
            query = from_ibis.query_text(self._result(tables, from_ibis.is_table))
            text = f"CREATE OR REPLACE MATERIALIZED VIEW {quote(self.name)}{self._with()} AS\n{query}"
            (statement,) = parse(text, catalog.types)
        except SqlError as error:
            raise self.placed(error)  # noqa: B904 - the same error
        assert isinstance(statement, CreateView)
        return replace(statement, options=(*statement.options, *self._shown()))

    def check(self, change: Change) -> None:
        """Check that the rows of the view are told apart by its key. Raises InvalidQuery, UnknownName."""
        made = change.definition
        if self.key is None or not isinstance(made, View):
            return
        visible = [column.name for column in made.columns]
        unknown = next((each for each in self.key if each not in visible), None)
        if unknown is not None:
            raise self.placed(UnknownName.among("column", unknown, visible))
        found = made.row_key if made.storage == "keyed" else made.identity
        if not set(found) <= set(self.key):
            told = f"({', '.join(found)})" if set(found) <= set(visible) else "what is not among its columns"
            raise self.fault(
                f"the rows of '{self.name}' are not told apart by ({', '.join(self.key)}), but by {told}",
                hint="group by the key, select the key of what it reads, or leave key out",
            )

    def _result(self, tables: Mapping[str, Any], is_table: Callable[[object], bool]) -> Any:
        try:
            found = self.function(**tables)
        except StrandlineError:
            raise
        except Exception as error:
            said = " ".join(str(error).split())
            raise self.fault(f"the function of '{self.name}' fails: {type(error).__name__}: {said}") from error
        if not is_table(found):
            raise self.fault(
                f"the function of '{self.name}' returns a {type(found).__name__}, not a table of Ibis",
                hint="return a table: of a single value, value.as_table()",
            )
        return found

    def _with(self) -> str:
        said = ((name.upper(), option_text(value).replace("'", "''")) for name, value in self.options.items())
        options = ", ".join(f"{name} = '{value}'" for name, value in said)
        return f" WITH ({options})" if options else ""

    def _shown(self) -> tuple[Option, ...]:
        """The description and the origin, unless they were said as options."""
        said = {name.upper() for name in self.options}
        shown = {"DESCRIPTION": inspect.getdoc(self.function), "ORIGIN": _source(self.function)}
        return tuple(Option(name, text) for name, text in shown.items() if text and name not in said)

    def fault(self, message: str, hint: str | None = None) -> SqlError:
        """Build the error of a function that cannot be a view."""
        return self.placed(InvalidQuery(message, hint=hint))

    def placed(self, error: SqlError) -> SqlError:
        """Add the place of the function to an error in its statement."""
        if error.where is None or not error.where.startswith(self.where):
            error.where = self.where if error.where is None else f"{self.where}; of its SQL {error.where}"
        return error


def views_of(what: ModuleType | PythonView) -> tuple[PythonView, ...]:
    """The views of a module, those that others read first; or the one.

    Raises:
        InvalidQuery: two have one name, they read each other, or there is none.
    """
    if isinstance(what, PythonView):
        return (what,)
    found = {id(each): each for each in vars(what).values() if isinstance(each, PythonView)}
    by_name: dict[str, PythonView] = {}
    for each in found.values():
        if each.name in by_name:
            raise each.fault(f"two views of '{what.__name__}' are named '{each.name}'")
        by_name[each.name] = each
    if not by_name:
        raise InvalidQuery(f"the module '{what.__name__}' has no view", hint="@view before a function makes it one")
    ordered: dict[str, PythonView] = {}
    for each in by_name.values():
        _put(each, by_name, ordered, ())
    return tuple(ordered.values())


def plan_views(what: ModuleType | PythonView, settings: Settings, pipeline: str | None = None) -> ApplyPlan:
    """Plan the changes that `apply_views` would make; nothing is changed. Arguments and errors as of that."""
    interpreter = Interpreter(settings, pipeline or _pipeline_of(what))
    views = views_of(what)
    changes = _rehearsed(views, interpreter)
    missing = _missing(what, views, interpreter)
    return plan_of(interpreter.pipeline, changes, missing, interpreter.catalog, interpreter.lake)


def apply_views(what: ModuleType | PythonView, settings: Settings, pipeline: str | None = None) -> Applied:
    """Register the views of a module, or one view: all of them, or none. One that is there as it is stays.

    Args:
        pipeline: of those that are new; default: the name of the module.

    Raises:
        SqlError: a view is refused, with the place of its function; nothing was changed.
        SettingsError: Ibis is not installed.
        WriterBusy, EventsGone: as CREATE OR REPLACE of a view.
    """
    interpreter = Interpreter(settings, pipeline or _pipeline_of(what))
    views = views_of(what)
    _rehearsed(views, interpreter)
    changes = tuple(interpreter.register(_stored(each, interpreter, interpreter.catalog)) for each in views)
    missing, name_map = _missing(what, views, interpreter), interpreter.catalog.name_map
    return Applied(interpreter.pipeline, (), changes, missing, {}, name_map)


def _rehearsed(views: Sequence[PythonView], interpreter: Interpreter) -> tuple[Change, ...]:
    current = views[0]

    def made(view: PythonView, catalog: Catalog) -> CreateView:
        nonlocal current
        current = view
        return _stored(view, interpreter, catalog)

    try:
        changes = rehearse((), [partial(made, each) for each in views], interpreter)
    except SqlError as error:
        raise current.placed(error)  # noqa: B904 - the same error
    for view, change in zip(views, changes, strict=True):
        view.check(change)
    return changes


def _stored(view: PythonView, interpreter: Interpreter, catalog: Catalog) -> CreateView:
    return interpreter.stored(view.statement(catalog))


def _put(
    view: PythonView, known: Mapping[str, PythonView], ordered: dict[str, PythonView], readers: tuple[str, ...]
) -> None:
    """Put a view into `ordered`, after all that it reads. Raises InvalidQuery: it reads itself, by way of others."""
    if view.name in readers:
        raise view.fault(f"'{view.name}' reads itself, by way of {' and '.join(repr(each) for each in readers)}")
    if view.name not in ordered:
        for each in view.inputs:
            if each in known:
                _put(known[each], known, ordered, (*readers, view.name))
        ordered[view.name] = view


def _columns(name: str, catalog: Catalog) -> tuple[tuple[str, Any], ...]:
    """The visible columns of what a parameter names. Raises UnknownName."""
    stored = catalog.name_map.stored(name)
    found = catalog.plain.get(stored) or catalog.find(stored)
    if found is None or isinstance(found, InsertQuery):
        raise UnknownName.among("stream, table or view", name, (*catalog.relations(), *catalog.plain))
    return tuple((column.name, column.type) for column in found.columns)


def _missing(what: ModuleType | PythonView, views: Iterable[PythonView], interpreter: Interpreter) -> tuple[str, ...]:
    """Stored names of views of the pipeline that came from Python, and are not in the module any more."""
    if isinstance(what, PythonView):
        return ()
    catalog = interpreter.catalog
    named = {catalog.name_map.stored(each.name) for each in views}
    there = (each for each in catalog.pipeline(interpreter.pipeline) if isinstance(each, View))
    return tuple(each.name for each in there if Ownership.read(each.options).origin and each.name not in named)


def _pipeline_of(what: ModuleType | PythonView) -> str:
    name = what.module if isinstance(what, PythonView) else what.__name__.rpartition(".")[2]
    return DEFAULT_PIPELINE if name == "__main__" else name


def _source(function: Callable[..., Any]) -> str | None:
    """The text of a function; None where there is none, as at a prompt."""
    try:
        return textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        return None
