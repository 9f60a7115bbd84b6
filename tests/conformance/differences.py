"""The deliberate differences from ksqlDB: every case that is skipped is skipped by one of these, with its reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.conformance.cases import Case
from tests.conformance.times import joins_out_of_order, passed_together


@dataclass(frozen=True)
class Difference:
    """Cases that are not run.

    Attributes:
        title: what is different, in a few words.
        reason: why.
        statements: a pattern (letters' case does not matter) found in the statements of a case that must run.
        refusal: a pattern found in what ksqlDB says when it refuses: of cases that must be refused.
        when: says for a case whether it is meant.
        cases: `file: name` of single cases.
    """

    title: str
    reason: str
    statements: str | None = None
    refusal: str | None = None
    when: Callable[[Case], bool] | None = None
    cases: frozenset[str] = field(default_factory=frozenset)

    def covers(self, case: Case) -> bool:
        if f"{case.file}: {case.name}" in self.cases or (self.when is not None and self.when(case)):
            return True
        pattern, text = (self.refusal, case.message) if case.refused else (self.statements, case.text)
        return bool(pattern and re.search(pattern, text, re.IGNORECASE | re.DOTALL))


def _skips_odd_times(case: Case) -> bool:
    return "LogAndSkip" in case.properties.get("ksql.streams.default.timestamp.extractor", "")


def _keys_only(case: Case) -> bool:
    """A source declares nothing but its key or its headers: the value's columns are in the topic's schema."""
    only = r"(\w+\s+(PRIMARY\s+)?KEY|ARRAY<STRUCT<[^)]*>>\s+HEADERS)"
    declared = rf"\bCREATE\s+(STREAM|TABLE)\s+[\w`]+\s*\(\s*[\w`]+\s+{only}\s*\)"
    schemas = any("valueSchema" in topic for topic in case.topics)
    return schemas and not case.refused and bool(re.search(declared, case.text, re.IGNORECASE))


def _plain(message: str) -> str:
    return message.replace("'", "")


def _written_in_another_format(case: Case) -> bool:
    """A view is refused because its topic's format cannot hold its columns."""
    about = r"format does not support|Avro only supports|not compatible with Avro|WRAP_SINGLE"
    return case.refused and " AS SELECT" in case.statements[-1].upper() and bool(re.search(about, _plain(case.message)))


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        "columns from a schema registry",
        "the case gives its schemas to a registry of its own runner; CREATE takes columns from ours, once",
        statements=r"CREATE\s+(OR\s+REPLACE\s+)?(SOURCE\s+)?(STREAM|TABLE)\s+[\w`]+\s+WITH\s*\([^)]*\)\s*;",
    ),
    Difference(
        "a value that only the registry knows",
        "the statement shows a key, and the case gives the value's schema to a registry of its own runner",
        when=_keys_only,
    ),
    Difference(
        "a key that only the registry knows",
        "ROWKEY names the key column of a schema that the case gives to a registry of its own runner",
        statements=r"\bROWKEY\b[^;]*\bON\b[^;]*\bROWKEY\b",
    ),
    Difference(
        "columns of a view from a schema id",
        "a view has the columns that its SELECT gives; a schema that adds some would change what it means",
        statements=r"_SCHEMA_ID\s*=[^;]*\bAS\s+SELECT\b",
    ),
    Difference(
        "topics whose keys carry a window",
        "WINDOW_TYPE of a source reads keys in Kafka Streams' own binary form; a view of Strandline gives "
        "its window's bounds as columns",
        statements=r"\bWINDOW_TYPE\s*=",
    ),
    Difference(
        "functions of ksqlDB's own test jar",
        "they are written in Java for these cases and are part of no release",
        statements=r"\b(TEST_(UDF|UDAF|UDTF)|(BAD|THROWING|ERROR_THROWING)_(UDF|UDAF|UDTF)|TOSTRUCT"
        r"|(\w+_)?(VAR|FOUR|FIVE|MULTI|COL)_ARG|WHEN(CONDITION|RESULT))\s*\(",
    ),
    Difference(
        "EMIT FINAL, several windows closed at once",
        "every window that has closed is shown; Kafka Streams leaves out those that close together with a later one",
        when=passed_together,
    ),
    Difference(
        "an event joins the table as of its time",
        "whatever arrives first, the same rows join; Kafka Streams joins in the order of arrival",
        when=joins_out_of_order,
    ),
    Difference(
        "the clock's time",
        "UNIX_TIMESTAMP() and UNIX_DATE() are refused: a view gives the same rows whenever it is computed, and ROWTIME "
        "is the time of the event",
        statements=r"\bUNIX_(TIMESTAMP|DATE)\s*\(\s*\)",
    ),
    Difference(
        "names fold to lower case",
        "as in PostgreSQL; ksqlDB folds to upper case, which shows where names become text, or meet quoted ones",
        cases=frozenset(
            {
                "to_json_string.json: convert STRUCT to JSON string",
                "create-struct.json: quoted identifiers",
            }
        ),
    ),
    Difference(
        "a fraction for an INT",
        "it is a dead letter: nothing of a record is cut off silently",
        cases=frozenset({"math.json: trunc - integer"}),
    ),
    Difference(
        "text after a JSON document",
        "it makes the text no JSON, so there is nothing to extract; ksqlDB's parser stops reading before it",
        cases=frozenset({"extract-json-field.json: concat two extracted fields"}),
    ),
    Difference(
        "STRUCT() without fields",
        "Parquet has no such type",
        statements=r"\bSTRUCT\(\s*\)",
    ),
    Difference(
        "SELECT * of a join, with PARTITION BY",
        "`*` is the columns; ksqlDB adds the pseudo columns of both sides there, and there only",
        statements=r"SELECT\s+\*\s+FROM[^;]*\bJOIN\b[^;]*\bPARTITION\s+BY\b",
    ),
    Difference(
        "limits that are not ours",
        "self joins, several join conditions, foreign keys in joins of many tables, partitions that differ, aggregates "
        "whatever the format and over tables, JSON where no format is said, a topic of the name where none is said, "
        "numbers of several types in GREATEST are accepted",
        refusal=r"self joins are not|joins on multiple conditions|foreign-key table-table joins are not supported as"
        r"|number of partitions|does not yet support (GROUP BY|JOIN)|intermediate type that the value format"
        r"|missing the '(KEY|VALUE)_FORMAT' property|Missing required property .KAFKA_TOPIC"
        r"|cannot be applied to a table source|ambiguous method parameters \((INTEGER|BIGINT|DOUBLE|, )+\)",
    ),
    Difference(
        "formats of a view's topic",
        "a view is a table of the lake; what a topic's format can hold is checked where a topic is written",
        when=_written_in_another_format,
    ),
    Difference(
        "a record that fails at run time",
        "the statements are good, and ERRORS says what becomes of the row; the case wants ksqlDB's query to end",
        when=lambda case: case.at_run_time,
    ),
    Difference(
        "times before 1970",
        "they are times like others; Kafka's extractor for invalid times takes a negative one for no time",
        when=_skips_odd_times,
    ),
)


def skipped(case: Case) -> str | None:
    """Why a case is not run; None when it is."""
    if case.skip is not None:
        return case.skip
    found = next((difference for difference in DIFFERENCES if difference.covers(case)), None)
    return f"{found.title}: {found.reason}" if found else None
