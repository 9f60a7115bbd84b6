"""The changelog topic that a view declares: `WITH (KAFKA_TOPIC = 'name', …)`, as a source that could read it.

A record's key is the columns that identify a row, its value the others; so the same formats write the topic and read
it back, here and wherever `CREATE TABLE … WITH (KAFKA_TOPIC = 'name')` declares it again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from strandline.jobs.ingest.formats.format import NULLABLE_OPTIONS
from strandline.jobs.model.definitions import Source, View

if TYPE_CHECKING:
    from collections.abc import Iterable

    from strandline.jobs.model.definitions import Definition

_OF_FORMATS: Final = ("KEY_DELIMITER", "VALUE_DELIMITER", *NULLABLE_OPTIONS.values())
NULLS_COME_BACK: Final = dict.fromkeys(NULLABLE_OPTIONS.values(), "OPTIONAL")
"""Options of a topic that does not say otherwise: a lost table is made of it, and a NULL must not become a zero."""
FORMAT = "JSON"
"""Of key and value, where the view does not say: the one format that has a NULL key and keys of several columns."""


def published(definition: Definition) -> bool:
    """True for a view with a changelog topic. The topic of a stream is its own record of events: it has none."""
    return isinstance(definition, View) and "KAFKA_TOPIC" in definition.options and definition.kind == "table"


def published_views(definitions: Iterable[Definition]) -> list[View]:
    """Those of the definitions that are published."""
    return [each for each in definitions if isinstance(each, View) and published(each)]


def topic_as_source(view: View) -> Source:
    """The changelog topic of a published view as a keyed source."""
    options = view.options
    both = options.get("FORMAT", FORMAT)
    keys = set(view.row_key)
    return Source(
        name=view.name,
        kind="table",
        columns=tuple(replace(column, key=column.name in keys) for column in view.columns),
        topic=options["KAFKA_TOPIC"],
        key_format=options.get("KEY_FORMAT", both),
        value_format=options.get("VALUE_FORMAT", both),
        pipeline=view.pipeline,
        sql=view.sql,
        partitions=int(options.get("PARTITIONS", 1)),
        replicas=int(options.get("REPLICAS", 1)),
        options=NULLS_COME_BACK | {name: options[name] for name in _OF_FORMATS if name in options},
    )


def hidden_keys(view: View) -> tuple[str, ...]:
    """The columns that identify a row and are not visible: a topic without them could not tell rows apart."""
    visible = {column.name for column in view.columns}
    return tuple(name for name in view.row_key if name not in visible)
