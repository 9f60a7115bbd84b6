"""`/v1/views/{view}/rows`: rows by key, key list, range and window.

A look-up by key in a replica takes some ten microseconds, so it is done in the event loop: a thread would cost more.
One of a whole key without parameters is answered before it comes here, by `point`.
"""

from __future__ import annotations

import asyncio
import re
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from strandline.jobs.partial.view import keys_of, rows_of
from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.serve.lookup import Lookup
from strandline.jobs.serve.pull import answer, plan_pull
from strandline.jobs.serve.results import RowText
from strandline.jobs.serve.terms import Least, Terms, no_versions
from strandline.jobs.serve.watch import staleness
from strandline.jobs.server.http.answers import About, VersionAnswers, arrow_rows, many_rows, one_row, wants_arrow
from strandline.jobs.server.http.api import DirectRoute, answered
from strandline.jobs.server.http.requests import (
    MOST_ROWS,
    WAITING,
    WINDOWS,
    columns_of,
    json_of,
    key_in_path,
    key_of_segments,
    key_values,
    named,
    number,
    parameters,
    pinned_in,
    seconds,
    server_of,
    stored_name,
    windows_of,
)
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.types import Scope, Send

    from strandline.jobs.model.tables import Relation
    from strandline.jobs.serve.consistent_snapshot import Pinned, Reflected
    from strandline.jobs.server.state.replicas import Followed
    from strandline.jobs.server.state.server import Server


_FEW_ROWS = 64
"""Read and written in the event loop: they take a millisecond. More take a thread, so that nobody waits for them."""

router = APIRouter(tags=["rows"], route_class=DirectRoute)

_ONE = {
    "row": {"town": "Rome", "visits": 3},
    "version": 12,
    "event_time": "2024-05-01T12:00:00.000Z",
    "freshness_ms": 80,
    "staleness_ms": 210,
    "behind_records": 0,
}
_MANY = {"rows": [_ONE["row"]], **{name: value for name, value in _ONE.items() if name != "row"}}


def _example(shown: dict[str, Any]) -> dict[int | str, dict[str, Any]]:
    return {200: {"content": {"application/json": {"example": shown}}}}


@router.get("/v1/views/{view}/rows/{key:path}", responses=_example(_ONE), openapi_extra=parameters("columns", *WAITING))
async def row(request: Request, view: str, key: str) -> Response:
    """The row of a key: one segment of the path for each column of the key. 404 when there is none."""
    view = named(request, "read", view)
    server = server_of(request)
    relation = server.catalogued.relation(view)
    lookup = Lookup((key_in_path(request, relation),), columns=columns_of(request), limit=1)
    lookup.check(relation)
    await _waited(request, server, relation)
    return await _answered(request, server, relation, lookup, one=True)


@router.get(
    "/v1/views/{view}/rows",
    responses=_example(_MANY),
    openapi_extra=parameters("key", "from", "to", *WINDOWS, "columns", "limit", *WAITING),
)
async def rows(request: Request, view: str) -> Response:
    """Rows of a view: `key` (may be repeated), or `from` and `to` of the key's first column, both included;
    `window_start_from` … `window_end_to`, `columns`, `limit`, `at_least`, `wait_ms`."""
    view = named(request, "read", view)
    server = server_of(request)
    relation = server.catalogued.relation(view)
    given = request.query_params
    low, high = (key_values([given[name]], relation) if name in given else None for name in ("from", "to"))
    keys = tuple(key_values([text], relation) for text in given.getlist("key")) if "key" in given else None
    limit = number(request, "limit", 1000, MOST_ROWS) or 0
    lookup = Lookup(keys, low, high, windows_of(request), columns_of(request), limit)
    lookup.check(relation)
    await _waited(request, server, relation)
    return await _answered(request, server, relation, lookup)


@router.post(
    "/v1/views/{view}/rows", responses=_example(_MANY), openapi_extra=parameters(*WINDOWS, "columns", *WAITING)
)
async def rows_of_keys(request: Request, view: str) -> Response:
    """Rows of many keys: `{"keys": [["Rome", 1], ["Oslo", 2]]}`; each may hold the first columns of the key only."""
    view = named(request, "read", view)
    server = server_of(request)
    relation = server.catalogued.relation(view)
    keys = (await json_of(request, "keys")).get("keys")
    if not isinstance(keys, list) or len(keys) > MOST_ROWS:
        raise RequestRefused(f"'keys' is a list of at most {MOST_ROWS} keys")
    listed = tuple(key_values(key if isinstance(key, list) else [key], relation) for key in keys)
    lookup = Lookup(listed, None, None, windows_of(request), columns_of(request), MOST_ROWS)
    lookup.check(relation)
    await _waited(request, server, relation)
    return await _answered(request, server, relation, lookup)


async def _waited(request: Request, server: Server, relation: Relation) -> None:
    allowed = staleness(request.query_params.get("max_staleness"))
    if allowed is not None and "cut" not in request.query_params:
        await server.meet(relation, allowed, seconds(request))
    least = request.query_params.get("at_least")
    if least is None:
        return
    wanted = Least.read(least)
    if not wanted.topic and server.partials.is_partial(relation.name):
        raise no_versions(relation.name)
    await server.wait(relation, wanted, seconds(request))


async def _answered(
    request: Request, server: Server, relation: Relation, lookup: Lookup, *, one: bool = False
) -> Response:
    """By what a partial view keeps or computes; else by the view's replica where it is LIVE, else by the table."""
    pinned = pinned_in(request.query_params.get("cut"))
    if pinned is not None:
        return await asyncio.to_thread(_from_table, request, server, relation, lookup, one, pinned)
    if server.partials.is_partial(relation.name):
        return await _from_partial(request, server, relation, lookup, one=one)
    followed = server.replicas.of(relation)
    if followed is not None:
        read = partial(_from_replica, request, server, relation, lookup, followed, one=one)
        at_once = not server.replicas.remote and lookup.most_rows(relation) <= _FEW_ROWS
        found = read() if at_once else await asyncio.to_thread(read)
        if found is not None:
            return found
    server.metrics.looked_up(relation.name, "table")
    return await asyncio.to_thread(_from_table, request, server, relation, lookup, one)


def _from_replica(
    request: Request, server: Server, relation: Relation, lookup: Lookup, followed: Followed, *, one: bool
) -> Response | None:
    """The answer of the view's replica; None while it has none."""
    found = followed.read(lambda now: (now.version, lookup.rows(now, relation.key)))
    if found is None or not server.may_answer(relation.name, found[0]):
        return None
    version, rows = found
    server.metrics.looked_up(relation.name, "replica")
    return _response(request, relation, rows, _about(server, followed.standing(version)), one=one)


async def _from_partial(request: Request, server: Server, relation: Relation, lookup: Lookup, *, one: bool) -> Response:
    view = server.partials.find(relation.name)
    if view is None:
        view = await asyncio.to_thread(server.partials.of, relation.name)
    keys = keys_of(lookup, view.plan)
    found = view.kept(keys)
    server.metrics.looked_up(relation.name, "upquery" if found is None else "kept")
    if found is None:
        found = await asyncio.to_thread(view.read, keys)
    return _response(
        request,
        relation,
        rows_of(lookup, view.plan, found),
        About.of_cut(found.cut, server.topics.lag(found.cut.offsets)),
        one=one,
    )


def _from_table(
    request: Request, server: Server, relation: Relation, lookup: Lookup, one: bool, pinned: Pinned | None = None
) -> Response:
    terms = Terms(server.options.limits, pinned=pinned)
    catalog = server.catalogued.catalog
    plan = plan_pull(lookup.select(relation), catalog, server.lake, terms.unnamed)
    found = answer(plan, catalog, server.lake, server.library(), terms)
    standing = found.cut.tables[relation.name]
    if standing is None:
        about = About(None, None, None, {})
    else:
        about = _about(server, standing)
        server.may_answer(relation.name, standing.version)
    made = found.table.rename_columns(list(found.names)).to_pylist()
    return _response(request, relation, made, about, one=one)


def _about(server: Server, standing: Reflected) -> About:
    return About.of(standing, server.topics.lag(standing.offsets))


def _response(
    request: Request, relation: Relation, found: Sequence[Mapping[str, Any]], about: About, *, one: bool
) -> Response:
    """The answer in the form that is wanted.

    Args:
        found: rows as Arrow's `to_pylist` gives them, maybe with more columns than are wanted.
    """
    types = dict(relation.columns)
    shown = {name: types[name] for name in columns_of(request) or types}
    if wants_arrow(request.headers.get("accept")):
        import pyarrow as pa

        schema = pa.schema([(name, sql_type.arrow()) for name, sql_type in shown.items()])
        return arrow_rows(pa.Table.from_pylist(found, schema), about)
    text = RowText(shown.items())
    made = [text.of(each) for each in found]
    return one_row(made[0] if made else None, about) if one else many_rows(made, about)


# Look-ups of one whole key, answered in front of the framework: `GET /v1/views/{view}/rows/{key}` without parameters.
#
#     request ──one key, as JSON, of a replica that is LIVE──> answer
#            └─ anything else, and whatever fails ──> the route in `rows`, which says the same at leisure
#
# The framework takes ten times as long to find the way to an endpoint as RocksDB takes to read a row. Nothing is
# decided here that is not decided there: a request that is answered here is answered there alike, but for the time.

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
        if self._server.replicas.remote:
            return None
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
