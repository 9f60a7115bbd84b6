"""The errors of SQL, sources and pipelines: the branches of the tree that `state_store.errors` opens.

StrandlineError
├── SqlError                      line and column of the fault
│   ├── SqlSyntaxError            sql.syntax
│   ├── UnknownName               sql.unknown_name            nearest names proposed
│   ├── NameTaken                 sql.name_taken
│   ├── NameInUse                 sql.name_in_use
│   ├── TypeMismatch              sql.type_mismatch
│   ├── InvalidQuery              sql.invalid_query
│   ├── OptionRefused             sql.option_refused
│   ├── FunctionRefused           sql.function_refused        names what the operator or the author must do
│   ├── NotSupported              sql.not_supported           names what is not there yet
│   ├── RecursionEndless          sql.recursion_endless       names the bound
│   └── NotBound                  sql.not_bound               an engine cannot bind a rule; names the engine
├── InternalError
│   └── ConditionLost             internal.condition_lost     names the condition
├── SourceError
│   ├── SourceUnavailable         source.unavailable          retry
│   ├── SourceDenied              source.denied               stop
│   ├── SourceBehind              source.behind               retry
│   ├── TopicMissing              source.topic_missing        stop
│   ├── TopicsElsewhere           source.topics_elsewhere     stop
│   ├── OffsetsVanished           source.offsets_vanished     stop
│   ├── TopicReplaced             source.topic_replaced       stop
│   ├── RecordsReplaced           source.records_replaced     stop
│   ├── DeltaMissing              source.delta_missing        stop
│   ├── DeltaUnsupported          source.delta_unsupported    stop    names the feature
│   ├── DeltaVersionGone          source.delta_version_gone   stop
│   ├── DeltaSchemaChanged        source.delta_schema_changed stop    names the column
│   ├── DeltaRowsRemoved          source.delta_rows_removed   stop
│   ├── ForeignMissing            source.foreign_missing      stop
│   ├── ForeignUnsupported        source.foreign_unsupported  stop    names the feature
│   ├── ForeignVersionGone        source.foreign_version_gone stop
│   ├── ForeignChanged            source.foreign_changed      stop    names the file or snapshot
│   ├── ForeignSchemaChanged      source.foreign_schema_changed stop  names the column
│   ├── ForeignRowsRemoved        source.foreign_rows_removed stop
│   ├── SourceTruncated           source.truncated            stop
│   └── EncodeFailed              source.encode_failed        stop
└── PipelineError
    ├── PipelineMissing           pipeline.missing            stop
    ├── RefreshFailed             pipeline.refresh_failed     stop
    ├── RowFailed                 pipeline.row_failed         stop
    ├── EngineRefused             pipeline.engine_refused     stop
    ├── FunctionFailed            pipeline.function_failed    stop
    ├── JvmLost                   pipeline.jvm_lost           retry
    ├── ViewsStopped              pipeline.views_stopped      as the first view's error
    ├── RangeInseparable          pipeline.range_inseparable  stop
    ├── EventsGone                pipeline.events_gone        restore
    └── ExpectationBroken         pipeline.expectation_broken stop

The errors of reading are in `jobs.serve.errors`, those of changelog topics in `jobs.publish.topic`.
"""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Self

from strandline.state_store.errors import Action, InternalError, StrandlineError
from strandline.state_store.wording import Name, Text, quoted, sentence

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.jobs.model.report import RunReport


class SqlError(StrandlineError):
    """A statement cannot be accepted. Nothing was changed. Stop: correct the statement.

    Args:
        line: 1-based line of the fault in the statement's text, when known.
        column: 1-based column of the fault.
    """

    code = "sql"

    def __init__(
        self, message: str, *, line: int | None = None, column: int | None = None, hint: str | None = None
    ) -> None:
        where = None if line is None else f"line {line}, column {column or 1}"
        super().__init__(message, where=where, hint=hint)
        self.line = line
        self.column = column

    def placed(self, line: int | None, column: int | None) -> Self:
        """Set the place of the fault, unless the error has one."""
        if self.line is None and line is not None:
            self.line, self.column = line, column
            self.where = f"line {line}, column {column or 1}"
        return self


class SqlSyntaxError(SqlError):
    """The text is not a statement of the language."""

    code = "sql.syntax"


class UnknownName(SqlError):
    """A stream, table, column, function or type that is not there.

    Attributes:
        of_lake: a lake has what was looked for, so which lake that was may be what is wrong.
        what: what was looked for, in words.
    """

    code = "sql.unknown_name"
    of_lake = False
    what = ""

    @classmethod
    def among(
        cls, what: str, name: str, known: Iterable[str], *, line: int | None = None, column: int | None = None
    ) -> UnknownName:
        """Build the error for a name of a `what` ("column", "table"), with the nearest known names as the hint."""
        known = tuple(sorted(set(known)))
        close = _nearest(name, known)
        shown = close or known[:8]
        hint = None
        if close:
            hint = f"did you mean {' or '.join(repr(n) for n in close)}?"
        elif shown:
            hint = f"known: {', '.join(shown)}{', …' if len(known) > len(shown) else ''}"
        made = cls(f"unknown {what} '{name}'", line=line, column=column, hint=hint)
        made.of_lake, made.what = what in _OF_A_LAKE, what
        return made


@lru_cache(maxsize=256)  # whoever tries whether a name is there asks for the same one again and again
def _nearest(name: str, known: tuple[str, ...]) -> list[str]:
    return get_close_matches(name, known, n=3, cutoff=0.6)


_OF_A_LAKE = {
    *("stream, table or view", "stream or table", "stream", "table or view", "view or keyed table"),
    *("pipeline", "topic"),
}


class NameTaken(SqlError):
    """The name is defined already, differently."""

    code = "sql.name_taken"


class NameInUse(SqlError):
    """Something that others read cannot be dropped or changed."""

    code = "sql.name_in_use"


class TypeMismatch(SqlError):
    """An expression or value does not have the type its place asks for."""

    code = "sql.type_mismatch"


class InvalidQuery(SqlError):
    """The query is well formed and means nothing: a column neither grouped nor aggregated, a missing key."""

    code = "sql.invalid_query"


class OptionRefused(SqlError):
    """A WITH option outside the allow-list, or with a value it cannot have."""

    code = "sql.option_refused"


class FunctionRefused(SqlError):
    """The Python of a function is not allowed, cannot be imported, or lacks what a function must have."""

    code = "sql.function_refused"


class NotSupported(SqlError):
    """Part of the language that Strandline does not maintain yet; the message names it."""

    code = "sql.not_supported"


class RecursionEndless(SqlError):
    """Rows still follow from others after the last round that a WITH RECURSIVE may take. Nothing is stored. Stop: say
    how many it may take, or leave out what leads in circles."""

    code = "sql.recursion_endless"

    @classmethod
    def of(cls, rounds: str) -> RecursionEndless:
        """Build the error for a recursion that is not at its end after so many rounds."""
        return cls(
            f"WITH RECURSIVE goes on beyond {rounds} rounds",
            hint="WITH RECURSIVE r MAX RECURSION LEVEL n AS (…) says how many it may take; over rows that lead in a "
            "circle, UNION without ALL ends, or a WHERE on the depth",
        )


class NotBound(SqlError):
    """An engine cannot bind a text that the statement's rows would be maintained by: a fault of Strandline."""

    code = "sql.not_bound"

    @classmethod
    def by(cls, engine: str, what: str, said: str) -> NotBound:
        """Build the error for a text, in words, and the engine's message."""
        return cls(
            f"{engine} cannot bind {what}: {said.strip().splitlines()[0]}",
            hint="nothing is stored; report it with the statement, and write the query otherwise meanwhile",
        )


class ConditionLost(InternalError):
    """A plan, or the text of a rule, lacks a part of its query: a fault of Strandline. Nothing was changed. Stop."""

    code = "internal.condition_lost"

    @classmethod
    def of(cls, view: str, part: str) -> ConditionLost:
        """Build the error for a part of a view's query: a condition with its clause, or a relation."""
        return cls(
            sentence("the plan of '{}' lacks a part of its query: {}", Name(view), part),
            where=Text(Name(view)),
            hint="report it with the statement; the same condition in a view of its own below this one may be kept",
        )


class SourceError(StrandlineError):
    """Base of the errors of topics and formats."""

    code = "source"


class SourceUnavailable(SourceError):
    """The broker or the registry does not answer. Retry."""

    code = "source.unavailable"
    action = Action.RETRY


class SourceDenied(SourceError):
    """The broker is there, and TLS or the authentication fails. Stop: correct the settings that the hint names."""

    code = "source.denied"


class SourceBehind(SourceError):
    """What was asked needs events that are not taken in yet. Retry after a run of the pipeline."""

    code = "source.behind"
    action = Action.RETRY


class TopicMissing(SourceError):
    """The topic is not there. Stop: create it, or correct KAFKA_TOPIC."""

    code = "source.topic_missing"


class TopicsElsewhere(SourceError):
    """The lake's topics are Kafka's and the settings lead to its files, or the other way round. Stop: correct the
    setting that the hint names."""

    code = "source.topics_elsewhere"


class OffsetsVanished(SourceError):
    """Records between the last offset read and the first one kept were removed (retention). Stop: they are lost."""

    code = "source.offsets_vanished"


class TopicReplaced(SourceError):
    """The topic is another one than the events were read from: deleted, and made again under its name. Stop: drop the
    source and create it again to read the new one."""

    code = "source.topic_replaced"


class RecordsReplaced(SourceError):
    """Records that were read are not in the topic any more, and others stand at their offsets: a broker that did not
    have them was elected leader. Stop: rebuild the source."""

    code = "source.records_replaced"


class DeltaMissing(SourceError):
    """There is no Delta table at the place that a source names. Stop: correct DELTA = …, or the rights to read it."""

    code = "source.delta_missing"


class DeltaUnsupported(SourceError):
    """A Delta table uses a feature that is not read; the message names it. Stop: nothing of it was taken in."""

    code = "source.delta_unsupported"


class DeltaVersionGone(SourceError):
    """A version of a Delta table, or a file of it, was removed before it was read (VACUUM, log retention). Stop: put
    the files back, or drop the source and create it again from a version that is still there."""

    code = "source.delta_version_gone"


class DeltaSchemaChanged(SourceError):
    """A column of a Delta table is not what the source declares any more. Stop: drop the source and create it again."""

    code = "source.delta_schema_changed"


class DeltaRowsRemoved(SourceError):
    """A commit of a Delta table takes rows away, and the source is a stream. Stop: declare it as a table."""

    code = "source.delta_rows_removed"


class ForeignMissing(SourceError):
    """There is no Iceberg table or folder of Parquet files at the place that a source names. Stop: correct it."""

    code = "source.foreign_missing"


class ForeignUnsupported(SourceError):
    """An Iceberg table or a Parquet file uses what is not read; the message names it. Stop: nothing was taken in."""

    code = "source.foreign_unsupported"


class ForeignVersionGone(SourceError):
    """A snapshot of an Iceberg table, or a file of a table or folder, was removed before it was read. Stop: put it
    back, or drop the source and create it again."""

    code = "source.foreign_version_gone"


class ForeignChanged(SourceError):
    """What was taken in of an Iceberg table or a folder is not there any more as it was: a file was overwritten or
    removed, a table rolled back. Stop: undo it, or drop the source and create it again."""

    code = "source.foreign_changed"


class ForeignSchemaChanged(SourceError):
    """A column of an Iceberg table or a Parquet file is not what the source declares. Stop: drop the source and create
    it again."""

    code = "source.foreign_schema_changed"


class ForeignRowsRemoved(SourceError):
    """A snapshot of an Iceberg table takes rows away, and the source is a stream. Stop: declare it as a table."""

    code = "source.foreign_rows_removed"


class SourceTruncated(SourceError):
    """The table that a change stream is of was emptied by TRUNCATE. Stop: read a topic with a new snapshot."""

    code = "source.truncated"


class EncodeFailed(SourceError):
    """A value cannot be written in the topic's format. Nothing was written."""

    code = "source.encode_failed"


class PipelineError(StrandlineError):
    """Base of the errors of running pipelines."""

    code = "pipeline"


class PipelineMissing(PipelineError):
    """No pipeline of that name. Stop: `strandline apply FILE.sql` registers one."""

    code = "pipeline.missing"


class RefreshFailed(PipelineError):
    """A view could not be refreshed; its table stands at its last commit. Stop: the cause is in the message."""

    code = "pipeline.refresh_failed"


class RowFailed(PipelineError):
    """An expression has no value for a row: division by zero, overflow, a text that is no number. Stop: the view is at
    its last commit; leave such rows out, or declare `ERRORS = 'dead_letter'`."""

    code = "pipeline.row_failed"


class EngineRefused(PipelineError):
    """The engine cannot run a rule: it lacks a function, or memory. Stop: nothing is stored; let the other run it."""

    code = "pipeline.engine_refused"


class FunctionFailed(PipelineError):
    """The Python of a function raised, or gave a value not of its type. Stop: the view is at its last commit."""

    code = "pipeline.function_failed"


class JvmLost(PipelineError):
    """The JVM of a run ended while it was at work. Retry: a run goes on from what is committed."""

    code = "pipeline.jvm_lost"
    action = Action.RETRY

    @classmethod
    def of(cls, how: str) -> JvmLost:
        """Build the error for a JVM that ended so."""
        return cls(
            f"Spark's JVM {how} while the run was at work",
            hint="run again: it goes on from what is committed; where the system ends it for want of memory (dmesg "
            "says so), give it less with STRANDLINE_SPARK__DRIVER_MEMORY, or the machine more",
        )


class ViewsStopped(PipelineError):
    """Some views of a run failed; the others, and every event, are committed. Do as the first error says.

    Args:
        failures: {view: its error}.
        report: the work that the run did nevertheless.
    """

    code = "pipeline.views_stopped"

    def __init__(self, failures: dict[str, StrandlineError], report: RunReport) -> None:
        first = next(iter(failures.values()))
        names = quoted(failures)
        super().__init__(sentence("stopped: {}; {}", names, first.message), where=first.where, hint=first.hint)
        self.failures = failures
        self.report = report
        self.action = first.action


class RangeInseparable(PipelineError):
    """The rows of a range of time cannot be separated from a view's other rows, so they cannot be recomputed alone.
    Nothing was changed. Stop: rebuild the whole view, or name another column."""

    code = "pipeline.range_inseparable"


class EventsGone(PipelineError):
    """Rows cannot be recomputed: retention has removed the beginning of the event log, and with it events that those
    rows reflect. Nothing was changed. Restore the view from a backup, or drop it and create it again, so that it begins
    with the events that are left."""

    code = "pipeline.events_gone"
    action = Action.RESTORE


class ExpectationBroken(PipelineError):
    """The rows of a table break a blocking expectation: the table is fresh, and its readers stay at an earlier version.
    Stop: correct the rows or the expectation; the readers then go on by themselves."""

    code = "pipeline.expectation_broken"


# Errors out of text: an error that crossed a JVM or a worker process comes back as the words of its trace.


def revive(text: str) -> StrandlineError:
    """Build the typed error that a text carries, as printed by `str(error)` somewhere inside a stack trace.

    Errors raised in Spark's Python workers and callbacks come back as text; their codes let us find the class again.
    A text without a code becomes `RefreshFailed` with its first lines.
    """
    # One is made of the errors of views, which each come by themselves.
    classes = {cls.code: cls for cls in _all_errors(StrandlineError) if cls is not ViewsStopped}
    codes = "|".join(map(re.escape, classes))
    found = re.search(rf"\[({codes})\] ([^\n]+)(?:\n  hint: ([^\n]+))?", text)
    if found is None:
        cause = re.search(r"\n\w*(?:Error|Exception): [^\n]+", text)
        return RefreshFailed(f"the streaming query stopped: {(cause.group().strip() if cause else text)[:500]}")
    code, message, hint = found.groups()
    return classes[code].revived(message, hint)


def _all_errors(root: type[StrandlineError]) -> Iterator[type[StrandlineError]]:
    yield root
    for child in root.__subclasses__():
        yield from _all_errors(child)
