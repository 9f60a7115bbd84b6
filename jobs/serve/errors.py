"""The errors of reading: of pull and push queries, and of the server that answers them.

ServeError
├── RequestRefused            serve.request_refused       stop
├── MediaTypeRefused          serve.media_type_refused    stop
├── KeyRequired               serve.key_required          stop
├── NoConsistentSnapshot           serve.no_consistent_cut     retry
├── SnapshotExpired                serve.cut_expired           retry
├── VersionNotKept            serve.version_not_kept      stop
├── NotYet                    serve.not_yet               retry
├── TooStale                  serve.too_stale             retry
├── TimeLimit                 serve.time_limit            stop
├── TooLarge                  serve.too_large             stop
├── Cancelled                 serve.cancelled             stop
├── Busy                      serve.busy                  retry
├── KeyReused                 serve.key_reused            stop
├── ChangesGone               serve.restart_from_snapshot restore
├── SlowReader                serve.slow_reader           retry
├── Unauthenticated           serve.unauthenticated       stop
└── Forbidden                 serve.forbidden             stop

InvalidQuery
└── RowNotAnswered            serve.row_failed            stop    says by what
"""

from __future__ import annotations

from strandline.jobs.model.errors import InvalidQuery
from strandline.jobs.model.row_faults import RowFault
from strandline.state_store.errors import Action, StrandlineError
from strandline.state_store.wording import Name, sentence


class ServeError(StrandlineError):
    """Base of the errors of reading."""

    code = "serve"


class RequestRefused(ServeError):
    """A request does not say what it must, or says it in a way that cannot be read. Stop: correct the request."""

    code = "serve.request_refused"


class MediaTypeRefused(ServeError):
    """The body of a write is not declared as JSON. Stop: send `Content-Type: application/json`.

    A page of any site may send the types that are taken for plain text without asking; of JSON its browser asks first.
    """

    code = "serve.media_type_refused"


class KeyRequired(ServeError):
    """A partial view was read otherwise than by its key. Stop: give the columns of the key, or have the view stored."""

    code = "serve.key_required"


class NoConsistentSnapshot(ServeError):
    """The tables of a query have no versions, among those that are kept, that reflect the same input. Retry when the
    one that is behind has caught up; `strandline status` shows it."""

    code = "serve.no_consistent_cut"
    action = Action.RETRY


class SnapshotExpired(ServeError):
    """A pinned cut has expired, or a version of it is not kept any more. Retry with a new one."""

    code = "serve.cut_expired"
    action = Action.RETRY


class VersionNotKept(ServeError):
    """A query reads a version of a table that is not there: it was removed, or does not exist yet. Stop: the message
    says which versions there are."""

    code = "serve.version_not_kept"


class NotYet(ServeError):
    """A view has not come to the version that was asked for within the time that the request allows. Retry."""

    code = "serve.not_yet"
    action = Action.RETRY

    @classmethod
    def of(cls, view: str) -> NotYet:
        """The error about a view."""
        return cls(
            sentence("'{}' does not reflect that yet", Name(view)),
            hint="ask again; is its pipeline running? See `strandline status`",
        )


class TooStale(NotYet):
    """An answer would be further behind its topics than the request allows, or nobody knows how far. Retry when the
    pipeline has caught up; `strandline status` shows it."""

    code = "serve.too_stale"


class TimeLimit(ServeError):
    """A query ran longer than it may, and was stopped. Stop: ask for less, or define a view that does the work."""

    code = "serve.time_limit"


class TooLarge(ServeError):
    """A query needs more memory, or has a larger answer, than it may. Stop: ask for less."""

    code = "serve.too_large"


class Cancelled(ServeError):
    """A query was ended because its client asked for that. Stop: nothing is wrong."""

    code = "serve.cancelled"


class Busy(ServeError):
    """The server answers as many requests of this kind as it may. Retry after a moment."""

    code = "serve.busy"
    action = Action.RETRY


class KeyReused(ServeError):
    """An idempotency key came with another request before. Stop: use a new key for a new request."""

    code = "serve.key_reused"


class ChangesGone(ServeError):
    """The changes after the version that a subscriber stands at are no longer kept. Restore: begin with a snapshot."""

    code = "serve.restart_from_snapshot"
    action = Action.RESTORE


class SlowReader(ServeError):
    """A subscriber did not take its events in time and was let go. Retry from the last event that it has."""

    code = "serve.slow_reader"
    action = Action.RETRY


class Unauthenticated(ServeError):
    """A request came without a token, or with one that is unknown or expired. Stop: `strandline token` makes one."""

    code = "serve.unauthenticated"


class Forbidden(ServeError):
    """A token does not allow what was asked for. Stop: ask with one whose scopes name the view and the verb."""

    code = "serve.forbidden"


class RowNotAnswered(InvalidQuery):
    """An expression of a query has no value for a row: a division by zero, a number out of range, a text that is none.
    Stop: leave such rows out with WHERE, or write TRY_CAST, NULLIF or CASE for them.

    Args:
        fault: what it fails by.
    """

    code = "serve.row_failed"

    def __init__(self, message: str, *, fault: RowFault = RowFault.UNKNOWN, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.fault = fault
