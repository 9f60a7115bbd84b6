"""What ksqlDB's clients ask beside queries: which server this is, whether it is well, and what is defined.

    GET  /info           the server's version           GET /healthcheck    as /ready
    GET  /v1/metadata    the same with its cluster      GET /clusterStatus  one host, which is alive
    GET  /is_valid_property/NAME                        a property of queries
    POST /ksql           LIST|SHOW STREAMS, TABLES, QUERIES, TOPICS, PROPERTIES, FUNCTIONS; DESCRIBE name

Statements that define or insert are refused by name: a definition is part of a pipeline, which its developers apply.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi import APIRouter, Request
from starlette.responses import Response

from strandline.jobs.catalog.stored_names import shown_text, stored_statement
from strandline.jobs.model.definitions import Definition, InsertQuery, Kind, Source, View
from strandline.jobs.model.errors import NotSupported, UnknownName
from strandline.jobs.model.tables import WINDOW_BOUNDS
from strandline.jobs.serve.errors import RequestRefused
from strandline.jobs.server.http.answers import PROPERTIES, KsqlRoute, field_of, ksql_failure, shown_name
from strandline.jobs.server.http.requests import json_of, reader_of, server_of
from strandline.jobs.session.language_functions import kinds
from strandline.jobs.sql.size import check_characters
from strandline.jobs.sql.statements import parse
from strandline.jobs.sql.syntax import Describe, Show, Statement
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from strandline.jobs.catalog.catalog import Catalog
    from strandline.jobs.server.state.access import Token

router = APIRouter(tags=["ksqlDB"], route_class=KsqlRoute)

_KSQLDB: Final = "7.9.0"
"""The version of ksqlDB whose REST shapes these are: clients choose by it what they may ask."""
_CLUSTER: Final = "strandline"
_SERVICE: Final = f"strandline-{version('strandline')}"


@router.get("/info")
async def info(request: Request) -> Response:
    """Which server this is, as ksqlDB's clients ask first."""
    reader_of(request)
    about = {
        "version": _KSQLDB,
        "kafkaClusterId": _CLUSTER,
        "ksqlServiceId": _SERVICE,
        "serverStatus": "RUNNING",
    }
    return _answer({"KsqlServerInfo": about})


@router.get("/v1/metadata")
async def metadata(request: Request) -> Response:
    """The server's version, and the cluster that it is of."""
    reader_of(request)
    return _answer({"version": _KSQLDB, "clusterId": _cluster()})


@router.get("/v1/metadata/id")
async def metadata_id(request: Request) -> Response:
    """The cluster that the server is of."""
    reader_of(request)
    return _answer(_cluster())


@router.get("/clusterStatus")
async def cluster_status(request: Request) -> Response:
    """One host, which is alive: servers of one lake do not know each other, and each answers all queries."""
    reader_of(request)
    now = int(time.time() * 1000)
    lags = {"stateStoreLags": {}, "updateTimeMs": now}
    host = {"hostAlive": True, "lastStatusUpdateMs": now, "activeStandbyPerQuery": {}, "hostStoreLags": lags}
    return _answer({"clusterStatus": {request.headers.get("host", ""): host}})


@router.get("/is_valid_property/{name}")
async def is_valid_property(request: Request, name: str) -> Response:
    """`true` of a property that queries take; 400 of another."""
    reader_of(request)
    if name not in PROPERTIES:
        raise RequestRefused(f"'{name}' is not a property of queries", hint=f"there are {', '.join(PROPERTIES)}")
    return _answer(True)


@router.get("/healthcheck")
async def healthcheck(request: Request) -> Response:
    """200 while every table is there and every replica answers, else 503. Open to all: it says no more than that."""
    server = server_of(request)
    live = all(replica.phase == "live" for replica in server.replicas.all() if not replica.absent)
    tables = not await asyncio.to_thread(server.lost)
    parts = {"metastore": {"isHealthy": tables}, "replicas": {"isHealthy": live}}
    healthy = live and tables
    return _answer({"isHealthy": healthy, "details": parts, "serverState": "READY"}, 200 if healthy else 503)


@router.post("/ksql")
async def ksql(request: Request) -> Response:
    """`{"ksql": "LIST STREAMS; DESCRIBE BY_TOWN;"}`: an object for each statement, of what the token allows to read."""
    token = reader_of(request)
    body = await json_of(request)
    text = body.get("ksql")
    if not isinstance(text, str):
        raise RequestRefused("'ksql' is a text")
    check_characters(text)
    catalog = server_of(request).catalogued.catalog
    answers: list[dict[str, Any]] = []
    for statement in await asyncio.to_thread(parse, text):
        try:
            answer = await asyncio.to_thread(_answered, statement, catalog, token)
        except StrandlineError as error:
            return ksql_failure(catalog.name_map.localized_error(error), statement.sql)
        answers.append({"statementText": f"{statement.sql};", **answer, "warnings": []})
    return _answer(answers)


def _answered(statement: Statement, catalog: Catalog, token: Token) -> dict[str, Any]:
    """What one statement is answered.

    Raises:
        NotSupported: it is none that only reads.
        UnknownName: there is nothing of this name.
        Forbidden: the token does not allow to read it.
    """
    if isinstance(statement, Show) and statement.what in _LISTINGS:
        return _LISTINGS[statement.what](catalog, token)
    if isinstance(statement, Describe):
        name = stored_statement(statement, catalog.name_map).name
        token.require("read", *catalog.name_map.scopes_of(name))
        return {"@type": "sourceDescription", "sourceDescription": _description(name, catalog)}
    raise NotSupported(
        f"{statement.sql.split(None, 1)[0].upper()} over HTTP is not supported",
        line=statement.line,
        column=statement.column,
        hint="/query takes SELECT, /inserts-stream rows, and `strandline sql` and `strandline apply` every statement",
    )


def _streams(catalog: Catalog, token: Token) -> dict[str, Any]:
    return {"@type": "streams", "streams": _sources("stream", catalog, token)}


def _tables(catalog: Catalog, token: Token) -> dict[str, Any]:
    return {"@type": "tables", "tables": _sources("table", catalog, token)}


def _topics(catalog: Catalog, token: Token) -> dict[str, Any]:
    """The topics of sources, as they were declared; no broker is asked."""
    sources = (d for d in _readable(catalog, token) if isinstance(d, Source))
    found = {source.topic: [source.replicas] * source.partitions for source in sources}
    return {"@type": "kafka_topics", "topics": [{"name": name, "replicaInfo": each} for name, each in found.items()]}


def _queries(catalog: Catalog, token: Token) -> dict[str, Any]:
    found = [_query(d, catalog) for d in _readable(catalog, token) if not isinstance(d, Source)]
    return {"@type": "queries", "queries": found}


def _functions(catalog: Catalog, token: Token) -> dict[str, Any]:
    del token  # Names of functions are no data.
    types = {name: kind.upper() for name, kind in kinds().items()}
    types |= {f.name: "AGGREGATE" if f.aggregate else "SCALAR" for f in catalog.functions.values()}
    found = [{"name": name, "type": kind, "category": ""} for name, kind in sorted(types.items())]
    return {"@type": "function_names", "functions": found}


def _properties(catalog: Catalog, token: Token) -> dict[str, Any]:
    del catalog, token  # Settings of a server are its operator's, and are not told here.
    return {"@type": "properties", "properties": [], "overwrittenProperties": [], "defaultProperties": []}


_LISTINGS: Final[dict[str, Callable[[Catalog, Token], dict[str, Any]]]] = {
    "STREAMS": _streams,
    "TABLES": _tables,
    "QUERIES": _queries,
    "TOPICS": _topics,
    "FUNCTIONS": _functions,
    "PROPERTIES": _properties,
}


def _readable(catalog: Catalog, token: Token) -> list[Definition]:
    """The definitions that the token allows to read; a query that inserts belongs to its target."""
    scopes = catalog.name_map.scopes_of
    names = ((d, d.target if isinstance(d, InsertQuery) else d.name) for d in catalog.definitions())
    return [d for d, name in names if token.allows("read", *scopes(name))]


def _sources(kind: Kind, catalog: Catalog, token: Token) -> list[dict[str, Any]]:
    found = (d for d in _readable(catalog, token) if not isinstance(d, InsertQuery))
    return [_source(each, catalog) for each in found if each.kind == kind]


def _source(definition: Source | View, catalog: Catalog) -> dict[str, Any]:
    return {
        "type": definition.kind.upper(),
        "name": shown_name(catalog.name_map.of(definition.name)),
        **_kept_as(definition),
        "isWindowed": _is_windowed(definition),
    }


def _kept_as(definition: Source | View) -> dict[str, str]:
    """The topic and its formats; of a view those of its changelog topic, empty where it has none."""
    if isinstance(definition, Source):
        topic, key, value = definition.topic, definition.key_format, definition.value_format
    else:
        options = definition.options
        topic = options.get("KAFKA_TOPIC", "")
        key = options.get("KEY_FORMAT", options.get("FORMAT", "KAFKA"))
        value = options.get("VALUE_FORMAT", options.get("FORMAT", "JSON"))
    return {"topic": topic, "keyFormat": key, "valueFormat": value}


def _is_windowed(definition: Source | View) -> bool:
    return isinstance(definition, View) and any(bound in definition.row_key for bound in WINDOW_BOUNDS)


def _query(definition: View | InsertQuery, catalog: Catalog) -> dict[str, Any]:
    """ksqlDB's form of a persistent query. Whether its pipeline runs now is not known here, and not said."""
    sink = definition.target if isinstance(definition, InsertQuery) else definition.name
    topic = definition.options.get("KAFKA_TOPIC") if isinstance(definition, View) else None
    return {
        "queryString": f"{shown_text(definition.sql, catalog)};",
        "sinks": [shown_name(catalog.name_map.of(sink))],
        # ksqlDB's Java client takes no query without a topic; its own tables have one of their name.
        "sinkKafkaTopics": [topic or shown_name(catalog.name_map.of(sink))],
        "id": _query_id(definition, catalog),
        "queryType": "PERSISTENT",
    }


def _query_id(definition: View | InsertQuery, catalog: Catalog) -> str:
    if isinstance(definition, InsertQuery):
        return f"INSERTQUERY_{shown_name(catalog.name_map.of(definition.target))}_{definition.number}"
    kind = "CSAS" if definition.kind == "stream" else "CTAS"
    return f"{kind}_{shown_name(catalog.name_map.of(definition.name))}"


def _description(name: str, catalog: Catalog) -> dict[str, Any]:
    found = catalog.get(name)
    if isinstance(found, InsertQuery):
        raise UnknownName.among("stream or table", name, catalog.relations())
    queries = [d for d in catalog.definitions() if not isinstance(d, Source)]
    writing = [d for d in queries if name in (d.target if isinstance(d, InsertQuery) else d.name,)]
    return {
        "name": shown_name(catalog.name_map.of(name)),
        "type": found.kind.upper(),
        "windowType": None,
        "readQueries": _briefly((d for d in queries if name in d.inputs), catalog),
        "writeQueries": _briefly(writing, catalog),
        "fields": [field_of(c.name, c.type, key=c.key) for c in found.columns],
        "timestamp": (found.timestamp or "") if isinstance(found, Source) else "",
        "statistics": "",
        "errorStats": "",
        "extended": False,
        **_kept_as(found),
        "partitions": found.partitions if isinstance(found, Source) else 0,
        "replication": found.replicas if isinstance(found, Source) else 0,
        "statement": f"{shown_text(found.sql, catalog)};",
    }


def _briefly(queries: Iterable[View | InsertQuery], catalog: Catalog) -> list[dict[str, Any]]:
    return [_query(each, catalog) for each in queries]


def _cluster() -> dict[str, Any]:
    clusters = {"kafka-cluster": _CLUSTER, "ksql-cluster": _SERVICE}
    return {"id": "", "scope": {"path": [], "clusters": clusters}}


def _answer(body: object, status: int = 200) -> Response:
    return Response(orjson.dumps(body), status, media_type="application/json")
