"""The errors of object stores, as the store's own.

Their texts are not passed on: a store may quote the signed request in its answer, with the session token in it. What is
kept is the HTTP status and the store's own code (`SlowDown`, `NoSuchBucket`).
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING

from obstore.exceptions import BaseError, NotSupportedError, PermissionDeniedError, UnauthenticatedError

from strandline.state_store.errors import (
    ObjectMissing,
    SettingsError,
    StorageDenied,
    StorageUnavailable,
    StrandlineError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_NO_CONTAINER = {"NoSuchBucket", "ContainerNotFound"}
# Statuses below 500 that pass by themselves: a timeout, a conflict of two writers, too many requests.
_PASSING = {408, 409, 429}
_RIGHTS = "check the access key, its rights on the bucket, and the region"


@contextmanager
def typed(url: str) -> Iterator[None]:
    """Raise an error of obstore inside the block as one of the store's.

    Args:
        url: the object or folder, for the message.

    Raises:
        ObjectMissing: there is no such object.
        SettingsError: there is no such bucket or container.
        StorageDenied: the rights are missing, or the store does not know the request.
        StorageUnavailable: no answer, or a failure of the store.
    """
    try:
        yield
    except (FileNotFoundError, BaseError) as error:
        # Not `from error`: its text would be printed with the traceback.
        raise _own(error, url) from None


def status_of(error: Exception) -> int | None:
    """The HTTP status that an error of obstore reports, if there was an answer."""
    found = _STATUS.search(str(error))
    return int(found[1]) if found else None


def _own(error: Exception, url: str) -> StrandlineError:
    text = str(error)
    code = _CODE.search(text)
    status = status_of(error)
    if code and code[1] in _NO_CONTAINER:
        return SettingsError(f"there is no such bucket: {code[1]}", where=url, hint="create it, or correct the URL")
    if isinstance(error, FileNotFoundError):
        return ObjectMissing("there is no such object", where=url, hint="check the lake's root")
    if "BadScheme" in text:
        return SettingsError(
            "the endpoint is not TLS", where=url, hint="use https://, or set STRANDLINE_STORAGE__ALLOW_HTTP=true"
        )
    answer = " ".join(part for part in (str(status or ""), code[1] if code else "") if part) or "no answer"
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return StorageDenied(f"the storage refuses access: {answer}", where=url, hint=_RIGHTS)
    if isinstance(error, NotSupportedError) or (status is not None and _is_refusal(status)):
        return StorageDenied(f"the storage refuses the request: {answer}", where=url, hint=_RIGHTS)
    return StorageUnavailable(
        f"the storage failed: {answer}", where=url, hint="try again; then check the network and the endpoint"
    )


def _is_refusal(status: int) -> bool:
    return status == 501 or (400 <= status < 500 and status not in _PASSING)
