"""The interpreter: executes statements against the catalog, the topics and the tables, without a JVM."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.plain_views import expanded
from strandline.jobs.catalog.stored_names import stored_statement
from strandline.jobs.model.definitions import PlainView, Source, View
from strandline.jobs.model.errors import OptionRefused, SqlError, UnknownName
from strandline.jobs.serve.results import Document, Message, Result
from strandline.jobs.session import catalog_changes
from strandline.jobs.sql.size import too_deep
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import (
    AlterSource,
    CreateFunction,
    CreateSource,
    CreateType,
    CreateView,
    Delete,
    Describe,
    DescribeFunction,
    Drop,
    DropFunction,
    DropType,
    Explain,
    InsertSelect,
    InsertValues,
    Print,
    Rename,
    Select,
    SetProperty,
    Show,
    Statement,
    Swap,
    UnsetProperty,
    Update,
)
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout, check_lake
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.ivm.binding import Binding
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.session.user_defined import FunctionChange


S = TypeVar("S", bound=Statement)

DEFAULT_PIPELINE = "default"


class Interpreter:
    """Executor of one user's statements over one lake.

    Args:
        pipeline: the pipeline of the definitions that it makes.
    """

    def __init__(self, settings: Settings, pipeline: str = DEFAULT_PIPELINE) -> None:
        self.settings = settings
        self.pipeline = pipeline
        self.lake = LakeLayout(settings.lake)
        self.catalog = Catalog(self.lake)
        self.properties = Properties()

    @cached_property
    def binding(self) -> Binding:
        """What binds the definitions of these statements: the compiler, which most commands never ask."""
        from strandline.jobs.ivm.binding import Binding

        return Binding()

    def run(self, text: str) -> Iterator[Result]:
        """Execute the statements of `text` in order; those before an error stay executed.

        Raises:
            SqlSyntaxError: a statement cannot be parsed; nothing was executed.
            StrandlineError: a statement failed.
        """
        statements = parse(text, self.catalog.types)
        return (self.execute(statement) for statement in statements)

    def execute(self, statement: Statement) -> Result:
        """Execute one statement.

        Raises:
            StrandlineError: it failed, and changed nothing; an SqlError has the place of the fault or of the statement.
        """
        name_map = self.catalog.name_map  # as it is before: a statement may drop what has the name
        try:
            result = self._execute(self.stored(statement))
        except SqlError as error:
            if isinstance(error, UnknownName) and error.of_lake:
                check_lake(self.lake)
            raise name_map.localized_error(error.placed(statement.line, statement.column))  # noqa: B904 - the same error
        except StrandlineError as error:
            raise name_map.localized_error(error)  # noqa: B904 - the same error
        except RecursionError as error:
            raise too_deep(statement.line, statement.column) from error
        return Message(name_map.localized(result.text)) if isinstance(result, Message) else result

    def stored(self, statement: S) -> S:
        """Replace the names that people see by stored ones. Errors as of `stored_statement`."""
        name_map = self.catalog.name_map
        return stored_statement(statement, name_map, self.catalog.types) if name_map.names else statement

    def _execute(self, statement: Statement) -> Result:
        match statement:
            case CreateSource() | CreateView() | InsertSelect() | AlterSource():
                return Message(self.register(statement).said)
            case CreateFunction() | DropFunction() | DescribeFunction():
                return self._function(statement)
            case CreateType() | DropType():
                from strandline.jobs.session.user_defined import change_types

                return Message(change_types(statement, self.catalog))
            case InsertValues():
                return self._insert(statement)
            case Delete() | Update():
                return self._change(statement)
            case Drop() | Rename() | Swap():
                return Message(self._changed_names(statement))
            case Select():
                return self._select(statement)
            case Show() | Describe() | Explain() | Print():
                return self._show(statement)
            case SetProperty() | UnsetProperty():
                return self._property(statement)
            case _:
                raise AssertionError(statement)

    def register(self, statement: catalog_changes.Defining) -> catalog_changes.Change:
        """Define or alter a source, define a view or a query into a stream; create a source's topic if absent.

        Args:
            statement: as `stored` gives it.
        """
        if isinstance(statement, CreateSource):
            statement = catalog_changes.resolved_source(statement, self.catalog, self.settings, self.lake)
        change = catalog_changes.register(
            statement, self.catalog, self.pipeline, self.lake, self._replace, self.binding
        )
        if not isinstance(change.definition, PlainView):
            catalog_changes.ensure_topic(change.definition, self.settings, self.lake)
        return change

    def _replace(self, present: Source | View, definition: Source | View) -> str | None:
        if isinstance(present, Source) and isinstance(definition, Source):
            from strandline.jobs.operate.replace import alter_source

            alter_source(self.settings, present, definition)
        elif isinstance(present, View) and isinstance(definition, View):
            from strandline.jobs.operate.replace import replace_view

            return replace_view(self.settings, present, definition)
        return None

    def register_function(self, statement: CreateFunction) -> FunctionChange:
        """Define a function written in Python."""
        from strandline.jobs.session.user_defined import register_function

        return register_function(statement, self.catalog, self.settings.functions.modules)

    def _property(self, statement: SetProperty | UnsetProperty) -> Message:
        if isinstance(statement, SetProperty):
            self.properties.set(statement.name, statement.value)
            return Message(f"'{statement.name}' is '{statement.value}'")
        self.properties.unset(statement.name)
        return Message(f"'{statement.name}' has its default again")

    def _function(self, statement: CreateFunction | DropFunction | DescribeFunction) -> Result:
        from strandline.jobs.session import user_defined

        match statement:
            case CreateFunction():
                return Message(str(self.register_function(statement)))
            case DropFunction():
                return Message(user_defined.drop_function(statement, self.catalog))
            case DescribeFunction():
                return user_defined.describe_function(statement.name, self.catalog)

    def _insert(self, statement: InsertValues) -> Message:
        from strandline.jobs.session.writes import insert

        count = insert(statement, self.catalog, self.settings, self.lake)
        return Message(
            sentence("{} row{} inserted into '{}'", count, "" if count == 1 else "s", Name(statement.target))
        )

    def _change(self, statement: Delete | Update) -> Message:
        from strandline.jobs.session.writes import delete, update

        if isinstance(statement, Delete):
            count = delete(statement, self.catalog, self.settings, self.lake)
            return Message(
                sentence("{} key{} deleted from '{}'", count, "" if count == 1 else "s", Name(statement.target))
            )
        count = update(statement, self.catalog, self.settings, self.lake)
        return Message(sentence("{} row{} of '{}' updated", count, "" if count == 1 else "s", Name(statement.target)))

    def _changed_names(self, statement: Drop | Rename | Swap) -> str:
        if isinstance(statement, Drop):
            return catalog_changes.drop(statement, self.catalog, self.lake)
        if isinstance(statement, Swap):
            return catalog_changes.swap(statement, self.catalog)
        return catalog_changes.rename(statement, self.catalog)

    def _select(self, statement: Select) -> Result:
        from strandline.jobs.functions.python import Library

        functions = Library(self.catalog.functions.values(), self.settings.functions.modules)
        statement = expanded(statement, self.catalog)
        if statement.emit is None:
            from strandline.jobs.partial.pull import pull

            return pull(statement, self.catalog, self.lake, functions)
        from strandline.jobs.serve.subscription import push

        return push(statement, self.catalog, self.lake, functions, from_latest=self.properties.from_latest)

    def _show(self, statement: Show | Describe | Explain | Print) -> Result:
        from strandline.jobs.session import show

        match statement:
            case Print():
                return show.print_topic(statement, self.settings, self.lake)
            case Show():
                return show.listing(statement, self.catalog, self.properties.values, self.settings, self.lake)
            case Describe():
                return show.description(statement.name, self.catalog, self.lake, extended=statement.extended)
            case Explain():
                text = show.explanation(expanded(statement, self.catalog), self.catalog)
                return Document({"explanation": text}, text)


_KNOWN = {"auto.offset.reset": ("earliest", "latest")}
"""{property: its values, the default first}."""


@dataclass
class Properties:
    """The properties that a user has set by `SET 'name' = 'value'`, for as long as the prompt, script or `-e` lives."""

    values: dict[str, str] = field(default_factory=lambda: {name: values[0] for name, values in _KNOWN.items()})

    def set(self, name: str, value: str) -> None:
        """Set a property.

        Raises:
            OptionRefused: there is no such property, or it cannot have that value.
        """
        self._check(name)
        if value.lower() not in _KNOWN[name]:
            raise OptionRefused(f"'{name}' cannot be '{value}'", hint=f"use one of {', '.join(_KNOWN[name])}")
        self.values[name] = value.lower()

    def unset(self, name: str) -> None:
        """Give a property its default again. Raises OptionRefused: there is no such property."""
        self._check(name)
        self.values[name] = _KNOWN[name][0]

    @property
    def from_latest(self) -> bool:
        """True if push queries begin with the next change, without the present rows."""
        return self.values["auto.offset.reset"] == "latest"

    @staticmethod
    def _check(name: str) -> None:
        if name not in _KNOWN:
            raise OptionRefused(
                f"'{name}' is not a property of a session",
                hint=f"known: {', '.join(_KNOWN)}; everything else is set in strandline.toml",
            )
