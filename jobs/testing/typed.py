"""A suite with types: its events and expected rows as values of the columns that the definitions declare."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from strandline.jobs.ingest.produce import ROWTIME, TOMBSTONE
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Source, View
from strandline.jobs.model.errors import InvalidQuery, SqlError, UnknownName
from strandline.jobs.model.tables import alike
from strandline.jobs.serve.values import shown
from strandline.jobs.session.conversions import assign, assign_text
from strandline.jobs.testing.suite import Deletion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.model.types import SqlType
    from strandline.jobs.testing.compare import Values
    from strandline.jobs.testing.suite import Case, Expected, Row, Step, Suite

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
