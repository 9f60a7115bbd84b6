"""A file of the catalog that is lost, emptied, put back from before or from another lake: found, said, and mended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.jobs.catalog import manifest
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.cli.main import app
from strandline.jobs.model import types as t
from strandline.jobs.model.definitions import Column, Function
from strandline.jobs.model.settings import Settings, load_settings
from strandline.jobs.session.status import status
from strandline.state_store.errors import CorruptState
from strandline.state_store.layout import LakeLayout
from tests.support.altered_lake import PIPELINE, SALES, VIEWS, made, rows, run, take_in
from tests.support.on_disk import on_disk

FUNCTION = Function("F", (Column("a", t.INT),), t.INT, "m", "f", "0", "…")
GONE = "[store.corrupt] the definition of 'by_shop' is broken: its catalog file is gone"
REPLACED = """CREATE OR REPLACE TABLE by_shop AS
  SELECT shop, COUNT(*) AS n, SUM(qty) AS total FROM sales WHERE qty > 1 GROUP BY shop;"""
BY_SHOP = next(each for each in VIEWS.split(";") if "by_shop AS" in each) + ";"


@pytest.fixture(autouse=True)
def here(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE", str(settings.lake))


def file_of(name: str, lake: LakeLayout) -> Path:
    return on_disk(lake.catalog) / f"{name}.json"


def command(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, [*arguments], catch_exceptions=False)
    return done.exit_code, done.stderr


def gone(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGE: dict[Callable[[Path], None], str] = {
    gone: "its catalog file is gone",
    empty: "does not read back",
    half: "does not read back",
    a_folder: "read",
}


@pytest.mark.parametrize("damage", DAMAGE, ids=lambda each: each.__name__)
def test_every_command_says_so_until_it_is_registered_again(
    settings: Settings, lake: LakeLayout, damage: Callable[[Path], None]
) -> None:
    made(settings)
    before, path = rows(lake, "named"), file_of("by_shop", lake)
    damage(path)
    for asked in (("run", PIPELINE), ("sql", "-e", "SELECT * FROM by_shop"), ("sql", "-e", "DESCRIBE by_shop")):
        code, said = command(*asked)
        assert code == 2
        assert said.startswith("[store.corrupt] the definition of 'by_shop' is broken: ")
        assert DAMAGE[damage] in said
        assert "strandline apply FILE.sql" in said
    assert [row[:3] for row in status(settings).rows if row[-1] == "broken"] == [(PIPELINE, "by_shop", "broken")]
    if path.is_dir():
        path.rmdir()
    assert run(settings, BY_SHOP) == ["table 'by_shop' repaired (pipeline 'shop')"]
    run(settings, "INSERT INTO sales (shop, qty) VALUES ('b', 40)")
    take_in(settings)
    assert before != rows(lake, "named")
    assert dict(rows(lake, "named")) == {"Anna": 2, "Bert": 2}


def test_what_reads_no_lost_definition_goes_on(settings: Settings, lake: LakeLayout) -> None:
    made(settings)
    run(load_settings(lake=settings.lake), "SELECT 1 AS one FROM sales")
    gone(file_of("by_shop", lake))
    catalog = Catalog(lake)
    catalog.check_pipeline("another")
    assert catalog.readers("shops") == ("named", "all_shops")
    with pytest.raises(CorruptState, match="'by_shop' is broken: its catalog file is gone"):
        catalog.readers("sales")


def test_all_files_are_lost(settings: Settings, lake: LakeLayout) -> None:
    made(settings)
    for path in on_disk(lake.catalog).glob("*.json"):
        path.unlink()
    on_disk(lake.catalog / ".lock").unlink()
    on_disk(lake.catalog).rmdir()
    code, said = command("run", PIPELINE)
    assert (code, "its catalog file is gone" in said) == (2, True)
    assert {row[-1] for row in status(settings).rows} == {"broken"}


def older_file(settings: Settings, lake: LakeLayout) -> tuple[Path, bytes, bytes]:
    """The file of a definition that was replaced, put back as it was; what it was, and what the catalog wrote last."""
    made(settings)
    path = file_of("by_shop", lake)
    older = path.read_bytes()
    run(settings, REPLACED)
    newer = path.read_bytes()
    path.write_bytes(older)
    return path, older, newer


def test_an_older_file_and_one_of_another_lake(settings: Settings, lake: LakeLayout, tmp_path: Path) -> None:
    path, _, newer = older_file(settings, lake)
    code, said = command("run", PIPELINE)
    assert code == 2
    assert "'by_shop' is broken: its catalog file is not the one that was registered" in said
    path.write_bytes(newer)
    other = load_settings(lake=tmp_path / "other")
    run(other, SALES + "CREATE MATERIALIZED VIEW theirs AS SELECT * FROM sales;")
    file_of("theirs", lake).write_bytes(file_of("theirs", LakeLayout(other.lake)).read_bytes())
    code, said = command("run", PIPELINE)
    assert code == 2
    assert "'theirs' is broken: its catalog file was not registered in this lake" in said
    assert f"remove '{lake.definitions}'" in said
    on_disk(lake.definitions).unlink()  # as the hint says
    assert Catalog(lake).find("theirs") is not None
    run(settings, "DROP VIEW theirs; CREATE MATERIALIZED VIEW more AS SELECT * FROM sales;")
    assert manifest.read(lake) is not None
    assert Catalog(lake).broken == {}


def test_a_lost_function(lake: LakeLayout) -> None:
    catalog = Catalog(lake)
    catalog.put_function(FUNCTION)
    gone(on_disk(lake.catalog) / "functions" / "F.json")
    found = Catalog(lake)
    with pytest.raises(CorruptState, match="function of 'F' is broken: its catalog file is gone"):
        _ = found.functions["F"]
    found.remove_function("F")
    assert Catalog(lake).broken_functions == {}


def test_a_broken_manifest_hides_nothing_and_is_made_anew(settings: Settings, lake: LakeLayout) -> None:
    made(settings)
    names = Catalog(lake).names()
    on_disk(lake.definitions).write_bytes(b"{}")
    assert Catalog(lake).names() == names
    run(settings, "CREATE MATERIALIZED VIEW more AS SELECT * FROM sales;")
    gone(file_of("named", lake))
    assert Catalog(lake).broken.keys() == {"named"}
    run(settings, "DROP VIEW named; DROP TABLE by_shop;")
    assert Catalog(lake).broken == {}


@pytest.mark.parametrize("state", ["before", "after"])
def test_a_change_that_was_killed_between_manifest_and_file(settings: Settings, lake: LakeLayout, state: str) -> None:
    path, older, newer = older_file(settings, lake)
    on_disk(lake.definitions).unlink()
    with suppress(KeyboardInterrupt), manifest.changing(lake, "by_shop", newer, {}):
        path.write_bytes(older if state == "before" else newer)
        raise KeyboardInterrupt
    assert Catalog(lake).broken == {}
    with suppress(KeyboardInterrupt), manifest.changing(lake, "new", newer, {}):
        raise KeyboardInterrupt
    assert Catalog(lake).broken == {}
    assert manifest.read(lake)
