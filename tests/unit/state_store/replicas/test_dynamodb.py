"""Answers of DynamoDB that are lost: the client asks again by itself, and what was done is not taken for another's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ReadTimeoutError
from moto import mock_aws

from strandline.state_store.errors import CommitConflict, StorageUnavailable
from strandline.state_store.replicas.dynamodb import DynamoStore, make_table
from strandline.state_store.replicas.store import Write

A, B = b"ra", b"rb"


@pytest.fixture
def client() -> Iterator[Any]:
    """An imitation in this process: lost answers need no limits."""
    with mock_aws():
        made = boto3.client("dynamodb", "eu-west-1", aws_access_key_id="k", aws_secret_access_key="s")
        make_table(made, "t")
        yield made


def again(call: Callable[..., Any], at: int) -> Callable[..., Any]:
    """The call, of which one answer is lost, so that it is made once more."""
    calls = 0

    def made(**arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            call(**arguments)
        return call(**arguments)

    return made


def lost(call: Callable[..., Any]) -> Callable[..., Any]:
    """The call, with no answer."""

    def made(**arguments: Any) -> Any:
        call(**arguments)
        raise ReadTimeoutError(endpoint_url="https://dynamodb")

    return made


@pytest.mark.parametrize("at", [1, 2])
def test_a_head_that_was_put_twice_is_no_other_writers(client: Any, monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    store = DynamoStore(client, "t", "r")
    store.write(Write(b"1", [A], [b"a"]))
    with monkeypatch.context() as patch:
        patch.setattr(client, "put_item", again(client.put_item, at))
        store.write(Write(b"2", [A, B], [b"aa", b"b"]))
    store.write(Write(b"3", [A], [None]))
    assert store.points([A, B]) == (b"3", [None, b"b"])


def test_another_writer_is_found_nevertheless(client: Any) -> None:
    one, other = DynamoStore(client, "t", "r"), DynamoStore(client, "t", "r")
    one.write(Write(b"1", [A], [b"a"]))
    with pytest.raises(CommitConflict, match="another process"):
        other.write(Write(b"1", [A], [b"a"]))


def test_a_write_is_done_though_what_it_leaves_behind_is_not_removed(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = DynamoStore(client, "t", "r")
    store.write(Write(b"1", [A, B], [b"a", b"b"]))
    store.write(Write(b"2", [A], [None]))
    write = client.batch_write_item

    def no_removals(**arguments: Any) -> Any:
        removes = any("DeleteRequest" in each for each in arguments["RequestItems"]["t"])
        return (lost(write) if removes else write)(**arguments)

    with monkeypatch.context() as patch:
        patch.setattr(client, "batch_write_item", no_removals)
        store.write(Write(b"3", [B], [b"bb"]))
        with pytest.raises(StorageUnavailable):
            store.clear(b"4")
    assert store.points([A, B]) == (b"4", [None, None])
