"""The files of infra/deploy, as far as they can be checked without containers: schemas, names that must agree, settings
and command lines that the code must take, and the image's libraries out of the lock file."""

from __future__ import annotations

import configparser
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import typer
import yaml
from packaging.requirements import Requirement
from typer.core import TyperGroup

from infra.deploy.runtime import BUILD, EXTRAS, entries, needed, normal
from infra.house.plan import ROOT
from strandline.jobs.cli.main import app
from strandline.jobs.model.settings import Settings, check_names, load_settings

FOLDER = ROOT / "infra" / "deploy"
LOCK, PROJECT = ((ROOT / name).read_text() for name in ("requirements.lock", "pyproject.toml"))
DOCKERFILE = (FOLDER / "Dockerfile").read_text()
COMPOSE: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text())
MANIFESTS: list[dict[str, Any]] = yaml.safe_load((FOLDER / "kubernetes" / "strandline.yaml").read_text())["items"]
CONFIGURATION: list[dict[str, Any]] = [*yaml.safe_load_all((FOLDER / "kubernetes" / "configuration.yaml").read_text())]
UNITS = sorted((FOLDER / "systemd").glob("*.service"))
COMMANDS = typer.main.get_command(app)
OURS = {"strandline", "dagster-webserver", "dagster-daemon"}


def taken(arguments: list[str], tmp_path: Path) -> None:
    """Check that `strandline ARGUMENTS` is a command with these options. Files of a container are stood in for."""
    assert isinstance(COMMANDS, TyperGroup)
    file = tmp_path / "shop.sql"
    file.write_text("")
    name, *rest = [str(file) if each.endswith(".sql") else each for each in arguments]
    context = COMMANDS.make_context("strandline", [name, *rest])
    command = COMMANDS.get_command(context, name)
    assert command is not None
    command.make_context(name, rest, context)


# The image.


def test_the_image_has_what_the_package_asks_for_and_no_tool_of_development() -> None:
    made = entries(needed(LOCK, PROJECT))
    asked = tomllib.loads(PROJECT)["project"]
    wanted = [*asked["dependencies"], *(each for extra in EXTRAS for each in asked["optional-dependencies"][extra])]
    assert {normal(each) for each in (*wanted, *BUILD)} <= made.keys()
    assert made.keys().isdisjoint({"pytest", "mypy", "ruff", "moto", "hypothesis", "mkdocs", "kubernetes-validate"})
    assert all("--hash=sha256:" in entry for entry in made.values())
    assert all(entries(LOCK)[name] == entry for name, entry in made.items())


def test_the_image_has_every_library_that_an_installed_one_needs() -> None:
    """By the metadata of what is installed here, which the lock file's comments must agree with."""
    made = entries(needed(LOCK, PROJECT)).keys()
    lacking = set()
    for name in made:
        try:
            asked = [Requirement(each) for each in requires(name) or ()]
        except PackageNotFoundError:
            continue  # for another system
        lacking |= {
            f"{name}: {each.name}"
            for each in asked
            if (each.marker is None or each.marker.evaluate({"extra": ""})) and normal(each.name) not in made
        }
    assert lacking == set()


def test_the_lock_must_have_what_the_package_asks_for() -> None:
    with pytest.raises(KeyError, match="make lock"):
        needed(LOCK, PROJECT.replace('"xxhash>=', '"no-such-library>='))


def test_the_image_is_pinned_without_rights_and_made_of_files_that_are_there() -> None:
    stages = re.findall(r"(?m)^FROM (\S+)", DOCKERFILE)
    assert len(stages) == 2
    assert all(re.fullmatch(r"[\w./-]+:[\w.-]*\d[\w.-]*", each) for each in stages), "a tag with a number"
    users = re.findall(r"(?m)^USER (\S+)", DOCKERFILE)
    assert users[-1] == "10001:10001"
    ignored = (FOLDER / "Dockerfile.dockerignore").read_text().splitlines()
    copied = [line.split()[1:-1] for line in re.findall(r"(?m)^(COPY (?!--from).*)$", DOCKERFILE)]
    for source in (each for line in copied for each in line):
        assert (ROOT / source).exists(), source
        assert f"!{source}" in ignored, f"{source} is not sent to the builder"
    assert not re.search(r"(?m)^ADD |latest|curl |\bsudo\b", DOCKERFILE)


# Compose.


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = COMPOSE["services"]
    return found


def test_prometheus_asks_the_server_as_it_answers() -> None:
    """The server of the compose file speaks TLS, by the certificate that Prometheus is given."""
    scrapes = yaml.safe_load((ROOT / "infra" / "observability" / "prometheus.yaml").read_text())["scrape_configs"]
    (server,) = (each for each in scrapes if each["job_name"] == "strandline-server")
    assert any(str(each).startswith("--certificate=") for each in services()["server"]["command"])
    assert server["scheme"] == "https"
    mounted = {each.split(":")[-2] for each in services()["prometheus"]["volumes"]}
    assert {server["tls_config"]["ca_file"], server["authorization"]["credentials_file"]} <= mounted


def test_every_name_of_the_compose_file_is_declared() -> None:
    for name, service in services().items():
        assert set(service.get("depends_on", ())) <= services().keys(), name
        assert set(service.get("secrets", ())) <= COMPOSE["secrets"].keys(), name
        named = [each.partition(":")[0] for each in service.get("volumes", ())]
        assert {each for each in named if each[0] not in "./$"} <= COMPOSE["volumes"].keys(), name
        tag = service["image"].rpartition(":")[2]
        assert tag not in ("latest", service["image"]), f"{name} has a tag"
        published = [each for each in service.get("ports", ()) if not each.startswith("127.0.0.1:")]
        assert published == [], "nothing is open to other machines unless somebody says so"
    for name, service in services().items():
        for other, how in service["depends_on"].items() if isinstance(service.get("depends_on"), dict) else ():
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services()[other], f"{name} waits for the health of {other}"


def test_commands_of_compose_are_taken(tmp_path: Path) -> None:
    ours = {name: each for name, each in services().items() if each["image"].startswith("strandline")}
    assert {"apply", "pipeline", "pipeline-standby", "server"} <= ours.keys()
    for each in ours.values():
        assert each["read_only"]
        assert each["cap_drop"] == ["ALL"]
        if "entrypoint" not in each:
            taken(each["command"], tmp_path)
    text = " ".join(ours["dagster"]["command"])
    assert "dagster-daemon run -m strandline.orchestration.definitions" in text


# Kubernetes.


@pytest.mark.parametrize(
    "manifest", [*MANIFESTS, *CONFIGURATION], ids=lambda each: f"{each['kind']}-{each['metadata']['name']}"
)
def test_a_manifest_is_what_kubernetes_takes(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, "1.34", strict=True)


def _pods() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(name, labels, specification) of every pod."""
    for each in MANIFESTS:
        if "template" in each.get("spec", ()):
            template = each["spec"]["template"]
            yield each["metadata"]["name"], template["metadata"]["labels"], template["spec"]


def _containers() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    for name, _, pod in _pods():
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            yield f"{name}/{container['name']}", container, pod


def test_pods_have_no_rights_and_probes_where_they_stay() -> None:
    for name, container, pod in _containers():
        assert pod["securityContext"]["runAsNonRoot"], name
        assert pod["automountServiceAccountToken"] is False, name
        assert container["securityContext"]["readOnlyRootFilesystem"], name
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}, name
        assert not container["image"].endswith(":latest"), name
    for name, _, pod in _pods():
        probed = [each for each in pod["containers"] if "livenessProbe" in each]
        assert probed or pod.get("restartPolicy") == "OnFailure", name
        for each in probed:
            ports = {port["name"] for port in each["ports"]}
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                assert each[probe]["httpGet"]["port"] in ports, name
            paths = {probe: each[probe]["httpGet"]["path"] for probe in ("livenessProbe", "readinessProbe")}
            if "dagster" not in name:
                assert paths == {"livenessProbe": "/health", "readinessProbe": "/ready"}


def test_volumes_selectors_and_secrets_agree() -> None:
    there = {(each["kind"], each["metadata"]["name"]) for each in CONFIGURATION}
    made_by_hand = {"strandline-tokens", "strandline-tls"}
    page = (ROOT / "docs" / "deployment.md").read_text()
    assert all(each in page for each in made_by_hand), "the page says how to make them"
    claims = {
        each["metadata"]["name"]: [one["metadata"]["name"] for one in each["spec"]["volumeClaimTemplates"]]
        for each in MANIFESTS
        if "volumeClaimTemplates" in each["spec"]
    }
    for name, container, pod in _containers():
        volumes = {each["name"] for each in pod["volumes"]} | set(claims.get(name.partition("/")[0], ()))
        assert {each["name"] for each in container["volumeMounts"]} <= volumes, name
        for each in container.get("envFrom", ()):
            [(kind, reference)] = each.items()
            assert ({"configMapRef": "ConfigMap", "secretRef": "Secret"}[kind], reference["name"]) in there
    for _, _, pod in _pods():
        for volume in pod["volumes"]:
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in there
            if "secret" in volume:
                assert volume["secret"]["secretName"] in made_by_hand
    labels = [found for _, found, _ in _pods()]
    for each in MANIFESTS:
        selector = each.get("spec", {}).get("selector")
        if selector is not None:
            wanted = selector.get("matchLabels", selector)
            assert any(wanted.items() <= found.items() for found in labels), each["metadata"]["name"]


def test_commands_of_pods_are_taken(tmp_path: Path) -> None:
    for _, container, _ in _containers():
        if "command" not in container:
            taken(container["args"], tmp_path)
        else:
            assert container["command"][0] in {*OURS, "cp"}


# Settings, wherever they are written.


def _environments() -> Iterator[tuple[str, Mapping[str, str]]]:
    for name, service in services().items():
        yield name, {key: str(each) for key, each in service.get("environment", {}).items()}
    yield "kubernetes", {**CONFIGURATION[0]["data"], **CONFIGURATION[1]["stringData"]}


@pytest.mark.parametrize(("name", "environment"), [*_environments()])
def test_settings_are_those_of_the_code(
    name: str, environment: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {key: each for key, each in environment.items() if key.startswith("STRANDLINE_")}
    check_names(ours, Settings)
    for key, each in ours.items():
        monkeypatch.setenv(key, re.sub(r"\$\{\w+:[-?]([^}]*)\}", r"\1", each))
    settings = load_settings()
    if "STRANDLINE_METRICS__PORT" in ours:
        assert settings.metrics.port == 9108
        assert settings.storage.lease_seconds < 10, "a standby goes on within ten seconds"


# systemd.


@pytest.mark.parametrize("unit", UNITS, ids=lambda each: each.name)
def test_a_unit_starts_a_command_that_is_there(unit: Path, tmp_path: Path) -> None:
    class Repeated(dict[str, Any]):
        """Keys may be repeated, as systemd has it: the last one counts here."""

    parser = configparser.ConfigParser(strict=False, interpolation=None, dict_type=Repeated)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    service = parser["Service"]
    assert service["User"] == "strandline"
    assert service["NoNewPrivileges"] == "true"
    assert service["Restart"] == "always"
    command, *arguments = shlex.split(service["ExecStart"].replace("%i", "shop"))
    if command.endswith("/strandline"):
        taken(arguments, tmp_path)
    else:
        assert arguments[:2] == ["-m", "strandline.orchestration.up"]
        assert (ROOT / "orchestration" / "up.py").exists()
