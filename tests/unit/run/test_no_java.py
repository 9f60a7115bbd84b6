"""A machine without a Java that Spark can use is told so; it is no fault of Strandline."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.model.settings import SparkSettings
from strandline.jobs.run import spark
from strandline.state_store.errors import SettingsError


def test_a_jvm_that_does_not_start_is_an_error_of_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old Java as well as none: what there is does not run."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho UnsupportedClassVersionError >&2\nexit 1\n")
    java.chmod(0o755)
    (tmp_path / "delta-spark_2.13.jar").touch()
    monkeypatch.setattr(spark, "_DELTA_JARS", tmp_path)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with (
        pytest.raises(SettingsError, match="Spark needs Java 17 or 21") as refused,
        spark.spark_session(SparkSettings()),
    ):
        pass
    assert str(java) in str(refused.value)
    assert "JAVA_HOME" in str(refused.value.hint)
