"""The command: what goes to standard output, what to standard error, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest
from typer.testing import CliRunner

from strandline.jobs.cli import main as cli
from strandline.jobs.cli.output import CommandOutput
from strandline.jobs.cli.prompt import answer, complete
from strandline.jobs.model.report import EarlyEvents, RunReport, TableReport
from strandline.jobs.model.settings import Settings
from strandline.jobs.run import pipeline
from strandline.jobs.session.interpreter import Interpreter
from strandline.state_store.layout import LakeLayout
from strandline.state_store.processes import process
from tests.support.lake_tables import append, delete
from tests.support.waiting import PATIENCE_SECONDS

COMMAND = str(Path(sys.executable).with_name("strandline"))
FILE = Path(__file__).parents[3] / "jobs" / "pipelines" / "package_locations.sql"
ROWS = [(1, "Rome"), (2, "Rome"), (3, "Washington")]


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LakeLayout:
    """A lake that the command finds by its environment, from an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STRANDLINE_LAKE", str(tmp_path / "lake"))
    return LakeLayout(tmp_path / "lake")


@pytest.fixture
def filled(lake: LakeLayout) -> LakeLayout:
    """The pattern catalogue's projection, as after a run."""
    assert invoke("apply", str(FILE))[0] == 0
    append(lake, "package_locations", [{"package_id": k, "current_location": v} for k, v in ROWS])
    return lake


def invoke(*arguments: str, stdin: str | None = None) -> tuple[int, str, str]:
    done = CliRunner().invoke(cli.app, arguments, input=stdin, catch_exceptions=False)
    return done.exit_code, done.stdout, done.stderr


def objects(text: str) -> list[object]:
    return [json.loads(line) for line in text.splitlines()]


def test_json_is_one_object_per_row_on_standard_output_and_nothing_else(filled: LakeLayout) -> None:
    code, out, err = invoke("sql", "--json", "-e", "SET 'auto.offset.reset'='latest'; SELECT * FROM package_locations")
    assert code == 0
    assert sorted(objects(out), key=str) == [{"package_id": k, "current_location": v} for k, v in ROWS]
    assert "auto.offset.reset" in err


def test_without_json_a_table_is_printed(filled: LakeLayout) -> None:
    code, out, _ = invoke("sql", "-e", "SELECT * FROM package_locations ORDER BY package_id")
    assert (code, out.splitlines()[1], out.splitlines()[5]) == (
        0,
        "|package_id  |current_location  |",
        "|3           |Washington        |",
    )


def test_an_error_is_a_message_and_exit_code_2(filled: LakeLayout) -> None:
    code, out, err = invoke("sql", "--json", "-e", "SELECT * FROM package_location")
    assert (code, out) == (2, "")
    assert err.startswith("[sql.unknown_name]")
    assert "did you mean 'package_locations'" in err
    assert invoke("run", "nothing")[0] == 2
    assert invoke("run", "nothing.sql")[0] == 2
    assert invoke("sql", "-e", "SELECT 1", "-f", str(FILE))[0] == 2


def test_a_file_makes_the_pipeline_of_its_name_and_runs_again_with_inserts_only(lake: LakeLayout) -> None:
    """Definitions are already so the second time; each INSERT is one more event."""
    assert invoke("sql", "-f", str(FILE))[0] == 0
    code, out, err = invoke("sql", "-f", str(FILE))
    assert (code, out, err.count("unchanged (pipeline 'package_locations')")) == (0, "", 2)
    _, out, _ = invoke("sql", "--json", "-e", "SHOW TOPICS")
    assert objects(out) == [{"topic": "package_checkins_topic", "partitions": 3, "records": 20}]


def test_what_is_typed_belongs_to_the_default_pipeline(lake: LakeLayout) -> None:
    _, _, err = invoke("sql", "-e", "CREATE STREAM s (a INT) WITH (KAFKA_TOPIC = 's')")
    assert "created (pipeline 'default')" in err
    _, _, err = invoke("sql", stdin="CREATE STREAM s2 (a INT) WITH (KAFKA_TOPIC = 's2');")
    assert "created (pipeline 'default')" in err


def test_apply_and_run_do_not_execute_inserts(lake: LakeLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    drained: list[str] = []

    def drain(_settings: Settings, name: str, **_: object) -> RunReport:
        drained.append(name)
        return RunReport(name, 1, 0.5, ())

    monkeypatch.setattr(pipeline, "drain", drain)
    code, out, err = invoke("run", str(FILE))
    assert (code, out, drained) == (0, "", ["package_locations"])
    assert "pipeline 'package_locations': 1 epoch in 0.5 s" in err
    _, out, _ = invoke("sql", "--json", "-e", "SHOW TOPICS")
    assert objects(out) == [{"topic": "package_checkins_topic", "partitions": 3, "records": 0}]
    assert invoke("run", "package_locations")[0] == 0
    assert len(drained) == 2


def test_a_run_of_many_tables_tells_of_those_that_it_changed(lake: LakeLayout, monkeypatch: pytest.MonkeyPatch) -> None:
    def table(number: int) -> TableReport:
        changed = 2 if number in (3, 40) else 0
        early = (EarlyEvents("s", "t", 1, 9),) if number == 7 else ()
        return TableReport(f"v{number}", 1, 1, 5, 9, changed, 0, 0.1, {}, {}, "delta", "", "", early=early)

    def drain(_settings: Settings, name: str, **_: object) -> RunReport:
        return RunReport(name, 1, 0.5, tuple(map(table, range(count))))

    monkeypatch.setattr(pipeline, "drain", drain)
    count = 50
    assert invoke("run", str(FILE))[2].splitlines()[-5:] == [
        "pipeline 'package_locations': 1 epoch in 0.5 s",
        "  v3: 5 rows (+2 −0), version 1",
        "  v7: 5 rows (+0 −0), version 1, 1 of 9 events found no row of t that early",
        "  v40: 5 rows (+2 −0), version 1",
        "  47 tables more: no row changed",
    ]
    count = 20
    assert len([line for line in invoke("run", str(FILE))[2].splitlines() if " rows (" in line]) == 20


def test_status_shows_runs_and_alerts_below_the_tables(filled: LakeLayout) -> None:
    """The last run of the pipeline was killed: its process is not there any more."""
    me = process(os.getpid())
    assert me is not None
    gone = {**me.as_json(), "started": "1"}
    nothing: dict[str, object] = {"refreshed": None, "busy_since": None, "failures": {}, "tables": []}
    counts = {**nothing, "micro_batches": 4, "lag": {"t": 2}}
    note = {"format": 1, "pipeline": "package_locations", "mode": "continuous", "process": gone, "started": 1, "at": 1}
    path = Path(str(filled.run("package_locations")))
    path.parent.mkdir()
    path.write_text(json.dumps({**note, **counts}))
    code, out, _ = invoke("status", "--json")
    assert code == 0
    run, alert = (row for row in objects(out) if isinstance(row, dict) and ("run" in row or "alert" in row))
    assert (run["run"], run["state"], run["events_behind"]) == ("package_locations", "killed", 2)
    assert (alert["alert"], alert["subject"]) == ("killed", "package_locations")
    assert alert["hint"] == "type: strandline run package_locations --mode continuous"
    assert "killed" in invoke("status")[1]


def test_status_is_one_object_per_table(filled: LakeLayout) -> None:
    code, out, _ = invoke("status", "--json")
    assert code == 0
    assert objects(out)[1] == {
        "pipeline": "package_locations",
        "table": "package_locations",
        "kind": "view",
        "version": 0,
        "epoch": 0,
        "rows": 3,
        "lag": 0,
        "lag_unit": "versions",
        "late": None,
        "state": "fresh",
    }


def test_status_without_a_lake_is_an_error(lake: LakeLayout) -> None:
    code, out, err = invoke("status")
    assert (code, out) == (2, "")
    assert err.startswith("[store.object_missing] there is no lake yet")
    assert "strandline apply" in err


@pytest.mark.parametrize("name", ["movie_tickets", "sensor_readings", "package_locations"])
def test_the_pipelines_that_come_along_can_be_executed(lake: LakeLayout, name: str) -> None:
    code, out, err = invoke("sql", "-f", str(FILE.with_name(f"{name}.sql")))
    assert (code, out) == (0, "")
    assert err.count("1 row inserted") == 10


def test_the_opening_example_can_be_executed(lake: LakeLayout) -> None:
    code, out, err = invoke("sql", "-f", str(FILE.with_name("longest_visits.sql")))
    assert (code, out) == (0, "")
    assert "3 rows inserted into 'visit'" in err
    assert "1 key deleted from 'visit'" in err


# --- as a process ----------------------------------------------------------------------------------------------------


@pytest.fixture
def subscriber(filled: LakeLayout) -> Iterator[subprocess.Popen[str]]:
    command = [COMMAND, "sql", "--json", "-e", "SELECT * FROM package_locations EMIT CHANGES"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


def lines(stream: IO[str] | None, count: int) -> list[object]:
    assert stream is not None
    return [json.loads(stream.readline()) for _ in range(count)]


def test_a_pull_query_answers_in_json(filled: LakeLayout) -> None:
    command = [COMMAND, "sql", "--json", "-e", "SELECT * FROM package_locations ORDER BY package_id"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [tuple(row.values()) for row in map(json.loads, done.stdout.splitlines())] == ROWS
    assert done.stderr == ""


def test_a_push_query_shows_changes_as_they_come_and_ctrl_c_is_its_good_end(
    filled: LakeLayout, subscriber: subprocess.Popen[str]
) -> None:
    assert lines(subscriber.stdout, 3) == [{"package_id": k, "current_location": v} for k, v in ROWS]
    append(filled, "package_locations", [{"package_id": 4, "current_location": "Oslo"}], 1)
    delete(filled, "package_locations", 2, "package_id = 1")
    assert lines(subscriber.stdout, 2) == [
        {"package_id": 4, "current_location": "Oslo"},
        {"package_id": 1, "current_location": None, "__tombstone": True},
    ]
    subscriber.send_signal(signal.SIGINT)
    assert subscriber.wait(PATIENCE_SECONDS) == 0
    assert subscriber.stderr is not None
    assert subscriber.stderr.read() == ""


def test_a_reader_that_goes_away_ends_the_command_quietly(filled: LakeLayout) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        command = [COMMAND, "sql", "--json", "-e", "SELECT * FROM package_locations"]
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_queries_and_inserts_load_neither_spark_nor_the_prompt(filled: LakeLayout) -> None:
    """What keeps the command fast: none of the heavy libraries is even imported.

    pandas is, since rows are compared with their digest: pyarrow imports it as soon as it meets an array of numpy.
    """
    text = "SELECT * FROM package_locations; INSERT INTO package_checkins (package_id) VALUES (9); SHOW TABLES;"
    program = (
        "import sys\nfrom strandline.jobs.cli.main import app\n"
        f"app(['sql', '--json', '-e', {text!r}], standalone_mode=False)\n"
        "sys.exit(str([m for m in ('pyspark', 'prompt_toolkit') if m in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1] == "[]"


def test_status_loads_no_engine(filled: LakeLayout) -> None:
    del filled
    program = (
        "import sys\nfrom strandline.jobs.cli.main import app\n"
        "app(['status', '--json'], standalone_mode=False)\n"
        "print({'pyspark', 'pandas', 'numpy', 'pyarrow', 'duckdb'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


# --- the prompt ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("exit", True),
        ("HELP", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("SELECT ';';", True),
        ("SELECT 1 -- done;", False),
    ],
)
def test_enter_sends_what_ends_with_a_semicolon(text: str, whole: bool) -> None:
    assert complete(text) is whole


def test_an_error_at_the_prompt_is_shown_and_does_not_end_it(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    interpreter = Interpreter(settings)
    list(interpreter.run("CREATE STREAM s (id INT) WITH (KAFKA_TOPIC = 's');"))
    answer(interpreter, CommandOutput(json=True), "SELECT * FROM nope;")
    answer(interpreter, CommandOutput(json=True), "SELECT 1 AS one;")
    shown = capsys.readouterr()
    assert "[sql.unknown_name]" in shown.err
    assert objects(shown.out) == [{"one": 1}]


@pytest.mark.parametrize(("typed", "offered"), [("strandline ver", "verify"), ("strandline verify --de", "--deep")])
def test_the_shell_completes_commands_and_options(typed: str, offered: str) -> None:
    asked = {"COMP_WORDS": typed, "COMP_CWORD": str(typed.count(" ")), "_STRANDLINE_COMPLETE": "complete_bash"}
    done = subprocess.run([COMMAND], env=os.environ | asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.split()) == (0, [offered])


def test_the_interpreter_that_is_named_runs_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "strandline", "--help"], capture_output=True, text=True, check=True)
    assert "strandline [OPTIONS] COMMAND" in done.stdout


def test_the_command_loads_no_engine_before_it_is_told_what_to_do() -> None:
    """`strandline --help` and the shell's completion are there at once."""
    code = (
        "import sys, strandline.jobs.cli.main;"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'duckdb', 'sqlglot', 'dagster', 'fastapi', 'pydantic'};"
        "print(heavy & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_statement_that_defines_nothing_loads_no_engine_and_no_planner(filled: LakeLayout) -> None:
    code = (
        "import sys; from strandline.jobs.cli.main import app;"
        "app(['sql', '-e', 'SHOW TABLES'], standalone_mode=False);"
        "heavy = {'pyspark', 'pandas', 'pyarrow', 'duckdb', 'strandline.jobs.ivm.plan.plan'};"
        "print(heavy & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"
