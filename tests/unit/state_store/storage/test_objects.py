"""An object store that fails, refuses or loses its answers."""

from __future__ import annotations

import os
import traceback
from dataclasses import replace

import pytest
from obstore.exceptions import BaseError, GenericError, PermissionDeniedError

from strandline.state_store.errors import Action, SettingsError, StorageDenied, StorageUnavailable, StrandlineError
from strandline.state_store.storage import open_storage
from strandline.state_store.storage_objects import request
from tests.support.s3_server import S3Server
from tests.unit.state_store.storage.places import Place


def test_a_put_whose_answer_was_lost_knows_its_own_object(s3: Place, s3_server: S3Server) -> None:
    """The client repeats the request, and the store says that the name is taken: by the same writer."""
    storage = s3.open()
    s3_server.lose_answers(1)
    assert storage.create("a", b"1")
    assert not storage.create("a", b"1")
    etag = storage.get_with_etag("a")[1]
    s3_server.lose_answers(1)
    changed = storage.update("a", b"2", etag)
    assert storage.get_with_etag("a") == (b"2", changed)
    s3_server.lose_answers(1)
    assert storage.update("a", b"3", etag) is None


def test_a_failure_that_passes_is_not_noticed(s3: Place, s3_server: S3Server) -> None:
    s3_server.fail(2)
    assert s3.open().create("a", b"1")


def test_a_store_that_does_not_answer_is_unavailable_after_the_patience(s3: Place) -> None:
    storage = open_storage(s3.root, replace(s3.options, endpoint="http://127.0.0.1:1", patience_seconds=0.05))
    for call in (lambda: storage.get("a"), lambda: storage.create("a", b""), lambda: list(storage.list(""))):
        with pytest.raises(StorageUnavailable, match="no answer") as error:
            call()
        assert error.value.code == "store.storage_unavailable"
        assert error.value.action is Action.RETRY
        assert s3.root in (error.value.where or "")


def test_a_bucket_that_is_not_there_is_said(s3: Place) -> None:
    """Else a lake in it would look like an empty one."""
    storage = open_storage("s3://nothing-here/lake", s3.options)
    for call in (
        lambda: storage.get("a"),
        lambda: storage.create("a", b""),
        lambda: storage.delete("a"),
        lambda: list(storage.list("x")),
    ):
        with pytest.raises(SettingsError, match="NoSuchBucket"):
            call()


def test_the_environment_says_what_the_options_do_not(s3: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3.options.endpoint or "")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    with pytest.raises(SettingsError, match="ALLOW_HTTP"):
        open_storage(s3.root).create("a", b"1")
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    assert open_storage(s3.root).create("a", b"1")


_SIGNATURE = (
    "Server returned non-2xx status code: 403 Forbidden: <Error><Code>SignatureDoesNotMatch</Code>"
    "<CanonicalRequest>x-amz-security-token:canary</CanonicalRequest></Error>"
)


@pytest.mark.parametrize(
    ("error", "expected", "said"),
    [
        (PermissionDeniedError(_SIGNATURE), StorageDenied, "403 SignatureDoesNotMatch"),
        (GenericError("status code: 501 Not Implemented: canary"), StorageDenied, "501"),
        (GenericError("status code: 400 Bad Request: <Code>InvalidRequest</Code>"), StorageDenied, "InvalidRequest"),
        (GenericError("status code: 429 Too Many Requests"), StorageUnavailable, "429"),
        (GenericError("status code: 503 x: <Code>SlowDown</Code>"), StorageUnavailable, "503 SlowDown"),
        (GenericError("HTTP error: error sending request canary"), StorageUnavailable, "no answer"),
    ],
)
def test_an_answer_is_told_by_its_code_and_nothing_else(
    error: BaseError, expected: type[StrandlineError], said: str
) -> None:
    """S3 quotes the signed request, session token and all, when a signature is wrong."""
    with pytest.raises(expected, match=said) as caught, request("get", "s3://bucket/lake"):
        raise error
    assert "canary" not in "".join(traceback.format_exception(caught.value))
