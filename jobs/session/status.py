"""The status of every pipeline, from the commit records alone: no JVM, no rows read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.relations import letters_of, stage_tables
from strandline.jobs.ingest.topics import lag, open_log
from strandline.jobs.ivm.refresh.late import late_in
from strandline.jobs.model import tables
from strandline.jobs.model.definitions import Definition, InsertQuery, Source, View
from strandline.jobs.model.errors import SourceError
from strandline.jobs.operate.health_checks import Hindrance, Hindrances, Waiting
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
_NO_VERSIONS: Final[_Lag] = (0, "versions", None)
_NO_EVENTS: Final[_Lag] = (0, "events", None)
"""Of rows that are kept aside: they come in the commit of those beside them."""


def status(settings: Settings) -> Rows:
    """One row for each table of each pipeline, and one for each definition whose file is broken.

    `lag` counts what the table does not reflect yet: events of the topic for an event log, versions of its inputs for a
    view, but for those that were found to change none of its rows, versions of the view for its changelog topic. It is
    null when the broker does not answer. `late` counts the rows that came too late for a view's windows and are left
    out; it is null where no row is ever late. `state` is `fresh`, or `behind` by the lag or what waits anywhere above a
    view; `held` or `stopped` for a view that does not go on (`jobs.operate.health_checks`), `never run` before
    the first commit, `never published` before a topic's first write, `partial` where nothing is stored, `broken`, or
    the code of the error that hides the lag.

    Raises:
        ObjectMissing: there is no lake.
        TopicsElsewhere: the settings do not lead to the lake's topics.
    """
    lake = LakeLayout(settings.lake)
    check_lake(lake)
    catalog = Catalog(lake)
    found = _Found(settings, lake, catalog)
    rows: list[_Row] = []
    for pipeline in catalog.pipelines():
        for definition in catalog.pipeline(pipeline):
            rows += found.rows(definition)
    rows += [_broken(each, catalog.pipeline_of(each)) for each in catalog.broken.values()]
    localized = catalog.name_map.of
    return Rows(_NAMES, [(row[0], row[1] if row[2] == _TOPIC else localized(row[1]), *row[2:]) for row in rows])


def _broken(broken: Broken, pipeline: str | None) -> _Row:
    return (pipeline, broken.name, "broken", None, None, None, None, "", None, "broken")


class _Found:
    """The rows of definitions, all by the same heads."""

    def __init__(self, settings: Settings, lake: LakeLayout, catalog: Catalog) -> None:
        self._lake = lake
        self._heads = WholeHeads(lake)
        self._lags = Lags(settings, self._heads, catalog)
        self._hindrances = Hindrances(catalog.definitions(), self._heads)

    def rows(self, definition: Definition) -> Iterator[_Row]:
        """A row for each table of a definition, and for its changelog topic."""
        match definition:
            case InsertQuery():
                return
            case View():
                yield from self._of_view(definition)
            case Source():
                yield from self._of_source(definition)

    def _of_view(self, view: View) -> Iterator[_Row]:
        if view.partial:
            yield (view.pipeline, view.name, "view", None, None, None, None, "", None, "partial")
            return
        stages = stage_tables(self._lake, view.name)
        yield self._row(
            view,
            view.name,
            "view",
            self._lags.versions(view),
            late=late_in(self._lake, stages),
            hindrance=self._hindrances.of(view.name),
        )
        if published(view):
            yield self._lags.changelog(view)
        for letters in letters_of(self._lake, stages):
            yield self._row(view, letters, "dead letters", _NO_VERSIONS)

    def _of_source(self, source: Source) -> Iterator[_Row]:
        if source.kind == "table":
            yield self._row(source, tables.event_log(source), "event log", self._lags.lag(source))
            yield self._row(source, source.name, "table", self._lags.versions(source))
        else:
            yield self._row(source, source.name, "event log", self._lags.lag(source))
        letters = tables.dead_letters(source.name)
        if reader.head(self._lake.table(letters)) is not None:
            yield self._row(source, letters, "dead letters", _NO_EVENTS)

    def _row(
        self,
        definition: View | Source,
        table: str,
        role: str,
        lag: _Lag,
        *,
        late: int | None = None,
        hindrance: Hindrance | None = None,
    ) -> _Row:
        behind, unit, error = lag
        try:
            head = self._heads.head(table)
        except (TableLost, CommitsLost) as lost:
            return (definition.pipeline, table, role, None, None, None, behind, unit, late, lost.code)
        if head is None:
            return (definition.pipeline, table, role, None, None, None, behind, unit, late, error or "never run")
        if error is None:
            error = hindrance.state if hindrance is not None else self._freshness(definition, role, behind)
        record = head.record
        return (definition.pipeline, table, role, head.version, record.epoch, record.rows, behind, unit, late, error)

    def _freshness(self, definition: View | Source, role: str, behind: int | None) -> str:
        waits = role in ("view", "table") and self._lags.waits(definition)
        return "behind" if behind or waits else "fresh"


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

    def lag(self, source: Source) -> _Lag:
        """The lag of a source."""
        if self._silent is None:
            try:
                return lag(source, self._lake, self._log), "events", None
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
