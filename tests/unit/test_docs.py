"""The pages of docs/ and README.md: links lead somewhere, commands and options exist, settings are the code's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from pydantic import BaseModel
from typer.core import TyperGroup

from infra.house.plan import ROOT
from strandline.jobs.cli.main import app
from strandline.jobs.model.settings import Settings

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
# The pages on the design say what was true when they were written.
USERS_PAGES = tuple(page for page in PAGES if page.parent.name != "design")
COMMANDS = typer.main.get_command(app)
DEFAULTS = {
    "by the master": "None",
    "./lake": "lake",
    "none": "None",
    "cores": "None",
    "system": "None",
    "`AWS_ENDPOINT_URL`, or Amazon's": "None",
    "`AWS_REGION`": "None",
    "`AWS_…`": "None",
    "`strandline-arrangements-<user id>` in the folder for temporary files": "None",
    "[]": "()",
    "false": "False",
}
"""How the page says a default for which the code has another word."""


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link]
    assert [link for link in links if not _leads(page, link)] == []


def _leads(page: Path, link: str) -> bool:
    file, _, anchor = link.partition("#")
    target = page.parent / file if file else page
    return target.exists() and (not anchor or anchor in map(_anchor, re.findall(r"(?m)^#+ (.*)$", target.read_text())))


def _anchor(heading: str) -> str:
    """As GitHub makes one of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", USERS_PAGES, ids=name)
def test_commands_and_their_options_exist(page: Path) -> None:
    """Of `strandline`, of `make`, and modules to run."""
    text = page.read_text()
    assert [
        line for line in re.findall(r"\bstrandline ([a-z]+\b[^`\n#|;]*)", _code(text)) if not _is_command(line)
    ] == []
    targets = re.findall(r"(?m)^([a-z-]+):", (ROOT / "Makefile").read_text())
    assert [each for each in re.findall(r"(?m)^make ([a-z-]+)|`make ([a-z-]+)", text) if not {*each} & {*targets}] == []
    modules = [each.replace(".", "/") for each in re.findall(r"python -m ([\w.]+)", text)]
    places = {each: (ROOT / f"{each}.py", ROOT / each / "__main__.py") for each in modules}
    assert [each for each, files in places.items() if not any(file.exists() for file in files)] == []


def _code(text: str) -> str:
    """The lines of a page that are typed: of blocks, and between backticks."""
    blocks = re.findall(r"```(?:sh|text)\n(.*?)```", text, flags=re.DOTALL)
    rest = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`]+)`", rest)])


def _is_command(line: str) -> bool:
    word, *arguments = line.split()
    assert isinstance(COMMANDS, TyperGroup)
    command = COMMANDS.commands.get(word)
    if command is None:
        return False
    known = {option for each in command.params for option in (*each.opts, "--help")}
    return {each for each in arguments if re.match(r"--?[a-z]", each)} <= known


def test_the_page_of_settings_is_that_of_the_code() -> None:
    assert dict(_rows()) == dict(_fields(Settings, "STRANDLINE_"))


def _rows() -> list[tuple[str, str]]:
    """(variable, default) of the page's table, where a line may name several variables."""
    found = []
    for line in (ROOT / "docs" / "settings.md").read_text().splitlines():
        if line.startswith("| `STRANDLINE_"):
            names, default = (each.strip() for each in line.split("|")[1:3])
            first, *others = re.findall(r"`([^`]+)`", names)
            plain = re.sub(r"(\d),(?=\d)", r"\1", default.strip("`"))
            said = DEFAULTS.get(default, DEFAULTS.get(plain, plain))
            found += [(each, said) for each in (first, *(_whole(other, first) for other in others))]
    return found


def _whole(short: str, first: str) -> str:
    """`…PASSWORD` beside `STRANDLINE_REGISTRY__USERNAME`."""
    section, _, field = first.rpartition("__")
    prefix = "SASL_" if field.startswith("SASL_") else ""
    return f"{section}__{prefix}{short.removeprefix('…')}"


def _fields(settings: type[BaseModel], prefix: str) -> list[tuple[str, str]]:
    found = []
    for field, about in settings.model_fields.items():
        if isinstance(about.annotation, type) and issubclass(about.annotation, BaseModel):
            found += _fields(about.annotation, f"{prefix}{field.upper()}__")
        else:
            default = about.default
            whole = isinstance(default, float) and default == int(default)
            found.append((f"{prefix}{field.upper()}", str(int(default) if whole else default)))
    return found
