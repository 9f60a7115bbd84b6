"""What it takes to reach an object store, beside its URL. Secrets are never part of a repr or a message."""

from __future__ import annotations

from dataclasses import dataclass, field


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
