"""The changelog topic of a view is checked at CREATE."""

from __future__ import annotations

import pytest

from strandline.jobs.model.errors import InvalidQuery, OptionRefused
from strandline.jobs.publish.topic import published_views, topic_as_source
from strandline.jobs.session.interpreter import Interpreter
from tests.unit.session.statements import run

SOURCES = """
    CREATE STREAM s (id BIGINT KEY, name VARCHAR, n INT, x DOUBLE) WITH (KAFKA_TOPIC = 'below');
    CREATE STREAM copy AS SELECT id, name, n FROM s;
    CREATE MATERIALIZED VIEW taken WITH (KAFKA_TOPIC = 'taken') AS SELECT name, COUNT(*) AS c FROM s GROUP BY name;
"""


def view(options: str, query: str = "SELECT name, n, COUNT(*) AS c FROM copy GROUP BY name, n") -> str:
    return f"CREATE MATERIALIZED VIEW v WITH ({options}) AS {query};"


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        (view("KAFKA_TOPIC = 'taken'"), OptionRefused, "that of the view 'taken'"),
        (view("KAFKA_TOPIC = 'below'"), OptionRefused, "computed from the topic 'below'"),
        (view("KAFKA_TOPIC = 't', KEY_FORMAT = 'KAFKA'"), InvalidQuery, "holds one key column, not 2"),
        (
            view("KAFKA_TOPIC = 't', FORMAT = 'KAFKA'", "SELECT name, COUNT(*) AS c, MAX(n) AS m FROM s GROUP BY name"),
            InvalidQuery,
            "holds one value column, not 2",
        ),
        (
            view("KAFKA_TOPIC = 't'", "SELECT COUNT(*) AS c FROM s GROUP BY name"),
            InvalidQuery,
            "what tells its rows apart",
        ),
    ],
)
def test_a_topic_that_cannot_hold_the_view_is_refused(
    session: Interpreter, text: str, error: type[Exception], said: str
) -> None:
    run(session, SOURCES)
    with pytest.raises(error, match=said):
        run(session, text)


def test_the_topic_is_declared_as_a_source_would_be(session: Interpreter) -> None:
    """Streams keep their option and have no changelog: each of their rows is an event."""
    run(session, SOURCES)
    run(session, "CREATE STREAM passed WITH (KAFKA_TOPIC = 'passed') AS SELECT id, name FROM s WHERE n > 1;")
    run(session, view("KAFKA_TOPIC = 'out', KEY_FORMAT = 'JSON', VALUE_FORMAT = 'AVRO', PARTITIONS = 4"))
    found = {each.name: topic_as_source(each) for each in published_views(session.catalog.definitions())}
    assert set(found) == {"taken", "v"}
    source = found["v"]
    assert (source.topic, source.partitions, source.key) == ("out", 4, ("name", "n"))
    assert (source.key_format, source.value_format, found["taken"].key_format) == ("JSON", "AVRO", "JSON")


def test_a_topic_in_protobuf_keeps_nulls_unless_it_says_how(session: Interpreter) -> None:
    run(session, SOURCES)
    said = "VALUE_PROTOBUF_NULLABLE_REPRESENTATION = 'wrapper'"
    run(session, view(f"KAFKA_TOPIC = 'out', FORMAT = 'PROTOBUF', {said}"))
    source = topic_as_source(next(each for each in published_views(session.catalog.definitions()) if each.name == "v"))
    assert source.options == {
        "KEY_PROTOBUF_NULLABLE_REPRESENTATION": "OPTIONAL",
        "VALUE_PROTOBUF_NULLABLE_REPRESENTATION": "WRAPPER",
    }
