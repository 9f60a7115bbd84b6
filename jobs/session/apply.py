"""A `.sql` file as a pipeline: read with its sidecar, checked as a whole, shown as a plan, registered as a whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import yaml

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.name_map import NameMap
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import (
    OWNERSHIP_OPTIONS,
    InsertQuery,
    PlainView,
    Source,
    View,
    gives_the_same_rows,
    same,
)
from strandline.jobs.model.errors import InvalidQuery, OptionRefused, SqlError, SqlSyntaxError, UnknownName
from strandline.jobs.session import catalog_changes
from strandline.jobs.session.catalog_changes import OTHER_BEGUN, described
from strandline.jobs.session.interpreter import Interpreter
from strandline.jobs.session.user_defined import FunctionChange, create_type, register_function
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import (
    CreateFunction,
    CreateSource,
    CreateType,
    CreateView,
    InsertSelect,
    Option,
    Statement,
)
from strandline.state_store.delta import reader
from strandline.state_store.files import copy_to_disk
from strandline.state_store.layout import LakeLayout
from strandline.state_store.wording import Name, Text, joined, quoted, sentence

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from strandline.jobs.model.definitions import Definition
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.serve.results import Result
    from strandline.jobs.session.catalog_changes import Change


MadeStatement = Callable[[Catalog], catalog_changes.Defining]
"""Makes a statement with stored names from what is in the catalog by then."""


@dataclass(frozen=True)
class Applied:
    """The result of applying a file.

    Attributes:
        functions: one change for each function in the file; functions belong to no pipeline.
        changes: one change for each definition in the file, in order.
        missing: names that belong to the pipeline and are not in the file any more; they are kept.
        name_map: of renamed definitions; the other attributes have stored names.
        skipped: {first words of a statement: number}: statements that `apply` does not execute (INSERT INTO … VALUES).
    """

    pipeline: str
    functions: tuple[FunctionChange, ...]
    changes: tuple[catalog_changes.Change, ...]
    missing: tuple[str, ...]
    skipped: dict[str, int]
    name_map: NameMap = field(default_factory=NameMap)

    def __str__(self) -> str:
        lines = [*map(str, self.functions), *(self.name_map.localized(change.said) for change in self.changes)]
        missing = map(self.name_map.of, self.missing)
        lines += [f"'{name}' is not in the file and is kept; DROP removes it" for name in missing]
        lines += [f"{count} × {words} not executed; `strandline sql -f` does" for words, count in self.skipped.items()]
        return "\n".join(lines)


def pipeline_of(path: Path) -> str:
    """Pipeline of a file's definitions. Raises InvalidQuery: the name is too long."""
    from strandline.jobs.session.define.source import check_name

    check_name(path.stem)
    return path.stem


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Add the file to the place of an SqlError that the body raises."""
    try:
        yield
    except SqlError as error:
        error.where = f"{path}, {error.where}" if error.where else str(path)
        raise


def read_text(path: Path) -> str:
    """Read a file of statements. Raises SqlSyntaxError: it is no UTF-8 text."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise SqlSyntaxError(f"'{path}' is not UTF-8 text: byte {error.start}") from error


def apply(path: Path, settings: Settings) -> Applied:
    """Register the definitions of a file and its sidecar: all of them, or none.

    Raises:
        SqlError: a statement cannot be parsed or is refused; nothing was changed.
        EventsGone: retention has taken events that the rows of a view were computed from which it would replace;
            nothing was changed.
        SourceUnavailable: the broker does not answer; the definitions are registered, some topics perhaps not created.
    """
    with in_file(path):
        return _applied(path, settings)


def plan_apply(path: Path, settings: Settings) -> ApplyPlan:
    """Plan the changes that applying a file would make; nothing is changed.

    Raises:
        SqlError: a statement is refused.
        EventsGone: retention has taken events that the rows of a view were computed from which it would replace.
    """
    with in_file(path):
        interpreter = Interpreter(settings, pipeline_of(path))
        _, functions, _, defining = _read(path, interpreter)
        changes = rehearse(functions, defining, interpreter)
        missing = _missing(changes, interpreter)
        return plan_of(interpreter.pipeline, changes, missing, interpreter.catalog, interpreter.lake)


def _applied(path: Path, settings: Settings) -> Applied:
    interpreter = Interpreter(settings, pipeline_of(path))
    types, functions, others, defining = _read(path, interpreter)
    rehearse(functions, defining, interpreter)
    for statement in types:
        create_type(statement, interpreter.catalog)
    made = tuple(interpreter.register_function(statement) for statement in functions)
    changes = tuple(interpreter.register(statement) for statement in defining)
    skipped = Counter(_first_words(statement) for statement in others)
    missing, name_map = _missing(changes, interpreter), interpreter.catalog.name_map
    return Applied(interpreter.pipeline, made, changes, missing, dict(skipped), name_map)


def _read(
    path: Path, interpreter: Interpreter
) -> tuple[list[CreateType], list[CreateFunction], list[Statement], list[catalog_changes.Defining]]:
    """Read a file and its sidecar: types, functions, other statements, and definitions with the sidecar's options."""
    statements = parse(read_text(path), interpreter.catalog.types)
    types = [s for s in statements if isinstance(s, CreateType)]
    functions = [s for s in statements if isinstance(s, CreateFunction)]
    bare = [s for s in statements if isinstance(s, CreateSource | CreateView | InsertSelect)]
    executed = (*types, *functions, *bare)
    defining: list[catalog_changes.Defining] = [interpreter.stored(each) for each in with_sidecar(bare, path)]
    return types, functions, [s for s in statements if s not in executed], defining


def _missing(changes: Sequence[catalog_changes.Change], interpreter: Interpreter) -> tuple[str, ...]:
    """Names of the pipeline that no change is about."""
    named = {change.definition.name for change in changes}
    catalog, pipeline = interpreter.catalog, interpreter.pipeline
    plain = (each for each in catalog.plain.values() if each.pipeline == pipeline)
    return tuple(each.name for each in (*catalog.pipeline(pipeline), *plain) if each.name not in named)


def run_file(path: Path, interpreter: Interpreter) -> Iterator[Result]:
    """Execute the statements of a file and its sidecar in order. Errors as of `Interpreter.run`."""
    statements = with_sidecar(parse(read_text(path), interpreter.catalog.types), path)
    return (interpreter.execute(statement) for statement in statements)


def rehearse(
    functions: Sequence[CreateFunction],
    statements: Sequence[catalog_changes.Defining | MadeStatement],
    interpreter: Interpreter,
) -> tuple[catalog_changes.Change, ...]:
    """Register the statements in a copy of the catalog first, so that an error changes nothing; return the changes."""
    changes: list[catalog_changes.Change] = []
    with TemporaryDirectory(prefix="strandline-") as scratch:
        copy = LakeLayout(Path(scratch))
        copy_to_disk(interpreter.lake.catalog, Path(scratch) / "catalog")
        with suppress(FileNotFoundError):
            (Path(scratch) / copy.definitions.name).write_bytes(interpreter.lake.definitions.read_bytes())
        catalog = Catalog(copy)
        for each in catalog.begun.values():
            if each.name in catalog.names() and each.done(interpreter.lake):  # the copy has no tables that say so
                catalog.replace(each.definition)
        for function in functions:
            register_function(function, catalog, interpreter.settings.functions.modules)
        for each_statement in statements:
            statement = each_statement(catalog) if callable(each_statement) else each_statement
            if isinstance(statement, CreateSource):
                statement = catalog_changes.resolved_source(statement, catalog, interpreter.settings, interpreter.lake)
            rehearsed = partial(_rehearse_replacement, catalog, interpreter.lake)
            changes.append(
                catalog_changes.register(
                    statement, catalog, interpreter.pipeline, interpreter.lake, rehearsed, interpreter.binding
                )
            )
    return tuple(changes)


def _rehearse_replacement(
    catalog: Catalog, lake: LakeLayout, present: Source | View, definition: Source | View
) -> str | None:
    """Put a definition in the copy of the catalog; return the reason why its rows will not be proved."""
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


# The plan of `strandline apply`: what a file would create and replace, what that reads, and who follows it.

_OUTCOMES = {"created": "create", "replaced": "replace", "altered": "alter", "repaired": "repair"}
_ENDS = "what has been begun of it comes to its end"
_COMES_FIRST = "another definition of it has been begun, and comes first: then say this one again"


@dataclass(frozen=True)
class PlannedChange:
    """What happens to one definition.

    Attributes:
        outcome: as of `Change`; `kept` for what belongs to the pipeline and is not in the file any more.
        what: the definition, in words.
        columns: of a view that is replaced, or a source that is altered, the difference in columns.
        reads: (input, its rows now) of a view whose rows are computed from history.
        followers: what reads a view that is replaced, and takes in the difference.
        unproved: why the rows of a view that is replaced will not be compared with its SQL; None: they will.
        untouched: what reads a source that is altered, and keeps the columns that it knows.
        shared_with: the views that have some of the stages of a view that is replaced.
        only_adds: of a view that is replaced, rows are only ever added to it.
        late: of what is computed from history, the logs that begin late, in words.
        begun: what was found begun of its name, in words.
    """

    outcome: str
    what: str
    columns: str | None = None
    reads: tuple[tuple[str, int], ...] = ()
    followers: tuple[str, ...] = ()
    unproved: str | None = None
    untouched: tuple[str, ...] = ()
    shared_with: tuple[str, ...] = ()
    only_adds: bool = False
    late: tuple[str, ...] = ()
    begun: str | None = None

    def __str__(self) -> str:
        return self.said

    @property
    def said(self) -> Text:
        """The step, in a sentence."""
        parts: list[str] = [sentence("{} {}", f"{self.outcome:<9}", self.what)]
        parts += [] if self.columns is None else [self.columns]
        parts += [sentence("reads {} rows of '{}'", f"{rows:,}", Name(name)) for name, rows in self.reads]
        parts += self.late
        if self.only_adds:
            parts.append("rows are added, and it stays as it is if one would go")
        if self.shared_with:
            parts.append(sentence("shares stages with {}", quoted(self.shared_with)))
        if self.followers:
            parts.append(sentence("{} follow by the difference", quoted(self.followers)))
        if self.unproved is not None:
            parts.append(sentence("its rows will not be proved: {}", self.unproved))
        if self.untouched:
            stays = "stays as it is" if len(self.untouched) == 1 else "stay as they are"
            parts.append(sentence("{} {}", quoted(self.untouched), stays))
        if self.begun is not None:
            parts.append(self.begun)
        return joined("; ", parts)


@dataclass(frozen=True)
class ApplyPlan:
    """The steps of applying a file, in order, with stored names. Nothing was changed yet."""

    pipeline: str
    steps: tuple[PlannedChange, ...]
    name_map: NameMap = field(default_factory=NameMap)

    @property
    def replaces(self) -> tuple[str, ...]:
        """The definitions, in words, that others take the place of."""
        return tuple(self.name_map.localized(step.what) for step in self.steps if step.outcome == "replace")

    @property
    def alters(self) -> tuple[str, ...]:
        """The sources, in words, that get columns."""
        return tuple(self.name_map.localized(step.what) for step in self.steps if step.outcome == "alter")

    def __str__(self) -> str:
        steps = (self.name_map.localized(step.said) for step in self.steps)
        return "\n".join([f"pipeline '{self.pipeline}':", *(f"  {step}" for step in steps)])


def plan_of(
    pipeline: str, changes: Sequence[Change], missing: Sequence[str], catalog: Catalog, lake: LakeLayout
) -> ApplyPlan:
    """Plan these changes.

    Args:
        changes: as a rehearsal made them.
        missing: names of the pipeline that are not in the file.
        catalog: as it is before.
    """
    steps = [_step(change, catalog, lake) for change in changes]
    kept = (sentence("'{}': it is not in the file; DROP removes it", Name(name)) for name in missing)
    steps += [PlannedChange("kept", what) for what in kept]
    return ApplyPlan(pipeline, tuple(steps), catalog.name_map)


def _step(change: Change, catalog: Catalog, lake: LakeLayout) -> PlannedChange:
    from strandline.jobs.session.define.replaced import ColumnDiff  # with the planner, which a SELECT does without

    definition, what = change.definition, described(change.definition)
    if isinstance(definition, PlainView):
        return PlannedChange(_OUTCOMES.get(change.outcome, change.outcome), what)
    outcome = _OUTCOMES.get(change.outcome, change.outcome)
    begun = None if change.begun is None else _ENDS if change.begun == "this" else _COMES_FIRST
    bare = PlannedChange(outcome, what, begun=begun)
    if outcome == "alter":
        source = catalog.get(definition.name)
        assert isinstance(source, Source)
        assert isinstance(definition, Source)
        return replace(bare, columns=str(ColumnDiff.of(source, definition)), untouched=catalog.readers(source.name))
    present = catalog.find(definition.name) if outcome == "replace" else None
    stays = present is not None and gives_the_same_rows(present, definition)
    if outcome == "unchanged" or stays:
        return replace(bare, begun=OTHER_BEGUN) if change.begun == "other" else bare
    if isinstance(definition, Source):
        return bare
    if change.begun != "this":
        reads = tuple((name, _rows(name, catalog, lake)) for name in definition.inputs)
        bare = replace(bare, reads=reads, late=change.late)
    if not isinstance(present, View) or not isinstance(definition, View):
        return bare
    return replace(
        bare,
        columns=str(ColumnDiff.of(present, definition)),
        followers=catalog.readers(definition.name),
        unproved=change.unproved,
        shared_with=_sharing(definition, catalog),
        only_adds=present.storage == "append" and reader.head(lake.table(present.name)) is not None,
    )


def _sharing(definition: View, catalog: Catalog) -> tuple[str, ...]:
    """The other views of the pipeline that read shared tables which the definition would read."""
    from strandline.jobs.run.shared import shared_tables

    wanted = shared_tables(definition, catalog.supposing(definition))
    others = (each for each in catalog.pipeline(definition.pipeline) if each.name != definition.name)
    return tuple(each.name for each in others if wanted and wanted & shared_tables(each, catalog))


def _rows(name: str, catalog: Catalog, lake: LakeLayout) -> int:
    """The rows that a definition's table has now: 0 of one that is not there yet."""
    found: Definition | None = catalog.find(name)
    table = tables.event_log(found) if isinstance(found, Source) else name
    head = None if isinstance(found, InsertQuery) else reader.head(lake.table(table))
    return 0 if head is None else head.record.rows


# The sidecar of a `.sql` file: `NAME.yaml` beside `NAME.sql`, with the ownership of what the file defines.
#
#     locations:                     # a stream, table or view of the file
#       owner: team:logistics
#       tags: {domain: parcels}
#       freshness: 5 seconds
#       expect:
#         - expect_column_values_to_not_be_null: {column: place}
#
# Each entry says what a WITH option of the same name says (`jobs.model.definitions`), and is checked as one.

AnyStatement = TypeVar("AnyStatement", bound=Statement)


def with_sidecar(statements: Sequence[AnyStatement], file: Path) -> list[AnyStatement]:
    """Add the options of a file's sidecar to its statements, if there is one.

    Raises:
        InvalidQuery: the sidecar is not a mapping of names to options.
        UnknownName: it names what the file does not define.
        OptionRefused: it names an option that is not about ownership.
    """
    sidecar = file.with_suffix(".yaml")
    if not sidecar.is_file():
        return list(statements)
    entries = _entries_of(sidecar)
    named = [each.name for each in statements if isinstance(each, CreateSource | CreateView)]
    for name in entries:
        if name not in named:
            raise UnknownName.among(f"name in {sidecar.name}:", name, named)
    return [_with_options(each, entries, sidecar) for each in statements]


def _entries_of(sidecar: Path) -> Mapping[str, Mapping[str, Any]]:
    try:
        entries = yaml.safe_load(sidecar.read_text(encoding="utf-8-sig")) or {}
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise InvalidQuery(f"'{sidecar}' is no YAML: {' '.join(str(fault).split())}") from fault
    if not isinstance(entries, dict) or not all(isinstance(each, dict) for each in entries.values()):
        raise InvalidQuery(f"'{sidecar}' does not map names to options", hint="write name:, and its options below it")
    return entries


def _with_options(statement: AnyStatement, entries: Mapping[str, Mapping[str, Any]], sidecar: Path) -> AnyStatement:
    if not isinstance(statement, CreateSource | CreateView) or statement.name not in entries:
        return statement
    added = []
    for key, value in entries[statement.name].items():
        if str(key).upper() not in OWNERSHIP_OPTIONS:
            known = ", ".join(name.lower() for name in OWNERSHIP_OPTIONS)
            raise OptionRefused(f"'{key}' is no option of {sidecar.name}", hint=f"use one of {known}")
        added.append(Option(str(key).upper(), option_text(value)))
    return replace(statement, options=(*statement.options, *added))


def option_text(value: object) -> str:
    """The value as a WITH option writes it: tags and owners with commas, expectations as YAML."""
    match value:
        case dict():
            return ", ".join(f"{key}={each}" for key, each in value.items())
        case list() if all(isinstance(each, str) for each in value) and value:
            return ", ".join(value)
        case list():
            return str(yaml.safe_dump(value, allow_unicode=True, default_flow_style=True))
        case _:
            return str(value)
