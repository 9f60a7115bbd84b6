"""What the times of a case's records bring about: two predicates on which deliberate differences rest."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance.cases import Case

_UNITS: Mapping[str, int] = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
}

_SOURCE = r"CREATE\s+(STREAM|TABLE)\s+[^;]*?\sWITH\s*\(([^;]*?)\)\s*;"
_OPTION = r"\b{}\s*=\s*'([^']*)'"


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


def joins_out_of_order(case: Case) -> bool:
    """Whether records of a stream and of a table that it joins arrive in another order than that of their times.

    Kafka Streams joins in the order of arrival, Strandline as of the event's time.
    """
    if not re.search(r"CREATE\s+STREAM\s[^;]*\sJOIN\s", case.text, re.IGNORECASE):
        return False
    sources = {
        _option(options, "KAFKA_TOPIC").upper(): (kind.upper(), _option(options, "TIMESTAMP").upper())
        for kind, options in re.findall(_SOURCE, case.text, re.IGNORECASE | re.DOTALL)
    }
    newest = dict.fromkeys(("STREAM", "TABLE"), -1)
    for record in case.inputs:
        kind, column = sources.get(str(record["topic"]).upper(), ("STREAM", ""))
        time = _time(record, column)
        # Later than what came before it: of the other kind, an event's own time decides, not when it arrived.
        if time < newest["TABLE" if kind == "STREAM" else "STREAM"]:
            return "TABLE" in {kind for kind, _ in sources.values()}
        newest[kind] = max(newest[kind], time)
    return False


def _option(options: str, name: str) -> str:
    found = re.search(_OPTION.format(name), options, re.IGNORECASE)
    return found[1] if found else ""


def _time(record: Mapping[str, Any], column: str) -> int:
    """The milliseconds of a record: its TIMESTAMP column's where that is a number, else its own."""
    value = record.get("value")
    given = {str(name).upper(): item for name, item in value.items()} if isinstance(value, Mapping) else {}
    found = given.get(column) if column else None
    return found if isinstance(found, int) else int(record.get("timestamp") or 0)


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
