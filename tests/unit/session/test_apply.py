"""A file as a pipeline: all of it is registered, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.ingest.topics import open_log
from strandline.jobs.model.errors import UnknownName
from strandline.jobs.model.settings import Settings
from strandline.jobs.session.apply import apply
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.unit.session.statements import STREAM, VIEW


def test_applying_a_file_registers_all_of_it_or_nothing(tmp_path: Path, settings: Settings, lake: LakeLayout) -> None:
    file = tmp_path / "shop.sql"
    file.write_text(STREAM + VIEW + "CREATE TABLE w AS SELECT nope FROM s GROUP BY nope;")
    with pytest.raises(UnknownName):
        apply(file, settings)
    assert Interpreter(settings).catalog.names() == ()
    assert open_log(settings, lake).topics() == []
    file.write_text(STREAM + VIEW + "INSERT INTO s (id) VALUES (1);")
    applied = apply(file, settings)
    assert [change.outcome for change in applied.changes] == ["created", "created"]
    assert (applied.pipeline, applied.skipped) == ("shop", {"INSERT INTO": 1})
    assert sum(open_log(settings, lake).end_offsets("t").values()) == 0
    file.write_text(STREAM)
    again = apply(file, settings)
    assert ([change.outcome for change in again.changes], again.missing) == (["unchanged"], ("v",))
