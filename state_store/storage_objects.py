"""The storage on an object store (S3, Google, Azure and what speaks like them), through obstore.

A put that is repeated after a lost answer finds its own object, and the store then says that the name is taken. So each
conditional put carries a mark of its own, and a writer that is told "taken" looks whose mark is there.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    GenericError,
    NotSupportedError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)

from strandline.state_store.errors import (
    ObjectMissing,
    SettingsError,
    StorageDenied,
    StorageUnavailable,
    StrandlineError,
)
from strandline.state_store.paths import checked_folder, checked_key, hidden, joined
from strandline.state_store.storage_verbs import REQUESTS, ListedObject, Storage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore import ObjectMeta, PutMode
    from obstore.store import AzureStore, GCSStore, S3Store

    _Store = S3Store | GCSStore | AzureStore


# Errors of object stores, translated into those of the store.
#
# Their texts are not passed on: a store may quote the signed request in its answer, with the session token in it.
# What is kept is the HTTP status and the store's own code (`SlowDown`, `NoSuchBucket`).

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>(\w{1,60})</Code>")
_NO_CONTAINER = {"NoSuchBucket", "ContainerNotFound"}
# Statuses below 500 that pass by themselves: a timeout, a conflict of two writers, too many requests.
_PASSING = {408, 409, 429}
_RIGHTS = "check the access key, its rights on the bucket, and the region"


@contextmanager
def request(verb: str, url: str) -> Iterator[None]:
    """Count the block as one request, and raise an error of obstore in it as one of the store's.

    Args:
        verb: what is asked: get, head, put, delete or list.
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
        own = _own(error, url)
        REQUESTS.count(verb, own.code)
        # Not `from error`: its text would be printed with the traceback.
        raise own from None
    REQUESTS.count(verb, "ok")


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


# The name of the mark in an object's metadata. Letters only: Azure refuses '-', and many HTTP servers drop headers
# with '_'.
_MARK = "writermark"
# One page of S3's listing; the default of 50 crosses into Python twenty times as often.
_PAGE = 1000
_RANGE_NOT_SATISFIABLE = 416


class ObjectStorage(Storage):
    """Objects of a bucket or container, below a prefix that the store itself adds.

    Args:
        store: obstore's store, opened with the prefix. It is never printed: it holds keys.
        url: the root, such as `s3://bucket/lake`, without '/' at its end.
        endpoint: where the bucket is, if not at its usual place: part of what makes two storages equal.
    """

    def __init__(self, store: _Store, url: str, endpoint: str | None = None) -> None:
        self._store = store
        self._url = url
        self._endpoint = endpoint

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectStorage) and (other._url, other._endpoint) == (self._url, self._endpoint)

    def __hash__(self) -> int:
        return hash((self._url, self._endpoint))

    def __repr__(self) -> str:
        return f"ObjectStorage('{self._url}')"

    def get(self, key: str) -> bytes:
        with request("get", self._object(key)):
            return bytes(obstore.get(self._store, key).bytes())

    def get_range(self, key: str, start: int, length: int) -> bytes:
        if length == 0:
            self.size(key)  # a range of nothing is no request, but a missing object is missing all the same
            return b""
        with request("get", self._object(key)):
            try:
                return bytes(obstore.get_range(self._store, key, start=start, length=length))
            except GenericError as error:
                if status_of(error) == _RANGE_NOT_SATISFIABLE:
                    return b""
                raise

    def get_with_etag(self, key: str) -> tuple[bytes, str]:
        with request("get", self._object(key)):
            found = obstore.get(self._store, key)
            return bytes(found.bytes()), _etag(found.meta)

    def size(self, key: str) -> int:
        with request("head", self._object(key)):
            return obstore.head(self._store, key)["size"]

    def exists(self, key: str) -> bool:
        try:
            self.size(key)
        except ObjectMissing:
            return False
        return True

    def create(self, key: str, data: bytes) -> bool:
        return self._put(key, data, "create") is not None

    def replace(self, key: str, data: bytes) -> None:
        with request("put", self._object(key)):
            obstore.put(self._store, key, data)

    def update(self, key: str, data: bytes, expected_etag: str | None) -> str | None:
        if expected_etag is None:
            return self._put(key, data, "create")
        e_tag, _, version = expected_etag.partition("\n")
        return self._put(key, data, {"e_tag": e_tag, "version": version} if version else {"e_tag": e_tag})

    def delete(self, key: str) -> None:
        try:
            with request("delete", self._object(key)):
                obstore.delete(self._store, key)
        except ObjectMissing:  # Google and Azure say so, S3 does not
            return

    def list(self, folder: str, after: str | None = None, *, recursive: bool = False) -> Iterator[str]:
        folder = checked_folder(folder)
        with request("list", self.url(folder)):
            if recursive:
                found = [*_keys(self._store, folder, after)]
            elif after is None:
                found = [each["path"] for each in obstore.list_with_delimiter(self._store, folder)["objects"]]
            else:
                found = [*_past(self._store, folder, after)]
        # Sorted here: directory buckets (S3 Express) list in no order.
        return (key for key in sorted(found) if not hidden(key) and (after is None or key > after))

    def entries(self, folder: str) -> Iterator[ListedObject]:
        folder = checked_folder(folder)
        with request("list", self.url(folder)):
            found = [each for page in obstore.list(self._store, folder, chunk_size=_PAGE) for each in page]
        for each in sorted(found, key=lambda each: each["path"]):
            if not hidden(each["path"]):
                modified = int(each["last_modified"].timestamp() * 1000)
                yield ListedObject(each["path"], each["size"], modified, _etag(each))

    def folders(self, folder: str) -> Iterator[str]:
        folder = checked_folder(folder)
        with request("list", self.url(folder)):
            found = obstore.list_with_delimiter(self._store, folder)["common_prefixes"]
        return (key for key in sorted(found) if not hidden(key))

    def make_folder(self, folder: str) -> None:
        checked_folder(folder)

    def url(self, key: str) -> str:
        return joined(self._url, checked_folder(key)) if key else self._url

    def local_path(self, key: str) -> None:
        checked_folder(key)

    def _object(self, key: str) -> str:
        return joined(self._url, checked_key(key))

    def _put(self, key: str, data: bytes, mode: PutMode) -> str | None:
        """Put on a condition; the new etag, or None when another writer's object is there."""
        mark = uuid4().hex
        with request("put", self._object(key)):
            try:
                return _etag(obstore.put(self._store, key, data, mode=mode, attributes={_MARK: mark}))
            except (AlreadyExistsError, PreconditionError):
                return self._if_marked(key, mark)

    def _if_marked(self, key: str, mark: str) -> str | None:
        try:
            found = obstore.get(self._store, key, options={"head": True})
        except FileNotFoundError:  # an update of nothing, or removed since
            return None
        return _etag(found.meta) if found.attributes.get(_MARK) == mark else None


def _past(store: _Store, folder: str, after: str) -> Iterator[str]:
    """The keys of the folder itself past `after`.

    A store lists either past a key or folder-wise, not both. So past a key, and from there over each inner folder at
    once: a log has two or three of them, and ever more commits.
    """
    start: str | None = after
    while start is not None:
        skipped: str | None = None
        for each in _keys(store, folder, start):
            inner = each.find("/", len(folder) + 1 if folder else 0)
            if inner >= 0:
                skipped = f"{each[:inner]}/\U0010ffff"  # greater than every key in that folder
                break
            yield each
        start = skipped


def _keys(store: _Store, folder: str, after: str | None) -> Iterator[str]:
    for page in obstore.list(store, folder, offset=after, chunk_size=_PAGE):
        for each in page:
            yield each["path"]


def _etag(meta: ObjectMeta | Mapping[str, Any]) -> str:
    """The etag, and for stores that compare versions (Google), the version after a line break."""
    version = meta.get("version")
    return f"{meta['e_tag']}\n{version}" if version else str(meta["e_tag"])
