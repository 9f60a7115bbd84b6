"""Look-ups of one whole key, answered in front of the framework: `GET /v1/views/{view}/rows/{key}` without parameters.

    request ──one key, as JSON, of a replica that is LIVE──> answer
           └─ anything else, and whatever fails ──> the route in `rows`, which says the same at leisure

The framework takes ten times as long to find the way to an endpoint as RocksDB takes to read a row. Nothing is decided
here that is not decided there: a request that is answered here is answered there alike, but for the time.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from strandline.jobs.serve.values import RowText
from strandline.jobs.server.http.answers import VersionAnswers, wants_arrow
from strandline.jobs.server.http.measured import answered
from strandline.jobs.server.http.requests import key_of_segments, stored_name
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from starlette.types import Scope, Send

    from strandline.jobs.model.relation import Relation
    from strandline.jobs.server.state.replicas import Followed
    from strandline.jobs.server.state.server import Server

ROUTE: Final = "/v1/views/{view}/rows/{key:path}"
# The name of the view is as it stands: what an escaped one means is the router's business.
_PATH: Final = re.compile(rb"/v1/views/([^%/?]+)/rows/([^?]*)")


@dataclass
class _Pointed:
    """A view that is looked up by key, and what its answers share.

    Attributes:
        answers: of the version that was answered last.
    """

    relation: Relation
    followed: Followed
    text: RowText
    answers: VersionAnswers


class PointLookups:
    """The look-ups of a server. Called in the event loop alone."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._views: dict[str, _Pointed] = {}

    async def answer(self, scope: Scope, send: Send) -> bool:
        """Answer a request of HTTP; False when it is not one of these, and nothing was sent."""
        asked = _asked(scope)
        if asked is None:
            return False
        begun = time.perf_counter()
        try:
            found = self._found(scope, *asked)
        except StrandlineError:
            return False
        if found is None:
            return False
        status, headers, body = found
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        answered(self._server.metrics, ROUTE, status, time.perf_counter() - begun, len(body))
        return True

    def _found(self, scope: Scope, view: str, key: bytes) -> tuple[int, list[tuple[bytes, bytes]], bytes] | None:
        """Status, headers and body; None where the route has to answer. Raises StrandlineError."""
        authorization, accept = _headers(scope)
        if wants_arrow(accept):
            return None
        server = self._server
        view = stored_name(server.token_of(authorization), "read", view, server.catalogued.catalog)
        pointed = self._pointed(view)
        if pointed is None:
            return None
        read = pointed.followed.get(key_of_segments(key, pointed.relation))
        if read is None or not server.may_answer(view, read[0]):
            return None
        version, row = read
        if version != pointed.answers.version:
            pointed.answers = VersionAnswers(pointed.followed.standing(version))
        server.metrics.looked_up(view, "replica")
        headers, body = pointed.answers.of(
            None if row is None else pointed.text.of(row), server.topics.lag(pointed.answers.offsets)
        )
        return 404 if row is None else 200, headers, body

    def _pointed(self, view: str) -> _Pointed | None:
        """The view as it is now, if it has a replica that answers."""
        relation = self._server.catalogued.relation(view)
        followed = self._server.replicas.find(view)
        known = self._views.get(view)
        if known is not None and known.relation is relation and known.followed is followed:
            return known
        if followed is None or followed.relation != relation or self._server.partials.is_partial(view):
            return None
        version = followed.version
        if version is None or not relation.key:
            return None
        made = _Pointed(relation, followed, RowText(relation.columns), VersionAnswers(followed.standing(version)))
        self._views[view] = made
        return made


def _asked(scope: Scope) -> tuple[str, bytes] | None:
    """The view and the key's segments in the path; None for another request."""
    if scope["method"] != "GET" or scope["query_string"]:
        return None
    found = _PATH.fullmatch(scope["raw_path"])
    return None if found is None else (found[1].decode("latin-1"), found[2])


def _headers(scope: Scope) -> tuple[str | None, str | None]:
    """The headers `authorization` and `accept`; of one that comes twice, the first."""
    authorization = accept = None
    for name, value in scope["headers"]:
        if name == b"authorization" and authorization is None:
            authorization = value.decode("latin-1")
        elif name == b"accept" and accept is None:
            accept = value.decode("latin-1")
    return authorization, accept
