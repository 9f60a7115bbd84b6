"""The answers to requests that fail: one mapping from typed errors to the statuses of HTTP.

The body is the error as data: `{"code", "action", "message", "where", "hint"}`. What may succeed later says when.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from strandline.jobs.model.errors import EncodeFailed, SourceUnavailable, SqlError, UnknownName
from strandline.jobs.serve import errors as serving
from strandline.jobs.serve.format import to_json
from strandline.state_store import errors as store

RETRY_SECONDS: Final = 1
"""An epoch takes about a second, and most of what is not there yet is there after one."""

_STATUS: Final[dict[type[store.StrandlineError], int]] = {
    serving.RequestRefused: 400,
    serving.KeyRequired: 400,
    serving.Unauthenticated: 401,
    serving.Forbidden: 403,
    serving.TimeLimit: 408,
    serving.ChangesGone: 410,
    serving.CutExpired: 410,
    serving.VersionNotKept: 410,
    serving.TooLarge: 413,
    serving.MediaTypeRefused: 415,
    serving.KeyReused: 422,
    serving.Busy: 429,
    serving.NotYet: 503,
    serving.TooStale: 503,
    serving.NoConsistentCut: 503,
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
