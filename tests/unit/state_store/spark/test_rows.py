"""Objects are summed up in tasks before Spark opens them, once in a session; the tasks run here, without a JVM."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.state_store.errors import CorruptState, VersionGone
from strandline.state_store.paths import Location
from strandline.state_store.spark.rows import verify_files
from tests.support.lakes import s3_folder
from tests.support.s3_server import S3Server

_DATA = b"rows" * 1000
_STATED = f"{zlib.crc32(_DATA):08x}"


class _Tasks(list[Any]):
    """A collection that is spread over tasks, of one task."""

    def map(self, work: Callable[[Any], Any]) -> _Tasks:
        return _Tasks(work(each) for each in self)

    def collect(self) -> list[Any]:
        return list(self)


class _Session:
    """What `verify_files` asks of a session; `jobs` are the numbers of files that were looked at."""

    def __init__(self, application: str) -> None:
        self.jobs: list[int] = []
        self.sparkContext = SimpleNamespace(
            applicationId=application, defaultParallelism=2, parallelize=self._parallelize
        )

    def _parallelize(self, items: Iterable[Any], _slices: int) -> _Tasks:
        spread = _Tasks(items)
        self.jobs.append(len(spread))
        return spread


@pytest.fixture
def table(s3_server: S3Server) -> Location:
    folder = s3_folder(s3_server)
    for name in ("a.parquet", "b.parquet"):
        (folder / name).replace(_DATA)
    return folder


@pytest.fixture
def session(request: pytest.FixtureRequest) -> Any:
    return _Session(request.node.name)


def test_an_object_is_summed_up_once_in_a_session(table: Location, session: Any) -> None:
    verify_files(session, table, {"a.parquet": _STATED})
    verify_files(session, table, {"a.parquet": _STATED, "b.parquet": _STATED})
    verify_files(session, table, {"a.parquet": _STATED, "b.parquet": _STATED})
    assert session.jobs == [1, 1]


def test_an_object_that_is_not_as_it_was_written_is_named(table: Location, session: Any) -> None:
    (table / "b.parquet").replace(_DATA[:-1] + b"t")
    with pytest.raises(CorruptState, match="checksum") as refused:
        verify_files(session, table, {"a.parquet": _STATED, "b.parquet": _STATED})
    assert refused.value.where == (table / "b.parquet").url
    # What was found broken is looked at again.
    with pytest.raises(CorruptState):
        verify_files(session, table, {"b.parquet": _STATED})


def test_an_object_that_is_gone_is_a_version_that_is_gone(table: Location, session: Any) -> None:
    with pytest.raises(VersionGone):
        verify_files(session, table, {"c.parquet": _STATED})


def test_an_object_of_another_tool_states_nothing_to_compare(table: Location, session: Any) -> None:
    verify_files(session, table, {"a.parquet": None})
    assert session.jobs == []
