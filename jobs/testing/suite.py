"""A suite: the tests in one `NAME.test.yaml` beside `NAME.sql`, read and checked.

    tests:
      - name: a visit that is taken back no longer counts
        steps:
          - given:
              info: [{product: leek, category: Vegetable}, {product: beet, category: Vegetable}]
              visit: [{product: leek, visitor: ann, length: 60}, {product: beet, visitor: bob, length: 50}]
            expect:
              longest: {rows: [{category: Vegetable, max_length: 60}]}
          - given:
              visit: [!delete {product: leek, visitor: ann}]
            expect:
              longest:
                retracted: [{category: Vegetable, max_length: 60}]
                inserted: [{category: Vegetable, max_length: 50}]

A test of one step may leave `steps` out. The rows of a step are events, in the order in which they stand in the file.

A suite with types: its events and expected rows as values of the columns that the definitions declare.

Rows compared as a test means them: in any order, over the columns that it names, doubles to a part in 10⁹.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from strandline.jobs.ingest.produce import ROWTIME, TOMBSTONE
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import InvalidQuery, SqlError, UnknownName
from strandline.jobs.model.tables import alike
from strandline.jobs.serve.results import shown
from strandline.jobs.session.conversions import assign, assign_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType


_RELATIVE: Final = 1e-9
"""How far two doubles may be apart, relative to the larger: sums of them depend on the order of their addends."""

Values = dict[str, Any]


@dataclass(frozen=True)
class RowsDiffer:
    """What stands between the rows that are expected and those that are there; falsy when nothing does."""

    missing: tuple[Values, ...] = ()
    unexpected: tuple[Values, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.unexpected)


def rows_differ(expected: Sequence[Values], actual: Sequence[Values]) -> RowsDiffer:
    """Match each expected row with one that is there. Both have the same columns."""
    left = list(actual)
    missing = []
    for row in expected:
        place = next((place for place, each in enumerate(left) if _equal(row, each)), None)
        if place is None:
            missing.append(row)
        else:
            del left[place]
    return RowsDiffer(tuple(missing), tuple(left))


def net(changes: Sequence[tuple[Values, int]]) -> tuple[list[Values], list[Values]]:
    """Rows inserted and rows retracted, of which none is both: the sum of the weights of each row."""
    distinct: list[Values] = []
    weights: list[int] = []
    for row, weight in changes:
        place = next((place for place, each in enumerate(distinct) if _equal(row, each)), None)
        if place is None:
            distinct.append(row)
            weights.append(weight)
        else:
            weights[place] += weight
    inserted = [row for row, weight in zip(distinct, weights, strict=True) for _ in range(weight)]
    retracted = [row for row, weight in zip(distinct, weights, strict=True) for _ in range(-weight)]
    return inserted, retracted


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=_RELATIVE) or (math.isnan(one) and math.isnan(other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_equal(a, b) for a, b in zip(one, other, strict=True))
    return type(one) is type(other) and bool(one == other)


def row_text(row: Mapping[str, Any]) -> str:
    """A row as a test's file writes it."""
    return "{" + ", ".join(f"{name}: {value_text(value)}" for name, value in row.items()) + "}"


def value_text(value: Any) -> str:
    """A value as YAML writes it."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return value if value.isalnum() and not value.isdigit() else repr(value)
        case dt.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case dict():
            return row_text({str(key): each for key, each in value.items()})
        case list():
            return f"[{', '.join(value_text(each) for each in value)}]"
        case _:
            return str(value)


SUFFIX: Final = ".test.yaml"

Row = dict[str, Any]
"""{column: value}, as YAML gives it; a number with a point is a Decimal."""


@dataclass(frozen=True)
class Deletion:
    """`!delete {key column: value, …}`: the event that deletes a key of a table."""

    key: Row


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)


class Expected(_Strict):
    """What a stream, table or view must be after a step; what is left out is not compared.

    Attributes:
        rows: all of its rows, in any order.
        inserted: the rows that the step brought, net of those that it took away again.
        retracted: the rows that the step took away, net of those that it brought again.
        dead_letters: the rows on which an expression of the view fails: the columns of its inputs, as `alias_column`.
    """

    rows: list[Row] | None = None
    inserted: list[Row] | None = None
    retracted: list[Row] | None = None
    dead_letters: list[Row] | None = None


class Step(_Strict):
    """Events, and what must be true once they are taken in.

    Attributes:
        given: {stream or table: its events}.
        expect: {stream, table or view: what it must be}.
    """

    given: dict[str, list[Row | Deletion]] = Field(default_factory=dict)
    expect: dict[str, Expected] = Field(default_factory=dict)


class Case(_Strict):
    """One test: steps over tables that are empty at its start.

    Attributes:
        name: one line, different from those of the suite's other tests.
    """

    name: str = Field(min_length=1, pattern=r"^[^\n]*$")
    steps: list[Step] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _one_step(cls, value: Any) -> Any:
        """A test without `steps` is its only step."""
        if not isinstance(value, dict) or "steps" in value:
            return value
        step = {key: value[key] for key in ("given", "expect") if key in value}
        return {**{key: each for key, each in value.items() if key not in step}, "steps": [step] if step else []}

    @model_validator(mode="after")
    def _expects(self) -> Case:
        if not any(step.expect for step in self.steps):
            raise ValueError("it expects nothing, so it could not fail")
        return self


class _File(_Strict):
    files: list[str] = Field(default_factory=list)
    tests: list[Case] = Field(min_length=1)


@dataclass(frozen=True)
class Suite:
    """The tests of one file.

    Attributes:
        path: of the file.
        files: the `.sql` files that define what is tested, in the order in which they are applied.
        cases: with different names.
    """

    path: Path
    files: tuple[Path, ...]
    cases: tuple[Case, ...]


def read_suite(path: Path) -> Suite:
    """Read the suite of a file: `NAME.test.yaml`, or `NAME.sql`, which stands for the suite beside it.

    Raises:
        InvalidQuery: there is no such file, it is no YAML, or not of the form above; the message says where.
    """
    own = path if path.name.endswith(SUFFIX) else path.with_name(path.stem + SUFFIX)
    try:
        entries = yaml.load(own.read_text(encoding="utf-8-sig"), _Loader)  # noqa: S506 - a safe loader, with one tag more
    except FileNotFoundError:
        hint = f"write the tests of {path.name} there: docs/testing.md shows how"
        raise InvalidQuery(f"there is no file '{own}'", hint=hint) from None
    except (yaml.YAMLError, UnicodeDecodeError) as fault:
        raise InvalidQuery(f"'{own}' is no YAML: {' '.join(str(fault).split())}") from fault
    try:
        read = _File.model_validate(entries)
    except ValidationError as error:
        raise _refused(own, error) from None
    names = [case.name for case in read.tests]
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise InvalidQuery(f"'{own}' has two tests of the name '{twice}'", hint="give each a name of its own")
    beside = own.with_name(own.name.removesuffix(SUFFIX) + ".sql")
    files = [own.parent / name for name in read.files] or [beside]
    missing = next((file for file in files if not file.is_file()), None)
    if missing is not None:
        raise InvalidQuery(
            f"'{own}' tests '{missing}', which is not there",
            hint="name the files under `files:`, relative to the file of tests",
        )
    return Suite(own, tuple(files), tuple(read.tests))


def _refused(path: Path, error: ValidationError) -> InvalidQuery:
    """The first fault, with the way to its place: `tests[0].steps[1].expect.longest`."""
    first = error.errors()[0]
    place = ""
    for part in first["loc"]:
        # Pydantic names the alternative of a union that it tried; it is no part of the file.
        if isinstance(part, int):
            place += f"[{part}]"
        elif part not in ("Deletion", "dict[str,any]"):
            place += f".{part}" if place else str(part)
    said = {"extra_forbidden": "is not known here", "missing": "is missing"}
    what = said.get(first["type"], first["msg"].removeprefix("Value error, "))
    return InvalidQuery(f"'{path}': {place or 'the file'}: {what}", hint="docs/testing.md shows the form")


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML comes without types
    """YAML's safe types, numbers with a point as they are written, and `!delete`."""


def _number(loader: _Loader, node: yaml.ScalarNode) -> Decimal | float:
    text = str(loader.construct_scalar(node)).replace("_", "")
    plain = text.lower().lstrip("+-")
    # Infinity, NaN and numbers to the base 60 are YAML's own.
    return loader.construct_yaml_float(node) if plain in (".inf", ".nan") or ":" in plain else Decimal(text)


def _deletion(loader: _Loader, node: yaml.MappingNode) -> Deletion:
    return Deletion({str(name): value for name, value in loader.construct_mapping(node, deep=True).items()})


_Loader.add_constructor("tag:yaml.org,2002:float", _number)
_Loader.add_constructor("!delete", _deletion)


_FIRST_EVENT: Final = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
"""The time of a test's first event that names none. Each event after it is a millisecond later, the smallest step of a
record's time, so that "as of the time of an event" has one meaning however the events are cut into epochs."""


@dataclass(frozen=True)
class GivenEvent:
    """A record to be: the row of a source, as `jobs.ingest.produce.insert_rows` takes it."""

    source: str
    row: dict[str, object]


@dataclass(frozen=True)
class ExpectedRows:
    """Rows that are expected, over the columns that they name; None in place of this: they are not compared."""

    columns: tuple[str, ...]
    rows: tuple[Values, ...]


@dataclass(frozen=True)
class TypedExpected:
    """What a table must be: see `jobs.testing.suite.Expected`.

    Attributes:
        types: of its visible columns, by name.
    """

    table: str
    types: Mapping[str, SqlType]
    rows: ExpectedRows | None
    inserted: ExpectedRows | None
    retracted: ExpectedRows | None
    dead_letters: ExpectedRows | None


@dataclass(frozen=True)
class TypedStep:
    """Events in their order, and what must be true once they are taken in."""

    events: tuple[GivenEvent, ...]
    expected: tuple[TypedExpected, ...]


@dataclass(frozen=True)
class TypedCase:
    """One test, ready to run."""

    name: str
    steps: tuple[TypedStep, ...]


def typed(suite: Suite, catalog: Catalog) -> tuple[TypedCase, ...]:
    """The tests of a suite over the definitions of a catalog.

    Raises:
        UnknownName: a name or column is none of the definitions'.
        InvalidQuery: events are given to a view, or rows are expected of a partial one.
        TypeMismatch: a value does not fit its column. The message says in which test and step.
    """
    return tuple(_case(case, catalog, suite) for case in suite.cases)


def _case(case: Case, catalog: Catalog, suite: Suite) -> TypedCase:
    steps: list[TypedStep] = []
    events = 0
    for number, step in enumerate(case.steps, 1):
        try:
            steps.append(_step(step, catalog, events))
        except SqlError as error:
            place = f"{suite.path}, '{case.name}', step {number}"
            error.where = f"{place}, {error.where}" if error.where else place
            raise
        events += len(steps[-1].events)
    return TypedCase(case.name, tuple(steps))


def _step(step: Step, catalog: Catalog, before: int) -> TypedStep:
    """Args: `before` is the number of the test's events in earlier steps."""
    events: list[GivenEvent] = []
    for name, rows in step.given.items():
        source = _source(name, catalog)
        for row in rows:
            time = _FIRST_EVENT + dt.timedelta(milliseconds=before + len(events))
            events.append(_event(source, row, time))
    expected = tuple(_expected(name, each, catalog) for name, each in step.expect.items())
    return TypedStep(tuple(events), expected)


def _source(name: str, catalog: Catalog) -> Source:
    found = _definition(name, catalog)
    if isinstance(found, Source):
        return found
    raise InvalidQuery(f"'{name}' is a view: its rows follow from its inputs", hint=f"give {', '.join(found.inputs)}")


def _definition(name: str, catalog: Catalog) -> Source | View:
    known = [each.name for each in catalog.definitions() if isinstance(each, Source | View)]
    found = catalog.find(alike(name, known) or name)
    if not isinstance(found, Source | View):
        raise UnknownName.among("stream, table or view", name, known)
    return found


def _event(source: Source, given: Row | Deletion, time: dt.datetime) -> GivenEvent:
    types: dict[str, SqlType] = {column.name: column.type for column in source.columns}
    if isinstance(given, Deletion):
        key = _values(given.key, {name: types[name] for name in source.key}, f"the key of '{source.name}'")
        return GivenEvent(source.name, {**key, TOMBSTONE: True, ROWTIME: time})
    names_time = ROWTIME not in types
    row = _values(given, {**types, ROWTIME: t.TIMESTAMP} if names_time else types, f"'{source.name}'")
    return GivenEvent(source.name, {ROWTIME: time, **row} if names_time else row)


def _expected(name: str, each: Expected, catalog: Catalog) -> TypedExpected:
    found = _definition(name, catalog)
    if isinstance(found, View) and found.maintenance.state == "partial":
        hint = "test it without STATE = 'partial': the same rows come of it"
        raise InvalidQuery(
            f"'{name}' is a partial view: nothing is stored of it, so there are no rows to expect", hint=hint
        )
    types = {column.name: column.type for column in found.columns}

    def rows(given: list[Row] | None) -> ExpectedRows | None:
        if given is None:
            return None
        columns = tuple(dict.fromkeys(_resolved(column, types, f"'{name}'") for row in given for column in row))
        # Where rows are to be none, all columns are shown of those that are there.
        values = [_values(row, types, f"'{name}'", take_out=True) for row in given]
        complete = tuple({column: row.get(column) for column in columns} for row in values)
        return ExpectedRows(columns or tuple(types), complete)

    letters = None
    if each.dead_letters is not None:
        columns = tuple(dict.fromkeys(column for row in each.dead_letters for column in row))
        letters = ExpectedRows(columns, tuple({c: row.get(c) for c in columns} for row in each.dead_letters))
    return TypedExpected(found.name, types, rows(each.rows), rows(each.inserted), rows(each.retracted), letters)


def _values(row: Row, types: Mapping[str, SqlType], what: str, *, take_out: bool = False) -> dict[str, Any]:
    """A row by the columns' own names, its values as the columns hold them.

    Args:
        take_out: as rows are read (a TIME is a time of day); default: as they are inserted.
    """
    found: dict[str, Any] = {}
    for name, value in row.items():
        column = _resolved(name, types, what)
        place = f"column '{column}' of {what}"
        value = _in_utc(value)
        sql_type = types[column]
        put = assign_text(value, sql_type, place) if isinstance(value, str) else assign(value, sql_type, place)
        found[column] = shown(put, sql_type) if take_out else put
    return found


def _in_utc(value: object) -> object:
    """YAML's times without a zone are UTC, as all times are here."""
    return value.replace(tzinfo=dt.UTC) if isinstance(value, dt.datetime) and value.tzinfo is None else value


def _resolved(name: str, known: Iterable[str], what: str) -> str:
    known = list(known)
    found = name if name in known else alike(name, known)
    if found is None:
        raise UnknownName.among(f"column of {what}:", name, known)
    return found
