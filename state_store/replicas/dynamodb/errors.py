"""DynamoDB's errors as ours."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from strandline.state_store.errors import CommitConflict, ObjectMissing, StorageDenied, StorageUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_DENIED: Final = (
    "AccessDeniedException",
    "UnrecognizedClientException",
    "ValidationException",
    "ItemCollectionSizeLimitExceededException",
)


@contextmanager
def dynamodb_errors(table: str) -> Iterator[None]:
    """Turns an error of DynamoDB inside the block into one of ours."""
    try:
        yield
    except ClientError as error:
        code = error.response["Error"]["Code"]
        about, where = f"DynamoDB: {code}: {error.response['Error'].get('Message', '')}", f"table {table}"
        if code == "ConditionalCheckFailedException":
            raise CommitConflict(
                "another process writes this replica", where=where, hint="one process writes a replica; stop the other"
            ) from error
        if code == "ResourceNotFoundException":
            raise ObjectMissing(about, where=where, hint="make the table first") from error
        if code in _DENIED:
            raise StorageDenied(about, where=where, hint="correct the keys, the rights or the region") from error
        raise StorageUnavailable(about, where=where, hint="try again") from error
    except BotoCoreError as error:
        raise StorageUnavailable(f"DynamoDB: {error}", where=f"table {table}", hint="try again") from error
