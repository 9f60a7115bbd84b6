"""Upgrades: a lake of the first release's formats goes on, and one of later formats is refused, never read wrongly."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strandline.jobs.model.errors import ViewsStopped
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.operate.rebuild import rebuild
from strandline.jobs.operate.recovery.backup import execute_backup, plan_backup
from strandline.jobs.operate.recovery.restore import execute_restore, plan_restore
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.run.pipeline import drain
from strandline.jobs.serve.results import Rows
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta import reader
from strandline.state_store.errors import Action, FormatNewer
from strandline.state_store.layout import LakeLayout
from strandline.state_store.stored_state import members_in, of_members, sealed_members
from tests.support.first_lake import ARCHIVE, PIPELINE, unpacked
from tests.unit.operate.verify.damage import said

MORE = """
INSERT INTO visits VALUES ('b', 20, ARRAY['w'], '2026-01-01T12:00:00'), ('a', 1, NULL, '2026-01-01T10:50:00');
INSERT INTO shops VALUES ('b', 'Ulm');
"""


@pytest.fixture
def old(tmp_path: Path) -> Settings:
    return load_settings(lake=unpacked(tmp_path), engine="duckdb")


def rows(settings: Settings, text: str) -> list[tuple[Any, ...]]:
    (found,) = Interpreter(settings).run(text)
    assert isinstance(found, Rows)
    return sorted(tuple(row) for row in found.rows)


def wrong(settings: Settings) -> list[str]:
    return [f"{each.table}: {each.check}: {each.what}" for each in verify(settings, deep=True) if each.ok is False]


def test_it_is_read_as_it_stands(old: Settings) -> None:
    assert ARCHIVE.stat().st_size < 300_000
    assert rows(old, "SELECT city, best, visits FROM best;") == [("Bonn", 9, 4)]
    assert rows(old, "SELECT shop, n, spent FROM hourly;") == [("a", 1, 5), ("a", 1, 9), ("b", 2, 10)]
    assert rows(old, "SELECT best FROM top;") == [(9,)]
    assert rows(old, "SELECT shop, spent FROM large;") == [("a", 9), ("b", 7)]
    assert wrong(old) == []


def test_it_goes_on(old: Settings) -> None:
    list(Interpreter(old, PIPELINE).run(MORE))
    drain(old, PIPELINE, in_driver=True)
    assert rows(old, "SELECT city, best, visits FROM best;") == [("Bonn", 9, 3), ("Ulm", 20, 3)]
    assert rows(old, "SELECT shop, n, spent FROM hourly WHERE shop = 'a';") == [("a", 1, 9), ("a", 2, 6)]
    assert rows(old, "SELECT best FROM top;") == [(20,)]
    list(Interpreter(old, PIPELINE).run("CREATE TABLE counted AS SELECT shop, COUNT(*) AS n FROM large GROUP BY shop;"))
    drain(old, PIPELINE, in_driver=True)
    assert rows(old, "SELECT shop, n FROM counted;") == [("a", 1), ("b", 2)]
    assert wrong(old) == []


def test_a_backup_of_it_is_restored_and_goes_on(old: Settings, tmp_path: Path) -> None:
    execute_backup(old, plan_backup(old, tmp_path / "backup"))
    execute_restore(plan_restore(tmp_path / "backup", tmp_path / "restored"))
    restored = load_settings(lake=tmp_path / "restored", engine="duckdb")
    list(Interpreter(restored, PIPELINE).run(MORE))
    drain(restored, PIPELINE, in_driver=True)
    assert rows(restored, "SELECT city, best, visits FROM best;") == [("Bonn", 9, 3), ("Ulm", 20, 3)]
    assert wrong(restored) == []


# A later version has been here: each place that says a format says one more.


def _commit(root: Path) -> None:
    said(LakeLayout(root).table("best"), format=3)


def _definition(root: Path) -> None:
    path = root / "catalog" / "best.json"
    document = json.loads(path.read_text()) | {"format": 3}
    path.write_text(json.dumps(document))


def _manifest(root: Path) -> None:
    path = root / "definitions.json"
    path.write_bytes(sealed_members({"format": 2, **members_in(path.read_bytes())}))


@pytest.mark.parametrize("later", [_commit, _definition, _manifest])
def test_what_a_later_version_wrote_is_refused_and_left_alone(old: Settings, later: Callable[[Path], None]) -> None:
    root = Path(str(old.lake))
    later(root)
    before = {each: each.read_bytes() for each in root.rglob("*") if each.is_file() and "runs" not in each.parts}
    with pytest.raises(FormatNewer) as refused:
        rows(old, "SELECT city FROM best;")
    assert refused.value.action is Action.STOP
    assert "pip install --upgrade 'strandline>" in str(refused.value.hint)
    if later is not _commit:
        with pytest.raises(FormatNewer):
            list(
                Interpreter(old, PIPELINE).run("CREATE TABLE n AS SELECT city, COUNT(*) AS n FROM best GROUP BY city;")
            )
    assert {each: each.read_bytes() for each in before} == before


def test_a_view_that_a_later_version_wrote_stops_and_is_not_rebuilt(old: Settings) -> None:
    lake = LakeLayout(old.lake)
    _commit(Path(str(old.lake)))
    with pytest.raises(FormatNewer):
        reader.head(lake.table("best"))
    assert any("format 3" in each for each in wrong(old))
    with pytest.raises(FormatNewer):
        rebuild(old, "best")
    with pytest.raises(ViewsStopped) as stopped:
        drain(old, PIPELINE, in_driver=True)
    assert {name for name, each in stopped.value.failures.items() if isinstance(each, FormatNewer)} >= {"best"}


def test_a_backup_of_a_later_version_is_refused(old: Settings, tmp_path: Path) -> None:
    execute_backup(old, plan_backup(old, tmp_path / "backup"))
    path = tmp_path / "backup" / "manifests" / "000001.json"
    body = json.loads(path.read_text()) | {"format": 2}
    del body["crc"]
    path.write_text(json.dumps({**body, "crc": of_members(body, ascii_only=True)}))
    with pytest.raises(FormatNewer, match="a manifest of a backup has format 2"):
        plan_restore(tmp_path / "backup", tmp_path / "restored")
    assert not (tmp_path / "restored").exists()
