"""The tables that are verified, and what is said of those whose definition is not known."""

from __future__ import annotations

import shutil

from strandline.jobs.model.settings import Settings
from strandline.jobs.operate.verify.findings import Check
from strandline.jobs.operate.verify.verify import verify
from strandline.jobs.session.interpreter import Interpreter
from tests.support.on_disk import on_disk
from tests.unit.operate.verify.damage import flip
from tests.unit.operate.verify.lakes import MadeLake

STREAMS = """
    CREATE STREAM a (n INT) WITH (KAFKA_TOPIC = 'a');
    CREATE STREAM b (n INT) WITH (KAFKA_TOPIC = 'b');
    CREATE TABLE counted AS SELECT n, COUNT(*) AS c FROM a GROUP BY n;
    INSERT INTO b SELECT n FROM a;
"""


def failed(checks: list[Check]) -> dict[tuple[str, str], Check]:
    return {(check.table, check.check): check for check in checks if check.ok is False}


def test_a_pipeline_that_has_not_run_has_nothing_to_verify_and_says_so(settings: Settings) -> None:
    assert verify(settings) == []
    assert list(Interpreter(settings).run(STREAMS))
    checks = verify(settings, deep=True)
    assert [(check.table, check.check, check.ok) for check in checks] == [
        ("a", "log", None),
        ("b", "log", None),
        ("counted", "log", None),
    ]
    assert {check.what for check in checks} == {"there is no table yet: its pipeline has not run"}


def test_a_table_whose_log_is_gone_is_broken_and_not_new(made: MadeLake) -> None:
    for file in on_disk(made.lake.table("spread") / "_delta_log").iterdir():
        file.unlink()
    assert list(failed(verify(made.settings))) == [("spread", "log")]


def test_the_tables_of_a_broken_definition_are_verified_too(made: MadeLake) -> None:
    flip(made.lake.catalog / "spread.json")
    checks = verify(made.settings)
    found = failed(checks)
    assert set(found) == {("spread", "definition"), ("spread__stage_1", "definition")}
    assert "strandline apply" in str(found["spread", "definition"].hint)
    assert ("spread", "digest", True) in [(check.table, check.check, check.ok) for check in checks]


def test_a_table_that_no_definition_owns_is_found(made: MadeLake) -> None:
    shutil.copytree(on_disk(made.lake.table("owned")), on_disk(made.lake.table("stray")))
    found = failed(verify(made.settings))
    assert found["stray", "definition"].what == "no definition in the catalog owns it"


def test_a_table_whose_definition_is_lost_says_that_its_file_is_gone(made: MadeLake) -> None:
    on_disk(made.lake.catalog / "owned.json").unlink()
    found = failed(verify(made.settings))
    assert set(found) == {("owned", "definition")}
    assert found["owned", "definition"].what == "the definition of 'owned' is broken: its catalog file is gone"


def test_tables_that_are_being_dropped_are_left_alone(made: MadeLake) -> None:
    folder = on_disk(made.lake.catalog / "dropping")
    folder.mkdir(exist_ok=True)
    (folder / "owned.json").write_text("torn")
    assert "owned" not in {check.table for check in verify(made.settings)}
