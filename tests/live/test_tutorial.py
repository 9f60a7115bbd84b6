"""The tutorial: everything that it tells a reader to save or type, done in its order, with what it says is printed.

Blocks of the page: one with a title and SQL, YAML or JSON is a file; `sh` is typed in the first terminal, or, with a
title, in another one, where it goes on; `text` is what the commands before it print. Comments of the page say what a
reader does by hand: `<!-- Ctrl-C second terminal -->`, `<!-- launch JOB -->`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from infra.house.plan import ROOT
from infra.ports import free_port
from tests.live.running_dagster import Dagster
from tests.support.page_blocks import missing
from tests.support.waiting import PATIENCE_SECONDS, wait_until

PAGE: Final = (ROOT / "docs" / "tutorial.md").read_text()
_PARTS: Final = re.compile(
    r'(?ms)^```(?P<language>\w+)(?: title="(?P<title>[^"\n]+)")?\n(?P<text>.*?)^```$|^<!-- (?P<comment>.+?) -->$'
)
_UP: Final = re.compile(r"listening on|Dagster is up")
_PORTS: Final = ("8088", "8089", "3000")
"""Ports of the page, in whose places free ones stand."""
_INTERRUPTED: Final = (0, 130)


@dataclass
class Reader:
    """Somebody who does what the page says.

    Attributes:
        printed: what the last block printed; None before the first, since that one installs.
    """

    folder: Path
    environment: dict[str, str]
    ports: dict[str, str] = field(default_factory=lambda: {port: str(free_port()) for port in _PORTS})
    terminals: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    printed: str | None = None

    def types(self, text: str) -> None:
        """Type a block in the first terminal, and wait for its end."""
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", self._with_ports(text)],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        self.printed = done.stdout.decode()
        assert done.returncode == 0, f"{text}\n{self.printed}"

    def starts(self, terminal: str, text: str) -> None:
        """Start what goes on in another terminal, and wait until it is up."""
        command = self._with_ports(text.strip())
        if command == "strandline serve":
            command += f" --listen 127.0.0.1:{self.ports['8088']}"
        log = self.folder / f"{terminal}.log"
        with log.open("wb") as output:
            self.terminals[terminal] = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stdout=output, stderr=output
            )
        wait_until(lambda: _UP.search(log.read_text()) is not None, lambda: f"{command} is not up: {log.read_text()}")

    def interrupts(self, terminal: str) -> None:
        process = self.terminals.pop(terminal)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_SECONDS) in _INTERRUPTED

    def launches(self, job: str) -> None:
        dagster = Dagster(f"http://127.0.0.1:{self.ports['3000']}", self.terminals["third terminal"].pid)
        dagster.wait_for(dagster.launch(job), "SUCCESS")

    def does(self, comment: str) -> None:
        word, _, rest = comment.partition(" ")
        {"Ctrl-C": self.interrupts, "launch": self.launches}[word](rest)

    def _with_ports(self, text: str) -> str:
        for port, free in self.ports.items():
            text = text.replace(port, free)
        return text


@contextmanager
def reading(folder: Path) -> Iterator[Reader]:
    """A reader with `strandline` and `python` on the path, whose terminals are closed at the end."""
    folder.mkdir()
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("STRANDLINE_", "DAGSTER_"))}
    path = os.pathsep.join([str(Path(sys.executable).parent), ours["PATH"]])
    reader = Reader(folder, ours | {"PATH": path, "PYTHONPATH": str(ROOT), "STRANDLINE_SPARK__MASTER": "local[2]"})
    try:
        yield reader
    finally:
        for process in reader.terminals.values():
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_SECONDS)


@pytest.mark.live
@pytest.mark.kill
def test_the_tutorial_goes_as_it_says(tmp_path: Path) -> None:
    commands = 0
    with reading(tmp_path / "bikes") as reader:
        for part in _PARTS.finditer(PAGE):
            language, title, text = part["language"], part["title"], part["text"]
            if part["comment"]:
                reader.does(part["comment"])
            elif language == "sh" and title:
                reader.starts(title, text)
            elif language == "sh":
                reader.types(text)
                commands += 1
            elif title:
                (reader.folder / title).write_text(text)
            elif reader.printed is not None:
                assert missing(text, reader.printed) == [], reader.printed
    assert commands > 10
