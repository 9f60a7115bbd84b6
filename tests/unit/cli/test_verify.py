"""The command `strandline verify`: its table, its JSON, and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from strandline.jobs.catalog.catalog import Catalog
from strandline.jobs.cli import main as cli
from strandline.jobs.model.settings import load_settings
from strandline.state_store.layout import LakeLayout
from tests.support.catalog_from_sql import run
from tests.unit.operate.verify.damage import data_file
from tests.unit.operate.verify.lakes import MadeLake, healthy


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MadeLake:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_LAKE", str(tmp_path / "lake"))
    monkeypatch.setenv("COLUMNS", "200")
    return healthy(load_settings(lake=tmp_path / "lake"))


def invoke(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, ["verify", *arguments], catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def test_a_healthy_lake_ends_with_0_and_a_broken_one_with_1(made: MadeLake) -> None:
    code, out, err = invoke("--deep")
    assert (code, err) == (0, "91 checks of 8 tables, 0 skipped: all is well\n")
    assert out.count(" ok ") == 8
    data_file(made.lake.table("totals")).unlink()
    code, out, err = invoke()
    assert (code, err.rpartition(": ")[2]) == (1, "totals\n")
    assert "BROKEN" in out
    assert "hint: type: strandline rebuild totals" in out


def test_tables_that_are_not_there_yet_are_not_called_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE", str(tmp_path / "lake"))
    run("CREATE STREAM s (id INT KEY)", Catalog(LakeLayout(tmp_path / "lake")))
    code, _, err = invoke("--deep")
    assert (code, err) == (0, "0 checks of 1 table, 1 skipped: nothing was checked\n")


def test_json_is_one_object_per_check(made: MadeLake) -> None:
    data_file(made.lake.table("totals")).unlink()
    code, out, _ = invoke("totals", "--json")
    found = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert set(found[0]) == {"table", "check", "ok", "what", "where", "hint"}
    assert {each["check"]: each["ok"] for each in found} == {
        "log": True, "checkpoint": True, "sums": True, "definition": True, "plan": True, "vector": True,
        "files": False, "deletion_vectors": True,
        "digest": None, "row_count": None, "feed": None,
    }  # fmt: skip


def test_no_spark_is_loaded(made: MadeLake) -> None:
    program = (
        "import sys\nfrom strandline.jobs.cli.main import app\n"
        "app(['verify', '--deep', '--json'], standalone_mode=False)\n"
        "sys.exit(str([name for name in ('pyspark', 'dagster') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


def test_a_name_that_is_nothing_is_a_mistake_and_no_finding(made: MadeLake) -> None:
    code, out, err = invoke("total")
    assert (code, out) == (2, "")
    assert "did you mean 'totals'" in err
