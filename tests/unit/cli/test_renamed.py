"""The commands of a lake whose definitions are called otherwise than they are stored: names as people say them."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from strandline.jobs.cli import main as cli
from strandline.jobs.cli.prompt import CatalogCompleter
from strandline.jobs.model.settings import Settings
from strandline.jobs.session.interpreter import Interpreter
from tests.support.operated_lake import operated
from tests.unit.operate.verify.damage import data_file
from tests.unit.operate.verify.lakes import MadeLake


@pytest.fixture
def made(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> MadeLake:
    monkeypatch.setenv("STRANDLINE_LAKE", str(settings.lake))
    monkeypatch.setenv("COLUMNS", "200")
    found = operated(settings, 2)
    list(Interpreter(settings).run("ALTER TABLE totals RENAME TO sums; ALTER VIEW owned RENAME TO by_owner;"))
    return found


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, [*arguments], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def test_verify_and_what_it_says(made: MadeLake) -> None:
    code, out, _ = invoke("verify", "by_owner", "--deep", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {each["table"] for each in found} == {"by_owner"}
    data_file(made.lake.table("totals")).unlink()
    code, out, err = invoke("verify")
    assert (code, err.rpartition(": ")[2]) == (1, "sums\n")
    assert "hint: type: strandline rebuild sums" in out


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "owned"),
        ("drill", "owned", "--dry-run"),
        ("backfill", "owned", "--dry-run"),
        ("compact", "owned", "--dry-run"),
        ("rebuild", "owned"),
        ("publish", "owned"),
    ],
)
def test_a_former_name_is_unknown_to_every_command(made: MadeLake, command: tuple[str, ...]) -> None:
    code, out, err = invoke(*command)
    assert (code, out) == (2, "")
    assert err == "[sql.unknown_name] `owned` is called 'by_owner' now\n  hint: write by_owner\n"


def test_operations_by_the_new_name(made: MadeLake) -> None:
    code, out, _ = invoke("drill", "by_owner", "--scenario", "changelog", "--json")
    assert (code, json.loads(out)["view"], json.loads(out)["passed"]) == (0, "by_owner", True)
    code, out, err = invoke("compact", "by_owner", "--dry-run")
    assert (code, err) == (0, "'by_owner' is stored as `owned`\n")
    code, out, _ = invoke("compact", "by_owner", "--json")
    assert (code, json.loads(out)["table"]) == (0, "by_owner")
    code, _, err = invoke("publish", "by_owner")
    assert code == 2
    assert "'by_owner' has no changelog topic" in err


def test_status_and_the_prompt(made: MadeLake) -> None:
    code, out, _ = invoke("status", "--json")
    shown = [json.loads(line) for line in out.splitlines()]
    assert code == 0
    assert {"sums", "by_owner"} <= {each.get("table") for each in shown}
    assert not {"totals", "owned"} & {each.get("table") for each in shown}
    words = set(CatalogCompleter(Interpreter(made.settings).catalog)._names())
    assert {"sums", "by_owner"} <= words
    assert not {"totals", "owned"} & words
