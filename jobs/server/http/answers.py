"""The forms of answers: rows as JSON or as an Arrow stream, with what they reflect in headers of one meaning.

Also here: ksqlDB's spelling of names, types and schemas, for clients that were written for it.

ksqlDB folds names to upper case, we to lower: its clients get, and send, upper. A name that was quoted stays as it is.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson
from fastapi.routing import APIRoute
from starlette.responses import Response

from strandline.jobs.model.errors import EncodeFailed, SourceUnavailable, SqlError, UnknownName
from strandline.jobs.model.tables import WINDOW_BOUNDS
from strandline.jobs.model.types import BaseType
from strandline.jobs.serve import errors as serving
from strandline.jobs.serve.consistent_snapshot import age_ms, instant
from strandline.jobs.serve.results import to_json
from strandline.jobs.server.http.requests import server_of
from strandline.jobs.sql.size import too_deep
from strandline.state_store import errors as store
from strandline.state_store.errors import StrandlineError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence

    import pyarrow as pa
    from starlette.requests import Request

    from strandline.jobs.model.types import SqlType
    from strandline.jobs.serve.consistent_snapshot import ConsistentSnapshot, Reflected
    from strandline.jobs.serve.watch import Lag


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
    # One copy: each `+` would make another of what may be 64 MB.
    body = b"".join((b'{"rows": [', lines, b"], ", about.members().encode(), b"}"))
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


_TYPES: Final = {BaseType.INT: "INTEGER", BaseType.VARCHAR: "STRING"}


OFFSET_RESETS: Final = ("ksql.streams.auto.offset.reset", "auto.offset.reset")
"""The properties of a push query by which it begins with the rows that are there."""
MAX_STALENESS: Final = "strandline.max_staleness"
PROPERTIES: Final = (*OFFSET_RESETS, MAX_STALENESS)
"""Those of queries; others are taken and mean nothing, as they may to ksqlDB."""


def shown_name(name: str) -> str:
    """As ksqlDB shows it: one that was not quoted in upper case."""
    return name.upper() if name == name.lower() else name


def given_name(name: str) -> str:
    """As the parser folds it; a name in backquotes stays."""
    return name[1:-1] if name.startswith("`") and name.endswith("`") and len(name) > 2 else name.lower()


def shown_type(sql_type: SqlType) -> str:
    """A type as ksqlDB writes it."""
    match sql_type.base:
        case BaseType.ARRAY | BaseType.MAP:
            return f"{sql_type.base}<{', '.join(map(shown_type, sql_type.args))}>"
        case BaseType.STRUCT:
            fields = (f"`{shown_name(name)}` {shown_type(inner)}" for name, inner in sql_type.fields)
            return f"STRUCT<{', '.join(fields)}>"
        case _:
            return _TYPES.get(sql_type.base, str(sql_type))


def schema(names: Sequence[str], types: Sequence[SqlType], key: Collection[str] = ()) -> str:
    """The columns of an answer in one text.

    Args:
        key: those of the table's key; the bounds of its window belong to it.
    """
    marked = {*key, *WINDOW_BOUNDS} if key else ()
    columns = (
        f"`{shown_name(name)}` {shown_type(sql_type)}{' KEY' if name in marked else ''}"
        for name, sql_type in zip(names, types, strict=True)
    )
    return ", ".join(columns)


def field_of(name: str, sql_type: SqlType, *, key: bool = False) -> dict[str, Any]:
    """A column as ksqlDB's clients read it."""
    found: dict[str, Any] = {"name": shown_name(name), "schema": _schema(sql_type)}
    return found | {"type": "KEY"} if key else found


def _schema(sql_type: SqlType) -> dict[str, Any]:
    """A type as ksqlDB's clients read it: its word, the fields of a STRUCT, the elements of an ARRAY or MAP."""
    base = sql_type.base
    fields = [field_of(name, inner) for name, inner in sql_type.fields] if base is BaseType.STRUCT else None
    member = _schema(sql_type.args[-1]) if sql_type.args else None
    word = str(base) if base in (BaseType.ARRAY, BaseType.MAP, BaseType.STRUCT, BaseType.DECIMAL) else None
    made = {"type": word or shown_type(sql_type), "fields": fields, "memberSchema": member}
    if base is BaseType.DECIMAL:
        made["parameters"] = {"precision": sql_type.precision, "scale": sql_type.scale}
    return made


# Failures of ksqlDB's routes in ksqlDB's shape, for clients that were written for it.
#
#     {"@type": "statement_error", "error_code": 40001, "message": …, "statementText": …, "entities": []}
#     {"@type": "generic_error", "error_code": 40000, "message": …}
#
# Beside these stand the members that the other routes have (`code`, `action`, `where`, `hint`).

_BAD_STATEMENT: Final = 40001
"""Of ksqlDB's codes the one for whatever is wrong with a statement, also an unknown name; each has the status 400."""


class KsqlRoute(APIRoute):
    """A route that fails in ksqlDB's shape."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handler = super().get_route_handler()

        async def handled(request: Request) -> Response:
            try:
                return await handler(request)
            except StrandlineError as error:
                return ksql_failure(server_of(request).catalogued.catalog.name_map.localized_error(error))
            except RecursionError:
                return ksql_failure(too_deep(1, 1))

        return handled


def ksql_failure(error: StrandlineError, statement: str = "") -> Response:
    """The answer to a request of a ksqlDB client that failed with this error.

    Args:
        statement: the text that failed, where it is one of several.
    """
    plain = failure(error)
    body = orjson.loads(plain.body)
    if isinstance(error, SqlError):
        plain.status_code = _BAD_STATEMENT // 100
        about = {"@type": "statement_error", "error_code": _BAD_STATEMENT, "statementText": statement, "entities": []}
    else:
        about = {"@type": "generic_error", "error_code": plain.status_code * 100}
    headers = {name: value for name, value in plain.headers.items() if name not in ("content-length", "content-type")}
    return Response(orjson.dumps({**about, **body}), plain.status_code, headers, "application/json")
