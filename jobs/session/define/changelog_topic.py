"""The checks of a view's changelog topic: that its records can tell the rows apart and hold them, and that no other
definition writes to it or, on the way to the view, reads from it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.jobs.ingest.formats.format import check_source
from strandline.jobs.model.definitions import InsertQuery, Source, View
from strandline.jobs.model.errors import InvalidQuery, OptionRefused
from strandline.jobs.publish.declared import hidden_keys, published, published_views, topic_as_source
from strandline.jobs.session.define.options import check_columns
from strandline.state_store.wording import Name, sentence

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog


def check_changelog_topic(view: View, catalog: Catalog) -> None:
    """Check the changelog topic of a view, if it has one.

    Raises:
        InvalidQuery: a column that tells rows apart is not visible, or a format cannot hold a column.
        OptionRefused: another view has the topic, or the view is computed from it.
        NotSupported: there is no such format.
    """
    if not published(view):
        return
    source = topic_as_source(view)
    if hidden_keys(view):
        raise InvalidQuery(
            sentence("'{}' cannot be published: what tells its rows apart is not among its columns", Name(view.name)),
            hint="select every expression of GROUP BY, or the keys of what is read; or leave KAFKA_TOPIC out",
        )
    check_columns("key", source.key_format, [column for column in source.columns if column.key])
    check_columns("value", source.value_format, [column for column in source.columns if not column.key])
    check_source(source)
    _check_alone(view, source.topic, catalog)


def _check_alone(view: View, topic: str, catalog: Catalog) -> None:
    others = (each for each in published_views(catalog.definitions()) if each.name != view.name)
    other = next((each for each in others if topic_as_source(each).topic == topic), None)
    if other is not None:
        raise OptionRefused(
            sentence("the topic '{}' is that of the view '{}'", topic, Name(other.name)),
            hint="a changelog topic has one view",
        )
    if topic in _topics_below(view, catalog):
        raise OptionRefused(
            sentence("'{}' is computed from the topic '{}', and cannot be published to it", Name(view.name), topic),
            hint="name a topic of its own: KAFKA_TOPIC = '…'",
        )


def _topics_below(view: View, catalog: Catalog) -> set[str]:
    """The topics of the sources that a view is computed from."""
    topics: set[str] = set()
    waiting, seen = [*view.inputs], {view.name}
    while waiting:
        name = waiting.pop()
        found = catalog.find(name)
        if found is None or name in seen:
            continue
        seen.add(name)
        if isinstance(found, Source):
            topics.add(found.topic)
        else:
            waiting += found.inputs
        if not isinstance(found, InsertQuery):
            waiting += [each.name for each in catalog.insert_queries(name)]
    return topics
