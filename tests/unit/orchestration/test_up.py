"""Starting Dagster: where its home is, and what the instance is like."""

from __future__ import annotations

import socket
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.instance import InstanceRef
from dagster._core.workspace.load_target import PyProjectFileTarget, WorkspaceFileTarget

from infra.house.plan import ROOT
from strandline.orchestration import launch, up


def test_home_gets_the_settings_of_the_repository(tmp_path: Path) -> None:
    """A link, so that an edit of the one file counts everywhere; making it twice changes nothing."""
    environment = {"DAGSTER_HOME": str(tmp_path / "home")}
    for _ in range(2):
        home = up.prepare_home(environment)
        assert (home / "dagster.yaml").resolve() == ROOT / "dagster.yaml"


def test_dagster_dev_in_the_root_has_the_same_instance_and_code_location(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without DAGSTER_HOME it keeps its state in a temporary folder, and its settings are the folder's dagster.yaml."""
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    root = ROOT
    with dg.DagsterInstance.from_ref(InstanceRef.from_dir(str(tmp_path), config_dir=str(root))) as instance:
        assert instance.global_op_concurrency_default_limit == 1
        runs = instance.get_concurrency_config().run_queue_config
        assert runs is not None
        assert runs.max_concurrent_runs == 50
    (origin,) = WorkspaceFileTarget(paths=[str(root / "workspace.yaml")]).create_origins()
    (by_project,) = PyProjectFileTarget(str(root / "pyproject.toml")).create_origins()
    assert origin.location_name == by_project.location_name == "strandline"


def test_settings_of_ones_own_are_kept(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text("# mine\n")
    home = up.prepare_home({"DAGSTER_HOME": str(tmp_path)})
    assert (home / "dagster.yaml").read_text() == "# mine\n"


def test_home_is_in_the_working_directory_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert up.prepare_home({}) == tmp_path / ".dagster"


def test_dagster_takes_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One slot for each pool, nothing sent anywhere, and a cancel that outlasts our own grace."""
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    home = up.prepare_home({"DAGSTER_HOME": str(tmp_path)})
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert instance.global_op_concurrency_default_limit == 1
        assert not instance.telemetry_enabled
        assert not instance.nux_enabled
        assert instance.run_monitoring_enabled
        assert instance.run_monitoring_cancel_timeout_seconds > launch.GRACE_SECONDS + 10


def test_a_taken_port_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert up.main(["--port", str(taken.getsockname()[1])]) == 2
    assert "is taken" in capsys.readouterr().err
