"""Every backend for every test that asks for one."""

from __future__ import annotations

from tests.support.replica_fixtures import backend, dynamodb, lasting

__all__ = ["backend", "dynamodb", "lasting"]
