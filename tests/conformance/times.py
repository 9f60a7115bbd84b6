"""What the times of a case's records bring about: two predicates on which deliberate differences rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tests.conformance.cases import Case

_UNITS: Mapping[str, int] = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
}

_TABLE_TOPIC = r"CREATE\s+TABLE\s[^;]*?KAFKA_TOPIC\s*=\s*'([^']*)'"


def passed_together(case: Case) -> bool:
    """Whether the case has EMIT FINAL over time windows of which several close at once."""
    text = case.text.upper()
    size = _length(text, "SIZE")
    if "EMIT FINAL" not in text or size is None:
        return False
    advance, grace = _length(text, "ADVANCE BY") or size, _length(text, "GRACE PERIOD") or 0
    times = [int(record.get("timestamp") or 0) for record in case.inputs]
    ends = {end + grace for time in times for end in _ends(time, size, advance)}
    return any(len({end for end in ends if before < end <= now}) > 1 for before, now in _steps(times))


def table_behind_stream(case: Case) -> bool:
    """Whether a record of a table comes after a stream's record of a later time, where streams join tables.

    Kafka Streams joins in the order of arrival, Strandline as of the event's time.
    """
    text = case.text.upper()
    if not re.search(r"CREATE\s+STREAM\s[^;]*\sJOIN\s", text):
        return False
    tables = {topic.upper() for topic in re.findall(_TABLE_TOPIC, case.text, re.IGNORECASE | re.DOTALL)}
    newest = -1
    for record in case.inputs:
        time = int(record.get("timestamp") or 0)
        if str(record["topic"]).upper() not in tables:
            newest = max(newest, time)
        elif time < newest:
            return True
    return False


def _length(text: str, word: str) -> int | None:
    """The milliseconds that follow a word."""
    found = re.search(rf"\b{word}\s+(\d+)\s+({'|'.join(_UNITS)})S?\b", text)
    return int(found[1]) * _UNITS[found[2]] if found else None


def _ends(time: int, size: int, advance: int) -> Sequence[int]:
    """The ends of the windows that a time belongs to."""
    newest = time // advance * advance
    return [start + size for start in range(newest, max(time - size, -1), -advance)]


def _steps(times: Sequence[int]) -> Sequence[tuple[int, int]]:
    """The moves of stream time: (before, after)."""
    running, steps = -1, []
    for time in times:
        if time > running:
            steps.append((running, time))
            running = time
    return steps
