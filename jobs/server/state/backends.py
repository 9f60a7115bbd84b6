"""Backends of a server's replicas: `strandline serve --replica rocksdb|memory|lmdb|dynamodb`.

RocksDB and LMDB keep a view's rows in a folder, memory in the process until it ends, and DynamoDB in a table that may
hold the replicas of many servers. A library is imported when its backend is chosen; boto3 is an extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strandline.state_store.errors import ObjectMissing, SettingsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from strandline.jobs.model.settings import ServerSettings
    from strandline.state_store.replicas.store import Store

# Of all replicas of a server together some hundreds of MB: the blocks that are read again and again.
_CACHE_BYTES: Final = 64 << 20


def store_opener(settings: ServerSettings, reader_name: str) -> Callable[[Path], Store]:
    """Choose the function that opens the store of a view's replica, given the folder of that replica.

    Args:
        reader_name: distinguishes the server's replicas from those of others in one DynamoDB table.

    Raises:
        SettingsError: DynamoDB is chosen, and boto3 is not installed or is not told the region.
    """
    if settings.replica == "memory":
        return _open_memory
    if settings.replica == "lmdb":
        return _open_lmdb
    if settings.replica == "dynamodb":
        client = _dynamodb_client(settings.dynamodb_endpoint)
        return lambda folder: _open_dynamodb(client, settings.dynamodb_table, f"{reader_name}/{folder.name}")
    return open_rocksdb


def open_rocksdb(folder: Path) -> Store:
    """Open a store of RocksDB, the default."""
    from strandline.state_store.replicas.rocksdb import RocksStore

    return RocksStore(folder, _CACHE_BYTES)


def _open_memory(_: Path) -> Store:
    from strandline.state_store.replicas.memory import MemoryStore

    return MemoryStore()


def _open_lmdb(folder: Path) -> Store:
    from strandline.state_store.replicas.lmdb import LmdbStore

    return LmdbStore(folder / "lmdb")  # the folder itself may hold the files of RocksDB, from an earlier choice


def _open_dynamodb(client: Any, table: str, replica: str) -> Store:
    from strandline.state_store.replicas.dynamodb import DynamoStore, make_table

    try:
        return DynamoStore(client, table, replica)
    except ObjectMissing:  # asked for only now: the right to make tables is not needed for one that is there
        make_table(client, table)
        return DynamoStore(client, table, replica)


def _dynamodb_client(endpoint: str | None) -> Any:
    try:
        import boto3
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise SettingsError(
            "replicas in DynamoDB need boto3, which is not installed", hint="type: pip install 'strandline[dynamodb]'"
        ) from error
    try:
        return boto3.client("dynamodb", endpoint_url=endpoint)
    except (BotoCoreError, ValueError) as error:
        raise SettingsError(
            f"replicas in DynamoDB: {error}", hint="set AWS_DEFAULT_REGION, and server.dynamodb_endpoint to a URL"
        ) from error
