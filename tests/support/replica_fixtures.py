"""Every backend of replicas for every test that asks for one: a conftest imports them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.dynamodb.local import DynamoDBLocal
from tests.support.replica_backends import BACKENDS, LASTING, Backend


@pytest.fixture(scope="session")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDBLocal]:
    """One server for all tests: each uses names of its own."""
    server = DynamoDBLocal(tmp_path_factory.mktemp("dynamodb"))
    try:
        yield server
    finally:
        server.stop()


def _named(name: str, request: pytest.FixtureRequest) -> Backend:
    return Backend(name, request.getfixturevalue("dynamodb").url if name == "dynamodb" else "")


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """Each backend."""
    return _named(request.param, request)


@pytest.fixture(params=LASTING)
def lasting(request: pytest.FixtureRequest) -> Backend:
    """Each backend that outlives its process."""
    return _named(request.param, request)
