"""Settings: read once from the environment (`STRANDLINE_…`) or `strandline.toml`, frozen, passed down.

The environment wins over the file. Nested settings use a double underscore: `STRANDLINE_KAFKA__BOOTSTRAP_SERVERS`.
The file is looked for in the working directory, or where `STRANDLINE_CONFIG` points.
"""

from __future__ import annotations

import os
import re
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    InstanceOf,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)
from pydantic_settings import (
    SettingsError as PydanticSettingsError,
)

from strandline.state_store.errors import SettingsError
from strandline.state_store.lock import LEASE_SECONDS
from strandline.state_store.paths import Location
from strandline.state_store.storage import StorageOptions, lake_path
from strandline.state_store.tablespec import RECOVERY_HORIZON_DAYS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


EngineChoice = Literal["auto", "spark", "duckdb"]
"""What computes epochs: `auto`: DuckDB what one machine can hold, and Spark's plans the rest; or one of the
two everything."""


SPREAD_ON_A_CLUSTER = 20_000_000
"""Rows that one process reads, joins and writes in the seconds that it takes to share them."""
SPREAD_ON_ONE_MACHINE = 100_000_000
"""One process has all cores of a machine. Beyond, its memory counts: tasks take the rows by twenty millions."""

ReplicaChoice = Literal["rocksdb", "memory", "lmdb", "dynamodb"]
"""What holds the replicas of a server."""


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


def _http(value: str | None) -> str | None:
    if value is not None and not value.startswith(("https://", "http://")):
        raise ValueError("the address begins with https:// or http://")
    return value


class KafkaSettings(_Section):
    """Connection to the brokers. Without `bootstrap_servers` the local log is used."""

    bootstrap_servers: str | None = None
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    ssl_ca_location: str | None = None


class RegistrySettings(_Section):
    """The schema registry of AVRO, JSON_SR and PROTOBUF. Without `url`, schemas are kept in the lake."""

    url: str | None = None
    username: str | None = None
    password: SecretStr | None = None


class StorageSettings(_Section):
    """Connection to an object store, when the lake is a URL. The store's usual environment variables, such as
    `AWS_REGION`, fill in what is not set."""

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    allow_http: bool = False
    virtual_hosted_style: bool = False
    patience_seconds: float = Field(default=StorageOptions.patience_seconds, gt=0)
    # Below five seconds one slow request loses it.
    lease_seconds: float = Field(default=LEASE_SECONDS, ge=5, description="of a writer's lock on an object store")

    def options(self) -> StorageOptions:
        """Convert the settings to the store's options."""
        secrets = {
            name: secret.get_secret_value()
            for name in ("secret_access_key", "session_token")
            if (secret := getattr(self, name)) is not None
        }
        of_options = {name: value for name, value in dict(self).items() if name != "lease_seconds"}
        return StorageOptions(**{**of_options, **secrets})


_LOCAL: Final = re.compile(r"local(?:\[(\*|\d+)(?:\s*,\s*\d+)?\])?")


def local_cores(master: str) -> int | None:
    """The cores of a Spark master on this machine; None: it is a cluster."""
    found = _LOCAL.fullmatch(master)
    if found is None:
        return None
    return (os.cpu_count() or 1) if found[1] == "*" else int(found[1] or 1)


class SparkSettings(_Section):
    """The one Spark session of a running pipeline."""

    # All cores, and a task that dies is run again up to four times in all, as on a cluster.
    master: str = "local[*,4]"
    driver_memory: str = "2g"
    shuffle_partitions: int | None = Field(default=None, ge=1, description="default: the machine's cores")


class IngestSettings(_Section):
    """The size and pace of micro-batches."""

    # 1 M small events are decoded and committed in a few seconds on two cores: long enough to make the fixed cost
    # of an epoch (1–3 s) small, short enough that a kill loses little work.
    max_rows_per_epoch: int = Field(default=1_000_000, ge=1)
    # A micro-batch is decoded, kept and committed as one, in a JVM of 2 GB by default, next to the views' own work.
    # With events of up to 250 bytes it is the number of rows that cuts, with larger ones it is this.
    max_bytes_per_epoch: int = Field(default=256 << 20, ge=1)
    # Up to here one core decodes and writes a micro-batch in less time than Spark needs to begin its jobs.
    driver_rows: int = Field(default=20_000, ge=0, description="0: Spark takes in every micro-batch")
    # A micro-batch begins when a record comes, but no sooner than this after the one before began. More makes fewer,
    # larger epochs; the default holds nothing up, since a micro-batch takes longer.
    trigger_seconds: float = Field(default=0.2, gt=0)
    # A look at a folder takes 0.1 ms, at an object store a request; a commit of another engine takes a second or more.
    delta_seconds: float = Field(
        default=1.0,
        gt=0,
        description="between two looks for new versions of tables, and new files of folders, that others write",
    )
    # A clock that is wrong by minutes and a time zone that is wrong by up to 14 hours pass; a typing error in the date
    # and the 9999-12-31 that stands for "never" do not.
    max_seconds_ahead: float = Field(default=86_400.0, ge=0, description="0: any event time is taken")


class RetentionSettings(_Section):
    """How long the history of tables is kept, and the events of logs. Rows of views are kept without end."""

    # Longer than any holiday's outage. Every version is a file of the log: with an epoch a second, keep some hours.
    horizon_days: float = Field(default=RECOVERY_HORIZON_DAYS, gt=0)
    # A view that is made later is computed from what is left, so nothing goes unless somebody says so.
    events_days: float | None = Field(default=None, gt=0, description="default: without end")


class FunctionSettings(_Section):
    """The modules that CREATE FUNCTION may load. Their code may do all that Strandline may, so only the operator names
    them."""

    modules: tuple[str, ...] = Field(default=(), description="names of Python modules, exactly")


class AlertSettings(_Section):
    """Target and format of Dagster's alert sensor, beside the log."""

    webhook_url: SecretStr | None = None
    webhook_form: Literal["json", "slack", "pagerduty", "alertmanager"] = "json"
    routing_key: SecretStr | None = Field(default=None, description="of PagerDuty's integration")

    @field_validator("webhook_url")
    @classmethod
    def _over_http(cls, value: SecretStr | None) -> SecretStr | None:
        if value is not None and not value.get_secret_value().startswith(("https://", "http://")):
            raise ValueError("a webhook begins with https:// or http://")
        return value

    @model_validator(mode="after")
    def _with_a_key(self) -> Self:
        if self.webhook_form == "pagerduty" and self.routing_key is None:
            raise ValueError("the form pagerduty needs a routing_key")
        return self


class MetricsSettings(_Section):
    """The port of `strandline run` for Prometheus and for probes. It asks for no password."""

    host: str = "127.0.0.1"
    port: int | None = Field(default=None, ge=0, le=65535, description="0: any that is free; default: none")


class TracingSettings(_Section):
    """The collector of OpenTelemetry that runs send their spans to."""

    endpoint: str | None = Field(default=None, description="of OTLP over HTTP, without /v1/traces")

    @field_validator("endpoint")
    @classmethod
    def _over_http(cls, value: str | None) -> str | None:
        return _http(value)


class OpenLineageSettings(_Section):
    """The catalog that runs tell by OpenLineage what they read and write."""

    url: str | None = None
    api_key: SecretStr | None = None
    namespace: str = Field(default="strandline", min_length=1, description="of the jobs")
    # A catalog keeps every event: an epoch a second of ten tables is a million a day.
    seconds: float = Field(default=60.0, ge=0, description="between two events of a table; 0: each epoch")

    @field_validator("url")
    @classmethod
    def _over_http(cls, value: str | None) -> str | None:
        return _http(value)


class BackupSettings(_Section):
    """Target of `strandline backup` when none is given, and Dagster's schedule of backups."""

    destination: str | None = Field(default=None, description="a path or URL")


class ServerSettings(_Section):
    """The HTTP server: its address, to which Dagster's asset pages link, and the backend of its replicas."""

    url: str | None = None
    replica: ReplicaChoice = "rocksdb"
    dynamodb_table: str = Field(default="strandline-replicas", min_length=3, max_length=255, pattern=r"^[\w.-]+$")
    dynamodb_endpoint: str | None = None

    @field_validator("url", "dynamodb_endpoint")
    @classmethod
    def _over_http(cls, value: str | None) -> str | None:
        return _http(value)


class Settings(BaseSettings):
    """All settings. Immutable; build one with `load_settings()`."""

    model_config = SettingsConfigDict(env_prefix="STRANDLINE_", env_nested_delimiter="__", frozen=True, extra="forbid")

    # Before the lake, which is opened with it.
    storage: StorageSettings = StorageSettings()
    lake: Annotated[Path | InstanceOf[Location], NoDecode] = Path("lake")
    engine: EngineChoice = "auto"
    kernel: Literal["tasks", "driver"] = "tasks"
    # What does not fit goes to a temporary folder: less memory is slower, not less.
    kernel_memory_mb: int = Field(default=2048, ge=128)
    kernel_threads: int | None = Field(default=None, ge=1, description="default: the machine's cores")
    spread_rows: int | None = Field(
        default=None,
        ge=1,
        description="from which on Spark's tasks share the first refresh of a table;"
        f" default: {SPREAD_ON_A_CLUSTER:,} on a cluster, {SPREAD_ON_ONE_MACHINE:,} on one machine",
    )
    arrangements_mb: int = Field(default=8192, ge=0, description="0: files are scanned")
    arrangements_folder: Path | None = Field(
        default=None, description="default: one of this user's for temporary files"
    )
    kafka: KafkaSettings = KafkaSettings()
    registry: RegistrySettings = RegistrySettings()
    spark: SparkSettings = SparkSettings()
    ingest: IngestSettings = IngestSettings()
    retention: RetentionSettings = RetentionSettings()
    functions: FunctionSettings = FunctionSettings()
    alerts: AlertSettings = AlertSettings()
    metrics: MetricsSettings = MetricsSettings()
    tracing: TracingSettings = TracingSettings()
    openlineage: OpenLineageSettings = OpenLineageSettings()
    backup: BackupSettings = BackupSettings()
    server: ServerSettings = ServerSettings()

    @field_validator("lake", mode="before")
    @classmethod
    def _opened(cls, value: object, info: ValidationInfo) -> object:
        """The root by its path, absolute, or by its URL."""
        if not isinstance(value, str | Path):
            return value
        if not str(value).strip():
            raise ValueError("it is empty: name a folder or a URL")
        if "\0" in str(value):
            raise ValueError("it has a NUL in it, which no path has")
        path = lake_path(value, info.data.get("storage", StorageSettings()).options())
        if isinstance(path, Path) and path.exists() and not path.is_dir():
            raise ValueError(f"'{path}' is a file: a lake is a folder")
        return path

    @property
    def kernel_size(self) -> tuple[str, int]:
        """Memory, as DuckDB writes it, and threads of a DuckDB engine that has its process for itself."""
        return f"{self.kernel_memory_mb}MB", self.kernel_threads or os.cpu_count() or 2

    @property
    def arrangements_space(self) -> tuple[Path | None, int]:
        """The folder for arrangements, None: the machine's own; and the bytes that they may take."""
        return self.arrangements_folder, self.arrangements_mb << 20

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls, toml_file=config_file(os.environ)))


def load_settings(**overrides: object) -> Settings:
    """Load the settings of this process.

    Raises:
        SettingsError: a name is unknown, a value is out of range, or the file cannot be read; the message names it.
    """
    check_names(os.environ, Settings)
    check_file(os.environ)
    try:
        return Settings(**overrides)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"] if "[" not in str(part))  # "lake", then its union of types
        hint = "see docs/settings.md for the names and their defaults"
        if first["type"] == "extra_forbidden":
            raise unknown(f"setting '{name}'", name, names_of(Settings)) from error
        what = first["msg"].removeprefix("Value error, ")
        if first["type"] == "path_type":
            what = f"{first['input']!r} is no path: write it in quotes"
        raise SettingsError(f"setting '{name}': {what}", hint=hint) from error
    except PydanticSettingsError as error:
        # A section or a list that is not JSON: the library's message names the field, its cause what is wrong.
        raise SettingsError(f"{error}: {error.__cause__}", hint="write it as JSON, as in docs/settings.md") from error


# The names of settings: those of the environment and of the file, checked, so that a typing error is not a default.
#
# Pydantic reads the variables that it knows and passes over all others. Here every `STRANDLINE_…` variable is either
# the name of a setting or of something else that this package, its tests or its benchmarks read.

PREFIX = "STRANDLINE_"
_CONFIG = "STRANDLINE_CONFIG"
_DEFAULT_FILE = "strandline.toml"
# Variables that are no settings: where the file is, what one of our processes tells its child, and what only the tests
# and `make` read, whose children are commands of ours.
_OTHERS = (
    _CONFIG,
    "STRANDLINE_LIFELINE_FD",
    "STRANDLINE_FAILPOINT",
    "STRANDLINE_PYTHON",
    "STRANDLINE_EXAMPLES",
    "STRANDLINE_DELTA_EXAMPLES",
    "STRANDLINE_SPARK_EXAMPLES",
    "STRANDLINE_CHANGE_EXAMPLES",
    "STRANDLINE_FOREIGN_EXAMPLES",
    "STRANDLINE_PATHS_EXAMPLES",
    "STRANDLINE_PATHS_SPARK_EXAMPLES",
    "STRANDLINE_TOGETHER_EXAMPLES",
    "STRANDLINE_UNTOUCHED_EXAMPLES",
    "STRANDLINE_OUTSIDE",
    "STRANDLINE_CONFORMANCE",
    "STRANDLINE_NIGHTLY",
    "STRANDLINE_KILLS",
    "STRANDLINE_SEED",
    "STRANDLINE_TURN",
    "STRANDLINE_WHOLE",
)


def names_of(section: type[BaseModel], above: str = "") -> tuple[str, ...]:
    """The dotted names of all settings of a section and those below it."""
    names: list[str] = []
    for name, each in section.model_fields.items():
        if isinstance(each.annotation, type) and issubclass(each.annotation, BaseModel):
            names += names_of(each.annotation, f"{above}{name}.")
        else:
            names.append(f"{above}{name}")
    return tuple(names)


def variable_of(name: str) -> str:
    """The environment variable of a setting's dotted name."""
    return PREFIX + name.replace(".", "__").upper()


def check_names(environment: Mapping[str, str], section: type[BaseModel]) -> None:
    """Check the names of all variables that begin with `STRANDLINE_`.

    Raises:
        SettingsError: one is neither a setting nor anything else that is read; the nearest names are proposed.
    """
    dotted = names_of(section)
    sections = {name.rpartition(".")[0] for name in dotted if "." in name}
    known = {variable_of(name) for name in (*dotted, *sections)}
    for variable in sorted(environment):
        # Windows apart, the names of variables are told apart by case; pydantic takes either, so do we.
        if variable.upper().startswith(PREFIX) and variable.upper() not in {*known, *_OTHERS}:
            raise unknown(f"environment variable '{variable}'", variable.upper(), known, PREFIX)


def config_file(environment: Mapping[str, str]) -> Path:
    """The file of settings: the one that `STRANDLINE_CONFIG` names, or `strandline.toml` in the working directory."""
    return Path(environment.get(_CONFIG) or _DEFAULT_FILE)


def check_file(environment: Mapping[str, str]) -> None:
    """Check that the file of settings can be read.

    Raises:
        SettingsError: `STRANDLINE_CONFIG` names a file that is not there, or the file is not TOML.
    """
    path = config_file(environment)
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if environment.get(_CONFIG):
            raise SettingsError(
                f"there is no file '{path}'", where=_CONFIG, hint=f"correct {_CONFIG}, or unset it"
            ) from None
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is no UTF-8 text, {error.reason}"
        hint = "check its owner and mode, or that it is a file of TOML"
        raise SettingsError(f"the file of settings cannot be read: {why}", where=str(path), hint=hint) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(
            f"the file of settings is not TOML: {error}",
            where=str(path),
            hint='settings are written as name = "value", sections as [kafka]; see docs/settings.md',
        ) from error


def unknown(what: str, name: str, known: Iterable[str], prefix: str = "") -> SettingsError:
    """Build the error of an unknown setting, with the nearest name as its hint.

    Args:
        prefix: of all names; it does not make them alike.
    """
    bare = sorted(each.removeprefix(prefix) for each in known)
    close = get_close_matches(name.removeprefix(prefix), bare, n=1, cutoff=0.7)
    hint = f"did you mean {prefix}{close[0]}?" if close else "see docs/settings.md for the names and their defaults"
    return SettingsError(f"unknown {what}", hint=hint)
