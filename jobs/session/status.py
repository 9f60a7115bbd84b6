"""The status of every pipeline, from the commit records alone: no JVM, no rows read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.ingest.lag import lag
from strandline.jobs.ingest.logs.open import open_log
from strandline.jobs.ivm.refresh.late import late_in
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, InsertQuery, Source, View
from strandline.jobs.model.errors import SourceError
from strandline.jobs.operate.quality.freshness import Waiting
from strandline.jobs.operate.quality.hindrances import Hindrance, Hindrances
from strandline.jobs.publish.topic import published, topic_as_source
from strandline.jobs.serve.results import Rows
from strandline.state_store.delta import reader
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.errors import CommitsLost, CorruptState, StoreError, TableLost
from strandline.state_store.layout import LakeLayout, check_lake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from strandline.jobs.catalog.stored_definition import Broken
    from strandline.jobs.model.settings import Settings

_NAMES = ("pipeline", "table", "kind", "version", "epoch", "rows", "lag", "lag_unit", "late", "state")
_TOPIC = "changelog topic"
_Row = tuple[str | None, str, str, int | None, int | None, int | None, int | None, str, int | None, str]
_Lag = tuple[int | None, str, str | None]
"""A lag, its unit, and where it is not known the code of the error."""


def status(settings: Settings) -> Rows:
    """One row for each table of each pipeline, and one for each definition whose file is broken.

    `lag` counts what the table does not reflect yet: events of the topic for an event log, versions of its inputs for a
    view, but for those that were found to change none of its rows, versions of the view for its changelog topic. It is
    null when the broker does not answer. `late` counts the rows that came too late for a view's windows and are left
    out; it is null where no row is ever late. `state` is `fresh`, or `behind` by the lag or what waits anywhere above a
    view; `held` or `stopped` for a view that does not go on (`jobs.operate.quality.hindrances`), `never run` before
    the first commit, `never published` before a topic's first write, `partial` where nothing is stored, `broken`, or
    the code of the error that hides the lag.

    Raises:
        ObjectMissing: there is no lake.
        TopicsElsewhere: the settings do not lead to the lake's topics.
    """
    lake = LakeLayout(settings.lake)
    check_lake(lake)
    catalog = Catalog(lake)
    heads = WholeHeads(lake)
    log, hindrances = Lags(settings, heads, catalog), Hindrances(catalog.definitions(), heads)
    rows: list[_Row] = []
    for pipeline in catalog.pipelines():
        for definition in catalog.pipeline(pipeline):
            rows += _rows(definition, catalog, lake, log, heads, hindrances)
    rows += [_broken(each, catalog.pipeline_of(each)) for each in catalog.broken.values()]
    localized = catalog.name_map.of
    return Rows(_NAMES, [(row[0], row[1] if row[2] == _TOPIC else localized(row[1]), *row[2:]) for row in rows])


def _broken(broken: Broken, pipeline: str | None) -> _Row:
    return (pipeline, broken.name, "broken", None, None, None, None, "", None, "broken")


def _rows(
    definition: Definition, catalog: Catalog, lake: LakeLayout, log: Lags, heads: WholeHeads, hindrances: Hindrances
) -> Iterator[_Row]:
    match definition:
        case InsertQuery():
            return
        case View() if definition.partial:
            yield (definition.pipeline, definition.name, "view", None, None, None, None, "", None, "partial")
            return
        case View():
            stages = stage_tables(lake, definition.name)
            late = late_in(lake, stages)
            found = hindrances.of(definition.name)
            yield _row(
                definition,
                definition.name,
                "view",
                heads,
                log.versions(definition),
                late,
                found,
                waits=log.waits(definition),
            )
            if published(definition):
                yield log.changelog(definition)
            for letters in letters_of(lake, stages):
                yield _row(definition, letters, "dead letters", heads, (0, "versions", None))
        case Source(kind="table"):
            event_log = tables.event_log(definition)
            yield _row(definition, event_log, "event log", heads, log.lag(definition, lake))
            yield _row(
                definition, definition.name, "table", heads, log.versions(definition), waits=log.waits(definition)
            )
        case Source():
            yield _row(definition, definition.name, "event log", heads, log.lag(definition, lake))
    letters = tables.dead_letters(definition.name)
    if isinstance(definition, Source) and reader.head(lake.table(letters)) is not None:
        yield _row(definition, letters, "dead letters", heads, (0, "events", None))


def _row(
    definition: Definition,
    table: str,
    role: str,
    heads: WholeHeads,
    lag: _Lag,
    late: int | None = None,
    hindrance: Hindrance | None = None,
    *,
    waits: bool = False,
) -> _Row:
    behind, unit, error = lag
    try:
        head = heads.head(table)
    except (TableLost, CommitsLost) as lost:
        return (definition.pipeline, table, role, None, None, None, behind, unit, late, lost.code)
    if head is None:
        return (definition.pipeline, table, role, None, None, None, behind, unit, late, error or "never run")
    state = error or (hindrance.state if hindrance is not None else "behind" if behind or waits else "fresh")
    record = head.record
    return (definition.pipeline, table, role, head.version, record.epoch, record.rows, behind, unit, late, state)


class Lags:
    """Lags of tables and topics. After one topic does not answer, none is asked again: each try takes seconds."""

    def __init__(self, settings: Settings, heads: WholeHeads, catalog: Catalog) -> None:
        self._settings = settings
        self._lake = heads.lake
        self._log = open_log(settings, heads.lake)
        self._waiting = Waiting(catalog, heads, self._log)
        self._silent: str | None = None

    def versions(self, definition: View | Source) -> _Lag:
        """The lag of a view or a keyed table: no topic is asked."""
        return self._waiting.versions(definition.name), "versions", None

    def waits(self, definition: View | Source) -> bool:
        """True if anything above a view or a keyed table waits, also events that no log has yet: its lag is 0 then, and
        its rows are not fresh. What cannot be looked at is said where it is."""
        try:
            return self._silent is None and self._waiting.since(definition.name) is not None
        except (SourceError, StoreError):
            return False

    def lag(self, source: Source, lake: LakeLayout) -> _Lag:
        """The lag of a source."""
        if self._silent is None:
            try:
                return lag(source, lake, self._log), "events", None
            except SourceError as error:
                self._silent = error.code
        return None, "events", self._silent

    def changelog(self, view: View) -> _Row:
        """The row of a view's changelog topic: the version of the table that it holds, and its rows."""
        # It reads rows, by Arrow: without changelog topics the status does without it.
        from strandline.jobs.publish.publisher import topic_standing

        start = (view.pipeline, topic_as_source(view).topic, _TOPIC)
        if self._silent is None:
            try:
                found = topic_standing(view, self._settings, self._lake)
            except SourceError as error:
                self._silent = error.code
            except CorruptState as error:
                return (*start, None, None, None, None, "versions", None, error.code)
            else:
                at, behind = found.position, found.lag
                if at is None:
                    return (*start, None, None, None, None, "versions", None, "never published")
                return (*start, at.version, None, at.rows, behind, "versions", None, "behind" if behind else "fresh")
        return (*start, None, None, None, None, "versions", None, self._silent or "")
