"""TIMESTAMP_FORMAT: times read by their pattern, and patterns that are refused."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from strandline.jobs.ingest.formats.coerce import Misfit
from strandline.jobs.ingest.formats.format import check_timestamp_format, reader
from strandline.jobs.model.errors import OptionRefused


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("yyyy-MM-dd HH:mm:ss", "2024-02-29 01:02:03", "2024-02-29T01:02:03+00:00"),
        ("yyyy-MM-dd'T'HH:mm:ss.SSSX", "2024-02-29T01:02:03.450Z", "2024-02-29T01:02:03.450+00:00"),
        ("yyyy-MM-dd'T'HH:mm:ssXXX", "2024-02-29T01:02:03+05:30", "2024-02-28T19:32:03+00:00"),
        ("dd/MMM/yy hh:mm a", "29/Feb/24 01:02 PM", "2024-02-29T13:02:00+00:00"),
        ("'o''clock' yyyyDDD", "o'clock 2024060", "2024-02-29T00:00:00+00:00"),
        (None, "2024-02-29T01:02:03.000004Z", "2024-02-29T01:02:03.000004+00:00"),
    ],
)
def test_timestamp_formats(pattern: str | None, text: str, expected: str) -> None:
    wanted = datetime.fromisoformat(expected)
    assert reader(pattern)(text) == (wanted - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1e6


@pytest.mark.parametrize("pattern", ["yyyy-MM-ddQ", "eee", "yyyy 'open", "HHH", "kk"])
def test_unknown_timestamp_patterns_are_refused(pattern: str) -> None:
    with pytest.raises(OptionRefused, match="TIMESTAMP_FORMAT"):
        check_timestamp_format(pattern)


def test_a_time_that_does_not_fit_its_format_is_a_misfit() -> None:
    with pytest.raises(Misfit, match="format 'yyyy-MM-dd'"):
        reader("yyyy-MM-dd")("2024-02-30")
