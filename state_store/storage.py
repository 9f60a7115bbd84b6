"""Open a storage by its root: a path, or a URL of one of four kinds.

    lake, /data/lake, ~/lake, file:///data/lake     a folder of this machine
    s3://bucket/prefix                              Amazon's S3, or what speaks like it at an endpoint
    gs://bucket/prefix                              Google Cloud Storage
    az://container/prefix                           Azure Blob Storage

No URL is printed before it is known to be one of these: what is refused may hold a password.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote, urlsplit

from strandline.state_store.errors import KeyRefused, SettingsError
from strandline.state_store.paths import Location, checked_folder
from strandline.state_store.storage_disk import DiskStorage

if TYPE_CHECKING:
    from obstore.store import S3Config

    from strandline.state_store.paths import LakePath
    from strandline.state_store.storage_objects import ObjectStorage
    from strandline.state_store.storage_verbs import Storage


# Options to reach an object store, beside its URL. Secrets are never part of a repr or a message.


@dataclass(frozen=True)
class StorageOptions:
    """The way to an object store. What is None or False comes from the store's usual environment variables, such as
    `AWS_REGION` or `AZURE_STORAGE_ACCOUNT_NAME`.

    Attributes:
        endpoint: the URL of an S3 that is not Amazon's: `https://minio:9000`.
        allow_http: an endpoint without TLS may be used.
        virtual_hosted_style: the bucket is part of the endpoint's host name, not of the path.
        patience_seconds: how long a request is tried again before `StorageUnavailable`.
    """

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    allow_http: bool = False
    virtual_hosted_style: bool = False
    # S3 answers "slow down" for some seconds, up to a minute, while it splits a busy prefix. Past that the caller
    # decides: its error says retry, and an epoch that was not committed is planned again.
    patience_seconds: float = 60.0

    def with_environment(self) -> StorageOptions:
        """The same, with what the environment of this process says of S3: another process has another environment."""
        allowed = (_variable("AWS_ALLOW_HTTP") or "").lower() in ("1", "true", "yes")
        return replace(
            self,
            endpoint=_said(self.endpoint, "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
            region=_said(self.region, "AWS_REGION", "AWS_DEFAULT_REGION"),
            access_key_id=_said(self.access_key_id, "AWS_ACCESS_KEY_ID"),
            secret_access_key=_said(self.secret_access_key, "AWS_SECRET_ACCESS_KEY"),
            session_token=_said(self.session_token, "AWS_SESSION_TOKEN"),
            allow_http=self.allow_http or allowed,
        )


def _said(value: str | None, *variables: str) -> str | None:
    """The value, or that of the first of these variables that is set and not empty."""
    return value if value is not None else _variable(*variables)


def _variable(*names: str) -> str | None:
    return next((found for name in names if (found := os.environ.get(name))), None)


KINDS = ("file", "s3", "gs", "az")
"""The kinds of URLs, beside plain paths."""

_HINT = "use a path, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix or file:///path"
# `S3:/x` and `s3:x` are meant as URLs, and `a:b` is a file name: a known kind, or a slash after the colon, decides.
_MEANT_AS_URL = re.compile(r"(?:s3|gs|az|file)(?=:)|[a-z][a-z0-9+.-]*(?=:/)", re.IGNORECASE)
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")
# Silence for so long is a lost connection: stores answer within a second, and a lease (30 s, renewed every 10) outlives
# one such request.
_SILENCE = timedelta(seconds=10)
_CONNECT = timedelta(seconds=5)
# A whole answer, however slowly it flows: 60 MB at 1 MB/s.
_REQUEST = timedelta(seconds=60)
# Doubled each time, with jitter: ten tries fit into a minute, and two writers do not meet again and again.
_BACKOFF = {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=10), "base": 2}
_TRIES = 10


def open_storage(root: str | Path, options: StorageOptions | None = None) -> Storage:
    """The storage of that root. Nothing is read or made; a store that is not there is noticed by the first verb.

    Raises:
        SettingsError: the root is no path and no URL of a known kind, or the options do not fit.
    """
    folder = disk_folder(root)
    if folder is not None:
        return DiskStorage(folder)
    kind = str(root).partition(":")[0]
    return _objects(kind, str(root), options or StorageOptions())


def lake_path(root: str | Path, options: StorageOptions | None = None) -> LakePath:
    """The root of a lake, by a path or a URL. Nothing is read or made.

    Raises:
        SettingsError: it is neither a path nor a URL of a known kind, or the options do not fit.
    """
    return disk_folder(root) or Location(open_storage(root, options))


def disk_folder(root: str | Path) -> Path | None:
    """The folder that a root names, absolute; None for one on an object store.

    Raises:
        SettingsError: the root is no path and no URL of a known kind.
    """
    text = str(root)
    meant = None if isinstance(root, Path) else _MEANT_AS_URL.match(text)
    if meant is None:
        return Path(text).expanduser().absolute()
    kind = meant[0]
    if kind not in KINDS:
        raise SettingsError(f"'{kind}:' is no kind of storage; there are {', '.join(KINDS)}", hint=_HINT)
    if not text.startswith(f"{kind}://"):
        raise SettingsError(f"'{kind}:' must be followed by two slashes", hint=_HINT)
    return _folder(text) if kind == "file" else None


def _folder(url: str) -> Path:
    parts = urlsplit(url)
    if parts.netloc not in ("", "localhost") or not parts.path or parts.query or parts.fragment:
        raise SettingsError("a file URL names an absolute path of this machine", hint="use file:///path, or the path")
    return Path(unquote(parts.path))


def _objects(kind: str, url: str, options: StorageOptions) -> ObjectStorage:
    # Not urlsplit: a prefix is no encoded text, and may hold '%'.
    bucket, _, prefix = url.removeprefix(f"{kind}://").partition("/")
    if not _BUCKET.fullmatch(bucket):
        raise SettingsError(
            f"'{kind}://' must be followed by a bucket's name, and nothing else",
            hint=f"{_HINT}; keys belong in the settings or the environment",
        )
    try:
        prefix = checked_folder(prefix)
    except KeyRefused as error:
        raise SettingsError(f"the prefix of '{kind}://{bucket}' is refused", hint=_HINT) from error
    return _opened(kind, bucket, prefix, options)


def _opened(kind: str, bucket: str, prefix: str, options: StorageOptions) -> ObjectStorage:
    # Loaded here: a lake on a disk does without these libraries (0.1 s).
    from obstore.exceptions import BaseError
    from obstore.store import AzureStore, GCSStore, S3Store

    from strandline.state_store.storage_objects import ObjectStorage

    # A storage travels to other processes, which have other variables, or none.
    options = options.with_environment() if kind == "s3" else options
    common: dict[str, Any] = {
        "prefix": prefix or None,
        "client_options": {
            "timeout": _REQUEST,
            "read_timeout": _SILENCE,
            "connect_timeout": _CONNECT,
            # obstore forgets the variable as soon as it is given options of the client.
            "allow_http": options.allow_http,
        },
        "retry_config": {
            "max_retries": _TRIES,
            "retry_timeout": timedelta(seconds=options.patience_seconds),
            "backoff": _BACKOFF,
        },
    }
    url = f"{kind}://{bucket}/{prefix}" if prefix else f"{kind}://{bucket}"
    try:
        if kind == "s3":
            return ObjectStorage(S3Store(bucket, config=_s3(options), **common), url, options.endpoint)
        store = GCSStore(bucket, **common) if kind == "gs" else AzureStore(bucket, **common)
    except (BaseError, ValueError) as error:
        # Of the text only the first line, and it is about the environment: obstore asks no server here.
        reason = str(error).partition("\n")[0]
        raise SettingsError(f"'{url}' cannot be opened: {reason}", hint="set the account and its keys") from None
    return ObjectStorage(store, url)


def _s3(options: StorageOptions) -> S3Config:
    """What the options say of S3; what they do not say, such as the role of a machine, obstore looks for."""
    if options.endpoint is not None:
        _check_endpoint(options.endpoint, allow_http=options.allow_http)
    said = {
        "endpoint": options.endpoint,
        "region": options.region,
        "access_key_id": options.access_key_id,
        "secret_access_key": options.secret_access_key,
        "session_token": options.session_token,
        "virtual_hosted_style_request": options.virtual_hosted_style or None,
    }
    return cast("S3Config", {name: value for name, value in said.items() if value is not None})


def _check_endpoint(endpoint: str, *, allow_http: bool) -> None:
    parts = urlsplit(endpoint)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
        raise SettingsError(
            "setting 'storage.endpoint' is no URL of a server, without a user's name", hint="such as https://minio:9000"
        )
    if parts.scheme == "http" and not allow_http:
        raise SettingsError(
            "setting 'storage.endpoint' is not TLS", hint="use https://, or set STRANDLINE_STORAGE__ALLOW_HTTP=true"
        )
