"""What an operator must hear of: each alert begins with its fault, and is not there without it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

import pytest

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.ingest.logs.log import Record
from strandline.jobs.operate.health_checks import Hindrance, Hindrances
from strandline.jobs.operate.watch import LEASE_ENDS_WITHIN_MS, Alert, alerts
from strandline.jobs.run.heartbeat import Heartbeat, read_beat
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.delta.heads import WholeHeads
from strandline.state_store.errors import DuplicateKey
from strandline.state_store.files import make_folder
from strandline.state_store.files import replace as write
from strandline.state_store.leases import LEASE_DAYS, ReaderLease
from strandline.state_store.processes import process
from tests.support.on_disk import on_disk
from tests.unit.operate.verify.lakes import MadeLake

NOW = 10_000_000_000_000
AN_HOUR_MS = 3_600_000
ME = process(os.getpid())
assert ME is not None
ALIVE = Heartbeat("shop", "continuous", ME, NOW, NOW, NOW, None, 1, {"clicks": 0}, {}, ())


def beat(made: MadeLake, said: Heartbeat) -> None:
    """Leave that heartbeat in the lake, and check that it reads back."""
    path = made.lake.run(said.pipeline)
    make_folder(path.parent)
    write(path, json.dumps({"format": 1, **asdict(said), "process": said.process.as_json()}).encode())
    assert read_beat(made.lake, said.pipeline) == said


def test_a_heartbeat_that_does_not_read_back_is_told(made: MadeLake) -> None:
    beat(made, ALIVE)
    path = on_disk(made.lake.run(ALIVE.pipeline))
    path.write_bytes(path.read_bytes()[:-2])
    told = found(made)["broken"]
    assert told.subject == ALIVE.pipeline
    assert told.hint.startswith("type: strandline run shop")


def found(made: MadeLake, now: int = NOW) -> dict[str, Alert]:
    return {each.kind: each for each in alerts(made.settings, now)}


def test_a_healthy_lake_gives_no_alert(made: MadeLake) -> None:
    assert found(made) == {}
    beat(made, ALIVE)
    assert found(made) == {}
    beat(made, replace(ALIVE, at=NOW - 3_600_000, ended=True))
    assert found(made) == {}, "a run that was stopped may be silent"


@pytest.mark.parametrize(
    ("said", "kind", "subject"),
    [
        ({"at": NOW - 61_000}, "silent", "shop"),
        ({"process": replace(ME, started="1")}, "killed", "shop"),
        ({"failures": {"totals": "[store.negative_weight] it stopped"}}, "stopped", "totals"),
        (
            {"ended": True, "error": {"code": "source.topic_missing", "message": "no topic", "hint": "create it"}},
            "failed",
            "shop",
        ),
    ],
)
def test_a_run_that_is_not_well_is_an_alert_with_what_to_type(
    said: Mapping[str, Any], kind: str, subject: str, made: MadeLake
) -> None:
    beat(made, replace(ALIVE, **said))
    (alert,) = found(made).values()
    assert (alert.kind, alert.subject) == (kind, subject)
    assert alert.hint


def test_what_stopped_a_table_says_what_to_type_itself_and_stands_apart_from_that(made: MadeLake) -> None:
    """A rebuild would read the same rows again, and stop again."""
    beat(made, replace(ALIVE, failures={"totals": str(DuplicateKey("a key has two rows", hint="delete one"))}))
    (alert,) = found(made).values()
    assert (alert.what, alert.hint) == ("[store.duplicate_key] a key has two rows", "delete one")
    hindrance = Hindrances(Catalog(made.lake).definitions(), WholeHeads(made.lake)).of("totals")
    assert hindrance == Hindrance("stopped", alert.what, alert.hint)


def test_a_view_that_is_staler_than_its_target_is_an_alert(made: MadeLake) -> None:
    made.log.produce("clicks", [Record(None, b"{}", NOW - 11_000, partition=0)])
    assert found(made) == {}, "no target, no alert"
    text = """CREATE TABLE totals WITH (FRESHNESS = '10 seconds') AS
      SELECT page, COUNT(*) AS n, SUM(seconds) AS seconds FROM visits GROUP BY page;"""
    assert list(Interpreter(made.settings, "shop").run(text))
    assert found(made, NOW - 2000) == {}
    assert found(made)["stale"].subject == "totals"


def test_a_lease_that_nobody_renews_is_an_alert_before_and_after_its_end(made: MadeLake) -> None:
    import time

    # The lease ends as much later as its publication is later than this.
    now = time.time_ns() // 1_000_000
    ReaderLease(made.lake.table("totals"), "replica-1").publish(1)
    end = now + LEASE_DAYS * 86_400_000
    assert found(made, now) == {}
    dying = found(made, end - LEASE_ENDS_WITHIN_MS + AN_HOUR_MS)["lease"]
    assert dying.subject == "replica-1 of totals"
    assert "ends within a day" in dying.what
    assert "has ended" in found(made, end + AN_HOUR_MS)["lease"].what


def test_a_definition_that_does_not_read_is_an_alert(made: MadeLake) -> None:
    on_disk(made.lake.catalog / "spread.json").write_text("{")
    assert found(made)["broken"].subject == "spread"
