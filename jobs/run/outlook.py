"""What a run is about to do, known before a lock is taken or a JVM starts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.jobs.ingest.logs.open import open_log
from strandline.jobs.ingest.topics import lag
from strandline.jobs.model.definitions import InsertQuery, Source
from strandline.jobs.run.pipeline import loaded
from strandline.state_store.layout import LakeLayout
from strandline.state_store.wording import listed

if TYPE_CHECKING:
    from strandline.jobs.model.settings import Settings


@dataclass(frozen=True)
class Outlook:
    """The work of a run, by what its definitions are called.

    Attributes:
        waiting: {source: events of its topic that the lake does not hold}.
        views: the views and queries that are kept fresh, in their order.
    """

    pipeline: str
    waiting: dict[str, int]
    views: tuple[str, ...]

    @property
    def events(self) -> int:
        """The events that wait, of all sources."""
        return sum(self.waiting.values())

    def __str__(self) -> str:
        sources = listed([f"{name} ({count:,})" for name, count in self.waiting.items()])
        events = f"{self.events:,} event{'' if self.events == 1 else 's'}"
        lines = [f"pipeline '{self.pipeline}': {events} to take in"]
        lines += [f"  sources: {sources}"] if sources else []
        lines += [f"  views: {listed(self.views)}"] if self.views else []
        return "\n".join(lines)


def outlook(settings: Settings, pipeline: str) -> Outlook:
    """The work that a run of the pipeline would find now.

    Raises:
        PipelineMissing, CorruptState: as `loaded`.
        SourceUnavailable: the brokers do not answer.
        TopicsElsewhere: the settings do not lead to the lake's topics.
    """
    lake = LakeLayout(settings.lake)
    catalog, definitions = loaded(pipeline, lake)
    called = catalog.name_map.of
    sources = [each for each in definitions if isinstance(each, Source)]
    log = open_log(settings, lake)
    return Outlook(
        pipeline,
        {called(source.name): lag(source, lake, log) for source in sources},
        tuple(
            f"into {called(each.target)}" if isinstance(each, InsertQuery) else called(each.name)
            for each in definitions
            if not isinstance(each, Source)
        ),
    )
