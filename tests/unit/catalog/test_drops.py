"""A drop that is killed anywhere has not begun, or is ended by the next command: nothing of it is left."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from strandline.jobs.catalog import intents
from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.catalog.intents import DropIntent
from strandline.jobs.model.errors import PipelineMissing
from strandline.jobs.model.settings import Settings
from strandline.jobs.run.pipeline import drain
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from tests.support.on_disk import on_disk
from tests.support.warm_process import exit_code

STREAM = "CREATE STREAM s (id INT) WITH (KAFKA_TOPIC = 's');"
SOURCES = STREAM + "CREATE STREAM o (id INT) WITH (KAFKA_TOPIC = 'o');"
QUERIES = "INSERT INTO s SELECT id FROM o; INSERT INTO s SELECT id + 1 AS id FROM o;"
OWN = ["s", "s__dead_letters", "s__insert_1__stage_1", "s__insert_2__dead_letters"]
OTHERS = ["o", "s2", "shared__kept"]
_STEPS = [
    "after-drop-intent",
    *(f"after-drop-definition:{hit}" for hit in (1, 2, 3)),
    *(f"after-drop-{step}:{hit}" for hit in range(1, len(OWN) + 2) for step in ("rename", "table")),
    "after-drop-tables",
    "after-drop-end",
]


@pytest.fixture
def session(settings: Settings, lake: LakeLayout) -> Interpreter:
    """The stream `s`, with two queries that insert into it, and the tables of all, each with a file."""
    made = Interpreter(settings)
    list(made.run(SOURCES + QUERIES))
    for name in (*OWN, *OTHERS, "shared__x"):
        on_disk(lake.table(name)).mkdir(parents=True)
        on_disk(lake.table(name) / "rows").touch()
    return made


def killed(lake: LakeLayout, step: str) -> None:
    assert exit_code(_drop, lake.root, failpoint=step) == -signal.SIGKILL, step


def _drop(root: Path) -> None:
    Catalog(LakeLayout(root)).remove("s", ["shared__x"])


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def left(lake: LakeLayout) -> tuple[list[str], list[str]]:
    """What is there of tables, and of definitions."""
    return sorted(path.name for path in on_disk(lake.tables).iterdir()), files(on_disk(lake.catalog))


@pytest.mark.kill
@pytest.mark.parametrize("step", _STEPS)
def test_after_a_kill_the_name_is_free_and_the_next_create_finds_nothing_of_it(
    session: Interpreter, settings: Settings, lake: LakeLayout, step: str
) -> None:
    killed(lake, step)
    assert Catalog(lake).names() == ("o",)
    assert not Catalog(lake).broken
    (made,) = Interpreter(settings).run(STREAM)
    assert "stream 's' created" in str(made)
    assert left(lake) == (sorted(OTHERS), [".lock", "o.json", "s.json"])
    assert Catalog(lake).insert_queries("s") == ()


@pytest.mark.kill
def test_a_drop_that_is_killed_before_its_intent_has_not_begun(session: Interpreter, lake: LakeLayout) -> None:
    before = left(lake)
    killed(lake, "before-drop-intent")
    assert left(lake) == before
    assert Catalog(lake).definitions() == session.catalog.definitions()


@pytest.mark.kill
def test_the_next_drop_ends_it(session: Interpreter, lake: LakeLayout) -> None:
    killed(lake, "after-drop-rename:2")
    (answer,) = session.run("DROP STREAM s")
    assert "'s' dropped" in str(answer)
    assert left(lake) == (sorted(OTHERS), [".lock", "o.json"])


@pytest.mark.kill
def test_the_next_run_ends_it(session: Interpreter, settings: Settings, lake: LakeLayout) -> None:
    list(session.run("DROP STREAM s; DROP STREAM o;" + STREAM))
    on_disk(lake.table("s")).mkdir()
    killed(lake, "after-drop-definition")
    with pytest.raises(PipelineMissing):
        drain(settings, "default")
    assert left(lake) == (["s2", "shared__kept"], [".lock"])


@pytest.mark.kill
def test_a_drop_that_is_killed_twice_is_ended_by_the_third(session: Interpreter, lake: LakeLayout) -> None:
    killed(lake, "after-drop-rename:2")
    killed(lake, "after-drop-table:1")
    Catalog(lake).finish_drops()
    assert left(lake) == (sorted(OTHERS), [".lock", "o.json"])


def test_an_intent_with_any_wrong_bit_drops_its_name_and_nothing_else(lake: LakeLayout) -> None:
    """Of a broken intent the name is left: the shared tables stay, since nobody knows them."""
    on_disk(lake.catalog).mkdir(parents=True)
    drop = DropIntent("s", ("s__insert_1", "s"), ("shared__x",))
    for name in ("s", "s__insert_1", "s2", "s2__insert_1"):
        on_disk(lake.catalog / f"{name}.json").touch()
    intents.begin_drop(drop, lake)
    (path,) = on_disk(lake.catalog / "dropping").iterdir()
    intact = path.read_bytes()
    for bit in range(8 * len(intact)):
        changed = bytearray(intact)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        (found,) = intents.begun_drops(lake)
        assert found in (drop, DropIntent("s", drop.removed))
    path.write_bytes(b"")
    assert intents.begun_drops(lake) == [DropIntent("s", drop.removed)]
