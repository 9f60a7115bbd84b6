"""The forms of answers: rows as JSON or as an Arrow stream, with what they reflect in headers of one meaning."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from strandline.jobs.model.errors import EncodeFailed, SourceUnavailable, SqlError, UnknownName
from strandline.jobs.serve import errors as serving
from strandline.jobs.serve.format import to_json
from strandline.jobs.serve.reflected import age_ms, instant
from strandline.state_store import errors as store

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

    from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot
    from strandline.jobs.serve.reflected import Reflected
    from strandline.jobs.serve.topics import Lag


ARROW: Final = "application/vnd.apache.arrow.stream"
_JSON: Final = "application/json"
_AGE: Final = "Strandline-Freshness-Ms"
_AGE_HEADER: Final = _AGE.lower().encode()
_AGE_MEMBER: Final = '"freshness_ms": '
_STALENESS: Final = "Strandline-Staleness-Ms"
_BEHIND: Final = "Strandline-Behind-Records"
_STALENESS_HEADER: Final = _STALENESS.lower().encode()
_BEHIND_HEADER: Final = _BEHIND.lower().encode()


@dataclass(frozen=True)
class About:
    """What an answer reflects.

    Attributes:
        version: of the view; None where several tables were read.
        event_time: the largest event time in it, ISO 8601; None before the first event.
        freshness_ms: how long ago the version was committed.
        versions: {table: version} of all that was read.
        lag: how far it is behind its topics; None where nobody knows.
    """

    version: int | None
    event_time: str | None
    freshness_ms: int | None
    versions: dict[str, int]
    lag: Lag | None = None

    @classmethod
    def of(cls, standing: Reflected, lag: Lag | None) -> About:
        """What a version of one table reflects."""
        names = {standing.table: standing.version}
        return cls(standing.version, instant(standing.event_time), age_ms(standing.committed), names, lag)

    @classmethod
    def of_cut(cls, cut: ConsistentSnapshot, lag: Lag | None) -> About:
        """What rows that were computed from several tables reflect."""
        return cls(None, instant(cut.event_time), age_ms(cut.committed), cut.versions, lag)

    def headers(self) -> dict[str, str]:
        """As headers."""
        named = {
            "Strandline-Version": self.version,
            "Strandline-Event-Time": self.event_time,
            _AGE: self.freshness_ms,
        }
        return {name: str(value) for name, value in named.items() if value is not None} | lag_headers(self.lag)

    def members(self) -> str:
        """As members of a JSON object."""
        body: dict[str, Any] = {"event_time": self.event_time, "freshness_ms": self.freshness_ms}
        first = {"versions": self.versions} if self.version is None else {"version": self.version}
        return f"{to_json({**first, **body})[1:-1]}{lag_members(self.lag)}"


def lag_headers(lag: Lag | None) -> dict[str, str]:
    """How far an answer is behind its topics, as headers; none where nobody knows."""
    return {} if lag is None else {_STALENESS: str(lag.ms), _BEHIND: str(lag.records)}


def lag_members(lag: Lag | None) -> str:
    """How far an answer is behind its topics, as further members of a JSON object."""
    if lag is None:
        return ', "staleness_ms": null, "behind_records": null'
    return f', "staleness_ms": {lag.ms}, "behind_records": {lag.records}'


def wants_arrow(accept: str | None) -> bool:
    """True if the client prefers Arrow."""
    return accept is not None and ARROW in accept


def one_row(row: str | None, about: About) -> Response:
    """The answer about one key, whose row is JSON already: 404 without one."""
    body = f'{{"row": {row or "null"}, {about.members()}}}'
    return Response(body, 404 if row is None else 200, about.headers(), _JSON)


def many_rows(rows: Sequence[str], about: About) -> Response:
    """Rows that are JSON already."""
    return joined_rows(", ".join(rows).encode(), about)


def joined_rows(lines: bytes, about: About, headers: Mapping[str, str] | None = None) -> Response:
    """Rows that are JSON already, joined by commas; `headers` come beside those of what they reflect."""
    body = b'{"rows": [' + lines + b"], " + about.members().encode() + b"}"
    return Response(body, 200, {**about.headers(), **(headers or {})}, _JSON)


def arrow_rows(table: pa.Table, about: About) -> Response:
    """Rows as an Arrow stream."""
    import pyarrow as pa

    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue(), 200, about.headers(), ARROW)


class VersionAnswers:
    """The answers about one key at one version of a view: the same as `one_row`, all but the row and the age made once.

    Args:
        standing: what the version reflects.
    """

    def __init__(self, standing: Reflected) -> None:
        self.version = standing.version
        self.offsets = standing.offsets
        self._committed = standing.committed
        about = About.of(standing, None)
        fixed = {**about.headers(), "Content-Type": _JSON}
        del fixed[_AGE]
        self._fixed = [(name.lower().encode(), value.encode()) for name, value in fixed.items()]
        # The age and the lag are the last members: all before them stays.
        self._before_age = f", {about.members().partition(_AGE_MEMBER)[0]}{_AGE_MEMBER}"

    def of(self, row: str | None, lag: Lag | None) -> tuple[list[tuple[bytes, bytes]], bytes]:
        """The headers and the body of the answer with this row, which is JSON already."""
        age = str(age_ms(self._committed))
        body = f'{{"row": {row or "null"}{self._before_age}{age}{lag_members(lag)}}}'.encode()
        headers = [*self._fixed, (_AGE_HEADER, age.encode()), (b"content-length", str(len(body)).encode())]
        if lag is not None:
            headers += ((_STALENESS_HEADER, str(lag.ms).encode()), (_BEHIND_HEADER, str(lag.records).encode()))
        return headers, body


# The answers to requests that fail: one mapping from typed errors to the statuses of HTTP.
#
# The body is the error as data: `{"code", "action", "message", "where", "hint"}`. What may succeed later says when.

RETRY_SECONDS: Final = 1
"""An epoch takes about a second, and most of what is not there yet is there after one."""

_STATUS: Final[dict[type[store.StrandlineError], int]] = {
    serving.RequestRefused: 400,
    serving.KeyRequired: 400,
    serving.Unauthenticated: 401,
    serving.Forbidden: 403,
    serving.TimeLimit: 408,
    serving.ChangesGone: 410,
    serving.SnapshotExpired: 410,
    serving.VersionNotKept: 410,
    serving.TooLarge: 413,
    serving.MediaTypeRefused: 415,
    serving.KeyReused: 422,
    serving.Busy: 429,
    serving.NotYet: 503,
    serving.TooStale: 503,
    serving.NoConsistentSnapshot: 503,
    UnknownName: 404,
    SqlError: 400,
    EncodeFailed: 400,
    SourceUnavailable: 503,
    store.KeyRefused: 400,
    store.TableMissing: 404,
    store.VersionGone: 410,
    store.StorageUnavailable: 503,
    store.DiskFailed: 503,
    store.StrandlineError: 500,
}
_BODY = ("code", "action", "message", "where", "hint")


def status_of(error: store.StrandlineError) -> int:
    """The status of an error: that of its class, or of the nearest one above; 503 for the others that may pass."""
    status = next(_STATUS[each] for each in type(error).__mro__ if each in _STATUS)
    return 503 if status == 500 and error.action is store.Action.RETRY else status


def failure(error: store.StrandlineError) -> Response:
    """The answer to a request that failed with this error."""
    status = status_of(error)
    headers = {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else {}
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    about = error.attrs()
    # Paths of the server's disk are nobody's business outside.
    if not isinstance(error, SqlError):
        about["where"] = None
    return Response(to_json({name: about[name] for name in _BODY}), status, headers, "application/json")
