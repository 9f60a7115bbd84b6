"""Lakes of tests on either kind of storage, and what a test asks of both."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from deltalake import DeltaTable

from strandline.jobs.model.settings import Settings, StorageSettings, load_settings
from strandline.state_store.paths import LakePath, Location, within
from strandline.state_store.storage import open_storage
from tests.support.s3_server import BUCKET, S3Server


def s3_folder(server: S3Server) -> Location:
    """A folder of its own on the test's S3."""
    return Location(open_storage(f"s3://{BUCKET}/{uuid4().hex}", server.options()))


def s3_settings(server: S3Server, **sections: object) -> Settings:
    """The settings of a lake of its own on the test's S3."""
    options = server.options()
    given = {
        "endpoint": options.endpoint,
        "region": options.region,
        "access_key_id": options.access_key_id,
        "secret_access_key": options.secret_access_key,
        "allow_http": True,
    }
    return load_settings(lake=str(s3_folder(server)), storage=StorageSettings.model_validate(given), **sections)


def s3_environment(server: S3Server, lake: LakePath) -> dict[str, str]:
    """The settings of a child process whose lake is that one."""
    options = server.options()
    assert options.access_key_id is not None
    assert options.secret_access_key is not None
    return {
        "STRANDLINE_LAKE": str(lake),
        "STRANDLINE_STORAGE__ENDPOINT": server.url,
        "STRANDLINE_STORAGE__REGION": "us-east-1",
        "STRANDLINE_STORAGE__ACCESS_KEY_ID": options.access_key_id,
        "STRANDLINE_STORAGE__SECRET_ACCESS_KEY": options.secret_access_key,
        "STRANDLINE_STORAGE__ALLOW_HTTP": "true",
    }


def below(folder: LakePath) -> list[str]:
    """The names of all files below a folder, relative to it, in order."""
    if isinstance(folder, Location):
        return [within(each, folder) for each in folder.list(recursive=True)]
    return sorted(within(each, folder) for each in folder.rglob("*") if each.is_file())


def overwrite(file: LakePath, data: bytes) -> None:
    """Put other bytes where a file is, as damage does."""
    if isinstance(file, Location):
        file.replace(data)
    else:
        file.write_bytes(data)


def delta_rs(path: LakePath, version: int | None = None) -> DeltaTable:
    """The table as delta-rs sees it."""
    if isinstance(path, Path):
        return DeltaTable(path, version=version)
    return DeltaTable(path.url, version=version, storage_options=_delta_options(path))


def _delta_options(path: Location) -> dict[str, str]:
    endpoint = path.storage._endpoint  # type: ignore[attr-defined]
    options = {"endpoint": endpoint, "region": "us-east-1", "access_key_id": "any", "secret_access_key": "any"}
    return {**{f"aws_{name}": value for name, value in options.items()}, "aws_allow_http": "true"}
