"""The root of a lake: what it may be, and that nothing secret is printed on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.state_store.errors import SettingsError
from strandline.state_store.storage import StorageOptions, open_storage
from strandline.state_store.storage_disk import DiskStorage

_ACCOUNT = "AZURE_STORAGE_ACCOUNT_NAME"
_SECRET = StorageOptions(
    region="eu-west-1", access_key_id="canary-id", secret_access_key="canary-key", session_token="canary-token"
)


def test_a_path_is_a_folder_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    lake = DiskStorage(tmp_path / "my lake")
    for root in ("my lake", tmp_path / "my lake", "~/my lake", f"file://{tmp_path}/my%20lake", "./my lake/"):
        assert open_storage(root) == lake
    assert open_storage("a:b") == DiskStorage(tmp_path / "a:b")
    assert not (tmp_path / "my lake").exists()


@pytest.mark.parametrize(
    ("root", "url"),
    [
        ("s3://bucket/lakes/one/", "s3://bucket/lakes/one/t"),
        ("s3://bucket", "s3://bucket/t"),
        ("gs://bucket/lake", "gs://bucket/lake/t"),
        ("az://container/lake", "az://container/lake/t"),
    ],
)
def test_a_url_is_a_prefix_of_a_bucket(root: str, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(_ACCOUNT, "account")
    storage = open_storage(root, _SECRET)
    assert storage.url("t") == url
    assert storage.local_path("t") is None
    assert "canary" not in repr(storage)
    assert storage == open_storage(root, _SECRET)


@pytest.mark.parametrize(
    "root", ["foo://x", "S3:/x", "S3://x/y", "s3a://b/x", "https://canary@host/x", "s3:/x", "s3:x", "FILE:///x"]
)
def test_another_kind_of_url_is_refused_with_the_kinds(root: str) -> None:
    with pytest.raises(SettingsError, match=r"s3://bucket/prefix, gs://bucket/prefix, az://container/prefix") as error:
        open_storage(root)
    assert "canary" not in str(error.value)


@pytest.mark.parametrize(
    "root", ["s3://", "s3:///x", "s3://key:canary@bucket/x", "s3://b u/x", "s3://bucket/../x", "s3://bucket/a//b"]
)
def test_a_url_without_a_bucket_or_with_more_is_refused(root: str) -> None:
    with pytest.raises(SettingsError) as error:
        open_storage(root)
    assert "canary" not in str(error.value)


@pytest.mark.parametrize("root", ["file://host/x", "file:///x?y", "file://"])
def test_a_file_of_another_machine_is_refused(root: str) -> None:
    with pytest.raises(SettingsError):
        open_storage(root)


@pytest.mark.parametrize("endpoint", ["minio:9000", "http://minio:9000", "https://canary:canary@minio", "::::", ""])
def test_an_endpoint_that_cannot_be_used_is_refused(endpoint: str) -> None:
    with pytest.raises(SettingsError, match=r"storage\.endpoint") as error:
        open_storage("s3://bucket/x", StorageOptions(endpoint=endpoint))
    assert "canary" not in str(error.value)


def test_an_account_that_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_ACCOUNT, raising=False)
    with pytest.raises(SettingsError, match="Account must be specified"):
        open_storage("az://container/lake")
