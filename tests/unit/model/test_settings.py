"""Settings come from the environment first, then from the file, and refuse what they do not know."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from strandline.jobs.model.settings import Settings, check_names, load_settings, local_cores
from strandline.state_store.errors import SettingsError
from strandline.state_store.layout import LakeLayout
from strandline.state_store.paths import Location


def test_environment_wins_over_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "strandline.toml"
    file.write_text('lake = "/from/file"\n[kafka]\nbootstrap_servers = "a:1"\n[ingest]\nmax_rows_per_epoch = 7\n')
    monkeypatch.setenv("STRANDLINE_CONFIG", str(file))
    monkeypatch.setenv("STRANDLINE_KAFKA__BOOTSTRAP_SERVERS", "b:2")
    settings = load_settings()
    assert settings.lake == Path("/from/file")
    assert settings.kafka.bootstrap_servers == "b:2"
    assert settings.ingest.max_rows_per_epoch == 7


@pytest.mark.parametrize(
    ("master", "cores"),
    [("local", 1), ("local[3]", 3), ("local[2, 4]", 2), ("local-cluster[2,1,1024]", None), ("spark://host:7077", None)],
)
def test_the_cores_of_a_master_on_this_machine(monkeypatch: pytest.MonkeyPatch, master: str, cores: int | None) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert local_cores(master) == cores
    assert local_cores("local[*,4]") == local_cores("local[*]") == 7


def test_the_lake_may_be_a_file_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE", "file:///data/a%20lake")
    assert load_settings().lake == Path("/data/a lake")


def test_the_lake_may_be_on_an_object_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_LAKE", "s3://bucket/a/lake")
    monkeypatch.setenv("STRANDLINE_STORAGE__REGION", "eu-west-1")
    monkeypatch.setenv("STRANDLINE_STORAGE__SECRET_ACCESS_KEY", "a secret")
    monkeypatch.setenv("STRANDLINE_STORAGE__ACCESS_KEY_ID", "a key")
    settings = load_settings()
    assert isinstance(settings.lake, Location)
    assert str(settings.lake) == "s3://bucket/a/lake"
    assert str(LakeLayout(settings.lake).table("t")) == "s3://bucket/a/lake/tables/t"
    assert "a secret" not in repr(settings)
    # As plans go to the workers of a session.
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_the_lake_is_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path relative to the working directory would change its meaning in a child process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("STRANDLINE_LAKE", raising=False)
    assert load_settings().lake == tmp_path / "lake"


@pytest.mark.parametrize(
    ("variable", "value", "named"),
    [
        ("STRANDLINE_INGEST__MAX_ROWS_PER_EPOCH", "0", "ingest.max_rows_per_epoch"),
        ("STRANDLINE_INGEST__MAX_BYTES_PER_EPOCH", "0", "ingest.max_bytes_per_epoch"),
        ("STRANDLINE_INGEST__MAX_SECONDS_AHEAD", "-1", "ingest.max_seconds_ahead"),
        ("STRANDLINE_KAFKA__SECURITY_PROTOCOL", "TELNET", "kafka.security_protocol"),
        ("STRANDLINE_ALERTS__WEBHOOK_URL", "file:///etc/passwd", "alerts.webhook_url"),
        ("STRANDLINE_SERVER__URL", "javascript:alert(1)", "server.url"),
        ("STRANDLINE_LAKE", "s3://", "'s3://' must be followed by a bucket's name"),
        ("STRANDLINE_LAKE", "hdfs://host/lake", "'hdfs:' is no kind of storage"),
    ],
)
def test_a_wrong_value_is_named(variable: str, value: str, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, value)
    with pytest.raises(SettingsError, match=named.replace(".", r"\.")):
        load_settings()


def test_passwords_are_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_KAFKA__SASL_PASSWORD", "canary")
    assert "canary" not in repr(load_settings())


def test_a_webhook_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many webhooks carry their token in the address."""
    monkeypatch.setenv("STRANDLINE_ALERTS__WEBHOOK_URL", "https://chat.example.org/canary")
    assert "canary" not in repr(load_settings())


def test_the_way_to_an_object_store_reaches_it_and_is_not_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.setenv(f"STRANDLINE_STORAGE__{name}", f"canary-{name}")
    monkeypatch.setenv("STRANDLINE_STORAGE__ENDPOINT", "https://minio:9000")
    storage = load_settings().storage
    options = storage.options()
    assert options.secret_access_key == "canary-SECRET_ACCESS_KEY"
    assert options.session_token == "canary-SESSION_TOKEN"
    assert options.endpoint == "https://minio:9000"
    assert "canary" not in repr(storage) + repr(options)


def test_settings_are_frozen(tmp_path: Path) -> None:
    settings = load_settings(lake=tmp_path)
    with pytest.raises(ValidationError):
        settings.lake = tmp_path / "other"


@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("STRANDLINE_KAFKA__BOOTSTRAP_SERVER", "did you mean STRANDLINE_KAFKA__BOOTSTRAP_SERVERS"),
        ("STRANDLINE_KAFKA_BOOTSTRAP_SERVERS", "did you mean STRANDLINE_KAFKA__BOOTSTRAP_SERVERS"),
        ("STRANDLINE_LAKEE", "did you mean STRANDLINE_LAKE?"),
        ("STRANDLINE_COLOUR", "see docs/settings.md"),
    ],
)
def test_an_unknown_variable_is_an_error(variable: str, hint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "x")
    with pytest.raises(SettingsError, match=f"unknown environment variable '{variable}'") as refused:
        load_settings()
    assert str(refused.value.hint).startswith(hint)


def test_a_section_may_be_one_variable_of_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_INGEST", '{"trigger_seconds": 3}')
    assert load_settings().ingest.trigger_seconds == 3
    monkeypatch.setenv("STRANDLINE_INGEST", "3,")
    with pytest.raises(SettingsError, match="ingest"):
        load_settings()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lake = \n", "is not TOML: Invalid value \\(at line 1, column 8\\)"),
        ("[kafka]\nbootstrap = 'a:1'\n", "unknown setting 'kafka.bootstrap'"),
        ("lakes = 'x'\n", "unknown setting 'lakes'"),
        ("kafka = 'a:1'\n", "setting 'kafka'"),
        ("lake = 5\n", "setting 'lake': 5 is no path: write it in quotes"),
    ],
)
def test_a_wrong_file_is_an_error(text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "strandline.toml").write_text(text)
    with pytest.raises(SettingsError, match=message):
        load_settings()


def test_a_file_that_is_named_must_be_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_CONFIG", str(tmp_path / "no.toml"))
    with pytest.raises(SettingsError, match=r"there is no file '.*no\.toml'"):
        load_settings()
    monkeypatch.setenv("STRANDLINE_CONFIG", str(tmp_path))
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings()


def test_every_variable_that_the_tree_names_is_known() -> None:
    """Whoever adds one that is no setting, for a test or a benchmark, names it in `jobs.model.settings` too."""
    root = Path(__file__).parents[3]
    folders = ("jobs", "state_store", "orchestration", "strandline", "infra", "benchmarks", "tests/support")
    files = [file for folder in folders for file in (root / folder).rglob("*.py")]
    text = "\n".join(file.read_text() for file in [*files, root / "Makefile", root / "infra" / "setup.sh"])
    named = set(re.findall(r"\bSTRANDLINE_[A-Z0-9_]*[A-Z0-9]\b", text))
    assert "STRANDLINE_NIGHTLY" in named
    check_names(dict.fromkeys(named, ""), Settings)
