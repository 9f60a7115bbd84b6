"""A lake on an object store by the words that users type: all but running a pipeline, without a JVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

from jobs.catalog import drops
from jobs.catalog.catalog import Catalog
from jobs.model.settings import Settings, StorageSettings, load_settings
from jobs.operate.verify.verify import verify
from jobs.run.orphans import sole_writer
from jobs.run.pipeline import drain
from jobs.session.apply import apply
from jobs.session.interpreter import Interpreter
from jobs.session.status import status
from state_store.commits import CommitRecord
from state_store.errors import SettingsError, WriterBusy
from state_store.layout import Lake
from state_store.paths import LakePath
from state_store.storage.lease import Lease
from tests.support.arrow_table import ArrowTable
from tests.support.lakes import below, s3_environment, s3_folder
from tests.support.s3_server import S3Server

_ROOT = Path(__file__).parents[3]
SQL = """
CREATE STREAM clicks (who VARCHAR, n BIGINT) WITH (KAFKA_TOPIC = 'clicks', VALUE_FORMAT = 'JSON', PARTITIONS = 2);
CREATE TABLE per_user AS SELECT who, COUNT(*) AS c FROM clicks GROUP BY who;
"""


@pytest.fixture
def root(s3_server: S3Server) -> LakePath:
    return s3_folder(s3_server)


@pytest.fixture
def settings(root: LakePath, s3_server: S3Server) -> Settings:
    options = s3_server.options()
    storage = StorageSettings(
        endpoint=options.endpoint,
        region=options.region,
        access_key_id=options.access_key_id,
        secret_access_key=options.secret_access_key,
        allow_http=True,
    )
    return load_settings(lake=str(root), storage=storage)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "clicks.sql"
    file.write_text(SQL)
    return file


def answer(settings: Settings, text: str) -> str:
    return "\n".join(str(each) for each in Interpreter(settings).run(text))


def rows_of(settings: Settings, text: str) -> list[tuple[object, ...]]:
    (found,) = Interpreter(settings).run(text)
    return [tuple(row) for row in found.rows]  # type: ignore[union-attr]


def computed(settings: Settings, counts: dict[str, int]) -> None:
    """The rows of the view, as a run would have written them."""
    view = Catalog(Lake(settings.lake)).get("per_user")
    from jobs.run.schedule import maintained

    ((item,),) = maintained([view], Catalog(Lake(settings.lake)))
    spec = item.stages[-1].spec
    from state_store.delta.schema import arrow_schema
    from pyspark.sql.types import StructType

    schema = arrow_schema(StructType.fromDDL(spec.ddl).json())  # type: ignore[union-attr]
    table = ArrowTable(Lake(settings.lake).table("per_user"), schema, spec)
    table.create(CommitRecord(epoch=0, fingerprint=item.fingerprint))
    rows = [dict.fromkeys(schema.names) | {"who": who, "c": count} for who, count in counts.items()]
    table.apply(pa.Table.from_pylist(rows, schema).to_pylist())


def test_define_insert_look_and_verify(settings: Settings, file: Path) -> None:
    assert [change.outcome for change in apply(file, settings).changes] == ["created", "created"]
    assert [change.outcome for change in apply(file, settings).changes] == ["unchanged", "unchanged"]
    assert "2 rows" in answer(settings, "INSERT INTO clicks (who, n) VALUES ('a', 1), ('b', 2);")
    assert rows_of(settings, "SHOW TOPICS;") == [("clicks", 2, 2)]
    assert rows_of(settings, "SELECT * FROM per_user;") == []
    lags = {row[1]: row[-2] for row in status(settings).rows}
    assert lags == {"clicks": 2, "per_user": 0}
    assert all(check.outcome.result == "skipped" for check in verify(settings))
