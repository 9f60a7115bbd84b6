"""The publisher of a view, opened from its definition as the catalog has it now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.definitions import View
from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.publish.declared import published, published_views, topic_as_source
from strandline.jobs.publish.encoder import Encoder
from strandline.jobs.publish.publisher import Publisher
from strandline.jobs.publish.topic import open_topic
from strandline.state_store.layout import Lake
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from strandline.jobs.model.settings import Settings


def open_publisher(settings: Settings, name: str) -> Publisher:
    """The publisher of the view `name`; nothing is written before its `catch_up`.

    Raises:
        UnknownName: there is no such view.
        InvalidQuery: it has no changelog topic.
        TopicsElsewhere: the lake's topics are of the other kind.
    """
    lake = Lake(settings.lake)
    source = topic_as_source(published_view(Catalog(lake), name))
    encoder = Encoder(source, registry_of(settings, lake))
    return Publisher(lake.table(name), open_topic(source, settings, lake), encoder)


def views_to_publish(settings: Settings, names: Sequence[str]) -> list[View]:
    """The views of these names; without names, all that have a changelog topic. Errors as of `published_view`."""
    catalog = Catalog(Lake(settings.lake))
    if names:
        return [published_view(catalog, name) for name in names]
    return published_views(catalog.definitions())


def published_view(catalog: Catalog, name: str) -> View:
    """The definition of a view with a changelog topic.

    Raises:
        UnknownName: there is no such view.
        InvalidQuery: it has no changelog topic.
    """
    definition = catalog.get(name)
    if not isinstance(definition, View) or not published(definition):
        raise InvalidQuery(
            sentence("'{}' has no changelog topic", Name(name)),
            hint="give a table or materialized view one: … WITH (KAFKA_TOPIC = 'name') AS SELECT …",
        )
    return definition


def registry_of(settings: Settings, lake: Lake) -> Callable[[], Any]:
    """What opens the schema registry when a format needs it."""

    def opened() -> Any:
        from strandline.jobs.ingest.formats.registry import open_registry

        return open_registry(settings, lake)

    return opened
