"""The JVM's options: an archive of classes is mapped when it is whole, else the JVM starts without."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.model.settings import SparkSettings
from strandline.jobs.run import spark


def _options() -> str:
    return spark.session_conf(SparkSettings())["spark.driver.extraJavaOptions"]


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(spark, "class_archives", lambda: tmp_path)
    return tmp_path


def test_without_an_archive_the_jvm_starts_as_it_is(archives: Path) -> None:
    assert "SharedArchiveFile" not in _options()


def test_a_whole_archive_is_mapped(archives: Path) -> None:
    archive = archives / "spark-5.jsa"
    archive.write_bytes(b"12345")
    assert f"-XX:SharedArchiveFile={archive} -Xshare:auto" in _options()


def test_an_archive_that_was_cut_short_or_never_finished_is_not_mapped(archives: Path) -> None:
    (archives / "spark-5.jsa").write_bytes(b"1234")
    (archives / "unfinished").write_bytes(b"12345")
    assert "SharedArchiveFile" not in _options()


def test_options_given_stand_in_for_the_archive(archives: Path) -> None:
    (archives / "spark-1.jsa").write_bytes(b"1")
    conf = spark.session_conf(SparkSettings(), "-Xint")
    assert conf["spark.driver.extraJavaOptions"].endswith("-Xint")
    assert "SharedArchiveFile" not in conf["spark.driver.extraJavaOptions"]
