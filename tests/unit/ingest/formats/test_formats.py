"""The choice of a format: what each can hold, and what CREATE refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.jobs.ingest.formats.format import check_source, open_format
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Source
from strandline.jobs.model.errors import NotSupported, OptionRefused, UnknownName
from tests.unit.ingest.formats.decoding import no_registry, source


def test_formats_refuse_columns_they_cannot_hold() -> None:
    for of in (
        source("KAFKA", ("a", t.INT), ("b", t.INT)),
        source("KAFKA", ("a", t.DATE)),
        source("DELIMITED", ("a", t.array(t.INT))),
    ):
        with pytest.raises(OptionRefused):
            open_format(of, "value", no_registry)
    with pytest.raises(NotSupported, match="XML"):
        open_format(source("XML", ("a", t.INT)), "value", no_registry)


def test_no_columns_no_format() -> None:
    assert open_format(source("JSON", ("v", t.INT)), "key", no_registry) is None


def test_create_refuses_what_could_never_be_read() -> None:
    good = source("AVRO", ("k", t.INT), ("at", t.VARCHAR), ("n", t.INT), key_format="JSON_SR")
    check_source(replace(good, timestamp="at", timestamp_format="yyyy-MM-dd"))
    refused: list[tuple[Source, type[Exception]]] = [
        (source("KAFKA", ("a", t.INT), ("b", t.INT)), OptionRefused),
        (source("XML", ("a", t.INT)), NotSupported),
        (replace(good, timestamp="att"), UnknownName),
        (replace(good, timestamp="n"), OptionRefused),
        (replace(good, timestamp="at", timestamp_format="QQ"), OptionRefused),
        (replace(source("JSON", ("at", t.BIGINT)), timestamp="at", timestamp_format="yyyy"), OptionRefused),
    ]
    for bad, error in refused:
        with pytest.raises(error):
            check_source(bad)
