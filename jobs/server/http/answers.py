"""The forms of answers: rows as JSON or as an Arrow stream, with what they reflect in headers of one meaning."""

from __future__ import annotations

import io
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from jobs.serve.format import json_line, to_json

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from jobs.serve.cut import Cut
    from jobs.serve.reflected import Reflected

ARROW: Final = "application/vnd.apache.arrow.stream"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class About:
    """What an answer reflects.

    Attributes:
        version: of the view; None where several tables were read.
        event_time: the largest event time in it, ISO 8601; None before the first event.
        freshness_ms: how long ago the version was committed.
        versions: {table: version} of all that was read.
    """

    version: int | None
    event_time: str | None
    freshness_ms: int | None
    versions: dict[str, int]

    @classmethod
    def of(cls, standing: Reflected) -> About:
        """What a version of one table reflects."""
        names = {standing.table: standing.version}
        return cls(standing.version, instant(standing.event_time), age_ms(standing.committed), names)

    @classmethod
    def of_cut(cls, cut: Cut) -> About:
        """What rows that were computed from several tables reflect."""
        return cls(None, instant(cut.event_time), age_ms(cut.committed), cut.versions)

    def headers(self) -> dict[str, str]:
        """As headers."""
        named = {
            "Strandline-Version": self.version,
            "Strandline-Event-Time": self.event_time,
            "Strandline-Freshness-Ms": self.freshness_ms,
        }
        return {name: str(value) for name, value in named.items() if value is not None}

    def members(self) -> str:
        """As members of a JSON object."""
        body: dict[str, Any] = {"event_time": self.event_time, "freshness_ms": self.freshness_ms}
        first = {"versions": self.versions} if self.version is None else {"version": self.version}
        return to_json({**first, **body})[1:-1]


def instant(microseconds: int | None) -> str | None:
    """Microseconds since the epoch as ISO 8601."""
    if microseconds is None:
        return None
    return (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age_ms(committed: int | None) -> int | None:
    """Milliseconds since a commit."""
    return None if committed is None else max(0, time.time_ns() // 1_000_000 - committed)


def wants_arrow(accept: str | None) -> bool:
    """True if the client prefers Arrow."""
    return accept is not None and ARROW in accept


def one_row(row: dict[str, Any] | None, about: About) -> Response:
    """The answer about one key: 404 without a row."""
    shown = "null" if row is None else json_line(tuple(row), tuple(row.values()))
    body = f'{{"row": {shown}, {about.members()}}}'
    return Response(body, 200 if row is not None else 404, about.headers(), "application/json")


def many_rows(names: Sequence[str], rows: Sequence[Sequence[Any]], about: About) -> Response:
    """Rows as JSON."""
    lines = ", ".join(json_line(names, row) for row in rows)
    return joined_rows(lines.encode(), about)


def joined_rows(lines: bytes, about: About) -> Response:
    """Rows that are JSON already, joined by commas."""
    body = b'{"rows": [' + lines + b"], " + about.members().encode() + b"}"
    return Response(body, 200, about.headers(), "application/json")


def arrow_rows(table: pa.Table, about: About) -> Response:
    """Rows as an Arrow stream."""
    import pyarrow as pa

    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue(), 200, about.headers(), ARROW)
