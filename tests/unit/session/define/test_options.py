"""WITH options: an allow-list with defaults; whatever could reach the Kafka client is refused."""

from __future__ import annotations

import pytest

from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column
from strandline.jobs.model.errors import InvalidQuery, NotSupported, OptionRefused, SqlError, UnknownName
from strandline.jobs.session.define.options import SourceOptions, source_options
from strandline.jobs.session.define.view_options import view_options
from strandline.jobs.sql.syntax import Option

COLUMNS = (
    Column("id", t.BIGINT, key=True),
    Column("ts", t.BIGINT),
    Column("day", t.VARCHAR),
    Column("at", t.TIMESTAMP),
)


def options(**values: str) -> SourceOptions:
    return source_options("s", COLUMNS, [Option(name, value, 2, 3) for name, value in values.items()])


def test_defaults() -> None:
    assert options() == SourceOptions(topic="s", key_format="KAFKA", value_format="JSON", partitions=1, replicas=1)


def test_every_option_is_read() -> None:
    found = options(
        KAFKA_TOPIC="My.topic-1",
        KEY_FORMAT="json",
        VALUE_FORMAT="delimited",
        PARTITIONS="3",
        REPLICAS="2",
        TIMESTAMP="DAY",
        TIMESTAMP_FORMAT="yyyy-MM-dd",
        VALUE_DELIMITER="tab",
    )
    assert found == SourceOptions(
        topic="My.topic-1",
        key_format="JSON",
        value_format="DELIMITED",
        partitions=3,
        replicas=2,
        timestamp="day",
        timestamp_format="yyyy-MM-dd",
        other={"VALUE_DELIMITER": "\t"},
    )


def test_format_sets_both_formats() -> None:
    assert (options(FORMAT="AVRO").key_format, options(FORMAT="AVRO").value_format) == ("AVRO", "AVRO")


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"PARTITION": "3"}, OptionRefused, "PARTITION is not an option"),
        ({"PARTITIONS": "0"}, OptionRefused, "from 1"),
        ({"PARTITIONS": "three"}, OptionRefused, "from 1"),
        ({"FORMAT": "JSON", "KEY_FORMAT": "KAFKA"}, OptionRefused, "one or the other"),
        ({"VALUE_FORMAT": "XML"}, OptionRefused, "not a format"),
        ({"VALUE_FORMAT": "NONE"}, OptionRefused, "not a format"),
        ({"VALUE_PROTOBUF_NULLABLE_REPRESENTATION": "WRAPPER"}, OptionRefused, "is for the format PROTOBUF, not JSON"),
        (
            {"FORMAT": "PROTOBUF", "KEY_PROTOBUF_NULLABLE_REPRESENTATION": "yes"},
            OptionRefused,
            "OPTIONAL or WRAPPER, not 'yes'",
        ),
        ({"VALUE_FORMAT": "KAFKA"}, InvalidQuery, "one value column"),
        ({"KEY_FORMAT": "NONE"}, InvalidQuery, "'id' is a key column"),
        ({"KAFKA_TOPIC": "a/b"}, OptionRefused, "name of a topic"),
        ({"TIMESTAMP": "tss"}, UnknownName, "tss"),
        ({"TIMESTAMP": "day"}, OptionRefused, "VARCHAR"),
        ({"TIMESTAMP": "ts", "TIMESTAMP_FORMAT": "yyyy"}, OptionRefused, "BIGINT"),
        ({"TIMESTAMP_FORMAT": "yyyy"}, OptionRefused, "needs TIMESTAMP"),
        ({"VALUE_DELIMITER": ";"}, OptionRefused, "DELIMITED"),
        ({"VALUE_FORMAT": "DELIMITED", "VALUE_DELIMITER": "ab"}, OptionRefused, "one character"),
        ({"WRAP_SINGLE_VALUE": "no"}, OptionRefused, "true or false, not 'no'"),
        ({"KEY_DELIMITER": ";"}, OptionRefused, "KEY_DELIMITER is for the format DELIMITED, not KAFKA"),
        ({"CLEANUP_POLICY": "compact"}, NotSupported, "CLEANUP_POLICY"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], error: type[SqlError], message: str) -> None:
    with pytest.raises(error, match=message):
        options(**given)


@pytest.mark.parametrize(
    "name",
    [
        "SASL.JAAS.CONFIG",
        "SASL.LOGIN.CALLBACK.HANDLER.CLASS",
        "INTERCEPTOR.CLASSES",
        "METRIC.REPORTERS",
        "KEY.DESERIALIZER",
        "SSL.ENGINE.FACTORY.CLASS",
    ],
)
def test_client_options_that_can_run_code_are_refused_as_such(name: str) -> None:
    with pytest.raises(OptionRefused, match="can run code") as caught:
        options(**{name: "x"})
    assert name.lower() in caught.value.message
    assert (caught.value.line, caught.value.column) == (2, 3)


def test_any_other_client_option_is_refused_too() -> None:
    with pytest.raises(OptionRefused, match="reaches the Kafka client"):
        options(**{"BOOTSTRAP.SERVERS": "elsewhere:9092"})


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(OptionRefused, match="twice"):
        source_options("s", COLUMNS, [Option("PARTITIONS", "1"), Option("PARTITIONS", "2")])


@pytest.mark.parametrize(
    ("kind", "form", "accepted"),
    [
        (t.INT, "KAFKA", True),
        (t.BYTES, "KAFKA", True),
        (t.BOOLEAN, "KAFKA", False),
        (t.decimal(4, 2), "KAFKA", False),
        (t.array(t.INT), "DELIMITED", False),
        (t.TIMESTAMP, "DELIMITED", True),
        (t.array(t.INT), "JSON", True),
        (t.map_of(t.VARCHAR, t.INT), "JSON", True),
        (t.array(t.map_of(t.INT, t.INT)), "JSON", False),
        (t.struct(("a", t.INT)), "AVRO", True),
    ],
)
def test_a_format_must_be_able_to_hold_the_columns(kind: t.SqlType, form: str, accepted: bool) -> None:
    columns = (Column("v", kind),)
    if accepted:
        assert source_options("s", columns, [Option("VALUE_FORMAT", form)]).value_format == form
    else:
        with pytest.raises(InvalidQuery, match=r"cannot hold|VARCHAR keys"):
            source_options("s", columns, [Option("VALUE_FORMAT", form)])


def test_a_view_takes_choices_and_remembers_what_its_topic_is_to_be() -> None:
    options = [
        Option("STATE", "Shared"),
        Option("SEMANTICS", "ksql"),
        Option("KAFKA_TOPIC", "Out"),
        Option("PARTITIONS", "4"),
    ]
    assert view_options(options) == {"STATE": "shared", "SEMANTICS": "ksql", "KAFKA_TOPIC": "Out", "PARTITIONS": "4"}


@pytest.mark.parametrize(
    ("name", "value"), [("SEMANTICS", "mysql"), ("VALUE_FORMAT", "XML"), ("PARTITIONS", "0"), ("KAFKA_TOPIC", "a b")]
)
def test_values_that_a_view_cannot_have(name: str, value: str) -> None:
    with pytest.raises(OptionRefused, match=value):
        view_options([Option(name, value)])


@pytest.mark.parametrize("value", ["0", "-1", "64MB", "9" * 20])
def test_a_cache_has_a_number_of_bytes(value: str) -> None:
    with pytest.raises(OptionRefused, match="CACHE_BYTES"):
        view_options([Option("CACHE_BYTES", value)])


def test_a_change_stream_s_keys_are_written_as_its_values_are() -> None:
    found = options(VALUE_FORMAT="debezium_avro", DECIMAL_HANDLING="Precise", TIME_PRECISION="microseconds")
    assert (found.key_format, found.value_format) == ("AVRO", "DEBEZIUM_AVRO")
    assert found.other == {"DECIMAL_HANDLING": "precise", "TIME_PRECISION": "microseconds"}
    assert options(VALUE_FORMAT="DEBEZIUM_JSON").key_format == "JSON"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"FORMAT": "DEBEZIUM_JSON"}, "DEBEZIUM_JSON is a format of values, not of keys"),
        ({"KEY_FORMAT": "DEBEZIUM_JSON"}, "DEBEZIUM_JSON is for the values of a source"),
        ({"TIME_PRECISION": "microseconds"}, "TIME_PRECISION is for change streams, DEBEZIUM_JSON or DEBEZIUM_AVRO"),
        ({"VALUE_FORMAT": "DEBEZIUM_JSON", "DECIMAL_HANDLING": "double"}, "DECIMAL_HANDLING is precise or string"),
    ],
)
def test_options_of_change_streams_that_cannot_be(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionRefused, match=message):
        options(**given)
