"""What a session is told about a lake on an object store: by the settings of the lake, or by the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.jobs.model.settings import SparkSettings
from strandline.jobs.run import spark
from strandline.jobs.run.spark import session_conf
from strandline.state_store.errors import SettingsError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.storage import StorageOptions, lake_path

_OPTIONS = StorageOptions(
    endpoint="http://127.0.0.1:9", region="eu-west-1", access_key_id="id", secret_access_key="secret", allow_http=True
)


def lake(url: str) -> LakeLayout:
    return LakeLayout(lake_path(url, _OPTIONS if url.startswith("s3:") else None))


def test_a_lake_on_a_disk_needs_no_jars(tmp_path: Path) -> None:
    assert spark.s3_jars(LakeLayout(tmp_path)) == []


def test_missing_jars_are_named_with_the_command_that_fetches_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark, "_S3_JARS", tmp_path)
    with pytest.raises(SettingsError, match=r"strandline setup --s3"):
        spark.s3_jars(lake("s3://lakes/one"))
    jar = tmp_path / "hadoop-aws-3.5.0.jar"
    jar.touch()
    assert spark.s3_jars(lake("s3://lakes/one")) == [jar]
    assert str(jar) in session_conf(SparkSettings(), jars=[jar])["spark.jars"].split(",")


def test_a_store_that_spark_does_not_reach_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    with pytest.raises(SettingsError, match="on a disk and on S3 only"):
        spark.s3_jars(lake("gs://lakes/one"))


def test_the_session_uses_the_settings_of_the_lake() -> None:
    said = spark.hadoop_options(_OPTIONS)
    assert said["fs.s3a.endpoint"] == "http://127.0.0.1:9"
    assert said["fs.s3a.endpoint.region"] == "eu-west-1"
    assert (said["fs.s3a.access.key"], said["fs.s3a.secret.key"]) == ("id", "secret")
    assert said["fs.s3a.path.style.access"] == "true"
    assert "fs.s3a.session.token" not in said


def test_what_the_settings_leave_open_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "other",
        "AWS_SECRET_ACCESS_KEY": "hidden",
        "AWS_SESSION_TOKEN": "token",
        "AWS_DEFAULT_REGION": "us-west-2",
        "AWS_ENDPOINT_URL": "http://minio:9000",
        "AWS_ALLOW_HTTP": "true",
    }.items():
        monkeypatch.setenv(name, value)
    found = StorageOptions(access_key_id="ours", secret_access_key="mine").with_environment()
    assert (found.access_key_id, found.secret_access_key, found.session_token) == ("ours", "mine", "token")
    assert (found.region, found.endpoint, found.allow_http) == ("us-west-2", "http://minio:9000", True)


def test_a_session_of_a_cluster_is_not_bound_to_the_loopback() -> None:
    assert session_conf(SparkSettings())["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in session_conf(SparkSettings(master="spark://10.0.0.1:7077"))
