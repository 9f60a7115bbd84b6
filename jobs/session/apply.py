"""A `.sql` file as a pipeline: read, checked as a whole, then registered as a whole."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from strandline.jobs.catalog.called import Called
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import Source, same
from strandline.jobs.model.errors import SqlError, SqlSyntaxError
from strandline.jobs.session import catalog_changes
from strandline.jobs.session.apply_plan import ApplyPlan, plan_of
from strandline.jobs.session.define.source import check_name
from strandline.jobs.session.functions import FunctionChange
from strandline.jobs.session.functions import register as register_function
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.sidecar import tended
from strandline.jobs.session.type_names import create as create_type
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import CreateFunction, CreateSource, CreateType, CreateView, InsertSelect, Statement
from strandline.state_store.delta import reader
from strandline.state_store.folders import copy_to_disk
from strandline.state_store.layout import Lake

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from strandline.jobs.model.definitions import View
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.serve.results import Result


@dataclass(frozen=True)
class Applied:
    """The result of applying a file.

    Attributes:
        functions: one change for each function in the file; functions belong to no pipeline.
        changes: one change for each definition in the file, in order.
        missing: names that belong to the pipeline and are not in the file any more; they are kept.
        called: what the definitions are called; the other attributes have the names that they are stored under.
        skipped: {first words of a statement: number}: statements that `apply` does not execute (INSERT INTO … VALUES).
    """

    pipeline: str
    functions: tuple[FunctionChange, ...]
    changes: tuple[catalog_changes.Change, ...]
    missing: tuple[str, ...]
    skipped: dict[str, int]
    called: Called = field(default_factory=Called)

    def __str__(self) -> str:
        lines = [*map(str, self.functions), *(self.called.shown(change.said) for change in self.changes)]
        lines += [f"'{self.called.of(name)}' is not in the file and is kept; DROP removes it" for name in self.missing]
        lines += [f"{count} × {words} not executed; `strandline sql -f` does" for words, count in self.skipped.items()]
        return "\n".join(lines)


def pipeline_of(path: Path) -> str:
    """The pipeline that a file's definitions belong to. Raises InvalidQuery: the name is too long."""
    check_name(path.stem)
    return path.stem


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Name the file where an error of the body names a line. Raises SqlError."""
    try:
        yield
    except SqlError as error:
        error.where = f"{path}, {error.where}" if error.where else str(path)
        raise


def read_text(path: Path) -> str:
    """The text of a file of statements. Raises SqlSyntaxError: it is no UTF-8 text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlSyntaxError(f"'{path}' is not UTF-8 text: byte {error.start}") from error


def apply(path: Path, settings: Settings) -> Applied:
    """Register the definitions of a file, with what its sidecar says of them; all of them, or none.

    Raises:
        SqlError: a statement cannot be parsed or is refused; nothing was changed.
        EventsGone: retention has taken events that the rows of a view were computed from which it would replace;
            nothing was changed.
        SourceUnavailable: the broker does not answer; the definitions are registered, some topics perhaps not created.
    """
    with in_file(path):
        return _applied(path, settings)


def plan_apply(path: Path, settings: Settings) -> ApplyPlan:
    """What applying a file would change; nothing is changed.

    Raises:
        SqlError: a statement is refused.
        EventsGone: retention has taken events that the rows of a view were computed from which it would replace.
    """
    with in_file(path):
        interpreter = Interpreter(settings, pipeline_of(path))
        _, functions, _, defining = _read(path, interpreter)
        changes = _rehearse(functions, defining, interpreter)
        missing = _missing(changes, interpreter)
        return plan_of(interpreter.pipeline, changes, missing, interpreter.catalog, interpreter.lake)


def _applied(path: Path, settings: Settings) -> Applied:
    interpreter = Interpreter(settings, pipeline_of(path))
    types, functions, others, defining = _read(path, interpreter)
    _rehearse(functions, defining, interpreter)
    for statement in types:
        create_type(statement, interpreter.catalog)
    made = tuple(interpreter.register_function(statement) for statement in functions)
    changes = tuple(interpreter.register(statement) for statement in defining)
    skipped = Counter(_first_words(statement) for statement in others)
    missing, called = _missing(changes, interpreter), interpreter.catalog.called
    return Applied(interpreter.pipeline, made, changes, missing, dict(skipped), called)


def _read(
    path: Path, interpreter: Interpreter
) -> tuple[list[CreateType], list[CreateFunction], list[Statement], list[catalog_changes.Defining]]:
    """The types, functions and other statements of a file, and its definitions with what the sidecar says of them."""
    statements = parse(read_text(path), interpreter.catalog.types)
    types = [s for s in statements if isinstance(s, CreateType)]
    functions = [s for s in statements if isinstance(s, CreateFunction)]
    bare = [s for s in statements if isinstance(s, CreateSource | CreateView | InsertSelect)]
    executed = (*types, *functions, *bare)
    defining: list[catalog_changes.Defining] = [interpreter.stored(each) for each in tended(bare, path)]
    return types, functions, [s for s in statements if s not in executed], defining


def _missing(changes: Sequence[catalog_changes.Change], interpreter: Interpreter) -> tuple[str, ...]:
    """The names of the pipeline that no change is about."""
    named = {change.definition.name for change in changes}
    return tuple(d.name for d in interpreter.catalog.pipeline(interpreter.pipeline) if d.name not in named)


def run_file(path: Path, interpreter: Interpreter) -> Iterator[Result]:
    """Execute the statements of a file in order, with what its sidecar says; errors as of `Interpreter.run`."""
    statements = tended(parse(read_text(path), interpreter.catalog.types), path)
    return (interpreter.execute(statement) for statement in statements)


def _rehearse(
    functions: Sequence[CreateFunction], statements: Sequence[catalog_changes.Defining], interpreter: Interpreter
) -> tuple[catalog_changes.Change, ...]:
    """Register the statements in a copy of the catalog first, so that an error changes nothing; what they change."""
    changes: list[catalog_changes.Change] = []
    with TemporaryDirectory(prefix="strandline-") as scratch:
        copy = Lake(Path(scratch))
        copy_to_disk(interpreter.lake.catalog, Path(scratch) / "catalog")
        with suppress(FileNotFoundError):
            (Path(scratch) / copy.definitions.name).write_bytes(interpreter.lake.definitions.read_bytes())
        catalog = Catalog(copy)
        for each in catalog.begun.values():
            if each.name in catalog.names() and each.done(interpreter.lake):  # the copy has no tables that say so
                catalog.replace(each.definition)
        for function in functions:
            register_function(function, catalog, interpreter.settings.functions.modules)
        for statement in statements:
            if isinstance(statement, CreateSource):
                catalog_changes.check_topic(statement, catalog, interpreter.settings, interpreter.lake)
            rehearsed = partial(_rehearse_replacement, catalog, interpreter.lake)
            changes.append(
                catalog_changes.register(
                    statement, catalog, interpreter.pipeline, interpreter.lake, rehearsed, interpreter.binding
                )
            )
    return tuple(changes)


def _rehearse_replacement(
    catalog: Catalog, lake: Lake, present: Source | View, definition: Source | View
) -> str | None:
    """Put a definition in the copy of the catalog; why the rows that are to be computed will not be proved."""
    from strandline.jobs.operate.replace import check_events
    from strandline.jobs.operate.verify.recompute import unprovable

    if present == definition:
        return None  # the end of its own replacement is left, and nothing else
    if isinstance(present, Source) or isinstance(definition, Source):
        catalog.keep_seen(present.name)
        catalog.replace(definition)
        return None
    begun = catalog.begun.get(present.name)
    if begun is not None and same(begun.definition, definition):
        catalog.replace(definition)
        return begun.unproved  # it was checked, and proved or not, when it was begun
    check_events(present, catalog, lake)
    catalog.replace(definition)
    return None if reader.head(lake.table(present.name)) is None else unprovable(definition, catalog)


def _first_words(statement: Statement) -> str:
    """The first two words of a statement, which name it."""
    return " ".join(statement.sql.split()[:2]).upper()
