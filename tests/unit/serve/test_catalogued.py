"""The catalog of a server: definitions that change while somebody reads them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.model.settings import Settings
from strandline.jobs.model.tables import Relation
from strandline.jobs.serve import catalogued
from strandline.jobs.serve.catalogued import Catalogued, readable_named
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout

STREAM = "CREATE OR REPLACE STREAM s (id BIGINT KEY, {column}) WITH (KAFKA_TOPIC = 't');"


def test_a_relation_of_a_catalog_that_is_read_anew_meanwhile_is_not_kept(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(Interpreter(settings).run(STREAM.format(column="a INT")))
    found = Catalogued(LakeLayout(settings.lake))

    def slowly(name: str, catalog: Catalog) -> Relation:
        """As a thread that another one overtakes: it defines the stream anew, and reads the catalog again."""
        monkeypatch.undo()
        made = readable_named(name, catalog)
        assert list(Interpreter(settings).run(STREAM.format(column="b INT")))
        time.sleep(0.05)
        assert found.catalog is not catalog
        return made

    monkeypatch.setattr(catalogued, "readable_named", slowly)
    assert "a" in dict(found.relation("s").columns)
    assert "b" in dict(found.relation("s").columns)


def test_a_definition_that_changes_within_one_tick_of_the_disk_is_seen(settings: Settings) -> None:
    """A disk may tell times to some milliseconds, or to seconds."""
    assert list(Interpreter(settings).run(STREAM.format(column="a INT")))
    lake = LakeLayout(settings.lake)
    folder = Path(str(lake.catalog))
    told = folder.stat()
    found = Catalogued(lake)
    assert "a" in dict(found.relation("s").columns)
    assert list(Interpreter(settings).run(STREAM.format(column="b INT")))
    os.utime(folder, ns=(told.st_atime_ns, told.st_mtime_ns))
    time.sleep(0.02)
    assert "b" in dict(found.relation("s").columns)


def test_while_a_view_is_being_replaced_the_catalog_is_read_every_second(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its definition is the next one from a commit of its table on; a kill may keep its file from being written."""
    assert list(Interpreter(settings).run(STREAM.format(column="a INT")))
    lake, now = LakeLayout(settings.lake), [100.0]
    monkeypatch.setattr(catalogued, "time", SimpleNamespace(monotonic=lambda: now[0]))
    found = Catalogued(lake)
    before = found.catalog
    now[0] += 1.0
    assert found.catalog is before
    intents = Path(str(lake.catalog)) / "replacing"
    intents.mkdir()
    (intents / "v.json").write_text("{}")
    now[0] += 0.1
    begun = found.catalog
    assert begun is not before
    now[0] += 0.5
    assert found.catalog is begun
    now[0] += 1.0
    assert found.catalog is not begun
