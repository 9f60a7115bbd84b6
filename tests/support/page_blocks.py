"""Blocks of a page under docs/, and what commands print, made comparable: the page's figures are of another run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from typer.testing import CliRunner

from infra.house.plan import ROOT
from strandline.jobs.cli.main import app


@dataclass(frozen=True)
class Typed:
    """A command of a page, without `strandline`, and the lines that the page says it prints."""

    arguments: tuple[str, ...]
    printed: tuple[str, ...]


def block(page: str, part: str, language: str = "text") -> str:
    """The first fenced block of a page that has this part."""
    text = (ROOT / "docs" / page).read_text()
    blocks: list[str] = re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)
    return next(each for each in blocks if part in each)


def typed(text: str) -> list[Typed]:
    """The commands of a block, each after a `$`, with what they print."""
    found = []
    for each in re.split(r"(?m)^\$ strandline ", text)[1:]:
        command, *printed = each.splitlines()
        found.append(Typed(tuple(shlex.split(command, comments=True)), tuple(printed)))
    return found


def answer(*arguments: str, code: int = 0) -> str:
    """What the command prints, on either stream."""
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.output


def shape(line: str) -> str:
    """A line without its figures, and without the widths that come from them."""
    line = re.sub(r"\d[\d:.,T+-]*\d|\d", "#", line)
    return re.sub(r" +", " ", re.sub(r"-{2,}", "--", line)).strip()


def missing(page: str | tuple[str, ...], printed: str) -> list[str]:
    """The page's lines that were not printed in their order, by their shapes."""
    lines = page.splitlines() if isinstance(page, str) else page
    rest = iter([shape(line) for line in printed.splitlines()])
    return [line for line in lines if line and shape(line) not in rest]
