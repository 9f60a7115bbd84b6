"""The definitions that a catalog holds, with their options as typed values; and when two of them mean the same.

Sources, views, queries that insert into streams, and functions. Plain values; `jobs.catalog.catalog` stores them, the
planner turns views into stages. CREATE checks options (`jobs.session.define`); here they are read. Those that change
how a view is maintained:

| option | values | says |
| --- | --- | --- |
| SEMANTICS | `sql`, `ksql` | what an empty group and a NULL key are |
| STATE | `full`, `shared` | whether inner stages are the view's own, or read by every view that has the same |
| | `partial` | nothing is stored: a reader computes a key when it is asked for, and keeps it while it is used |
| CACHE_BYTES | a number | the most memory that a reader keeps rows of a partial view in |
| REFRESH | `auto`, `incremental`, `full` | apply changes, recompute in full, or whatever is cheaper |
| ERRORS | `dead_letter`, `stop`, `null` | what happens to a row on which an expression fails |
| TIMESTAMP, TIMESTAMP_FORMAT | a column, a pattern | the time of the view's rows, when it is not that of their events |
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, cast

from strandline.jobs.model.types import SqlType

Semantics = Literal["sql", "ksql"]
State = Literal["full", "shared", "partial"]
Refresh = Literal["auto", "incremental", "full"]
ErrorPolicy = Literal["dead_letter", "stop", "null"]

CACHE_BYTES: Final = 64 << 20
"""Of each partial view in each reading process: some hundred thousand small rows."""


@dataclass(frozen=True)
class ViewOptions:
    """The options that change how a view is maintained; those of its topic are not among them."""

    semantics: Semantics = "sql"
    state: State = "full"
    cache_bytes: int = CACHE_BYTES
    refresh: Refresh = "auto"
    errors: ErrorPolicy = "dead_letter"
    timestamp: str | None = None
    timestamp_format: str | None = None

    @classmethod
    def read(cls, options: Mapping[str, str]) -> ViewOptions:
        """Read options that CREATE has checked (`jobs.session.define.view_options`).

        ksqlDB gives NULL where an expression fails; where its semantics are asked for, that is the default.
        """
        semantics = cast(Semantics, options.get("SEMANTICS", "sql"))
        errors = options.get("ERRORS", "null" if semantics == "ksql" else "dead_letter")
        return cls(
            semantics=semantics,
            state=cast(State, options.get("STATE", "full")),
            cache_bytes=int(options.get("CACHE_BYTES", CACHE_BYTES)),
            refresh=cast(Refresh, options.get("REFRESH", "auto")),
            errors=cast(ErrorPolicy, errors),
            timestamp=options.get("TIMESTAMP"),
            timestamp_format=options.get("TIMESTAMP_FORMAT"),
        )


# Ownership of a source or view: what it is for people, who answers for it, how fresh it must be, and what its rows are
# expected to be.
#
# | option | value | says |
# | --- | --- | --- |
# | OWNER | `team:logistics, ann@example.org` | who answers for it |
# | TAGS | `domain=parcels, internal` | labels for people and tools |
# | FRESHNESS | `5 seconds`, `downstream` | how long an event may wait for the rows (`jobs.run.schedule`) |
# | EXPECT | expectations, as YAML | what is checked of the rows (`jobs.operate.health_checks`) |
# | DESCRIPTION | a text, Markdown | what it is, for people |
# | ORIGIN | a text | what its SQL was made from: a function in Python, a model of dbt |
#
# Rows depend on none of these but expectations with quarantine, which are part of the view's query
# (`jobs.query.clauses.quarantine`). All others may change at any time, also beside a running stream.

OWNERSHIP_OPTIONS: Final = ("OWNER", "TAGS", "FRESHNESS", "EXPECT", "DESCRIPTION", "ORIGIN")

DOWNSTREAM: Final = "downstream"
"""The FRESHNESS of rows that are refreshed when what reads them is."""

Severity = Literal["error", "warn"]


@dataclass(frozen=True)
class Expectation:
    """One expectation of Great Expectations: its name and arguments there, and what happens if it is broken.

    Attributes:
        severity: `warn` is shown, `error` makes the check fail.
        blocking: nothing is computed from a version of the view that breaks it (`jobs.expect.expectations`).
        quarantine: rows that break it are in the view's dead letters, and never in the view.
    """

    type: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    severity: Severity = "error"
    blocking: bool = False
    quarantine: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that the arguments name."""
        named = [value for name, value in self.arguments.items() if name in ("column", "column_A", "column_B")]
        return tuple(str(each) for each in (*named, *self.arguments.get("column_list", ())))

    @property
    def name(self) -> str:
        """Name of its check: the expectation's, with its columns."""
        return "__".join((self.type, *self.columns))


@dataclass(frozen=True)
class Ownership:
    """Who owns a definition, and what its owners promise of it.

    Attributes:
        owners: `team:NAME` or addresses.
        tags: {key: value}; the value of a tag without one is empty.
        freshness_seconds: None when there is no target.
        downstream: the rows are refreshed when what reads them is, and have no target of their own.
        description: what it is, for people; Markdown.
        origin: what its SQL was made from.
    """

    owners: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)
    freshness_seconds: float | None = None
    downstream: bool = False
    expectations: tuple[Expectation, ...] = ()
    description: str | None = None
    origin: str | None = None

    @property
    def patience(self) -> float | None:
        """For how many seconds the rows may lack what has come; None: they are refreshed with each epoch."""
        return math.inf if self.downstream else self.freshness_seconds

    @property
    def quarantined(self) -> tuple[Expectation, ...]:
        """Expectations that keep broken rows out of the view."""
        return tuple(each for each in self.expectations if each.quarantine)

    @property
    def blocking(self) -> tuple[Expectation, ...]:
        """Expectations that keep readers from a version that breaks them."""
        return tuple(each for each in self.expectations if each.blocking and each.severity == "error")

    @classmethod
    def read(cls, options: Mapping[str, str]) -> Ownership:
        """Read the options in the form that `jobs.session.define.view_options` gives them."""
        freshness = options.get("FRESHNESS")
        return cls(
            owners=tuple(options["OWNER"].split(", ")) if "OWNER" in options else (),
            tags=json.loads(options.get("TAGS", "{}")),
            freshness_seconds=None if freshness is None or freshness == DOWNSTREAM else float(freshness),
            downstream=freshness == DOWNSTREAM,
            expectations=tuple(Expectation(**each) for each in json.loads(options.get("EXPECT", "[]"))),
            description=options.get("DESCRIPTION"),
            origin=options.get("ORIGIN"),
        )


def written_elsewhere(source: Source) -> str:
    """What to do instead of writing into a source of others, in words."""
    if source.change_stream:
        return f"its rows are those of a table in a database, whose changes Debezium writes to '{source.topic}'"
    what = "" if source.foreign else "its topic "
    return f"others write {what}'{source.upstream}', and the next run reads what they wrote"


def without_ownership(options: Mapping[str, str]) -> dict[str, str]:
    """Leave out the options on which no row depends: those of ownership and retention. Expectations with quarantine do
    keep rows out, but they are in the view's fingerprint."""
    left_out = (*OWNERSHIP_OPTIONS, *RETENTION_OPTIONS)
    return {name: value for name, value in options.items() if name not in left_out}


# The retention of an event log: the options of a source that say how old and how large its log may grow.
#
# | option | value | says |
# | --- | --- | --- |
# | RETENTION_MS | milliseconds | events that are older go, file by file |
# | RETENTION_BYTES | bytes | the oldest go as long as what stays has that many |
#
# -1 stands for no end, as in Kafka. No row of a view depends on them: what was counted of an event stays counted.

TICK: Final = "TICK_EVERY"
"""The option of a table that makes it the clock of its lake: how often the time is written there, in milliseconds."""
RETENTION_OPTIONS: Final = ("RETENTION_MS", "RETENTION_BYTES")
NO_END: Final = -1


@dataclass(frozen=True)
class LogRetention:
    """Limits of an event log; None: no limit.

    Attributes:
        age_ms: of an event, in milliseconds of its event time before now.
        size: bytes of data files.
    """

    age_ms: int | None = None
    size: int | None = None

    @classmethod
    def read(cls, options: Mapping[str, str], default_ms: int | None = None) -> LogRetention:
        """Read the options of a source.

        Args:
            default_ms: the age where they say none.
        """
        age, size = (int(options[name]) if name in options else None for name in RETENTION_OPTIONS)
        age = default_ms if age is None else age
        return cls(None if age == NO_END else age, None if size == NO_END else size)

    @property
    def endless(self) -> bool:
        """True if events are kept for ever."""
        return self.age_ms is None and self.size is None


Kind = Literal["stream", "table"]
"""A stream only grows: its rows are events. A table has one row per key, that can change and go."""


ALL_HEADERS = "*"
"""What `Column.header` says of a HEADERS column, which holds them all."""

FOREIGN_OPTIONS = ("DELTA", "ICEBERG", "PARQUET")
"""Options of a source that name a table of others, which it is over; each is the format of its rows, too."""

CHANGE_FORMATS = ("DEBEZIUM_JSON", "DEBEZIUM_AVRO")
"""Formats of values that say of each record whether its row comes or goes."""


@dataclass(frozen=True)
class Column:
    """A visible column.

    Attributes:
        key: it comes from (and goes to) the record's key.
        header: of a source, it comes from the record's headers: the name of one, or `ALL_HEADERS`. Nobody writes it.
        required: of a source, it is NOT NULL: a record without it is a dead letter.
    """

    name: str
    type: SqlType
    key: bool = False
    header: str | None = None
    required: bool = False

    @property
    def part(self) -> Literal["key", "value", "headers"]:
        """The part of a record that holds the column."""
        return "headers" if self.header is not None else "key" if self.key else "value"


@dataclass(frozen=True)
class Source:
    """`CREATE STREAM|TABLE name (…) WITH (KAFKA_TOPIC=…)`: a topic and how to read it.

    A stream's event log is the table `name`. A table's event log is `name__log`; the table `name` keeps, per key, the
    newest row of the log, and deletes the key at a null value.

    Attributes:
        added: how many of the last columns it was given after it was made. Records from before do not have them.
    """

    name: str
    kind: Kind
    columns: tuple[Column, ...]
    topic: str
    key_format: str
    value_format: str
    pipeline: str
    sql: str
    partitions: int = 1
    replicas: int = 1
    timestamp: str | None = None
    timestamp_format: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    read_only: bool = False
    """CREATE SOURCE …: others write the topic; nothing is inserted here."""
    added: int = 0

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if c.key)

    @property
    def foreign(self) -> bool:
        """True if its rows are those of a table that others write, not of a topic."""
        return any(option in self.options for option in FOREIGN_OPTIONS)

    @property
    def change_stream(self) -> bool:
        """True if its records are the changes of a database's table, which others write."""
        return self.value_format in CHANGE_FORMATS

    @property
    def upstream(self) -> str:
        """Where its rows come from, for people: the topic, or the foreign table."""
        return next((self.options[each] for each in FOREIGN_OPTIONS if each in self.options), self.topic)

    @property
    def bag(self) -> bool:
        """True for a table without a key: its rows are told apart by their values, and equal ones are counted."""
        return self.kind == "table" and not self.key


@dataclass(frozen=True)
class View:
    """`CREATE STREAM|TABLE|MATERIALIZED VIEW name AS SELECT …`: a maintained view.

    Attributes:
        kind: `stream` when its rows are events: a filter or projection of a stream, a join of streams.
        columns: visible columns, in order; `key` marks those that are the record's key.
        query: the SELECT, in our dialect.
        inputs: the names it reads.
        fingerprint: hash of what its rows depend on: the query and the definitions of its inputs' columns.
        storage: `append` when rows are only ever added; `keyed` when they change and go, which those of a stream do
            where a late event of a join retracts the padded row of an earlier one.
        hidden: columns that are kept beside the visible ones and can be read by name.
        row_key: of a `keyed` view, the columns that identify a row, visible and hidden ones.
        identity: of an `append` view, the columns that tell one row from another.
        first_stage: the number of its first inner stage. One that took the place of another definition goes on where
            that ended, so the tables of the two stand beside each other.
        by_value: different values of its groups have rows of their own in inner stages: those of no call (0); of COUNT,
            SUM and AVG of DISTINCT values and MODE (1); of all calls that can (2). A view goes on as it was made, with
            the arrays that it has.
        plain_stars: `*` over joins has the columns' own names. One that was made before goes on with the input's name
            before each of them.
    """

    name: str
    kind: Kind
    columns: tuple[Column, ...]
    query: str
    inputs: tuple[str, ...]
    pipeline: str
    sql: str
    fingerprint: str
    materialized: bool = False
    options: dict[str, str] = field(default_factory=dict)
    storage: Literal["append", "keyed"] = "append"
    hidden: tuple[Column, ...] = ()
    row_key: tuple[str, ...] = ()
    identity: tuple[str, ...] = ("_partition", "_offset")
    first_stage: int = 1
    columns_seen: dict[str, int] = field(default_factory=dict)
    by_value: int = 0
    plain_stars: bool = False

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns if c.key)

    @property
    def maintenance(self) -> ViewOptions:
        """Options that say how the view is maintained, typed."""
        return ViewOptions.read(self.options)

    @property
    def partial(self) -> bool:
        """True if no rows are stored: `jobs.partial` computes the keys that readers look up."""
        return self.maintenance.state == "partial"


@dataclass(frozen=True)
class PlainView:
    """`CREATE VIEW name AS SELECT …`: a name for a query. Nothing is stored: what reads it has the query in its place.

    Attributes:
        query: the SELECT, in our dialect; it may read other plain views.
        inputs: the names that its text says, with those of plain views.
    """

    name: str
    columns: tuple[Column, ...]
    query: str
    inputs: tuple[str, ...]
    pipeline: str
    sql: str


@dataclass(frozen=True)
class InsertQuery:
    """`INSERT INTO stream SELECT …`: one more query that feeds a stream.

    `number` begins at 1 and leaves out what the branches of a UNION ALL take. The rows it brings have partition
    `number * 65536 + p`, where p and the offset are those of the event they came from: unique, and in the order of the
    events. The query belongs to its target's pipeline, since a table has one writer. It is `identified` when no event
    brings several rows. `columns_seen` is as that of `View`.
    """

    target: str
    number: int
    query: str
    inputs: tuple[str, ...]
    pipeline: str
    sql: str
    fingerprint: str
    identified: bool = True
    columns_seen: dict[str, int] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.target}__insert_{self.number}"


@dataclass(frozen=True)
class Function:
    """`CREATE [AGGREGATE] FUNCTION name(…) RETURNS type LANGUAGE PYTHON AS 'module:attribute'`.

    Functions have a namespace of their own: a table may have the same name. They belong to no pipeline.

    Attributes:
        name: upper case.
        source: hash of the module's text: the rows of a view that calls the function depend on it.
        retracts: an aggregate that can retract values; otherwise a group that loses one is computed again.
    """

    name: str
    parameters: tuple[Column, ...]
    returns: SqlType
    module: str
    attribute: str
    source: str
    sql: str
    aggregate: bool = False
    retracts: bool = False


Definition = Source | View | InsertQuery


# The meaning of a definition: what statements that say the same have in common, however they say it.


def same(left: Definition, right: Definition) -> bool:
    """True if two definitions mean the same; their text and pipeline do not count."""
    return _meaning(left) == _meaning(right)


def gives_the_same_rows(left: Definition, right: Definition) -> bool:
    """True if two definitions differ at most in their ownership, on which no row depends."""
    return same(_unowned(left), _unowned(right))


def _unowned(definition: Definition) -> Definition:
    if isinstance(definition, InsertQuery):
        return definition
    return replace(definition, options=without_ownership(definition.options))


def _meaning(definition: Definition) -> Definition:
    if isinstance(definition, Source):
        return replace(definition, sql="", pipeline="", added=Source.added)
    if isinstance(definition, View):
        definition = replace(definition, first_stage=View.first_stage, by_value=View.by_value, plain_stars=False)
    return replace(definition, sql="", pipeline="", query="", columns_seen={})  # the fingerprint stands for its meaning
