"""What it takes to reach an object store, beside its URL. Secrets are never part of a repr or a message."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace


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
