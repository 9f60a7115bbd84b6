"""Changelog topics in Dagster: the asset of each, and how far it is, as observations of that asset."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import dagster as dg

from strandline.jobs.model.errors import SourceError
from strandline.jobs.publish.publisher import topic_standing
from strandline.jobs.publish.topic import published_views, topic_as_source
from strandline.orchestration.assets import Role, asset_key, identifier, ownership_of
from strandline.state_store.errors import StrandlineError
from strandline.state_store.layout import LakeLayout

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from strandline.jobs.model.definitions import Definition, View
    from strandline.jobs.model.settings import Settings
    from strandline.jobs.publish.publisher import TopicStanding

log = logging.getLogger("strandline")


def changelog_topic(view: View, *, on_kafka: bool) -> dg.AssetSpec:
    """The asset of the topic that a view is published to: the same one as for a source that reads it."""
    source = topic_as_source(view)
    return dg.AssetSpec(
        asset_key(Role.TOPIC, source.topic),
        deps=[asset_key(Role.CHANGELOG, view.name)],
        description=(
            f"Topic `{source.topic}`, to which `{view.name}` is published: the newest row of each key; "
            f"keys {source.key_format}, values {source.value_format}."
        ),
        group_name=identifier(view.pipeline),
        kinds={"kafka" if on_kafka else "file", "changelog"},
        **ownership_of(view, Role.TOPIC),
        metadata={"partitions": source.partitions, "replicas": source.replicas},
    )


class ChangelogTopics:
    """The changelog topics of some views, and what was told of each last.

    Args:
        definitions: those of a pipeline; the views among them that are published count.
    """

    def __init__(self, settings: Settings, definitions: Iterable[Definition]) -> None:
        self._settings = settings
        self._lake = LakeLayout(settings.lake)
        self._views = published_views(definitions)
        self._told: dict[str, TopicStanding] = {}

    def events(self) -> Iterator[dg.AssetObservation]:
        """An observation of each topic that stands elsewhere than at the last call.

        A topic that cannot be asked is left out, and the log says why: its run says the same, and stops or goes on.
        """
        for view in self._views:
            try:
                standing = topic_standing(view, self._settings, self._lake)
            except SourceError as error:
                log.warning("the changelog topics cannot be asked how far they are: %s", error)
                return  # each further try would wait for the same brokers
            except StrandlineError as error:
                log.warning("the changelog topic of '%s' does not say how far it is: %s", view.name, error)
                continue
            if standing != self._told.get(view.name):
                self._told[view.name] = standing
                yield _observed(standing)


def _observed(standing: TopicStanding) -> dg.AssetObservation:
    """The observation of a topic. Labels must not change: Dagster plots each over time."""
    key = asset_key(Role.TOPIC, standing.topic)
    if standing.position is None or standing.lag is None:
        return dg.AssetObservation(key, description="it holds no version of the view yet, or does not say which")
    return dg.AssetObservation(
        key,
        metadata={
            "published version": standing.position.version,
            "published rows": standing.position.rows,
            "versions behind": standing.lag,
        },
    )
